//! Circular functions in f64 and their inverses, to about one unit of the last place, without
//! branches. Angles beyond [`TRIG_LIMIT64`] are the platform's.

use crate::math::elementary::MAGIC64;
use crate::math::poly;
use crate::math::trig::{atan_positive, minus_product};

/// Largest magnitude for which [`sin_core64`], [`cos_core64`] and [`tan_core64`] are right.
pub const TRIG_LIMIT64: f64 = 1e9;

/// Quadrant (modulo 4, in the low bits) and remainder in [-pi/4, pi/4], with what its rounding
/// lost, of `|x| <= TRIG_LIMIT64`.
#[inline(always)]
fn reduce(x: f64) -> (u64, f64, f64) {
    const HI: f64 = std::f64::consts::FRAC_PI_2;
    const MID: f64 = 6.123_233_995_736_766e-17;
    const LO: f64 = -1.497_384_904_859_183_2e-33;
    let t = x.mul_add(std::f64::consts::FRAC_2_PI, MAGIC64);
    let n = t - MAGIC64;
    // Both are multiples of 2^-52 from 1 on, so this is exact.
    let near = n.mul_add(-HI, x);
    let (w, r, lost) = minus_product!(near, n, MID);
    (t.to_bits(), r, n.mul_add(-LO, lost - n.mul_add(MID, -w)))
}

/// Sine and cosine of `r + lo`, `r` in [-pi/4, pi/4] and `lo` below its last place.
#[inline(always)]
fn sin_cos(r: f64, lo: f64) -> (f64, f64) {
    let z = r * r;
    let p = poly!(z; -0.166_666_666_666_666_66, 0.008_333_333_333_330_925,
        -1.984_126_983_672_241_8e-4, 2.755_731_608_381_636e-6, -2.505_112_794_401_418_4e-8,
        1.591_784_852_480_803_4e-10);
    let q = poly!(z; 0.041_666_666_666_666_664, -0.001_388_888_888_888_738_2,
        2.480_158_729_874_307e-5, -2.755_731_726_000_883_7e-7, 2.087_614_382_799_313e-9,
        -1.138_245_677_806_116_4e-11);
    let lo_cos = z.mul_add(-0.5 * lo, lo);
    let s = r + r.mul_add(z * p, lo_cos);
    // 1 - z/2 in two parts.
    let half = 0.5 * z;
    let w = 1.0 - half;
    let c = w + (((1.0 - w) - half) + (z * z).mul_add(q, -(r * lo)));
    (s, c)
}

#[inline(always)]
fn sin_quadrant(quadrant: u64, r: f64, lo: f64) -> f64 {
    let (s, c) = sin_cos(r, lo);
    let y = if quadrant & 1 == 0 { s } else { c };
    f64::from_bits(y.to_bits() ^ ((quadrant & 2) << 62))
}

/// Sine for `|x| <= TRIG_LIMIT64` (and NaN).
#[inline(always)]
pub fn sin_core64(x: f64) -> f64 {
    let (q, r, lo) = reduce(x);
    let y = sin_quadrant(q, r, lo);
    if x.abs() < 1e-9 { x } else { y }
}

/// Cosine for `|x| <= TRIG_LIMIT64` (and NaN).
#[inline(always)]
pub fn cos_core64(x: f64) -> f64 {
    let (q, r, lo) = reduce(x);
    sin_quadrant(q.wrapping_add(1), r, lo)
}

/// Tangent for `|x| <= TRIG_LIMIT64` (and NaN).
#[inline(always)]
pub fn tan_core64(x: f64) -> f64 {
    let (q, r, lo) = reduce(x);
    let (s, c) = sin_cos(r, lo);
    let (above, below) = if q & 1 == 0 { (s, c) } else { (-c, s) };
    let y = above / below;
    if x.abs() < 1e-9 { x } else { y }
}

/// Sine.
#[inline(always)]
pub fn sin64(x: f64) -> f64 {
    if x.abs() > TRIG_LIMIT64 { x.sin() } else { sin_core64(x) }
}

/// Cosine.
#[inline(always)]
pub fn cos64(x: f64) -> f64 {
    if x.abs() > TRIG_LIMIT64 { x.cos() } else { cos_core64(x) }
}

/// Tangent.
#[inline(always)]
pub fn tan64(x: f64) -> f64 {
    if x.abs() > TRIG_LIMIT64 { x.tan() } else { tan_core64(x) }
}

/// Arc tangent.
#[inline(always)]
pub fn atan(x: f64) -> f64 {
    atan_positive(x.abs()).copysign(x)
}

/// Arc sine; NaN beyond ±1.
#[inline(always)]
pub fn asin(x: f64) -> f64 {
    let a = x.abs();
    atan_positive(a / ((1.0 - a) * (1.0 + a)).sqrt()).copysign(x)
}

/// Arc cosine; NaN beyond ±1.
#[inline(always)]
pub fn acos(x: f64) -> f64 {
    2.0 * atan_positive(((1.0 - x) / (1.0 + x)).sqrt())
}
