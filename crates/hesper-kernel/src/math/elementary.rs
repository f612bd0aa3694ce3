//! Exponentials, logarithms, hyperbolic functions and the cube root in f32, and the f64 functions that the
//! rarer ones use.

use hesper_types::math::{LN2_HI, LN2_LO, MAGIC, magic_int, scale};
pub use hesper_types::math::{exp, sigmoid};

use super::poly;

pub(super) const MAGIC64: f64 = 6_755_399_441_055_744.0;
/// ln 2 in a part short enough for exact products with exponents, and the rest.
pub(super) const LN2_HI64: f64 = 0.693_147_180_369_123_8;
pub(super) const LN2_LO64: f64 = 1.908_214_929_270_587_7e-10;

/// `2^x`.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let c = if x > 129.0 { 129.0 } else { x };
    let c = if c < -151.0 { -151.0 } else { c };
    let t = c + MAGIC;
    let r = c - (t - MAGIC);
    let p = poly!(r; std::f32::consts::LN_2, 0.240_226_5, 0.055_504_11, 0.009_618_056, 0.001_333_350_2,
        1.546_156_1e-4, 1.529_741_3e-5);
    scale(r.mul_add(p, 1.0), magic_int(t))
}

/// `10^x`.
#[inline(always)]
pub fn exp10(x: f32) -> f32 {
    exp64(f64::from(x) * std::f64::consts::LN_10) as f32
}

/// `e^x - 1`.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let d = f64::from(x);
    let small = d + d * d * (0.5 + d * (1.0 / 6.0));
    let r = if d.abs() < 1.0 / 4096.0 { small } else { exp64(d) - 1.0 };
    keep_zero(x, r as f32)
}

/// `y`, but `x` itself where `x` is a zero (of either sign).
#[inline(always)]
pub(super) fn keep_zero(x: f32, y: f32) -> f32 {
    if x == 0.0 { x } else { y }
}

/// `e^x` in f64, to about 1e-16, for results that end as f32: saturates beyond `e^±300`.
#[inline(always)]
pub(super) fn exp64(x: f64) -> f64 {
    let c = if x > 300.0 { 300.0 } else { x };
    let c = if c < -300.0 { -300.0 } else { c };
    let t = c.mul_add(std::f64::consts::LOG2_E, MAGIC64);
    let n = t - MAGIC64;
    let r = n.mul_add(-LN2_LO64, n.mul_add(-LN2_HI64, c));
    let p = poly!(r; 0.5, 0.166_666_666_666_666_7, 0.041_666_666_666_666_67,
        0.008_333_333_333_326_136, 0.001_388_888_888_888_374_8, 1.984_126_987_482_062_7e-4,
        2.480_158_732_554_774_3e-5, 2.755_725_540_020_642_2e-6, 2.755_727_364_311_03e-7,
        2.510_521_700_472_074_5e-8, 2.091_468_696_808_687_6e-9);
    let y = 1.0 + (r * r).mul_add(p, r);
    y * f64::from_bits(1.0f64.to_bits().wrapping_add(t.to_bits() << 52))
}

/// Natural logarithm.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    // Mantissa into [sqrt(1/2), sqrt(2)).
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let i = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((i as i32) >> 23) - if tiny { 23 } else { 0 };
    let m = f32::from_bits((i & 0x007f_ffff) + SQRT_HALF);
    let e = e as f32;
    let f = m - 1.0;
    let z = f * f;
    let q = poly!(f; 0.333_333_3, -0.249_999_97, 0.200_007_16, -0.166_678_03, 0.142_490_58,
        -0.124_256_87, 0.116_854_2, -0.114_797_34, 0.069_716_12);
    let y = z.mul_add(-0.5, (f * z).mul_add(q, e * LN2_LO));
    let r = e.mul_add(LN2_HI, f + y);
    log_special(x, r)
}

/// `r`, with the special values of a logarithm of `x` put in.
#[inline(always)]
fn log_special(x: f32, r: f32) -> f32 {
    let r = if x == 0.0 { f32::NEG_INFINITY } else { r };
    let r = if x < 0.0 { f32::NAN } else { r };
    // Infinity and NaN.
    if x < f32::INFINITY { r } else { x }
}

/// Base-2 logarithm.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let (e, l) = log_parts(f64::from(x));
    log_special(x, l.mul_add(std::f64::consts::LOG2_E, e) as f32)
}

/// Base-10 logarithm.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    log_special(x, (log64(f64::from(x)) * std::f64::consts::LOG10_E) as f32)
}

/// `log(1 + x)`.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let d = f64::from(x);
    let small = d - d * d * (0.5 - d * (1.0 / 3.0));
    let r = if d.abs() < 1.0 / 4096.0 { small } else { log64(1.0 + d) };
    let r = if x == -1.0 { f32::NEG_INFINITY } else { r as f32 };
    let r = if x < -1.0 { f32::NAN } else { r };
    let r = if x < f32::INFINITY { r } else { x };
    keep_zero(x, r)
}

/// Exponent and natural logarithm of the mantissa, in [-0.35, 0.35], of a positive normal.
#[inline(always)]
fn log_parts(x: f64) -> (f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let i = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((i as i64) >> 52) as i32;
    let m = f64::from_bits((i & 0x000f_ffff_ffff_ffff) + SQRT_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = poly!(z; 0.333_333_333_333_333_3, 0.199_999_999_999_999_96, 0.142_857_142_857_176_9,
        0.111_111_111_099_262_32, 0.090_909_092_972_852_35, 0.076_922_875_302_802_94,
        0.066_678_208_870_002_9, 0.058_440_270_471_312_8, 0.059_413_136_905_726_44);
    (f64::from(e), 2.0 * (s * z).mul_add(p, s))
}

/// Natural logarithm in f64 of a positive normal number; unspecified for others.
#[inline(always)]
pub(super) fn log64(x: f64) -> f64 {
    let (e, l) = log_parts(x);
    e.mul_add(LN2_HI64, e.mul_add(LN2_LO64, l))
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let d = f64::from(x);
    let z = d * d;
    let small = d * poly!(z; 1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0);
    let e = exp64(d);
    let r = if d.abs() < 0.25 { small } else { 0.5 * (e - 1.0 / e) };
    keep_zero(x, r as f32)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let e = exp64(f64::from(x));
    (0.5 * (e + 1.0 / e)) as f32
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = poly!(z; -0.333_333_34, 0.133_333_24, -0.053_964_7, 0.021_818_45, -0.008_526_333,
        0.002_526_390_6);
    let small = x.mul_add(z * p, x);
    let c = if a > 10.0 { 10.0 } else { a };
    let large = 1.0 - 2.0 / (exp(2.0 * c) + 1.0);
    let y = if a < 0.55 { small } else { large };
    y.copysign(x)
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let z = a * a;
    let small = a * poly!(z; 1.0, -1.0 / 6.0, 3.0 / 40.0, -15.0 / 336.0);
    let r = if a < 0.0625 { small } else { log64(a + (z + 1.0).sqrt()) };
    let r = if x.abs() < f32::INFINITY { r as f32 } else { x.abs() };
    r.copysign(x)
}

/// Inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let d = f64::from(x) - 1.0;
    let r = log64(1.0 + (d + (d * (d + 2.0)).sqrt())) as f32;
    let r = if x < 1.0 { f32::NAN } else { r };
    if x < f32::INFINITY { r } else { x }
}

/// Inverse hyperbolic tangent; NaN beyond ±1.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let d = f64::from(x.abs());
    let z = d * d;
    let small = d * poly!(z; 1.0, 1.0 / 3.0, 0.2, 1.0 / 7.0);
    let r = if d < 0.0625 { small } else { 0.5 * log64((1.0 + d) / (1.0 - d)) };
    let r = if d == 1.0 { f64::INFINITY } else { r };
    let r = if d <= 1.0 { r } else { f64::NAN };
    (r as f32).copysign(x)
}

/// Cube root.
#[inline(always)]
pub fn cbrt(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let r = exp64(log64(a) * (1.0 / 3.0)) as f32;
    let r = if x != 0.0 && x.abs() < f32::INFINITY { r } else { x.abs() };
    r.copysign(x)
}
