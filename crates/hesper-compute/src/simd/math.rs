//! Math functions of vectors, built from the operations of [`Isa`].

use super::isa::Isa;

/// `e^x` to within 2 ulp; 0 on underflow, infinity on overflow, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Isa>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(89.0), s.max(s.splat(-110.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    // ln 2 in two parts, the first with few enough bits for an exact product.
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_2e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(c));
    }
    let p = s.fma(s.mul(p, r), r, s.add(r, s.splat(1.0)));
    s.scale2(p, n)
}

/// `1 / (1 + e^-x)` with the operations of the kernel language's `sigmoid` in their order, so with its bits
/// on every level.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    // Adding and taking away 1.5 * 2^23 rounds to the nearest whole number, which is then in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let c = -x.abs();
    let c = if c < -104.0 { -104.0 } else { c };
    let t = c.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = n.mul_add(-1.428_606_8e-6, n.mul_add(-0.693_145_75, c));
    let mut p = 1.989_108e-4f32;
    for c in [0.001_393_373_1, 0.008_333_310_5, 0.041_666_463, 0.166_666_67, 0.5] {
        p = r.mul_add(p, c);
    }
    let y = 1.0 + (r * r).mul_add(p, r);
    let n = (t.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let two = |n: i32| f32::from_bits(((n + 127) << 23) as u32);
    let e = y * two(n >> 1) * two(n - (n >> 1));
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}
