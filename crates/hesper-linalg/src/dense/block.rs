//! Blocks of matrices in slices, and their products.

use hesper_compute::{MatMut, Par, StridedView, copy_elements};

use super::field::Field;
use crate::Failure;

/// A block of a slice to read: its first element, the strides of rows and columns, and whether elements are
/// conjugated.
#[derive(Clone, Copy)]
pub struct Block<'a, T> {
    pub(super) data: &'a [T],
    pub(super) first: usize,
    pub(super) down: usize,
    pub(super) across: usize,
    pub(super) conj: bool,
}

impl<'a, T: Field> Block<'a, T> {
    /// The rows of a slice, `stride` apart.
    pub(crate) fn rows(data: &'a [T], stride: usize) -> Self {
        Self { data, first: 0, down: stride, across: 1, conj: false }
    }

    /// The transpose.
    pub(crate) fn transposed(self) -> Self {
        Self { down: self.across, across: self.down, ..self }
    }

    /// The block with conjugated elements.
    pub(super) fn conjugated(self) -> Self {
        Self { conj: !self.conj, ..self }
    }

    /// The block from a row and a column on.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        Self { first: self.first + row * self.down + column * self.across, ..self }
    }

    /// An element of the slice, not conjugated.
    pub(super) fn element(self, row: usize, column: usize) -> T {
        self.data[self.first + row * self.down + column * self.across]
    }
}

/// Rows of a slice, `stride` apart, with their count and length.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    pub(super) data: &'a [T],
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// `count` rows of `width` elements.
    pub(super) fn new(data: &'a [T], stride: usize, count: usize, width: usize) -> Self {
        Self { data, stride, count, width }
    }

    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..][..self.width]
    }
}

/// Rows of a slice, `stride` apart, to write.
pub(super) fn rows_mut<T>(
    data: &mut [T],
    rows: usize,
    columns: usize,
    stride: usize,
) -> Result<MatMut<'_, T>, Failure> {
    if rows == 0 || columns == 0 {
        return Ok(MatMut::row_major(&mut data[..0], rows, columns)?);
    }
    let reach = (rows - 1) * stride + columns;
    if columns > stride || reach > data.len() {
        return Err(Failure::Size { rows, columns, given: data.len() });
    }
    // SAFETY: the last element lies in the slice, which is borrowed for writing; rows do not overlap.
    Ok(unsafe { MatMut::from_raw(data.as_mut_ptr(), rows, columns, stride as isize, 1) })
}

/// `c = a b` for `a` of `m` x `k` and `b` of `k` x `n`; rows of `c` are `stride` apart.
pub(super) fn multiply<T: Field>(
    par: &dyn Par,
    sizes: [usize; 3],
    a: Block<'_, T>,
    b: Block<'_, T>,
    c: &mut [T],
    stride: usize,
) -> Result<(), Failure> {
    T::gemm(par, sizes, a, b, (c, stride), [T::Real::ONE, T::Real::ZERO])
}

/// `c -= a b`, like [`multiply`].
pub(super) fn subtract<T: Field>(
    par: &dyn Par,
    sizes: [usize; 3],
    a: Block<'_, T>,
    b: Block<'_, T>,
    c: &mut [T],
    stride: usize,
) -> Result<(), Failure> {
    T::gemm(par, sizes, a, b, (c, stride), [-T::Real::ONE, T::Real::ONE])
}

/// Transposes a matrix of `rows` x `columns` with the row stride `stride` to one with the row stride
/// `to_stride`.
pub(crate) fn transpose<T: Copy + Send + Sync + 'static>(
    par: &dyn Par,
    (rows, columns): (usize, usize),
    from: &[T],
    stride: usize,
    to: &mut [T],
    to_stride: usize,
) -> Result<(), Failure> {
    let (from_steps, to_steps) = ([1, stride as isize], [to_stride as isize, 1]);
    let place = |strides| StridedView { offset: 0, strides };
    Ok(copy_elements(par, &[columns, rows], from, place(&from_steps), to, place(&to_steps))?)
}
