//! Index arrays, as commands read them: numbers of any integer type become offsets of elements.
//!
//! An index counts from the back if negative. One that is out of range is moved to the nearest slice that
//! is inside: a command never reads or writes beyond an array.

use hesper_runtime::{Encoder, NativeError, View};
use smallvec::SmallVec;

use super::walk::{GRAIN, Spread, Strided, collapse, each_row, par_chunks};
use crate::Dtype;
use crate::eval::Lowering;

/// Integers of any type, read as indices.
#[derive(Clone, Copy)]
pub(super) enum Indices<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

/// What an index array points along: an axis of some length, slices of some size there, and how far its
/// elements are apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Along {
    pub(super) length: usize,
    pub(super) size: usize,
    pub(super) stride: isize,
}

impl Along {
    /// The offset of a slice, counted from the first element of the axis.
    #[inline(always)]
    fn offset(&self, index: i64) -> isize {
        let length = self.length as i64;
        let from_front = if index < 0 { index + length } else { index };
        from_front.clamp(0, length - self.size as i64) as isize * self.stride
    }
}

/// Does the same with the elements of each type, `x` as a number.
macro_rules! each_type {
    ($indices:expr, $all:ident, $x:ident => $number:ident, $body:expr) => {
        match $indices {
            Indices::U8($all) => {
                let $number = |$x: u8| i64::from($x);
                $body
            }
            Indices::U16($all) => {
                let $number = |$x: u16| i64::from($x);
                $body
            }
            Indices::U32($all) => {
                let $number = |$x: u32| i64::from($x);
                $body
            }
            Indices::U64($all) => {
                let $number = |$x: u64| i64::try_from($x).unwrap_or(i64::MAX);
                $body
            }
            Indices::I8($all) => {
                let $number = |$x: i8| i64::from($x);
                $body
            }
            Indices::I16($all) => {
                let $number = |$x: i16| i64::from($x);
                $body
            }
            Indices::I32($all) => {
                let $number = |$x: i32| i64::from($x);
                $body
            }
            Indices::I64($all) => {
                let $number = |$x: i64| $x;
                $body
            }
        }
    };
}

impl<'a> Indices<'a> {
    /// The elements of a view.
    pub(super) fn of(view: &'a View<'_>, dtype: Dtype) -> std::result::Result<Self, NativeError> {
        Ok(match dtype {
            Dtype::Uint8 => Indices::U8(view.as_slice()?),
            Dtype::Uint16 => Indices::U16(view.as_slice()?),
            Dtype::Uint32 => Indices::U32(view.as_slice()?),
            Dtype::Uint64 => Indices::U64(view.as_slice()?),
            Dtype::Int8 => Indices::I8(view.as_slice()?),
            Dtype::Int16 => Indices::I16(view.as_slice()?),
            Dtype::Int32 => Indices::I32(view.as_slice()?),
            Dtype::Int64 => Indices::I64(view.as_slice()?),
            dtype => return Err(format!("{dtype} is no type of indices").into()),
        })
    }

    /// The number at a place.
    #[inline(always)]
    pub(super) fn number(&self, at: isize) -> i64 {
        each_type!(self, all, x => number, number(all[at as usize]))
    }

    /// An index, counted from the front, such that `size` elements from there are inside of `length`.
    #[inline(always)]
    pub(super) fn get(&self, at: isize, length: usize, size: usize) -> isize {
        Along { length, size, stride: 1 }.offset(self.number(at))
    }

    /// Adds to each number what the index at its place stands for; places begin at `start` and go by `step`.
    pub(super) fn add_to(&self, to: &mut [isize], start: isize, step: isize, along: Along) {
        each_type!(self, all, x => number, {
            if step == 1 {
                let row = &all[start as usize..start as usize + to.len()];
                for (offset, index) in to.iter_mut().zip(row) {
                    *offset += along.offset(number(*index));
                }
            } else {
                let mut at = start;
                for offset in to {
                    *offset += along.offset(number(all[at as usize]));
                    at += step;
                }
            }
        })
    }
}

/// Index arrays of one shape, which point at slices together.
#[derive(Debug)]
pub(super) struct Lists(SmallVec<[(Strided, Dtype); 2]>);

/// Where their elements lie, for a command that has bound them.
#[derive(Debug)]
pub(super) struct SpreadLists(SmallVec<[(Spread, Dtype); 2]>);

impl Lists {
    /// The inputs of an op from one on.
    pub(super) fn inputs(l: &Lowering<'_>, first: usize) -> Self {
        Lists((first..l.input_count()).map(|at| (Strided::input(l, at), l.input_dtype(at))).collect())
    }

    /// A command that reads them, too.
    pub(super) fn read<'e>(&'e self, mut encoder: Encoder<'e>) -> Encoder<'e> {
        for (list, _) in &self.0 {
            encoder = encoder.read_range(&list.data.buffer, list.bytes.clone());
        }
        encoder
    }

    /// What a command that reads them takes along.
    pub(super) fn spread(&self) -> SpreadLists {
        SpreadLists(self.0.iter().map(|(list, dtype)| (list.spread(), *dtype)).collect())
    }
}

impl SpreadLists {
    /// How many slices they point at.
    pub(super) fn points(&self) -> usize {
        self.0.first().map_or(1, |(list, _)| list.shape.iter().product())
    }

    /// Their elements, in the views of a command.
    pub(super) fn open<'a>(
        &'a self,
        views: &'a [View<'_>],
        along: SmallVec<[Along; 4]>,
    ) -> std::result::Result<Open<'a>, NativeError> {
        let indices = views.iter().zip(&self.0).map(|(view, (_, dtype))| Indices::of(view, *dtype));
        Ok(Open { lists: self, indices: indices.collect::<std::result::Result<_, _>>()?, along })
    }
}

/// Index arrays that can be read.
pub(super) struct Open<'a> {
    lists: &'a SpreadLists,
    indices: SmallVec<[Indices<'a>; 4]>,
    along: SmallVec<[Along; 4]>,
}

impl Open<'_> {
    /// Where the slices begin that points from `first` on stand for.
    pub(super) fn offsets(&self, first: usize, to: &mut [isize]) {
        to.fill(0);
        for (((list, _), indices), along) in self.lists.0.iter().zip(&self.indices).zip(&self.along) {
            let (shape, [strides]) = collapse(&list.shape, [&list.strides]);
            each_row(&shape, [&strides], first, to.len(), |range, [start], [step]| {
                indices.add_to(&mut to[range], list.offset + start, step, *along);
            });
        }
    }

    /// Where all slices begin.
    pub(super) fn all_offsets(&self) -> Vec<isize> {
        let mut all = vec![0; self.lists.points()];
        par_chunks(&mut all, GRAIN, |first, part| self.offsets(first, part));
        all
    }
}
