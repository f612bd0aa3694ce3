//! Exponentials, logarithms and hyperbolic functions in f64, to about one unit of the last place,
//! without branches.

use crate::math::elementary::{LN2_HI64, LN2_LO64, MAGIC64};
use crate::math::poly;

/// `2^n` for `n` in [-1022, 1023].
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) << 52) as u64)
}

/// The integer that adding [`MAGIC64`] left in `t`; any number for NaN.
#[inline(always)]
fn magic_int(t: f64) -> i64 {
    (t.to_bits() as i64).wrapping_sub(MAGIC64.to_bits() as i64)
}

/// `e^(r + lo) - 1` for `|r| <= 0.35` and a `lo` far below.
#[inline(always)]
fn exp_m1_core(r: f64, lo: f64) -> f64 {
    let p = poly!(r; 0.5, 0.166_666_666_666_666_7, 0.041_666_666_666_666_67,
        0.008_333_333_333_326_136, 0.001_388_888_888_888_374_8, 1.984_126_987_482_062_7e-4,
        2.480_158_732_554_774_3e-5, 2.755_725_540_020_642_2e-6, 2.755_727_364_311_03e-7,
        2.510_521_700_472_074_5e-8, 2.091_468_696_808_687_6e-9);
    r + (r * r).mul_add(p, r.mul_add(lo, lo))
}

/// `n`, `r` and `lo` with `x = n ln 2 + r + lo`, for `x` of moderate size.
#[inline(always)]
fn reduce(x: f64) -> (i64, f64, f64) {
    let t = x.mul_add(std::f64::consts::LOG2_E, MAGIC64);
    let n = t - MAGIC64;
    let near = n.mul_add(-LN2_HI64, x);
    let r = n.mul_add(-LN2_LO64, near);
    (magic_int(t), r, n.mul_add(-LN2_LO64, near - r))
}

/// `x` where it is between the bounds, else the nearer bound; NaN stays.
#[inline(always)]
fn clamped(x: f64, least: f64, most: f64) -> f64 {
    let c = if x > most { most } else { x };
    if c < least { least } else { c }
}

/// `e^(x + extra)` for an `extra` far below `x`; saturates as [`exp`].
#[inline(always)]
pub(super) fn exp_sum(x: f64, extra: f64) -> f64 {
    let (n, r, lo) = reduce(clamped(x, -746.0, 710.0));
    let half = n >> 1;
    (1.0 + exp_m1_core(r + (lo + extra), 0.0)) * power_of_two(half) * power_of_two(n - half)
}

/// `e^x`.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    exp_sum(x, 0.0)
}

/// `2^x`.
#[inline(always)]
pub fn exp2(x: f64) -> f64 {
    let c = clamped(x, -1076.0, 1025.0);
    let t = c + MAGIC64;
    let r = c - (t - MAGIC64);
    let n = magic_int(t);
    let half = n >> 1;
    let y = 1.0 + exp_m1_core(r * std::f64::consts::LN_2, 0.0);
    y * power_of_two(half) * power_of_two(n - half)
}

/// `(e^x - 1) / 2`, which does not overflow before [`sinh`] does.
#[inline(always)]
fn half_exp_m1(x: f64) -> f64 {
    let (n, r, lo) = reduce(clamped(x, -50.0, 710.5));
    let h = power_of_two(n - 2);
    2.0 * h.mul_add(exp_m1_core(r, lo), h - 0.25)
}

/// `e^x - 1`.
#[inline(always)]
pub fn exp_m1(x: f64) -> f64 {
    let y = 2.0 * half_exp_m1(x);
    if x.abs() < 1e-17 { x } else { y }
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f64) -> f64 {
    let h = half_exp_m1(x.abs());
    let y = if h < 1e300 { h + h / h.mul_add(2.0, 1.0) } else { h };
    if x.abs() < 1e-9 { x } else { y.copysign(x) }
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f64) -> f64 {
    let e = half_exp_m1(x.abs()) + 0.5;
    e + 0.25 / e
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f64) -> f64 {
    let a = x.abs();
    let c = if a > 20.0 { 20.0 } else { a };
    let h = half_exp_m1(2.0 * c);
    let y = h / (h + 1.0);
    if a < 1e-9 { x } else { y.copysign(x) }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f64) -> f64 {
    let e = exp(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    top / (1.0 + e)
}

/// The mantissa of a positive number in [sqrt(1/2), sqrt(2)), and its exponent.
#[inline(always)]
pub(super) fn split(x: f64) -> (f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let tiny = x < f64::MIN_POSITIVE;
    let scaled = if tiny { x * 18_014_398_509_481_984.0 } else { x };
    let i = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((i as i64) >> 52) - if tiny { 54 } else { 0 };
    (f64::from_bits((i & 0x000f_ffff_ffff_ffff) + SQRT_HALF), small_float(e))
}

/// An integer below 2^51 as a float, without a conversion that not every vector unit has.
#[inline(always)]
fn small_float(n: i64) -> f64 {
    f64::from_bits(MAGIC64.to_bits().wrapping_add(n as u64)) - MAGIC64
}

/// `1/5 + z/7 + ..`: with `z = s^2`, `atanh(s) = s + s z (1/3 + z tail)`.
#[inline(always)]
pub(super) fn atanh_tail(z: f64) -> f64 {
    poly!(z; 0.199_999_999_999_999_96, 0.142_857_142_857_176_9, 0.111_111_111_099_262_32,
        0.090_909_092_972_852_35, 0.076_922_875_302_802_94, 0.066_678_208_870_002_9,
        0.058_440_270_471_312_8, 0.059_413_136_905_726_44)
}

/// `log(1 + f) + e ln 2 + extra` for `f` in [sqrt(1/2) - 1, sqrt(2) - 1).
#[inline(always)]
fn log_sum(f: f64, e: f64, extra: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let square = 0.5 * f * f;
    let r = 2.0 * z * z.mul_add(atanh_tail(z), 1.0 / 3.0);
    // f - f^2/2 + s (f^2/2 + r), the large terms last.
    let low = s.mul_add(square + r, e.mul_add(LN2_LO64, extra));
    e.mul_add(LN2_HI64, f - (square - low))
}

/// `r`, with the special values of a logarithm of `x` put in.
#[inline(always)]
fn special(x: f64, r: f64) -> f64 {
    let r = if x == 0.0 { f64::NEG_INFINITY } else { r };
    let r = if x < 0.0 { f64::NAN } else { r };
    // Infinity and NaN.
    if x < f64::INFINITY { r } else { x }
}

/// Natural logarithm.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    let (m, e) = split(x);
    special(x, log_sum(m - 1.0, e, 0.0))
}

/// Base-2 logarithm.
#[inline(always)]
pub fn log2(x: f64) -> f64 {
    const LO: f64 = 2.035_527_374_093_103_3e-17;
    let (m, e) = split(x);
    let l = log_sum(m - 1.0, 0.0, 0.0);
    let y = l.mul_add(std::f64::consts::LOG2_E, l * LO);
    special(x, e + y)
}

/// `log(1 + x)` for `x` above -1, without the special values.
#[inline(always)]
fn log_1p_core(x: f64) -> f64 {
    let u = 1.0 + x;
    // What the sum lost.
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    let (m, e) = split(u);
    log_sum(m - 1.0, e, lost / u)
}

/// `log(1 + x)`.
#[inline(always)]
pub fn log_1p(x: f64) -> f64 {
    let y = log_1p_core(x);
    let r = if x.abs() < 1e-17 { x } else { y };
    let r = if x == -1.0 { f64::NEG_INFINITY } else { r };
    let r = if x < -1.0 { f64::NAN } else { r };
    if x < f64::INFINITY { r } else { x }
}

/// From here on `log(2 a)` is the inverse hyperbolic sine and cosine.
const LARGE: f64 = 1e9;

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh(x: f64) -> f64 {
    let a = x.abs();
    let z = a * a;
    let near = a + z / (1.0 + (z + 1.0).sqrt());
    let y = log_1p_core(if a > LARGE { a - 1.0 } else { near });
    let y = if a > LARGE { y + std::f64::consts::LN_2 } else { y };
    let y = if a < 1e-9 { a } else { y };
    (if a < f64::INFINITY { y } else { a }).copysign(x)
}

/// Inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub fn acosh(x: f64) -> f64 {
    let d = x - 1.0;
    let near = d + (d * (d + 2.0)).sqrt();
    let y = log_1p_core(if x > LARGE { d } else { near });
    let y = if x > LARGE { y + std::f64::consts::LN_2 } else { y };
    let y = if x < 1.0 { f64::NAN } else { y };
    if x < f64::INFINITY { y } else { x }
}

/// Inverse hyperbolic tangent; NaN beyond ±1.
#[inline(always)]
pub fn atanh(x: f64) -> f64 {
    let a = x.abs();
    let y = 0.5 * log_1p_core(2.0 * a / (1.0 - a));
    let y = if a < 1e-9 { a } else { y };
    let y = if a == 1.0 { f64::INFINITY } else { y };
    (if a <= 1.0 { y } else { f64::NAN }).copysign(x)
}
