//! The exponential function of vectors, built from the operations of [`Isa`].

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
