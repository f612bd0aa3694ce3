//! Circular functions in f32 and their inverses.
//!
//! The argument is reduced by pi/2 in several parts, exactly enough up to [`TRIG_LIMIT`];
//! beyond, against 256 bits of 2/pi in integer arithmetic. The result is right for every f32.

use super::poly;

/// Largest magnitude for which [`sin_core`] and [`cos_core`] are right.
pub const TRIG_LIMIT: f32 = 524_288.0;

const MAGIC64: f64 = 6_755_399_441_055_744.0;
/// pi/2 and what it misses.
pub(super) const PIO2_HI: f64 = std::f64::consts::FRAC_PI_2;
pub(super) const PIO2_LO: f64 = 6.123_233_995_736_766e-17;

/// The fractional bits of 2/pi, most significant word first.
const TWO_OVER_PI: [u32; 8] =
    [0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab, 0xdebb_c561];

/// Quadrant (modulo 4, in the low bits) and remainder in [-pi/4, pi/4] of `|x| <= TRIG_LIMIT`.
#[inline(always)]
fn reduce(x: f32) -> (u32, f64) {
    let d = f64::from(x);
    let t = d.mul_add(std::f64::consts::FRAC_2_PI, MAGIC64);
    let n = t - MAGIC64;
    let r = n.mul_add(-PIO2_LO, n.mul_add(-PIO2_HI, d));
    (t.to_bits() as u32, r)
}

/// `w = n c`, rounded; `a - w`, rounded; and the error of the second rounding.
macro_rules! minus_product {
    ($a:expr, $n:expr, $c:expr) => {{
        let w = $n * $c;
        let r = $a - w;
        let taken = r - $a;
        (w, r, ($a - (r - taken)) - (w + taken))
    }};
}
pub(super) use minus_product;

/// As [`reduce`], in f32: the remainder and what its rounding lost.
#[inline(always)]
fn reduce_pair(x: f32) -> (u32, f32, f32) {
    const HI: f32 = std::f32::consts::FRAC_PI_2;
    const MID: f32 = -4.371_139e-8;
    const LO: f32 = -1.715_124_5e-15;
    const MAGIC: f32 = 12_582_912.0;
    let t = x.mul_add(std::f32::consts::FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    // Both are multiples of 2^-23 from 1 on, so this is exact.
    let near = n.mul_add(-HI, x);
    let (w, r, lost) = minus_product!(near, n, MID);
    (t.to_bits(), r, n.mul_add(-LO, lost - n.mul_add(MID, -w)))
}

/// As [`reduce`], for finite `x` of magnitude 4 at least.
#[inline(never)]
fn reduce_huge(x: f32) -> (u32, f64) {
    let bits = x.to_bits();
    let m = u128::from((bits & 0x007f_ffff) | 0x0080_0000);
    // |x| = m * 2^e. Bits of 2/pi above 2^(2-e) only add multiples of 4 to the quotient.
    let e = ((bits >> 23) & 0xff) as i32 - 150;
    let first = (e - 2).max(0) as usize;
    let word = |i: usize| u128::from(TWO_OVER_PI.get(i).copied().unwrap_or(0));
    let w = first / 32;
    let window = (word(w) << 96) | (word(w + 1) << 64) | (word(w + 2) << 32) | word(w + 3);
    let s = (first % 32) as u32;
    let window = if s == 0 { window } else { (window << s) | (word(w + 4) >> (32 - s)) };
    // The window starts `2 - e` bits above the point of the quotient, or at it for small e.
    let shift = (2 - e).clamp(0, 64) as u32;
    let product = m.wrapping_mul(window >> shift);
    let fraction = (product << 2) as i128;
    let quadrant = (product >> 126) as u32 + u32::from(fraction < 0);
    let r = fraction as f64
        * (std::f64::consts::FRAC_PI_2 / 340_282_366_920_938_463_463_374_607_431_768_211_456.0);
    if x < 0.0 { (quadrant.wrapping_neg(), -r) } else { (quadrant, r) }
}

/// Sine of `r + lo + quadrant * pi/2`, `r` in [-pi/4, pi/4] and `lo` below its last place.
#[inline(always)]
fn sin_quadrant(quadrant: u32, r: f32, lo: f32) -> f32 {
    let z = r * r;
    let p = z * poly!(z; -0.166_666_67, 0.008_333_332, -1.984_008_3e-4, 2.724_931_4e-6);
    let s = r + r.mul_add(p, lo);
    let p = poly!(z; 0.041_666_664, -0.001_388_83, 2.454_743_7e-5);
    let c = 1.0 - z.mul_add(0.5, r.mul_add(lo, -(z * z * p)));
    let y = if quadrant & 1 == 0 { s } else { c };
    f32::from_bits(y.to_bits() ^ ((quadrant & 2) << 30))
}

/// As [`sin_quadrant`], of a remainder in f64.
#[inline(always)]
fn sin_quadrant_wide(quadrant: u32, r: f64) -> f32 {
    let near = r as f32;
    sin_quadrant(quadrant, near, (r - f64::from(near)) as f32)
}

/// Sine for `|x| <= TRIG_LIMIT` (and NaN); branch-free.
#[inline(always)]
pub fn sin_core(x: f32) -> f32 {
    let (q, r, lo) = reduce_pair(x);
    let y = sin_quadrant(q, r, lo);
    if x == 0.0 { x } else { y }
}

/// Cosine for `|x| <= TRIG_LIMIT` (and NaN); branch-free.
#[inline(always)]
pub fn cos_core(x: f32) -> f32 {
    let (q, r, lo) = reduce_pair(x);
    sin_quadrant(q.wrapping_add(1), r, lo)
}

/// Sine.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    if x.abs() > TRIG_LIMIT {
        if x.is_infinite() {
            return f32::NAN;
        }
        let (q, r) = reduce_huge(x);
        return sin_quadrant_wide(q, r);
    }
    sin_core(x)
}

/// Cosine.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    if x.abs() > TRIG_LIMIT {
        if x.is_infinite() {
            return f32::NAN;
        }
        let (q, r) = reduce_huge(x);
        return sin_quadrant_wide(q.wrapping_add(1), r);
    }
    cos_core(x)
}

/// Sine and cosine in f64 of `r` in [-pi/4, pi/4].
#[inline(always)]
pub(super) fn sin_cos64(r: f64) -> (f64, f64) {
    let z = r * r;
    let p = poly!(z; -0.166_666_666_666_666_66, 0.008_333_333_333_330_925,
        -1.984_126_983_672_241_8e-4, 2.755_731_608_381_636e-6, -2.505_112_794_401_418_4e-8,
        1.591_784_852_480_803_4e-10);
    let q = poly!(z; 0.041_666_666_666_666_664, -0.001_388_888_888_888_738_2,
        2.480_158_729_874_307e-5, -2.755_731_726_000_883_7e-7, 2.087_614_382_799_313e-9,
        -1.138_245_677_806_116_4e-11);
    (r.mul_add(z * p, r), (z * z).mul_add(q, z.mul_add(-0.5, 1.0)))
}

#[inline(always)]
fn tan_quadrant(quadrant: u32, r: f64) -> f64 {
    let (s, c) = sin_cos64(r);
    if quadrant & 1 == 0 { s / c } else { -c / s }
}

/// Tangent for `|x| <= TRIG_LIMIT` (and NaN); branch-free.
#[inline(always)]
pub fn tan_core(x: f32) -> f32 {
    let (q, r) = reduce(x);
    let y = tan_quadrant(q, r) as f32;
    if x == 0.0 { x } else { y }
}

/// Tangent.
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    if x.abs() > TRIG_LIMIT {
        if x.is_infinite() {
            return f32::NAN;
        }
        let (q, r) = reduce_huge(x);
        return tan_quadrant(q, r) as f32;
    }
    tan_core(x)
}

/// Quadrant and remainder of `pi x`, exact for every finite `x`.
#[inline(always)]
fn reduce_pi(x: f64) -> (u32, f64) {
    // Floats beyond 2^24 are even: their sine is 0 and their cosine 1.
    let small = x.abs() < 16_777_216.0;
    let d = if small { x } else { x * 0.0 };
    let t = 2.0 * d + MAGIC64;
    let r = d - 0.5 * (t - MAGIC64);
    (t.to_bits() as u32, r * std::f64::consts::PI)
}

#[inline(always)]
fn sin_pi_quadrant(quadrant: u32, r: f64) -> f64 {
    let (s, c) = sin_cos64(r);
    let y = if quadrant & 1 == 0 { s } else { c };
    if quadrant & 2 == 0 { y } else { -y }
}

/// `sin(pi x)` in f64 for f32 results.
#[inline(always)]
pub(super) fn sin_pi64(x: f64) -> f64 {
    let (q, r) = reduce_pi(x);
    sin_pi_quadrant(q, r)
}

/// `sin(pi x)`; zeros have the sign of `x`.
#[inline(always)]
pub fn sin_pi(x: f32) -> f32 {
    let y = sin_pi64(f64::from(x)) as f32;
    if y == 0.0 { y.copysign(x) } else { y }
}

/// `cos(pi x)`.
#[inline(always)]
pub fn cos_pi(x: f32) -> f32 {
    let (q, r) = reduce_pi(f64::from(x));
    let y = sin_pi_quadrant(q.wrapping_add(1), r) as f32;
    if y == 0.0 { 0.0 } else { y }
}

/// `tan(pi x)`.
#[inline(always)]
pub fn tan_pi(x: f32) -> f32 {
    let (q, r) = reduce_pi(f64::from(x));
    let y = tan_quadrant(q, r) as f32;
    if y == 0.0 { y.copysign(x) } else { y }
}

/// Arc tangent in f64 of `a >= 0` (infinity included), to about 1e-16.
#[inline(always)]
pub(super) fn atan_positive(a: f64) -> f64 {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    const TAN_PI_8: f64 = 0.414_213_562_373_095;
    let inverted = a > 1.0;
    let t = if inverted { 1.0 / a } else { a };
    let rotated = t > TAN_PI_8;
    let u = if rotated { (t - 1.0) / (t + 1.0) } else { t };
    let z = u * u;
    let p = poly!(z; -0.333_333_333_333_332_5, 0.199_999_999_998_983_74, -0.142_857_142_660_906_68,
        0.111_111_096_361_479_94, -0.090_908_525_446_833_23, 0.076_910_549_326_920_46,
        -0.066_496_113_110_628_6, 0.057_363_175_465_206_16, -0.044_832_864_550_987_47,
        0.022_749_867_857_123_345);
    let y = u.mul_add(z * p, u);
    let y = if rotated { y + FRAC_PI_4 } else { y };
    if inverted { FRAC_PI_2 - y } else { y }
}

/// Arc tangent.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    (atan_positive(f64::from(x.abs())) as f32).copysign(x)
}

/// Arc sine; NaN beyond ±1.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let y = atan_positive(a / ((1.0 - a) * (1.0 + a)).sqrt());
    (y as f32).copysign(x)
}

/// Arc cosine; NaN beyond ±1.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let d = f64::from(x);
    (2.0 * atan_positive(((1.0 - d) / (1.0 + d)).sqrt())) as f32
}

/// The angle of the point `(x, y)`.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (a, b) = (f64::from(y.abs()), f64::from(x.abs()));
    let both_infinite = y.is_infinite() && x.is_infinite();
    let ratio = if both_infinite { 1.0 } else { a / b };
    let ratio = if a == 0.0 && b == 0.0 { 0.0 } else { ratio };
    let angle = atan_positive(ratio);
    let angle = if x.is_sign_negative() { std::f64::consts::PI - angle } else { angle };
    let angle = if x.is_nan() || y.is_nan() { f64::NAN } else { angle };
    (angle as f32).copysign(y)
}
