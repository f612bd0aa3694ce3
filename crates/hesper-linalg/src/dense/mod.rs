//! Factorisations of real matrices, blocked so that nearly all of their work is in products of blocks.
//!
//! Matrices lie row by row in slices. The products run on the caller's executor; what is between them runs on
//! the calling thread. Blocks are cut by the sizes of the matrices alone, so results do not depend on the
//! number of threads.

mod bidiagonal;
mod block;
mod cholesky;
mod divide;
mod few;
mod implicit;
mod lines;
mod lu;
mod panel;
mod qr;
mod reflect;
mod secular;
mod share;
mod singular;
mod svd;
mod triangular;
mod tridiagonal;
mod wide;

use std::ops::{Add, Div, Mul, Neg, Sub};

pub(crate) use block::{Block, turn};
pub(crate) use cholesky::cholesky;
pub(crate) use divide::{tridiagonal_values, tridiagonal_vectors};
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
    /// The smallest number whose reciprocal is finite with room to spare.
    const SMALLEST: Self;
    /// What added to one is the next number.
    const EPSILON: Self;
    /// How well a sum of doubles has to be known for vectors in this type.
    const ROUGHLY: f64;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! scalars {
    ($($t:ident, $roughly:expr;)*) => { $(
        impl Scalar for $t {
            const SMALLEST: $t = $t::MIN_POSITIVE * 4.0;
            const EPSILON: $t = $t::EPSILON;
            const ROUGHLY: f64 = $roughly;
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

/// The largest absolute value, or NaN if there are numbers that are not finite.
pub(crate) fn largest<T: Scalar>(a: &[T]) -> T {
    let (mut most, mut spoilt) = ([T::ZERO; 16], [T::ZERO; 16]);
    let (many, rest) = a.as_chunks::<16>();
    for chunk in many {
        for lane in 0..16 {
            let x = chunk[lane];
            most[lane] = if x.abs() > most[lane] { x.abs() } else { most[lane] };
            // Zero, unless a number is infinite or NaN.
            spoilt[lane] = spoilt[lane] + x * T::ZERO;
        }
    }
    for x in rest {
        most[0] = if x.abs() > most[0] { x.abs() } else { most[0] };
        spoilt[0] = spoilt[0] + *x * T::ZERO;
    }
    let spoilt = spoilt.into_iter().fold(T::ZERO, |sum, x| sum + x);
    most.into_iter().fold(T::ZERO, |most, x| if x > most { x } else { most }) + spoilt
}

/// A power of two that brings the largest element near one, if squares of elements could overflow or vanish.
pub(crate) fn balance<T: Scalar>(a: &[T]) -> Option<T> {
    let largest = largest(a).to_f64();
    let tame = (1e-12..1e12).contains(&largest) || largest == 0.0 || !largest.is_finite();
    (!tame).then(|| T::of(2f64.powi(-(largest.log2() as i32).clamp(-120, 120))))
}
