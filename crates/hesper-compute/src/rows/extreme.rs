//! The largest or smallest of some floats, and whether one of them is NaN.

use crate::simd::{Float, Isa};

/// Independent vector accumulators.
const INTERLEAVED: usize = 4;

/// The largest (`MAX`) or smallest element that is not NaN, an infinity if there is none, and whether there
/// is a NaN. -0 counts as smaller than +0, so the result does not depend on the order of elements.
#[inline(always)]
pub(super) fn extreme<S: Isa, T: Float, const MAX: bool>(s: S, x: &[T]) -> (f32, bool) {
    let start = if MAX { f32::NEG_INFINITY } else { f32::INFINITY };
    let (low, high) = (s.splat(f32::MIN), s.splat(f32::MAX));
    // The sum of `marks` is NaN if an element is NaN. Otherwise it is +0 if an element has the wanted sign,
    // which decides between zeros.
    let sign = s.splat(if MAX { 0.0 } else { -0.0 });
    let mut best = [s.splat(start); INTERLEAVED];
    let mut marks = [s.splat(-0.0); INTERLEAVED];
    let whole = x.len() / (INTERLEAVED * S::LANES);
    for i in 0..whole {
        // SAFETY: whole vectors of the slice.
        unsafe {
            let p = x.as_ptr().add(i * INTERLEAVED * S::LANES);
            let v = [
                T::load(s, p),
                T::load(s, p.add(S::LANES)),
                T::load(s, p.add(2 * S::LANES)),
                T::load(s, p.add(3 * S::LANES)),
            ];
            for j in 0..INTERLEAVED {
                // A comparison with NaN selects the second operand: the previous best here, NaN below.
                best[j] = if MAX { s.max(v[j], best[j]) } else { s.min(v[j], best[j]) };
                let finite = s.max(low, s.min(high, v[j]));
                marks[j] = s.fma(finite, sign, marks[j]);
            }
        }
    }
    for j in 1..INTERLEAVED {
        best[0] = if MAX { s.max(best[j], best[0]) } else { s.min(best[j], best[0]) };
        marks[0] = s.add(marks[j], marks[0]);
    }
    let (mut best, mut marks) = (best[0], marks[0]);
    let mut at = whole * INTERLEAVED * S::LANES;
    while at < x.len() && x.len() >= S::LANES {
        // The last vector overlaps the one before: an extreme may read an element twice.
        let from = at.min(x.len() - S::LANES);
        // SAFETY: a whole vector of the slice.
        let v = unsafe { T::load(s, x.as_ptr().add(from)) };
        best = if MAX { s.max(v, best) } else { s.min(v, best) };
        marks = s.fma(s.max(low, s.min(high, v)), sign, marks);
        at += S::LANES;
    }
    let (mut top, mut mark) = (start, -0.0);
    if x.len() >= S::LANES {
        let minus = s.splat(-1.0);
        top = if MAX { s.reduce_max(best) } else { -s.reduce_max(s.mul(best, minus)) };
        mark = s.reduce_add(marks);
    } else {
        for v in x {
            let v = v.to_f32();
            let better = if MAX { v > top } else { v < top };
            top = if better { v } else { top };
            mark += v.clamp(f32::MIN, f32::MAX) * if MAX { 0.0 } else { -0.0 };
        }
    }
    if top == 0.0 {
        top = if MAX { mark } else { -mark };
    }
    (top, mark.is_nan())
}
