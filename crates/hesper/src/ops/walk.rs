//! Walking through strided memory: what native commands of data movement share.
//!
//! [`Strided`] is an input as a command binds it: the bytes that its elements lie in, and where they lie
//! there, and [`Renewed`] one that it may change. [`collapse`] joins axes, [`Cursor`] goes through what is left, [`par_chunks`] hands disjoint
//! parts of an output to the threads. Splits are fixed, so results do not depend on their number.

use std::ops::Range;

use hesper_runtime::{Encoder, NativeError, View};
use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::shape::{Shape, Strides};

/// Elements that one task moves.
pub(crate) const GRAIN: usize = 1 << 15;

/// Calls `body` with the first index and the elements of each part of `to`, side by side.
pub(crate) fn par_chunks<T: Send>(to: &mut [T], chunk: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let chunk = chunk.max(1);
    super::native::par_chunks_mut(to, chunk, |at, piece| body(at * chunk, piece));
}

/// An unsigned type that carries the bits of any element of its size.
pub(crate) trait Carrier: bytemuck::Pod + Send + Sync {}
impl Carrier for u8 {}
impl Carrier for u16 {}
impl Carrier for u32 {}
impl Carrier for u64 {}

/// Calls a generic method for the carrier of a type's size.
macro_rules! with_carrier {
    ($dtype:expr, $method:ident :: <_>($($argument:expr),*)) => {
        match $dtype.size() {
            1 => $method::<u8>($($argument),*),
            2 => $method::<u16>($($argument),*),
            4 => $method::<u32>($($argument),*),
            _ => $method::<u64>($($argument),*),
        }
    };
}
pub(crate) use with_carrier;

/// Where the elements of an array lie among those that a command binds. Unlike [`Strided`] it holds no memory: a command
/// that keeps a handle until it runs keeps others from owning the memory until then.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) shape: Shape,
    pub(crate) strides: Strides,
    /// Of the first element, counted from the first one bound.
    pub(crate) offset: isize,
}

/// Strided memory as a command binds it.
#[derive(Debug, Clone)]
pub(crate) struct Strided {
    pub(crate) data: Data,
    pub(crate) shape: Shape,
    /// Of the first element, counted from the first one bound.
    pub(crate) offset: isize,
    /// The bytes that are bound.
    pub(crate) bytes: Range<usize>,
}

impl Strided {
    pub(crate) fn new(data: Data, shape: &[usize], dtype: Dtype) -> Self {
        let (mut low, mut high) = (data.offset, data.offset);
        for (length, stride) in shape.iter().zip(&data.strides) {
            let span = (*length as isize - 1).max(0) * stride;
            low += span.min(0);
            high += span.max(0);
        }
        let size = dtype.size();
        let bytes = if shape.contains(&0) { 0..0 } else { low as usize * size..(high as usize + 1) * size };
        Strided { offset: data.offset - low, data, shape: shape.into(), bytes }
    }

    /// An input of an op.
    pub(crate) fn input(l: &Lowering<'_>, at: usize) -> Self {
        Strided::new(l.input(at).clone(), l.input_shape(at), l.input_dtype(at))
    }

    /// An input of an op, row by row: itself or a copy.
    pub(crate) fn row_major(l: &Lowering<'_>, at: usize) -> Result<Self> {
        Ok(Strided::new(l.row_major(at)?, l.input_shape(at), l.input_dtype(at)))
    }

    pub(crate) fn strides(&self) -> &Strides {
        &self.data.strides
    }

    /// Where the elements lie, for a command that has bound them.
    pub(crate) fn spread(&self) -> Spread {
        Spread { shape: self.shape.clone(), strides: self.data.strides.clone(), offset: self.offset }
    }
}

/// The first input of an op, as memory that the op may change: the input's own where nobody can ask for it
/// again, new memory with a copy of it otherwise.
#[derive(Debug)]
pub(crate) struct Renewed {
    /// What is copied.
    old: Option<Strided>,
    /// What is changed, row by row.
    to: Strided,
}

impl Renewed {
    pub(crate) fn of(l: &Lowering<'_>) -> Result<Self> {
        if let Some(owned) = l.take_in_place() {
            return Ok(Renewed { old: None, to: Strided::new(owned.into_data(), l.shape(), l.dtype()) });
        }
        let old = Strided::row_major(l, 0)?;
        let to = Strided::new(Data::contiguous(l.output()?, l.shape()), l.shape(), l.dtype());
        Ok(Renewed { old: Some(old), to })
    }

    /// A command with its last views: what is copied, if anything, and what is changed.
    pub(crate) fn change<'e>(&'e self, encoder: Encoder<'e>) -> Encoder<'e> {
        match &self.old {
            Some(old) => encoder.read_range(&old.data.buffer, old.bytes.clone()).write(&self.to.data.buffer),
            None => encoder.read_write_range(&self.to.data.buffer, self.to.bytes.clone()),
        }
    }

    /// How a command that has bound it gets at the elements.
    pub(crate) fn opener(&self) -> Opener {
        Opener { copies: self.old.is_some() }
    }

    /// Where the result is.
    pub(crate) fn into_data(self) -> Data {
        self.to.data
    }
}

/// What a command knows of a [`Renewed`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener {
    copies: bool,
}

impl Opener {
    /// The elements to change, which are the input's by now, and the views ahead of them.
    pub(crate) fn open<'v, 'm, T: bytemuck::Pod + Send + Sync>(
        self,
        views: &'v mut [View<'m>],
    ) -> std::result::Result<(&'v mut [T], &'v [View<'m>]), NativeError> {
        let Some((to, mut views)) = views.split_last_mut() else { return Ok((&mut [], &[])) };
        let to = to.as_mut_slice::<T>()?;
        if self.copies {
            let Some((old, others)) = views.split_last_mut() else { return Ok((to, &[])) };
            let old = old.as_slice::<T>()?;
            par_chunks(to, GRAIN, |first, part| part.copy_from_slice(&old[first..first + part.len()]));
            views = others;
        }
        Ok((to, views))
    }
}

/// Joins neighbouring axes that all strides walk through as one, and drops those of length one. At least
/// one axis is left.
pub(crate) fn collapse<const N: usize>(shape: &[usize], strides: [&[isize]; N]) -> (Shape, [Strides; N]) {
    let mut lengths = Shape::new();
    let mut joined: [Strides; N] = std::array::from_fn(|_| Strides::new());
    for (axis, &length) in shape.iter().enumerate() {
        if length == 1 {
            continue;
        }
        let joins = !lengths.is_empty()
            && (0..N).all(|n| {
                joined[n].last().is_some_and(|last| *last == strides[n][axis].saturating_mul(length as isize))
            });
        if joins {
            if let Some(last) = lengths.last_mut() {
                *last *= length;
            }
            for n in 0..N {
                if let Some(last) = joined[n].last_mut() {
                    *last = strides[n][axis];
                }
            }
        } else {
            lengths.push(length);
            for n in 0..N {
                joined[n].push(strides[n][axis]);
            }
        }
    }
    if lengths.is_empty() {
        lengths.push(1);
        joined.iter_mut().for_each(|strides| strides.push(0));
    }
    (lengths, joined)
}

/// Goes through a shape, row by row, and knows the offset by each of `N` sets of strides.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a, const N: usize> {
    shape: &'a [usize],
    strides: [&'a [isize]; N],
    place: SmallVec<[usize; 6]>,
    /// The offsets of the current element.
    pub(crate) at: [isize; N],
}

impl<'a, const N: usize> Cursor<'a, N> {
    /// A cursor at an element, counted row by row.
    pub(crate) fn new(shape: &'a [usize], strides: [&'a [isize]; N], element: usize) -> Self {
        let mut place: SmallVec<[usize; 6]> = smallvec![0; shape.len()];
        let mut rest = element;
        let mut at = [0; N];
        for axis in (0..shape.len()).rev() {
            let length = shape[axis].max(1);
            place[axis] = rest % length;
            rest /= length;
            for n in 0..N {
                at[n] += place[axis] as isize * strides[n][axis];
            }
        }
        Cursor { shape, strides, place, at }
    }

    /// Goes on to the next element; after the last comes the first.
    #[inline]
    pub(crate) fn advance(&mut self) {
        for axis in (0..self.shape.len()).rev() {
            self.place[axis] += 1;
            for n in 0..N {
                self.at[n] += self.strides[n][axis];
            }
            if self.place[axis] < self.shape[axis] {
                return;
            }
            for n in 0..N {
                self.at[n] -= self.strides[n][axis] * self.shape[axis] as isize;
            }
            self.place[axis] = 0;
        }
    }

    /// Where the cursor is along each axis.
    pub(crate) fn place(&self) -> &[usize] {
        &self.place
    }
}

/// Calls `f` for each row of `count` elements of a shape, counted row by row from `first`: which of these
/// elements it has, where by each set of strides it begins, and by how much it goes on.
pub(crate) fn each_row<const N: usize>(
    shape: &[usize],
    strides: [&[isize]; N],
    first: usize,
    count: usize,
    mut f: impl FnMut(Range<usize>, [isize; N], [isize; N]),
) {
    let Some((&length, outer)) = shape.split_last() else { return f(0..count, [0; N], [0; N]) };
    let length = length.max(1);
    let steps: [isize; N] = std::array::from_fn(|n| strides[n][outer.len()]);
    let mut cursor = Cursor::new(outer, strides.map(|strides| &strides[..outer.len()]), first / length);
    let (mut inside, mut done) = (first % length, 0);
    while done < count {
        let end = (done + length - inside).min(count);
        f(done..end, std::array::from_fn(|n| cursor.at[n] + inside as isize * steps[n]), steps);
        (done, inside) = (end, 0);
        cursor.advance();
    }
}

/// Copies a row of `from`, which starts at `start` and goes by `stride`.
#[inline]
pub(crate) fn copy_row<T: Copy>(to: &mut [T], from: &[T], start: isize, stride: isize) {
    let start = start as usize;
    match stride {
        _ if to.is_empty() => {}
        1 => to.copy_from_slice(&from[start..start + to.len()]),
        0 => to.fill(from[start]),
        _ => {
            let mut at = start as isize;
            for element in to {
                *element = from[at as usize];
                at += stride;
            }
        }
    }
}

/// Copies elements of strided memory, counted row by row from `first`, until `to` is full.
pub(crate) fn copy_range<T: Copy>(
    to: &mut [T],
    from: &[T],
    offset: isize,
    shape: &[usize],
    strides: &[isize],
    first: usize,
) {
    each_row(shape, [strides], first, to.len(), |range, [start], [step]| {
        copy_row(&mut to[range], from, offset + start, step);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_join_where_every_set_of_strides_lets_them() {
        let (lengths, [a, b]) = collapse(&[2, 3, 1, 4], [&[12, 4, 9, 1], &[12, 4, 9, 1]]);
        assert_eq!((&lengths[..], &a[..], &b[..]), (&[24][..], &[1][..], &[1][..]));
        let (lengths, [a, b]) = collapse(&[2, 3, 4], [&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!((&lengths[..], &a[..], &b[..]), (&[2, 12][..], &[12, 1][..], &[0, 1][..]));
    }

    #[test]
    fn a_cursor_started_anywhere_agrees_with_one_that_walked_there() {
        let (shape, strides) = ([2usize, 3, 4], [1isize, -8, 2]);
        let mut walked = Cursor::new(&shape, [&strides], 0);
        for element in 0..24 {
            let started = Cursor::new(&shape, [&strides], element);
            assert_eq!((started.at, started.place()), (walked.at, walked.place()));
            walked.advance();
        }
        assert_eq!(walked.at, [0]);
    }
}
