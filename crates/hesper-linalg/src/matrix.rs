//! Conversion between row-major slices and faer's column-major matrices.

use faer::traits::ComplexField;
use faer::{Mat, MatRef};
use hesper_compute::Par;

use crate::Failure;

/// Rows or columns copied at once, so that both sides use whole cache lines.
const BLOCK: usize = 16;

/// An element of a matrix: `f32`, `f64`, or a complex number as its two parts.
///
/// The public functions have checked that slices have the sizes of their matrices and that `n` is not zero.
pub trait Entry: Copy + Send + Sync + 'static {
    /// The type that faer computes with.
    #[doc(hidden)]
    type Field: ComplexField + Copy;
    /// Its real part.
    type Real: Entry;
    #[doc(hidden)]
    const ZERO: Self;
    #[doc(hidden)]
    const ONE: Self;
    #[doc(hidden)]
    fn enter(self) -> Self::Field;
    #[doc(hidden)]
    fn leave(field: Self::Field) -> Self;
    #[doc(hidden)]
    fn finite(self) -> bool;

    /// Replaces a matrix by its LU factors; returns which row each row was exchanged with.
    #[doc(hidden)]
    fn lu(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        a: &mut [Self],
        swaps: &mut [u32],
    ) -> Result<(), Failure>;
    /// Replaces `b` by the solution for a triangular matrix.
    #[doc(hidden)]
    fn solve_triangular(
        par: &dyn Par,
        n: usize,
        count: usize,
        a: &[Self],
        side: Side,
        b: &mut [Self],
    ) -> Result<(), Failure>;
    /// Replaces the lower triangle of a matrix by its Cholesky factor.
    #[doc(hidden)]
    fn cholesky(par: &dyn Par, n: usize, a: &mut [Self]) -> Result<(), Failure>;
    #[doc(hidden)]
    fn qr(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        a: &[Self],
        q: &mut [Self],
        r: &mut [Self],
    ) -> Result<(), Failure>;
    /// Eigenvalues, and vectors, of a matrix of which one triangle is given.
    #[doc(hidden)]
    fn eigh(
        par: &dyn Par,
        n: usize,
        a: &[Self],
        upper: bool,
        values: &mut [Self::Real],
        vectors: Option<&mut [Self]>,
    ) -> Result<(), Failure>;
    #[doc(hidden)]
    fn svd(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        a: &[Self],
        u: &mut [Self],
        s: &mut [Self::Real],
        vt: &mut [Self],
    ) -> Result<(), Failure>;
    /// Singular values of a nonempty matrix.
    #[doc(hidden)]
    fn singular_values(
        par: &dyn Par,
        rows: usize,
        columns: usize,
        a: &[Self],
        s: &mut [Self::Real],
    ) -> Result<(), Failure>;
}

/// Which triangle of a matrix is read.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The lower one.
    Lower,
    /// The lower one, with an implied unit diagonal.
    LowerUnit,
    /// The upper one.
    Upper,
}

/// The methods that compute, from a module with functions of the same names.
macro_rules! methods {
    ($from:ident) => {
        fn lu(
            par: &dyn Par,
            rows: usize,
            columns: usize,
            a: &mut [Self],
            swaps: &mut [u32],
        ) -> Result<(), Failure> {
            $from::lu(par, rows, columns, a, swaps)
        }
        fn solve_triangular(
            par: &dyn Par,
            n: usize,
            count: usize,
            a: &[Self],
            side: Side,
            b: &mut [Self],
        ) -> Result<(), Failure> {
            $from::solve_triangular(par, n, count, a, side, b)
        }
        fn cholesky(par: &dyn Par, n: usize, a: &mut [Self]) -> Result<(), Failure> {
            $from::cholesky(par, n, a)
        }
        fn qr(
            par: &dyn Par,
            rows: usize,
            columns: usize,
            a: &[Self],
            q: &mut [Self],
            r: &mut [Self],
        ) -> Result<(), Failure> {
            $from::qr(par, rows, columns, a, q, r)
        }
        fn eigh(
            par: &dyn Par,
            n: usize,
            a: &[Self],
            upper: bool,
            values: &mut [Self::Real],
            vectors: Option<&mut [Self]>,
        ) -> Result<(), Failure> {
            $from::eigh(par, n, a, upper, values, vectors)
        }
        fn svd(
            par: &dyn Par,
            rows: usize,
            columns: usize,
            a: &[Self],
            u: &mut [Self],
            s: &mut [Self::Real],
            vt: &mut [Self],
        ) -> Result<(), Failure> {
            $from::svd(par, rows, columns, a, u, s, vt)
        }
        fn singular_values(
            par: &dyn Par,
            rows: usize,
            columns: usize,
            a: &[Self],
            s: &mut [Self::Real],
        ) -> Result<(), Failure> {
            $from::singular_values(par, rows, columns, a, s)
        }
    };
}

pub(crate) use methods;

/// `Ok` if a slice has the size of its matrix.
pub(crate) fn check(rows: usize, columns: usize, given: usize) -> Result<(), Failure> {
    if rows.checked_mul(columns) == Some(given) {
        Ok(())
    } else {
        Err(Failure::Size { rows, columns, given })
    }
}

/// `Ok` if all elements are finite.
pub(crate) fn check_finite<T: Entry>(a: &[T]) -> Result<(), Failure> {
    // Check whole chunks: a loop that may exit anywhere is not vectorized.
    let whole = |chunk: &[T]| chunk.iter().fold(true, |whole, x| whole & x.finite());
    if a.chunks(1024).all(whole) { Ok(()) } else { Err(Failure::NotFinite) }
}

/// A matrix from row-major elements.
pub(crate) fn load<T: Entry>(rows: usize, columns: usize, a: &[T]) -> Result<Mat<T::Field>, Failure> {
    check(rows, columns, a.len())?;
    let mut matrix = Mat::<T::Field>::zeros(rows, columns);
    for first in (0..rows).step_by(BLOCK) {
        let count = BLOCK.min(rows - first);
        let block = &a[first * columns..][..count * columns];
        for column in 0..columns {
            let to = &mut matrix.col_as_slice_mut(column)[first..first + count];
            for (at, to) in to.iter_mut().enumerate() {
                *to = block[at * columns + column].enter();
            }
        }
    }
    Ok(matrix)
}

/// The row-major elements of a matrix.
pub(crate) fn store<T: Entry>(matrix: MatRef<'_, T::Field>, out: &mut [T]) -> Result<(), Failure> {
    let (rows, columns) = (matrix.nrows(), matrix.ncols());
    check(rows, columns, out.len())?;
    for first in (0..columns).step_by(BLOCK) {
        let count = BLOCK.min(columns - first);
        let block = matrix.get(.., first..first + count);
        for row in 0..rows {
            let to = &mut out[row * columns + first..][..count];
            for (at, to) in to.iter_mut().enumerate() {
                *to = T::leave(block[(row, at)]);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_matrix_comes_back_as_it_went_in() {
        for (rows, columns) in [(0, 3), (1, 1), (17, 40), (33, 16)] {
            let a: Vec<f32> = (0..rows * columns).map(|at| at as f32).collect();
            let matrix = load(rows, columns, &a).unwrap();
            assert!((0..rows).all(|row| {
                (0..columns).all(|column| matrix[(row, column)] == a[row * columns + column])
            }));
            let mut back = vec![0.0f32; a.len()];
            store(matrix.as_ref(), &mut back).unwrap();
            assert_eq!(a, back);
        }
        assert!(load(2, 2, &[1.0f32]).is_err() && load(usize::MAX, 2, &[1.0f32]).is_err());
    }
}
