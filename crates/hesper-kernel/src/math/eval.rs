//! From the IR's operations to the functions: the float cases of unary, binary and test.
//!
//! Each returns `None` for operations that are not of floats (the verifier keeps those away).

use super::*;
use crate::ir::{BinaryOp, TestOp, UnaryOp};

/// A one-operand operation on f32.
#[inline(always)]
pub fn unary_f32(op: UnaryOp, x: f32) -> Option<f32> {
    use UnaryOp as U;
    Some(match op {
        U::Neg => -x,
        U::Abs => x.abs(),
        U::Sign => sign_f32(x),
        U::Sqrt => x.sqrt(),
        U::Rsqrt => rsqrt(x),
        U::Cbrt => cbrt(x),
        U::Exp => exp(x),
        U::Exp2 => exp2(x),
        U::Exp10 => exp10(x),
        U::Expm1 => expm1(x),
        U::Log => log(x),
        U::Log2 => log2(x),
        U::Log10 => log10(x),
        U::Log1p => log1p(x),
        U::Sin => sin(x),
        U::Cos => cos(x),
        U::Tan => tan(x),
        U::SinPi => sin_pi(x),
        U::CosPi => cos_pi(x),
        U::TanPi => tan_pi(x),
        U::Asin => asin(x),
        U::Acos => acos(x),
        U::Atan => atan(x),
        U::Sinh => sinh(x),
        U::Cosh => cosh(x),
        U::Tanh => tanh(x),
        U::Asinh => asinh(x),
        U::Acosh => acosh(x),
        U::Atanh => atanh(x),
        U::Erf => erf(x),
        U::Erfc => erfc(x),
        U::ErfInv => erf_inv(x),
        U::Lgamma => lgamma(x),
        U::Floor => x.floor(),
        U::Ceil => x.ceil(),
        U::Round => round_f32(x),
        U::Rint => x.round_ties_even(),
        U::Trunc => x.trunc(),
        U::Fract => fract_f32(x),
        U::FrexpMant => frexp_f32(x).0,
        U::Sigmoid => sigmoid(x),
        U::Not | U::PopCount | U::Clz | U::Ctz | U::ReverseBits => return None,
    })
}

/// A one-operand operation on f64.
#[inline(always)]
pub fn unary_f64(op: UnaryOp, x: f64) -> Option<f64> {
    use UnaryOp as U;
    Some(match op {
        U::Neg => -x,
        U::Abs => x.abs(),
        U::Sign => sign_f64(x),
        U::Sqrt => x.sqrt(),
        U::Rsqrt => 1.0 / x.sqrt(),
        U::Cbrt => x.cbrt(),
        U::Exp => double::exp(x),
        U::Exp2 => double::exp2(x),
        U::Exp10 => double::exp10(x),
        U::Expm1 => double::exp_m1(x),
        U::Log => double::log(x),
        U::Log2 => double::log2(x),
        U::Log10 => x.log10(),
        U::Log1p => double::log_1p(x),
        U::Sin => double::sin64(x),
        U::Cos => double::cos64(x),
        U::Tan => double::tan64(x),
        U::SinPi => double::sin_pi(x),
        U::CosPi => double::cos_pi(x),
        U::TanPi => double::sin_pi(x) / double::cos_pi(x),
        U::Asin => double::asin(x),
        U::Acos => double::acos(x),
        U::Atan => double::atan(x),
        U::Sinh => double::sinh(x),
        U::Cosh => double::cosh(x),
        U::Tanh => double::tanh(x),
        U::Asinh => double::asinh(x),
        U::Acosh => double::acosh(x),
        U::Atanh => double::atanh(x),
        U::Erf => double::erf(x),
        U::Erfc => double::erfc(x),
        U::ErfInv => double::erf_inv(x),
        U::Lgamma => double::lgamma(x),
        U::Floor => x.floor(),
        U::Ceil => x.ceil(),
        U::Round => round_f64(x),
        U::Rint => x.round_ties_even(),
        U::Trunc => x.trunc(),
        U::Fract => fract_f64(x),
        U::FrexpMant => frexp_f64(x).0,
        U::Sigmoid => double::sigmoid(x),
        U::Not | U::PopCount | U::Clz | U::Ctz | U::ReverseBits => return None,
    })
}

macro_rules! binary {
    ($(#[$m:meta])* $name:ident, $float:ident, $min:ident, $max:ident, $min_nan:ident,
     $max_nan:ident, $fmod:expr, $pow:expr, $atan2:expr, $rem:expr, $next:expr, $hypot:expr) => {
        $(#[$m])*
        #[inline(always)]
        pub fn $name(op: BinaryOp, a: $float, b: $float) -> Option<$float> {
            use BinaryOp as B;
            Some(match op {
                B::Add => a + b,
                B::Sub => a - b,
                B::Mul => a * b,
                B::Div => a / b,
                B::Rem => $fmod(a, b),
                B::Min => $min(a, b),
                B::Max => $max(a, b),
                B::MinNan => $min_nan(a, b),
                B::MaxNan => $max_nan(a, b),
                B::Pow => $pow(a, b),
                B::Atan2 => $atan2(a, b),
                B::IeeeRem => $rem(a, b),
                B::CopySign => a.copysign(b),
                B::NextAfter => $next(a, b),
                B::Fdim => {
                    let d = a - b;
                    if a <= b { 0.0 } else { d }
                }
                B::Hypot => $hypot(a, b),
                _ => return None,
            })
        }
    };
}

binary!(
    /// A two-operand operation on f32 (all but `Ldexp`).
    binary_f32, f32, min_f32, max_f32, min_nan_f32, max_nan_f32, fmod, pow, atan2, ieee_rem, next_after,
    hypot
);
binary!(
    /// A two-operand operation on f64 (all but `Ldexp`).
    binary_f64, f64, min_f64, max_f64, min_nan_f64, max_nan_f64, |a: f64, b: f64| a % b, double::pow, f64::atan2,
    double::ieee_rem, double::next_after, f64::hypot
);

/// A classification of an f32. For the 16-bit floats test the value itself, not its f32: their
/// subnormals are normal in f32.
#[inline(always)]
pub fn test_f32(op: TestOp, x: f32) -> bool {
    match op {
        TestOp::IsNan => x.is_nan(),
        TestOp::IsInf => x.is_infinite(),
        TestOp::IsFinite => x.is_finite(),
        TestOp::IsNormal => x.is_normal(),
        TestOp::SignBit => x.is_sign_negative(),
    }
}

/// A classification of an f64.
#[inline(always)]
pub fn test_f64(op: TestOp, x: f64) -> bool {
    match op {
        TestOp::IsNan => x.is_nan(),
        TestOp::IsInf => x.is_infinite(),
        TestOp::IsFinite => x.is_finite(),
        TestOp::IsNormal => x.is_normal(),
        TestOp::SignBit => x.is_sign_negative(),
    }
}
