//! Factorizations of real matrices, blocked so that nearly all work is in matrix products.
//!
//! Matrices are row-major slices. Products run on the caller's executor, everything between them on the
//! calling thread. Block sizes depend on the sizes of the matrices only, so results do not depend on the
//! number of threads.

mod bidiagonal;
mod block;
mod cholesky;
mod divide_and_conquer;
mod implicit_qr;
mod jacobi;
mod lu;
mod multiversion;
mod panel;
mod parallel;
mod qr;
mod reflect;
mod secular;
mod singular;
mod svd;
mod triangular;
mod tridiagonal;
mod vectors;

use std::ops::{Add, Div, Mul, Neg, Sub};

pub(crate) use block::{Block, transpose};
pub(crate) use cholesky::cholesky;
pub(crate) use divide_and_conquer::{tridiagonal_values, tridiagonal_vectors};
pub(crate) use lu::lu;
pub(crate) use qr::qr;
pub(crate) use svd::{singular_values, svd};
pub(crate) use triangular::{Factor, solve_lower, solve_upper};
pub(crate) use tridiagonal::Tridiagonal;

/// A real number: `f32` or `f64`.
pub(crate) trait Scalar:
    hesper_compute::Real
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The smallest positive value whose reciprocal is safely finite.
    const SMALLEST: Self;
    /// The machine epsilon.
    const EPSILON: Self;
    /// The relative accuracy of a double sum that vectors of this type need.
    const SUM_TOLERANCE: f64;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! scalars {
    ($($t:ident, $sum_tolerance:expr;)*) => { $(
        impl Scalar for $t {
            const SMALLEST: $t = $t::MIN_POSITIVE * 4.0;
            const EPSILON: $t = $t::EPSILON;
            const SUM_TOLERANCE: f64 = $sum_tolerance;
            fn abs(self) -> $t { $t::abs(self) }
            fn sqrt(self) -> $t { $t::sqrt(self) }
            fn of(x: f64) -> $t { x as $t }
            fn to_f64(self) -> f64 { f64::from(self) }
        }
    )* };
}

scalars! {
    f32, 1e-11;
    f64, 32.0 * f64::EPSILON;
}

/// The largest absolute value, or NaN if an element is not finite.
pub(crate) fn largest<T: Scalar>(a: &[T]) -> T {
    let (mut most, mut non_finite) = ([T::ZERO; 16], [T::ZERO; 16]);
    let (many, rest) = a.as_chunks::<16>();
    for chunk in many {
        for lane in 0..16 {
            let x = chunk[lane];
            most[lane] = if x.abs() > most[lane] { x.abs() } else { most[lane] };
            // Zero, unless an element is infinite or NaN.
            non_finite[lane] = non_finite[lane] + x * T::ZERO;
        }
    }
    for x in rest {
        most[0] = if x.abs() > most[0] { x.abs() } else { most[0] };
        non_finite[0] = non_finite[0] + *x * T::ZERO;
    }
    let non_finite = non_finite.into_iter().fold(T::ZERO, |sum, x| sum + x);
    most.into_iter().fold(T::ZERO, |most, x| if x > most { x } else { most }) + non_finite
}

/// A power of two that scales the largest element to about one, if squares of elements could overflow or
/// underflow.
pub(crate) fn balance<T: Scalar>(a: &[T]) -> Option<T> {
    let largest = largest(a).to_f64();
    let tame = (1e-12..1e12).contains(&largest) || largest == 0.0 || !largest.is_finite();
    (!tame).then(|| T::of(2f64.powi(-(largest.log2() as i32).clamp(-120, 120))))
}
