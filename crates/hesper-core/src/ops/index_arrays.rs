//! Elements of index arrays: integers of any type become offsets.
//!
//! A negative index counts from the end. An index out of range is clamped, so a command never accesses memory
//! outside of an array.

use hesper_runtime::{NativeError, View};

use crate::Dtype;

/// An index array of any integer type.
#[derive(Clone, Copy)]
pub enum Indices<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

/// The axis that an index array indexes: its length, the size of slices along it, and its stride.
#[derive(Debug, Clone, Copy)]
pub struct IndexedAxis {
    /// Elements along the axis.
    pub length: usize,
    /// Elements of a slice along the axis.
    pub size: usize,
    /// The stride of the axis.
    pub stride: isize,
}

impl IndexedAxis {
    /// The offset of the slice at an index, from the first element of the axis.
    #[inline(always)]
    fn offset(&self, index: i64) -> isize {
        let length = self.length as i64;
        let from_front = if index < 0 { index + length } else { index };
        from_front.clamp(0, length - self.size as i64) as isize * self.stride
    }
}

/// Runs `body` for the elements of each type; `number` converts an element to `i64`.
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
    pub fn of(view: &'a View<'_>, dtype: Dtype) -> std::result::Result<Self, NativeError> {
        Ok(match dtype {
            Dtype::Uint8 => Indices::U8(view.as_slice()?),
            Dtype::Uint16 => Indices::U16(view.as_slice()?),
            Dtype::Uint32 => Indices::U32(view.as_slice()?),
            Dtype::Uint64 => Indices::U64(view.as_slice()?),
            Dtype::Int8 => Indices::I8(view.as_slice()?),
            Dtype::Int16 => Indices::I16(view.as_slice()?),
            Dtype::Int32 => Indices::I32(view.as_slice()?),
            Dtype::Int64 => Indices::I64(view.as_slice()?),
            dtype => return Err(format!("indices must be integers, not {dtype}").into()),
        })
    }

    /// The element at `at`.
    #[inline(always)]
    pub fn number(&self, at: isize) -> i64 {
        each_type!(self, all, x => number, number(all[at as usize]))
    }

    /// The index at `at`, counted from the front and clamped so that `size` elements from it are inside of
    /// `length`.
    #[inline(always)]
    pub fn get(&self, at: isize, length: usize, size: usize) -> isize {
        IndexedAxis { length, size, stride: 1 }.offset(self.number(at))
    }

    /// Adds the offset of an index to each of `to`. The indices begin at `start` and are `step` apart.
    pub fn add_to(&self, to: &mut [isize], start: isize, step: isize, axis: IndexedAxis) {
        each_type!(self, all, x => number, {
            if step == 1 {
                let row = &all[start as usize..start as usize + to.len()];
                for (offset, index) in to.iter_mut().zip(row) {
                    *offset += axis.offset(number(*index));
                }
            } else {
                let mut at = start;
                for offset in to {
                    *offset += axis.offset(number(all[at as usize]));
                    at += step;
                }
            }
        })
    }
}
