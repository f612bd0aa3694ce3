//! Factorizations of real and complex matrices, blocked so that nearly all work is in matrix products.
//!
//! Matrices are row-major slices. Products run on the caller's executor, everything between them on the
//! calling thread. Block sizes depend on the sizes of the matrices only, so results do not depend on the
//! number of threads.

mod bidiagonal;
mod block;
mod cholesky;
mod complex;
mod divide_and_conquer;
mod eigh;
mod field;
mod general;
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

pub(crate) use block::{Block, transpose};
pub(crate) use cholesky::{cholesky, semidefinite_cholesky};
pub use complex::Complex;
pub(crate) use eigh::eigh;
pub use field::{Field, Scalar};
pub use general::Eigen;
pub(crate) use general::{complex_eigen, real_eigen};
pub(crate) use lu::lu;
pub(crate) use qr::qr;
pub(crate) use svd::{singular_values, svd};
pub use triangular::Factor;
pub(crate) use triangular::{solve_lower, solve_upper};

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
    (!tame).then(|| T::of(2f64.powi(-(largest.log2() as i32).clamp(-T::MAX_EXPONENT, T::MAX_EXPONENT))))
}
