//! The one definition of every arithmetic and mathematical function.
//!
//! The interpreter and the fast executor both call these, so both give the same bits, on every
//! machine: nothing here depends on the platform's math library (except some double-precision
//! functions, see [`double`]), and no product and sum is contracted. Functions fuse products and sums where
//! they say `mul_add`, which is one rounding everywhere and one instruction on every processor
//! with AVX2 or NEON.
//!
//! The functions are `#[inline(always)]` and choose by selects instead of branches, so that
//! a plain loop over a slice vectorises. The hot ones (`exp`, `log`, `tanh`, `erf`, `sigmoid`,
//! the polynomials of `sin` and `cos`) compute in f32; the rarer ones compute in f64 and round
//! once. The tests bound the error of each against a reference: at most 1.5 ulp (`sigmoid`: 2.3),
//! 0.51 for those computed in f64.
//!
//! Loops over functions that compute in f64 take a shorter first pass ([`quick`]), with the same bits.
//!
//! `sin` and `cos` need a wide reduction beyond [`TRIG_LIMIT`]. A vector loop calls `sin_core`
//! and redoes the rare lanes beyond the limit with `sin`.

mod arith;
pub(crate) mod convert;
pub mod double;
mod elementary;
mod int;
pub(crate) mod op;
pub(crate) mod ops;
mod power;
pub(crate) mod quick;
pub mod scalar;
mod special;
mod trig;

pub use arith::*;
pub(crate) use convert::F16_MIN_POSITIVE;
pub use elementary::*;
pub use power::*;
pub use special::*;
pub use trig::*;

/// A polynomial by Horner's rule with fused steps, lowest coefficient first.
macro_rules! poly {
    ($x:expr; $c:expr) => { $c };
    ($x:expr; $c:expr, $($rest:expr),+ $(,)?) => {
        $x.mul_add($crate::math::poly!($x; $($rest),+), $c)
    };
}
pub(crate) use poly;

#[cfg(test)]
mod tests;
