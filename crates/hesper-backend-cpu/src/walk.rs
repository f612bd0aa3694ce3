//! Iteration over strided memory, for native commands.
//!
//! [`Strided`] is an input as a command binds it: a byte range, and the layout of the elements inside of it.
//! [`CopyOnWrite`] is an input that a command modifies. [`collapse`] joins axes, [`Cursor`] iterates over the
//! remaining ones, [`par_chunks`] splits an output among threads. Splits are fixed, so results do not depend
//! on the number of threads.

use std::marker::PhantomData;
use std::ops::Range;

use hesper_compute::joined_axes;
use hesper_runtime::{Encoder, NativeError, View};
use smallvec::{SmallVec, smallvec};

use hesper_core::backend::{Data, Lowering};
use hesper_core::{Dtype, Result, Shape, Strides};

/// The number of elements that one task moves.
pub const GRAIN: usize = 1 << 15;

/// Calls `body` in parallel with the first index and the elements of each chunk of `to`.
pub fn par_chunks<T: Send>(to: &mut [T], chunk: usize, body: impl Fn(usize, &mut [T]) + Sync) {
    let chunk = chunk.max(1);
    crate::parallel::par_chunks_mut(to, chunk, |at, piece| body(at * chunk, piece));
}

/// The layout of an array in the memory that a command binds. Unlike [`Strided`] it holds no handle: a handle
/// in a closure would prevent other ops from owning the memory until the command has run.
#[derive(Debug, Clone)]
pub struct ElementLayout {
    pub shape: Shape,
    pub strides: Strides,
    /// The offset of the first element from the first bound one.
    pub offset: isize,
}

/// Strided memory that a command binds. The closure of a command cannot capture it, see [`ElementLayout`].
#[derive(Debug, Clone)]
pub struct Strided {
    pub data: Data,
    pub shape: Shape,
    /// The offset of the first element from the first bound one.
    pub offset: isize,
    /// The bound bytes.
    pub bytes: Range<usize>,
    /// Closures of commands are `Send`.
    not_send: PhantomData<*const ()>,
}

impl Strided {
    pub fn new(data: Data, shape: &[usize], dtype: Dtype) -> Self {
        let (mut low, mut high) = (data.offset, data.offset);
        for (length, stride) in shape.iter().zip(&data.strides) {
            let span = (*length as isize - 1).max(0) * stride;
            low += span.min(0);
            high += span.max(0);
        }
        let size = dtype.size();
        let bytes = if shape.contains(&0) { 0..0 } else { low as usize * size..(high as usize + 1) * size };
        Strided { offset: data.offset - low, data, shape: shape.into(), bytes, not_send: PhantomData }
    }

    /// An input of an op.
    pub fn input(l: &Lowering<'_>, at: usize) -> Self {
        Strided::new(l.input(at).clone(), l.input_shape(at), l.input_dtype(at))
    }

    /// An input of an op in row-major order: itself or a copy.
    pub fn row_major(l: &Lowering<'_>, at: usize) -> Result<Self> {
        Ok(Strided::new(l.row_major(at)?, l.input_shape(at), l.input_dtype(at)))
    }

    pub fn strides(&self) -> &Strides {
        &self.data.strides
    }

    /// The layout, for the closure of a command.
    pub fn layout(&self) -> ElementLayout {
        let (shape, strides) = (Shape::from_slice(&self.shape), Strides::from_slice(&self.data.strides));
        ElementLayout { shape, strides, offset: self.offset }
    }
}

/// The first input of an op as memory that the op may modify: its own memory if the op owns it, else a copy.
#[derive(Debug)]
pub struct CopyOnWrite {
    /// The source of the copy, if there is one.
    old: Option<Strided>,
    /// The modified memory, row-major.
    to: Strided,
}

impl CopyOnWrite {
    pub fn of(l: &Lowering<'_>) -> Result<Self> {
        if let Some(owned) = l.take_in_place() {
            return Ok(CopyOnWrite { old: None, to: Strided::new(owned.into_data(), l.shape(), l.dtype()) });
        }
        let old = Strided::row_major(l, 0)?;
        let to = Strided::new(Data::contiguous(l.output()?, l.shape()), l.shape(), l.dtype());
        Ok(CopyOnWrite { old: Some(old), to })
    }

    /// Binds the last views of a command: the source of the copy, if there is one, and the modified memory.
    pub fn bind<'e>(&'e self, encoder: Encoder<'e>) -> Encoder<'e> {
        match &self.old {
            Some(old) => encoder.read_range(&old.data.buffer, old.bytes.clone()).write(&self.to.data.buffer),
            None => encoder.read_write_range(&self.to.data.buffer, self.to.bytes.clone()),
        }
    }

    /// Access to the elements, for the closure of the command.
    pub fn access(&self) -> WriteAccess {
        WriteAccess { copies: self.old.is_some() }
    }

    /// The modified memory.
    pub fn into_data(self) -> Data {
        self.to.data
    }
}

/// Access to the elements of a [`CopyOnWrite`] inside of a command.
#[derive(Debug, Clone, Copy)]
pub struct WriteAccess {
    copies: bool,
}

impl WriteAccess {
    /// Copies the input if necessary. Returns the elements to modify, and the views before them.
    pub fn open<'v, 'm, T: bytemuck::Pod + Send + Sync>(
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

/// Joins axes that are contiguous by all strides, and drops axes of length one. At least one axis is left.
pub fn collapse<const N: usize>(shape: &[usize], strides: [&[isize]; N]) -> (Shape, [Strides; N]) {
    let mut lengths = Shape::new();
    let mut joined: [Strides; N] = std::array::from_fn(|_| Strides::new());
    let single = shape.iter().all(|length| *length == 1).then_some((1, [0; N]));
    for (length, steps) in joined_axes(shape, strides).chain(single) {
        lengths.push(length);
        joined.iter_mut().zip(steps).for_each(|(strides, step)| strides.push(step));
    }
    (lengths, joined)
}

/// Iterates over a shape in row-major order and tracks the offset by each of `N` sets of strides.
#[derive(Debug, Clone)]
pub struct Cursor<'a, const N: usize> {
    shape: &'a [usize],
    strides: [&'a [isize]; N],
    index: SmallVec<[usize; 6]>,
    /// The offsets of the current element.
    pub at: [isize; N],
}

impl<'a, const N: usize> Cursor<'a, N> {
    /// A cursor at an element, by its row-major number.
    pub fn new(shape: &'a [usize], strides: [&'a [isize]; N], element: usize) -> Self {
        let mut index: SmallVec<[usize; 6]> = smallvec![0; shape.len()];
        let mut rest = element;
        let mut at = [0; N];
        for axis in (0..shape.len()).rev() {
            let length = shape[axis].max(1);
            index[axis] = rest % length;
            rest /= length;
            for n in 0..N {
                at[n] += index[axis] as isize * strides[n][axis];
            }
        }
        Cursor { shape, strides, index, at }
    }

    /// Moves to the next element; after the last to the first.
    #[inline]
    pub fn advance(&mut self) {
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            for n in 0..N {
                self.at[n] += self.strides[n][axis];
            }
            if self.index[axis] < self.shape[axis] {
                return;
            }
            for n in 0..N {
                self.at[n] -= self.strides[n][axis] * self.shape[axis] as isize;
            }
            self.index[axis] = 0;
        }
    }

    /// The index along each axis.
    pub fn index(&self) -> &[usize] {
        &self.index
    }
}

/// Calls `f` for each row among the `count` elements of a shape from the row-major number `first` on: the
/// range of the row among these elements, and its offset and step by each set of strides.
pub fn each_row<const N: usize>(
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

/// Copies the row of `from` that begins at `start` and has this stride.
#[inline]
pub fn copy_row<T: Copy>(to: &mut [T], from: &[T], start: isize, stride: isize) {
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

/// Fills `to` with elements of strided memory, from the row-major number `first` on.
pub fn copy_range<T: Copy>(
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

/// An input whose rows are contiguous: itself, or a copy.
pub fn rows(l: &Lowering<'_>, at: usize) -> Result<Strided> {
    let last = l.input_shape(at).len() - 1;
    let contiguous = l.input_shape(at)[last] == 1 || l.input(at).strides[last] == 1;
    if contiguous { Ok(Strided::input(l, at)) } else { Strided::row_major(l, at) }
}
