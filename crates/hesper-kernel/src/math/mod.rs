//! The one definition of every arithmetic and mathematical function.
//!
//! The interpreter and the fast executor both call these, so both give the same bits, on every
//! machine: nothing here depends on the platform's math library (except the double-precision
//! functions of [`double`]), nothing is contracted, and `mul_add` appears only where the IR asks
//! for a fused operation.
//!
//! The f32 functions are `#[inline(always)]` and choose by selects instead of branches, so that
//! a plain loop over a slice vectorises. The hot ones (`exp`, `log`, `tanh`, `erf`, `sigmoid`,
//! the polynomials of `sin` and `cos`) compute in f32; the rarer ones compute in f64 and round
//! once. The tests bound the error of each against a reference: at most 1.5 ulp (`sigmoid`: 2.3),
//! 0.51 for those computed in f64.
//!
//! `sin` and `cos` need a wide reduction beyond [`TRIG_LIMIT`]. A vector loop calls `sin_core`
//! and redoes the rare lanes beyond the limit with `sin`.

mod arith;
pub mod convert;
pub mod double;
mod elementary;
mod eval;
mod power;
pub mod scalar;
mod special;
mod trig;

pub use arith::*;
pub use elementary::*;
pub use eval::{binary_f32, binary_f64, test_f32, test_f64, unary_f32, unary_f64};
pub use power::*;
pub use special::*;
pub use trig::*;

/// A polynomial by Horner's rule, lowest coefficient first.
macro_rules! poly {
    ($x:expr; $c:expr) => { $c };
    ($x:expr; $c:expr, $($rest:expr),+ $(,)?) => { $c + $x * $crate::math::poly!($x; $($rest),+) };
}
pub(crate) use poly;

#[cfg(test)]
mod tests;
