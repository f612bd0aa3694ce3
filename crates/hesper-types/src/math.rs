//! The exponential and logistic functions of the kernel language.
//!
//! Host kernels that stand for ops of the language call them too, so they have its bits. The functions choose
//! by selects instead of branches, so that a loop over a slice is vectorized.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// Adding it to a small float leaves the nearest integer in the low mantissa bits.
pub const MAGIC: f32 = 12_582_912.0;
/// ln 2 in a part short enough for exact products with exponents.
pub const LN2_HI: f32 = 0.693_145_75;
/// What [`LN2_HI`] lacks of ln 2.
pub const LN2_LO: f32 = 1.428_606_8e-6;

/// `y * 2^n` for `|n| < 252`, in two exact steps (the last may round into the subnormals); NaN stays NaN
/// whatever `n`.
#[inline(always)]
pub fn scale(y: f32, n: i32) -> f32 {
    let half = n >> 1;
    let p = |k: i32| f32::from_bits(((k + 127) << 23) as u32);
    y * p(half) * p(n - half)
}

/// The integer that adding [`MAGIC`] left in `t`; any number for NaN.
#[inline(always)]
pub fn magic_int(t: f32) -> i32 {
    (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32)
}

/// `e^x`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let c = if x > 89.0 { 89.0 } else { x };
    let c = if c < -104.0 { -104.0 } else { c };
    let t = c.mul_add(LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, c));
    let p = r.mul_add(1.989_108e-4, 0.001_393_373_1);
    let p = r.mul_add(r.mul_add(p, 0.008_333_310_5), 0.041_666_463);
    let p = r.mul_add(r.mul_add(p, 0.166_666_67), 0.5);
    let y = 1.0 + (r * r).mul_add(p, r);
    scale(y, magic_int(t))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    top / (1.0 + e)
}
