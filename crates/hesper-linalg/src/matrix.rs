//! The elements of matrices in slices, what is computed for each type of them, and checks of slices.

use hesper_compute::Par;

use crate::Failure;
use crate::dense::{self, Complex, Factor, Field, Scalar};

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
    #[doc(hidden)]
    fn routines() -> &'static Routines<Self::Field>;
}

type Outcome = Result<(), Failure>;
type Solve<T> = fn(&dyn Par, usize, Factor<'_, T>, &mut [T], usize, usize) -> Outcome;

/// The factorizations of a type, compiled in this crate, not in those that call its functions.
#[allow(clippy::type_complexity, reason = "each signature is that of one function, named by its field")]
pub struct Routines<T: Field> {
    pub(crate) lu: fn(&dyn Par, usize, usize, &mut [T], &mut [u32]) -> Outcome,
    pub(crate) solve_lower: Solve<T>,
    pub(crate) solve_upper: Solve<T>,
    pub(crate) cholesky: fn(&dyn Par, usize, &mut [T]) -> Outcome,
    pub(crate) qr: fn(&dyn Par, usize, usize, &[T], &mut [T], &mut [T]) -> Outcome,
    pub(crate) eigh: fn(&dyn Par, usize, &[T], bool, &mut [T::Real], Option<&mut [T]>) -> Outcome,
    pub(crate) svd: fn(&dyn Par, usize, usize, &[T], &mut [T], &mut [T::Real], &mut [T]) -> Outcome,
    pub(crate) singular_values: fn(&dyn Par, usize, usize, &[T], &mut [T::Real]) -> Outcome,
}

impl<T: Field> Routines<T> {
    const fn new(cholesky: fn(&dyn Par, usize, &mut [T]) -> Outcome) -> Self {
        Self {
            lu: dense::lu,
            solve_lower: dense::solve_lower,
            solve_upper: dense::solve_upper,
            cholesky,
            qr: dense::qr,
            eigh: dense::eigh,
            svd: dense::svd,
            singular_values: dense::singular_values,
        }
    }
}

macro_rules! entries {
    ($($t:ident)*) => { $(
        impl Entry for $t {
            type Field = $t;
            type Real = $t;
            fn fields(a: &[$t]) -> &[$t] { a }
            fn fields_mut(a: &mut [$t]) -> &mut [$t] { a }
            fn routines() -> &'static Routines<$t> {
                static ROUTINES: Routines<$t> = Routines::new(dense::semidefinite_cholesky);
                &ROUTINES
            }
        }

        impl Entry for [$t; 2] {
            type Field = Complex<$t>;
            type Real = $t;
            fn fields(a: &[[$t; 2]]) -> &[Complex<$t>] { Complex::of_pairs(a) }
            fn fields_mut(a: &mut [[$t; 2]]) -> &mut [Complex<$t>] { Complex::of_pairs_mut(a) }
            fn routines() -> &'static Routines<Complex<$t>> {
                static ROUTINES: Routines<Complex<$t>> = Routines::new(dense::cholesky);
                &ROUTINES
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
