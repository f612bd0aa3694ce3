//! Strided views of matrices: the operands and results of products.

use std::marker::PhantomData;

use crate::error::{Mismatch, at_least, product, reached};

/// A matrix to read: element `(i, j)` is at `ptr + i * row_stride + j * col_stride`.
///
/// Strides count elements and may be negative or zero.
#[derive(Debug)]
pub struct MatRef<'a, T> {
    pub(crate) ptr: *const T,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
    pub(crate) of: PhantomData<&'a T>,
}

impl<T> Clone for MatRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MatRef<'_, T> {}

// SAFETY: a shared view, like `&[T]`.
unsafe impl<T: Sync> Send for MatRef<'_, T> {}
// SAFETY: a shared view, like `&[T]`.
unsafe impl<T: Sync> Sync for MatRef<'_, T> {}

impl<'a, T> MatRef<'a, T> {
    /// A view of raw memory.
    ///
    /// # Safety
    /// Every element that the strides describe is valid for reads during `'a`, and is not written meanwhile.
    pub unsafe fn from_raw(
        ptr: *const T,
        rows: usize,
        cols: usize,
        row_stride: isize,
        col_stride: isize,
    ) -> Self {
        Self { ptr, rows, cols, row_stride, col_stride, of: PhantomData }
    }

    /// A row-major view of a slice.
    pub fn row_major(data: &'a [T], rows: usize, cols: usize) -> Result<Self, Mismatch> {
        check(data.len(), rows, cols)?;
        Ok(Self { ptr: data.as_ptr(), rows, cols, row_stride: cols as isize, col_stride: 1, of: PhantomData })
    }

    /// A strided view of a slice from element `first` on; an error if it leaves the slice.
    pub fn strided(
        data: &'a [T],
        first: usize,
        rows: usize,
        cols: usize,
        row_stride: isize,
        col_stride: isize,
    ) -> Result<Self, Mismatch> {
        if rows == 0 || cols == 0 {
            return Self::row_major(&data[..0], rows, cols);
        }
        let reach = |count: usize, stride: isize| (count as i128 - 1) * stride as i128;
        let (down, across) = (reach(rows, row_stride), reach(cols, col_stride));
        let low = first as i128 + down.min(0) + across.min(0);
        let high = first as i128 + down.max(0) + across.max(0);
        reached("elements that a strided matrix reaches", low, high, data.len())?;
        let ptr = data.as_ptr().wrapping_add(first);
        Ok(Self { ptr, rows, cols, row_stride, col_stride, of: PhantomData })
    }

    /// The same elements with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// The element of a row and a column; both must exist.
    pub fn get(&self, row: usize, col: usize) -> T
    where
        T: Copy,
    {
        assert!(
            row < self.rows && col < self.cols,
            "element ({row}, {col}) is outside of a {} x {} matrix",
            self.rows,
            self.cols
        );
        // SAFETY: the view guarantees that every element it describes is readable.
        unsafe { *self.at(row, col) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The address of an element.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize, j: usize) -> *const T {
        self.ptr.wrapping_offset(i as isize * self.row_stride + j as isize * self.col_stride)
    }
}

/// A matrix to write, laid out like a [`MatRef`]; no two elements share an address.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    pub(crate) ptr: *mut T,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
    pub(crate) of: PhantomData<&'a mut T>,
}

// SAFETY: an exclusive view, like `&mut [T]`; tasks that share it write disjoint elements.
unsafe impl<T: Send> Send for MatMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for MatMut<'_, T> {}

impl<'a, T> MatMut<'a, T> {
    /// A view of raw memory.
    ///
    /// # Safety
    /// Every element that the strides describe is valid for reads and writes during `'a`, has a distinct
    /// address, and is not accessed otherwise meanwhile.
    pub unsafe fn from_raw(
        ptr: *mut T,
        rows: usize,
        cols: usize,
        row_stride: isize,
        col_stride: isize,
    ) -> Self {
        Self { ptr, rows, cols, row_stride, col_stride, of: PhantomData }
    }

    /// A row-major view of a slice.
    pub fn row_major(data: &'a mut [T], rows: usize, cols: usize) -> Result<Self, Mismatch> {
        check(data.len(), rows, cols)?;
        Ok(Self {
            ptr: data.as_mut_ptr(),
            rows,
            cols,
            row_stride: cols as isize,
            col_stride: 1,
            of: PhantomData,
        })
    }

    /// The same elements with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// The address of an element.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize, j: usize) -> *mut T {
        self.ptr.wrapping_offset(i as isize * self.row_stride + j as isize * self.col_stride)
    }
}

fn check(len: usize, rows: usize, cols: usize) -> Result<(), Mismatch> {
    at_least("elements of a matrix", product("elements of a matrix", &[rows, cols])?, len)
}
