//! First passes of the functions of f32 that compute in f64.
//!
//! A first pass evaluates shorter polynomials than its function does, right to about 2^-36. That gives the
//! function's result unless it is next to the middle between two f32, which the digits behind those of an f32
//! tell: one lane in about a thousand is *unsure*. Some arguments are *left out* (NaN, infinities, most
//! subnormal numbers). A vector loop computes a block that has such a lane once more with the function
//! itself, so no bit depends on the pass.
//!
//! A pass returns its result and whether that is unsure. Which arguments it leaves out is a function of its
//! own, in integer arithmetic: in one loop with f64 it would be computed in half as many lanes. Passes of one
//! operand agree with their functions for all 2^32 arguments, which a test that is run by hand verifies
//! (`first_passes_agree_for_every_argument`).

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, LOG10_2, LOG10_E, PI};

use hesper_types::math::{MAGIC, magic_int};

use super::elementary::{MAGIC64, keep_zero};
use super::poly;
use super::trig::{PIO2_HI, PIO2_LO, TRIG_LIMIT};

/// A polynomial as `even(x^2) + x odd(x^2)`: half as long a chain of operations as Horner's rule.
macro_rules! pairs {
    ($x:expr; $($even:expr, $odd:expr),+ $(,)?) => {{
        let square = $x * $x;
        $x.mul_add(poly!(square; $($odd),+), poly!(square; $($even),+))
    }};
}

/// Rounds to f32. Unsure within `2^within` units of the last place from the middle between two f32.
#[inline(always)]
fn rounded(y: f64, within: u32) -> (f32, bool) {
    const MIDDLE: u64 = 1 << 28;
    const BELOW: u64 = (1 << 29) - 1;
    let low = y.to_bits().wrapping_add((1u64 << within).wrapping_sub(MIDDLE)) & BELOW;
    (y as f32, low < 2 << within)
}

/// The bits of the magnitude, which are ordered as magnitudes are; those of NaN are the largest.
#[inline(always)]
fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7fff_ffff
}

/// Inverse hyperbolic tangent of `|s| < 0.1716`.
#[inline(always)]
fn atanh_short(s: f64) -> f64 {
    let z = s * s;
    let p = poly!(z; 0.333_333_332_772_258_24, 0.200_000_609_384_86, 0.142_754_082_998_557_74,
        0.116_652_909_691_209_46);
    (s * z).mul_add(p, s)
}

/// As [`atanh_short`], right to 2^-50.
#[inline(always)]
fn atanh_long(s: f64) -> f64 {
    let z = s * s;
    let p = poly!(z; 0.333_333_333_333_310_4, 0.200_000_000_056_061, 0.142_857_120_682_581_75,
        0.111_114_312_384_247_71, 0.090_700_926_012_466_24, 0.083_109_735_450_887);
    (s * z).mul_add(p, s)
}

/// Bits of f32 numbers.
const SQRT_HALF: u32 = 0x3f35_04f3;
const LEAST_NORMAL: u32 = f32::MIN_POSITIVE.to_bits();
const INFINITY: u32 = f32::INFINITY.to_bits();

/// The exponent of a positive normal number, and its mantissa in [sqrt(1/2), sqrt(2)) minus 1.
#[inline(always)]
fn split(x: f32) -> (f64, f64) {
    let i = x.to_bits().wrapping_sub(SQRT_HALF);
    let m = f32::from_bits((i & 0x007f_ffff) + SQRT_HALF);
    (f64::from((i as i32) >> 23), f64::from(m - 1.0))
}

/// The exponent `e` of a positive normal number as [`split`] has it, and `2^-e` for `e < 127`.
#[inline(always)]
fn exponent(x: f32) -> (f64, f32) {
    let i = x.to_bits().wrapping_sub(SQRT_HALF);
    (f64::from((i as i32) >> 23), f32::from_bits(1.0f32.to_bits().wrapping_sub(i & 0xff80_0000)))
}

/// What the logarithms leave out: all but positive normal numbers.
#[inline(always)]
pub fn log_leaves_out(x: f32) -> bool {
    x.to_bits().wrapping_sub(LEAST_NORMAL) >= INFINITY - LEAST_NORMAL
}

/// Base-2 logarithm.
#[inline(always)]
pub fn log2(x: f32) -> (f32, bool) {
    let (e, f) = split(x);
    rounded(atanh_short(f / (2.0 + f)).mul_add(2.0 * LOG2_E, e), 18)
}

/// Base-10 logarithm.
#[inline(always)]
pub fn log10(x: f32) -> (f32, bool) {
    let (e, f) = split(x);
    rounded(atanh_short(f / (2.0 + f)).mul_add(2.0 * LOG10_E, e * LOG10_2), 18)
}

/// `log(1 + x)`.
#[inline(always)]
pub fn log1p(x: f32) -> (f32, bool) {
    let (e, scale) = exponent(1.0 + x);
    let (d, s) = (f64::from(x), f64::from(scale));
    // The mantissa of 1 + x minus 1.
    let f = d.mul_add(s, s - 1.0);
    let (y, unsure) = rounded(atanh_short(f / (2.0 + f)).mul_add(2.0, e * LN_2), 18);
    (keep_zero(x, y), unsure)
}

/// What [`log1p`] leaves out.
#[inline(always)]
pub fn log1p_leaves_out(x: f32) -> bool {
    (1.0 + x).to_bits().wrapping_sub(1) >= 1e38f32.to_bits()
}

/// `e^x - 1` for `|x| <= 88`.
#[inline(always)]
fn expm1_short(x: f32) -> f64 {
    let t = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let s = f64::from(f32::from_bits(((magic_int(t) + 127) << 23) as u32));
    let r = f64::from(t - MAGIC).mul_add(-LN_2, f64::from(x));
    let p = poly!(r; 0.5, 0.166_666_667_190_289_36, 0.041_666_666_719_012_26, 0.008_333_298_469_800_59,
        0.001_388_885_403_566_671, 1.989_928_557_567_589_6e-4, 2.485_958_983_458_905_6e-5);
    (r * r).mul_add(p, r).mul_add(s, s - 1.0)
}

/// `e^x - 1`.
#[inline(always)]
pub fn expm1(x: f32) -> (f32, bool) {
    let (y, unsure) = rounded(expm1_short(if x < -40.0 { -40.0 } else { x }), 17);
    (keep_zero(x, y), unsure)
}

/// What [`expm1`] leaves out: numbers above 88, NaN.
#[inline(always)]
pub fn expm1_leaves_out(x: f32) -> bool {
    (x.to_bits() as i32) > (88f32.to_bits() as i32) || x.to_bits() > f32::NEG_INFINITY.to_bits()
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> (f32, bool) {
    let h = expm1_short(f32::from_bits(magnitude(x)));
    let (y, unsure) = rounded(0.5 * (h + h / (h + 1.0)), 19);
    (y.copysign(x), unsure)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> (f32, bool) {
    let e = expm1_short(f32::from_bits(magnitude(x))) + 1.0;
    rounded(0.5 * (e + 1.0 / e), 17)
}

/// What [`sinh`] and [`cosh`] leave out.
#[inline(always)]
pub fn sinh_leaves_out(x: f32) -> bool {
    magnitude(x) > 88f32.to_bits()
}

/// Inverse hyperbolic tangent.
#[inline(always)]
pub fn atanh(x: f32) -> (f32, bool) {
    let a = x.abs();
    // Half the logarithm of (1 + a) / (1 - a) = 2^e m: s = (m - 1) / (m + 1).
    let (e, inverse) = exponent((1.0 + a) / (1.0 - a));
    let (d, s) = (f64::from(a), f64::from(inverse));
    let (above, below) = (d.mul_add(s + 1.0, s - 1.0), d.mul_add(s - 1.0, s + 1.0));
    let (y, unsure) = rounded(e.mul_add(0.5 * LN_2, atanh_short(above / below)), 18);
    (y.copysign(x), unsure)
}

/// What [`atanh`] leaves out: magnitudes from 1 on, NaN.
#[inline(always)]
pub fn atanh_leaves_out(x: f32) -> bool {
    magnitude(x) >= 1f32.to_bits()
}

/// Tangent.
#[inline(always)]
pub fn tan(x: f32) -> (f32, bool) {
    let d = f64::from(x);
    let t = d.mul_add(std::f64::consts::FRAC_2_PI, MAGIC64);
    let n = t - MAGIC64;
    let r = n.mul_add(-PIO2_LO, n.mul_add(-PIO2_HI, d));
    let z = r * r;
    let p = poly!(z; -0.166_666_666_638_541_68, 0.008_333_331_874_273_714, -1.984_008_649_959_36e-4,
        2.724_989_523_061_167e-6);
    let q = poly!(z; 0.041_666_666_664_320_264, -0.001_388_888_767_165_250_4, 2.480_060_018_036_381e-5,
        -2.730_093_368_721_294_3e-7);
    let (s, c) = (r.mul_add(z * p, r), (z * z).mul_add(q, z.mul_add(-0.5, 1.0)));
    let even = t.to_bits() & 1 == 0;
    let (above, below) = (if even { s } else { -c }, if even { c } else { s });
    let (y, unsure) = rounded(above / below, 18);
    (keep_zero(x, y), unsure)
}

/// What [`tan`] leaves out.
#[inline(always)]
pub fn tan_leaves_out(x: f32) -> bool {
    magnitude(x) > TRIG_LIMIT.to_bits()
}

/// Arc tangent of `|u| <= tan(pi/8)`.
#[inline(always)]
fn atan_short(u: f64) -> f64 {
    let z = u * u;
    let p = poly!(z; -0.333_333_333_314_394_96, 0.199_999_989_166_905_62, -0.142_856_124_652_752_52,
        0.111_074_938_534_327_03, -0.090_289_675_621_104_18, 0.071_352_346_474_640_41,
        -0.040_430_336_961_471_07);
    (u * z).mul_add(p, u)
}

/// The angle of the point `(b, a)` of the first quadrant. One division: the quotient is turned by an eighth
/// or a quarter of a turn where that makes it small.
#[inline(always)]
fn angle(a: f64, b: f64, turned: bool, inverted: bool) -> f64 {
    let (above, below) = if turned { (a - b, a + b) } else { (a, b) };
    let (above, below) = if inverted { (-b, a) } else { (above, below) };
    let base = if turned { FRAC_PI_4 } else { 0.0 };
    let base = if inverted { FRAC_PI_2 } else { base };
    base + atan_short(above / below)
}

/// `tan(pi/8)` and `tan(3 pi/8)`.
const TAN_PI_8: f32 = 0.414_213_57;
const TAN_3_PI_8: f32 = 2.414_213_7;

/// Arc tangent.
#[inline(always)]
pub fn atan(x: f32) -> (f32, bool) {
    let a = x.abs();
    let (y, unsure) = rounded(angle(f64::from(a), 1.0, a > TAN_PI_8, a > TAN_3_PI_8), 16);
    (y.copysign(x), unsure)
}

/// What [`atan`] leaves out: NaN.
#[inline(always)]
pub fn atan_leaves_out(x: f32) -> bool {
    magnitude(x) > INFINITY
}

/// The angle of the point `(x, y)`.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> (f32, bool) {
    let (a, b) = (f64::from(y.abs()), f64::from(x.abs()));
    let (turned, inverted) = (a > f64::from(TAN_PI_8) * b, a > f64::from(TAN_3_PI_8) * b);
    let angle = angle(a, b, turned, inverted);
    let (r, unsure) = rounded(if x.is_sign_negative() { PI - angle } else { angle }, 16);
    (r.copysign(y), unsure)
}

/// What [`atan2`] leaves out: numbers whose quotient may be subnormal, zeros, infinities, NaN.
#[inline(always)]
pub fn atan2_leaves_out(y: f32, x: f32) -> bool {
    const LEAST: u32 = 1e-18f32.to_bits();
    const GREATEST: u32 = 1e18f32.to_bits();
    magnitude(y).wrapping_sub(LEAST) > GREATEST - LEAST || magnitude(x).wrapping_sub(LEAST) > GREATEST - LEAST
}

/// Arc sine of `|x|` up to 1/2, beyond it of `sqrt((1 - |x|) / 2)`; and which of them.
#[inline(always)]
fn asin_parts(x: f32) -> (f64, bool) {
    let a = x.abs();
    let far = a > 0.5;
    let (d, t) = (f64::from(a), f64::from(0.5 - 0.5 * a));
    let z = if far { t } else { d * d };
    let v = if far { t.sqrt() } else { d };
    let p = pairs!(z; 0.166_666_666_654_950_86, 0.075_000_005_988_290_49, 0.044_642_358_484_883_196,
        0.030_397_634_130_580_702, 0.022_132_443_623_426_794, 0.019_306_260_869_368_045,
        0.005_443_185_102_748_107_5, 0.029_305_239_705_335_79);
    ((v * z).mul_add(p, v), far)
}

/// Arc sine.
#[inline(always)]
pub fn asin(x: f32) -> (f32, bool) {
    let (q, far) = asin_parts(x);
    let (y, unsure) = rounded(if far { q.mul_add(-2.0, FRAC_PI_2) } else { q }, 16);
    (y.copysign(x), unsure)
}

/// Arc cosine.
#[inline(always)]
pub fn acos(x: f32) -> (f32, bool) {
    let (q, far) = asin_parts(x);
    let q = q.copysign(f64::from(x));
    let base = if x < 0.0 { PI } else { 0.0 };
    rounded(if far { q.mul_add(2.0, base) } else { FRAC_PI_2 - q }, 16)
}

/// What [`asin`] and [`acos`] leave out: magnitudes above 1, NaN.
#[inline(always)]
pub fn asin_leaves_out(x: f32) -> bool {
    magnitude(x) > 1f32.to_bits()
}

/// `x^y`.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> (f32, bool) {
    let (e, f) = split(x.abs());
    let t = f64::from(y) * atanh_long(f / (2.0 + f)).mul_add(2.0 * LOG2_E, e);
    let near = t + MAGIC64;
    let r = t - (near - MAGIC64);
    let p = pairs!(r; 0.693_147_180_556_832_4, 0.240_226_506_958_885_03, 0.055_504_109_063_258_665,
        0.009_618_129_135_236_14, 0.001_333_347_847_368_541_2, 1.540_347_518_653_078_6e-4,
        1.530_370_071_136_569_3e-5, 1.325_080_551_750_225e-6);
    let s = f64::from_bits(1.0f64.to_bits().wrapping_add(near.to_bits() << 52));
    let (r, unsure) = rounded(p.mul_add(r * s, s), 15);
    // Whether y is odd: an integer, half of which is none.
    let half = y * 0.5;
    let odd = (y.trunc() == y) & (half.trunc() != half);
    let sign = if odd { x.to_bits() & 0x8000_0000 } else { 0 };
    // Overflow, subnormal results, NaN.
    let far = t.to_bits() & (u64::MAX >> 1) >= 125f64.to_bits();
    (f32::from_bits(r.to_bits() ^ sign), unsure | far)
}

/// What [`pow`] leaves out: bases that are no normal numbers, roots of negative ones.
#[inline(always)]
pub fn pow_leaves_out(x: f32, y: f32) -> bool {
    let negative = (x.to_bits() >> 31 == 1) & (y.trunc() != y);
    (magnitude(x).wrapping_sub(LEAST_NORMAL) >= INFINITY - LEAST_NORMAL) | negative
}
