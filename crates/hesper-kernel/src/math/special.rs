//! The error functions, and the logarithm of the gamma function.

use super::elementary::{exp, exp64, log64};
use super::poly;
use super::trig::sin_pi64;

/// The error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let p = poly!(z; 0.128_379_17, -0.376_126_35, 0.112_836_994, -0.026_859_589,
        0.005_201_456, -8.147_081e-4, 8.387_074e-5);
    let small = x.mul_add(p, x);
    // Beyond 0.92: erfc(a) = exp(q(a)).
    let c = if a > 4.0 { 4.0 } else { a };
    let q = poly!(c; 3.495_821_1e-4, -1.130_388_4, -0.631_483_5, -0.110_499_57, 0.026_736_233,
        -0.004_910_78, 6.433_165e-4, -5.493_617e-5, 2.594_339_3e-6, -4.453_896_5e-8);
    let large = (1.0 - exp(q)).copysign(x);
    if a < 0.92 { small } else { large }
}

/// `exp(x^2) erfc(x)` for `x` in [0, 28].
#[inline(always)]
pub(super) fn erfcx(x: f64) -> f64 {
    let y = (x - 4.0) / (x + 4.0);
    let p = poly!(y; 1.232_995_118_625_552_6, -0.139_621_116_840_562_53, 0.015_379_652_102_620_111,
        0.068_097_054_254_693_03, -0.101_039_066_036_329_55, 0.093_732_834_998_333_29,
        -0.066_330_365_811_544_21, 0.037_167_515_537_879_08, -0.016_197_734_067_039_865,
        0.005_031_969_972_225_688, -7.577_732_147_971_718e-4, -1.992_566_429_106_556_5e-4,
        1.506_213_121_762_451_2e-4, -2.439_950_545_852_554_4e-5, -1.122_090_250_434_060_1e-5,
        5.710_769_473_216_913e-6, 2.916_445_562_939_141e-7, -8.277_591_913_537_945e-7,
        7.703_495_881_102_781e-8, 1.132_804_830_427_454_9e-7, -1.910_629_448_777_917_6e-8,
        -1.660_879_467_182_853e-8, 1.686_808_262_593_229_2e-9, 2.103_109_581_757_033_8e-9,
        2.911_165_995_532_744_7e-10);
    p / (1.0 + 2.0 * x)
}

/// `erf(x)` in f64 for `|x| <= 0.75`.
#[inline(always)]
pub(super) fn erf_small(x: f64) -> f64 {
    let z = x * x;
    let p = poly!(z; 0.128_379_167_095_512_6, -0.376_126_389_031_837_54, 0.112_837_916_709_551_26,
        -0.026_866_170_645_131_25, 0.005_223_977_625_442_116, -8.548_327_023_440_556e-4,
        1.205_533_298_083_898_5e-4, -1.492_565_029_879_073e-5, 1.646_211_175_825_149_8e-6,
        -1.636_576_422_291_881_6e-7, 1.480_544_602_810_355_1e-8, -1.226_439_678_977_262_3e-9,
        9.164_214_867_801_182e-11, -5.171_765_098_973_452e-12);
    x.mul_add(p, x)
}

/// `1 - erf(x)`.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let d = f64::from(x);
    let a = d.abs();
    let c = if a > 11.0 { 11.0 } else { a };
    let tail = erfcx(c) * exp64(-c * c);
    let far = if d < 0.0 { 2.0 - tail } else { tail };
    let r = if a < 0.5 { 1.0 - erf_small(d) } else { far };
    r as f32
}

/// Inverse of the error function; infinite at ±1, NaN beyond.
#[inline(always)]
pub fn erf_inv(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let c = if a < 1.0 { a } else { 0.5 };
    let r = erf_inv_estimate(c) as f32;
    let r = if a == 1.0 { f32::INFINITY } else { r };
    let r = if a <= 1.0 { r } else { f32::NAN };
    r.copysign(x)
}

/// Inverse of the error function for `a` in [0, 1 - 2^-24], to about 1e-9.
#[inline(always)]
pub(super) fn erf_inv_estimate(a: f64) -> f64 {
    let z = a * a;
    let centre = poly!(z; 0.886_226_925_479_008_3, 0.232_013_650_785_952_93,
        0.127_557_730_763_178_14, 0.086_492_181_387_443_05, 0.066_150_822_460_891_32,
        0.037_771_691_325_930_97, 0.146_671_787_114_469_57, -0.473_567_353_261_777_7,
        1.712_163_778_655_748_9, -3.661_078_230_741_408_5, 5.230_675_832_098_532,
        -4.292_231_723_962_396, 1.656_826_059_419_374_9);
    let w = (-log64((1.0 - a) * (1.0 + a))).sqrt();
    let middle = poly!(w; 0.892_969_332_805_102_5, -0.055_001_837_712_366_566,
        0.433_285_069_148_701_63, -0.435_008_847_963_629_1, 0.626_159_334_151_379_1,
        -0.592_396_159_878_283, 0.391_106_857_512_010_7, -0.176_819_495_216_176_1,
        0.050_730_661_524_171_404, -0.008_222_679_498_561_453, 5.721_589_764_104_019e-4);
    let tail = poly!(w; 7.596_127_428_118_413, -29.604_084_453_879_434, 59.301_634_504_061_454,
        -70.365_969_792_255_74, 55.668_589_576_461_45, -30.774_573_588_005_598,
        12.206_540_975_579_763, -3.513_323_351_256_382, 0.731_975_664_121_098_9,
        -0.108_429_075_293_266_36, 0.010_976_617_189_692_192, -7.025_863_987_663_633e-4,
        2.411_253_504_065_397_6e-5, -2.781_292_807_563_907e-7);
    let r = if w < 2.0 { middle } else { tail };
    a * if a < 0.75 { centre } else { r }
}

/// Natural logarithm of `|gamma(x)|` in f64 for `x` not below 1e-300, `log` being given.
#[inline(always)]
pub(super) fn lgamma_positive(x: f64, log: impl Fn(f64) -> f64) -> f64 {
    // Stirling's series from 9 up; below, the recurrence carries the argument there.
    let small = x < 9.0;
    let product =
        x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0) * (x + 8.0);
    let y = if small { x + 9.0 } else { x };
    let i = 1.0 / y;
    let z = i * i;
    let series = i * poly!(z; 1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0,
        -691.0 / 360_360.0, 1.0 / 156.0, -3617.0 / 122_400.0);
    const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;
    let big = (y - 0.5) * log(y) - y + HALF_LN_2PI + series;
    if small { big - log(product) } else { big }
}

/// Natural logarithm of the absolute value of the gamma function.
#[inline(always)]
pub fn lgamma(x: f32) -> f32 {
    let d = f64::from(x);
    let negative = d < 0.0;
    // Reflection: |gamma(x) gamma(1 - x)| = pi / |sin(pi x)|. Next to 0 gamma is 1/x.
    let a = if negative { 1.0 - d } else { d };
    let near_zero = d.abs() < 1e-6;
    let safe = if near_zero { 1.0 } else { a };
    let g = lgamma_positive(safe, log64);
    let s = sin_pi64(d).abs();
    let reflected = log64(std::f64::consts::PI / if s > 0.0 { s } else { 1.0 }) - g;
    let r = if negative { reflected } else { g };
    let r = if near_zero { -log64(d.abs()) - 0.577_215_664_901_532_9 * d } else { r };
    let pole = x <= 0.0 && s == 0.0;
    let r = if pole || x.is_infinite() { f64::INFINITY } else { r };
    if x.is_nan() { x } else { r as f32 }
}
