//! The running softmax of a row: its running maximum and the sum of exponentials relative to it.

use crate::simd::{Isa, math};

/// The state of a row.
#[derive(Clone, Copy)]
pub(super) struct Running {
    pub top: f32,
    pub sum: f32,
}

impl Running {
    /// The state before the first score; a sink counts as a score.
    pub fn new(sink: Option<f32>) -> Self {
        sink.map_or(Self { top: f32::NEG_INFINITY, sum: 0.0 }, |top| Self { top, sum: 1.0 })
    }

    /// Turns scores into weights relative to the new maximum. Returns the factor by which earlier sums must
    /// be multiplied.
    #[inline(always)]
    pub fn take<S: Isa>(&mut self, s: S, row: &mut [f32]) -> f32 {
        let n = row.len();
        let p = row.as_mut_ptr();
        let whole = n - n % S::LANES;
        let low = s.splat(f32::NEG_INFINITY);
        let mut top = low;
        let mut i = 0;
        // SAFETY: every access stays within the row.
        unsafe {
            while i < whole {
                top = s.max(s.load(p.add(i)), top);
                i += S::LANES;
            }
        }
        let mut top = s.reduce_max(top).max(self.top);
        for x in &row[whole..] {
            top = top.max(*x);
        }
        // A row whose scores are all minus infinity has no maximum yet.
        let shift = if top == f32::NEG_INFINITY { 0.0 } else { top };
        let before = if self.top == f32::NEG_INFINITY { 0.0 } else { (self.top - shift).exp() };
        let at = s.splat(shift);
        let mut sum = s.zero();
        i = 0;
        // SAFETY: every access stays within the row.
        unsafe {
            while i < n {
                let m = (n - i).min(S::LANES);
                let e = if m == S::LANES {
                    math::exp(s, s.sub(s.load(p.add(i)), at))
                } else {
                    // Fill lanes past the end with minus infinity, so that they do not count.
                    let mut tail = [f32::NEG_INFINITY; 16];
                    tail[..m].copy_from_slice(&row[i..]);
                    math::exp(s, s.sub(s.load(tail.as_ptr()), at))
                };
                sum = s.add(sum, e);
                s.store_n(row.as_mut_ptr().add(i), e, m);
                i += m;
            }
        }
        self.sum = self.sum * before + s.reduce_add(sum);
        self.top = top;
        before
    }
}
