//! Factorisations of real matrices, blocked so that nearly all of their work is in products of blocks.
//!
//! Matrices lie row by row in slices. The products run on the caller's executor; what is between them runs on
//! the calling thread. Blocks are cut by the sizes of the matrices alone, so results do not depend on the
//! number of threads.

mod block;
mod cholesky;
mod lu;
mod qr;
mod reflect;
mod triangular;
mod tridiagonal;

use std::ops::{Add, Div, Mul, Neg, Sub};

pub(crate) use block::{Block, turn};
pub(crate) use cholesky::cholesky;
pub(crate) use lu::lu;
pub(crate) use qr::qr;
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
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! scalars {
    ($($t:ident)*) => { $(
        impl Scalar for $t {
            const SMALLEST: $t = $t::MIN_POSITIVE * 4.0;
            fn abs(self) -> $t { $t::abs(self) }
            fn sqrt(self) -> $t { $t::sqrt(self) }
            fn of(x: f64) -> $t { x as $t }
            fn to_f64(self) -> f64 { f64::from(self) }
        }
    )* };
}

scalars!(f32 f64);

/// A power of two that brings the largest element near one, if squares of elements could overflow or vanish.
pub(crate) fn balance<T: Scalar>(a: &[T]) -> Option<T> {
    let largest = a.iter().fold(T::ZERO, |most, x| if x.abs() > most { x.abs() } else { most }).to_f64();
    let tame = (1e-12..1e12).contains(&largest) || largest == 0.0 || !largest.is_finite();
    (!tame).then(|| T::of(2f64.powi(-(largest.log2() as i32).clamp(-120, 120))))
}
