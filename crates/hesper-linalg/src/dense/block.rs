//! Blocks of matrices in slices, and their products.

use hesper_compute::{GemmOptions, MatMut, MatRef, Par, StridedView, copy_elements, gemm};

use super::Scalar;
use crate::Failure;

/// A block of a slice to read: its first element, and the strides of rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a, T> {
    pub(super) data: &'a [T],
    pub(super) first: usize,
    pub(super) down: usize,
    pub(super) across: usize,
}

impl<'a, T: Scalar> Block<'a, T> {
    /// The rows of a slice, `stride` apart.
    pub(crate) fn rows(data: &'a [T], stride: usize) -> Self {
        Self { data, first: 0, down: stride, across: 1 }
    }

    /// The transpose.
    pub(crate) fn transposed(self) -> Self {
        Self { down: self.across, across: self.down, ..self }
    }

    /// The block from a row and a column on.
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        Self { first: self.first + row * self.down + column * self.across, ..self }
    }

    pub(super) fn at(self, row: usize, column: usize) -> T {
        self.data[self.first + row * self.down + column * self.across]
    }

    pub(super) fn view(self, rows: usize, columns: usize) -> Result<MatRef<'a, T>, Failure> {
        let (down, across) = (self.down as isize, self.across as isize);
        Ok(MatRef::strided(self.data, self.first, rows, columns, down, across)?)
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

/// `c = a b`.
pub(super) fn multiply<T: Scalar>(
    par: &dyn Par,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
) -> Result<(), Failure> {
    Ok(gemm(par, a, b, c, &GemmOptions::default())?)
}

/// `c -= a b`.
pub(super) fn subtract<T: Scalar>(
    par: &dyn Par,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: MatMut<'_, T>,
) -> Result<(), Failure> {
    let options = GemmOptions { alpha: -T::ONE, beta: T::ONE };
    Ok(gemm(par, a, b, c, &options)?)
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
