//! Powers, remainders and other two-operand functions in f32.

use super::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::elementary::{exp64, log64};

/// `x^y` with C's special cases.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let l = log64(f64::from(a));
    let l = if a == 0.0 { f64::NEG_INFINITY } else { l };
    let l = if a == f32::INFINITY { f64::INFINITY } else { l };
    let l = if a == 1.0 { 0.0 } else { l };
    let r = exp64(f64::from(y) * l) as f32;
    let integer = y.trunc() == y;
    let half = y * 0.5;
    let odd = integer && half.trunc() != half;
    let r = if odd && x.is_sign_negative() { -r } else { r };
    let outside = x < 0.0 && x > f32::NEG_INFINITY && !integer;
    let r = if outside { f32::NAN } else { r };
    let r = if x.is_nan() || y.is_nan() { f32::NAN } else { r };
    // 1 to anything, -1 to an infinity, anything to 0.
    let one = x == 1.0 || y == 0.0 || (x == -1.0 && y.is_infinite());
    if one { 1.0 } else { r }
}

/// C's `fmod`: exact, with the sign of `a`.
#[inline(always)]
pub fn fmod(a: f32, b: f32) -> f32 {
    if fmod_is_rare(a, b) { a % b } else { fmod_core(a, b) }
}

/// Whether [`fmod_core`] is wrong: operands without a remainder, and large quotients.
#[inline(always)]
pub fn fmod_is_rare(a: f32, b: f32) -> bool {
    // Products of `b` and quotients up to here are exact in f64.
    let few = f64::from(a.abs()) < f64::from(b.abs()) * 536_870_912.0;
    !few || b.is_infinite()
}

/// `fmod` unless [`fmod_is_rare`].
#[inline(always)]
pub fn fmod_core(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a.abs()), f64::from(b.abs()));
    let q = (x / y).trunc();
    let r = q.mul_add(-y, x);
    // The quotient may have been rounded up to an integer.
    let r = if r < 0.0 { r + y } else { r };
    (r as f32).copysign(a)
}

/// IEEE remainder: `a - n b`, `n` the nearest integer to `a / b`, halves to even. Exact.
#[inline(always)]
pub fn ieee_rem(a: f32, b: f32) -> f32 {
    // Twice an f32 is exact in f64.
    ieee_rem_by(f64::from(a), f64::from(b), f64::from(b) * 2.0) as f32
}

/// IEEE remainder, given `2 b` (infinite if it overflows).
#[inline(always)]
pub(super) fn ieee_rem_by(a: f64, b: f64, twice: f64) -> f64 {
    let b = b.abs();
    // Modulo 2b the parity of the quotient is kept.
    let r = a.abs() % twice.abs();
    let above_half = r > b - r;
    let r = if above_half { r - b } else { r };
    let r = if above_half && r >= b - r { r - b } else { r };
    let y = if r == 0.0 { 0.0f64.copysign(a) } else { r };
    let y = if a.is_sign_negative() && r != 0.0 { -y } else { y };
    let bad = a.is_infinite() || b == 0.0 || a.is_nan() || b.is_nan();
    if bad { f64::NAN } else { y }
}

/// The next float from `a` towards `b`.
#[inline(always)]
pub fn next_after(a: f32, b: f32) -> f32 {
    let bits = a.to_bits();
    let up = (b > a) == (a > 0.0);
    let moved = f32::from_bits(if up { bits.wrapping_add(1) } else { bits.wrapping_sub(1) });
    let r = if a == 0.0 { f32::from_bits(1).copysign(b) } else { moved };
    let r = if a == b { b } else { r };
    if a.is_nan() || b.is_nan() { f32::NAN } else { r }
}

macro_rules! next_after_half {
    ($name:ident, $pack:ident, $unpack:ident) => {
        /// The next float of the 16-bit type from `a` towards `b`; both are values of the type.
        #[inline(always)]
        pub(crate) fn $name(a: f32, b: f32) -> f32 {
            let bits = $pack(a);
            let away = (b > a) == (a > 0.0);
            let next = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
            let next = if a == 0.0 { 1 | u16::from(b < 0.0) << 15 } else { next };
            let r = if a == b { b } else { $unpack(next) };
            if a.is_nan() || b.is_nan() { f32::NAN } else { r }
        }
    };
}
next_after_half!(next_after_f16, f32_to_f16, f16_to_f32);
next_after_half!(next_after_bf16, f32_to_bf16, bf16_to_f32);

/// `sqrt(a^2 + b^2)`; infinite if either is.
#[inline(always)]
pub fn hypot(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let r = (x * x + y * y).sqrt() as f32;
    if a.is_infinite() || b.is_infinite() { f32::INFINITY } else { r }
}

/// `a * 2^n`, correctly rounded.
#[inline(always)]
pub fn ldexp(a: f32, n: i32) -> f32 {
    let n = i64::from(n.clamp(-400, 400));
    let p = f64::from_bits(((n + 1023) << 52) as u64);
    (f64::from(a) * p) as f32
}
