//! The elements of matrices in slices, and checks of slices.

use crate::Failure;
use crate::dense::{self, Complex, Field, Scalar};
use hesper_compute::Par;

/// An element of a matrix: `f32`, `f64`, or a complex number as its two parts.
pub trait Entry: Copy + Send + Sync + 'static {
    /// The type that factorizations compute with.
    #[doc(hidden)]
    type Field: Field;
    /// Its real part.
    type Real: Entry<Field = <Self::Field as Field>::Real>;
    #[doc(hidden)]
    fn fields(a: &[Self]) -> &[Self::Field];
    #[doc(hidden)]
    fn fields_mut(a: &mut [Self]) -> &mut [Self::Field];
    /// Replaces the lower triangle of a matrix by its Cholesky factor.
    #[doc(hidden)]
    fn cholesky(par: &dyn Par, n: usize, a: &mut [Self::Field]) -> Result<(), Failure>;
}

macro_rules! entries {
    ($($t:ident)*) => { $(
        impl Entry for $t {
            type Field = $t;
            type Real = $t;
            fn fields(a: &[$t]) -> &[$t] { a }
            fn fields_mut(a: &mut [$t]) -> &mut [$t] { a }
            fn cholesky(par: &dyn Par, n: usize, a: &mut [$t]) -> Result<(), Failure> {
                dense::semidefinite_cholesky(par, n, a)
            }
        }

        impl Entry for [$t; 2] {
            type Field = Complex<$t>;
            type Real = $t;
            fn fields(a: &[[$t; 2]]) -> &[Complex<$t>] { Complex::of_pairs(a) }
            fn fields_mut(a: &mut [[$t; 2]]) -> &mut [Complex<$t>] { Complex::of_pairs_mut(a) }
            fn cholesky(par: &dyn Par, n: usize, a: &mut [Complex<$t>]) -> Result<(), Failure> {
                dense::cholesky(par, n, a)
            }
        }
    )* };
}

entries!(f32 f64);

/// `Ok` if a slice has the size of its matrix.
pub(crate) fn check(rows: usize, columns: usize, given: usize) -> Result<(), Failure> {
    if rows.checked_mul(columns) == Some(given) {
        Ok(())
    } else {
        Err(Failure::Size { rows, columns, given })
    }
}

/// `Ok` if all elements are finite.
pub(crate) fn check_finite<T: Field>(a: &[T]) -> Result<(), Failure> {
    // Check whole chunks: a loop that may exit anywhere is not vectorized.
    let finite = |chunk: &[T::Real]| chunk.iter().fold(true, |finite, x| finite & x.is_finite());
    if T::parts(a).chunks(1024).all(finite) { Ok(()) } else { Err(Failure::NotFinite) }
}
