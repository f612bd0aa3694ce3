//! Transforms along an axis other than the last: adjacent columns are the lanes of a vector.

use super::lines::{Lines, Parts, transform};
use crate::par::{Par, Shared};
use crate::rows::Axis;
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// Columns per task: the lanes of the widest vector.
const TASK_COLUMNS: usize = 16;

/// Transforms complex numbers along an axis of at least one element.
pub(super) fn run(
    par: &dyn Par,
    lines: &Lines,
    inverse: bool,
    x: &[f32],
    axis: Axis,
    out: &mut [f32],
    scale: f32,
) {
    let to = Shared::new(out.as_mut_ptr());
    let (simd, strips) = (par.simd(), axis.inner.div_ceil(TASK_COLUMNS));
    par.run(axis.outer * strips, &|t| {
        let (o, first) = (t / strips, t % strips * TASK_COLUMNS);
        let columns = TASK_COLUMNS.min(axis.inner - first);
        let at = 2 * (o * axis.len * axis.inner + first);
        dispatch(simd, Strip { lines, inverse, x, at, inner: axis.inner, columns, to, scale });
    });
}

/// Up to sixteen columns.
struct Strip<'a> {
    lines: &'a Lines,
    inverse: bool,
    x: &'a [f32],
    /// The index of the first element, of the input and of the result.
    at: usize,
    inner: usize,
    columns: usize,
    to: Shared<f32>,
    scale: f32,
}

impl Kernel for Strip<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let (n, lanes) = (self.lines.length, S::LANES);
        let scale = s.splat(self.scale);
        let lines = Scratch::<f32>::new(n * 2 * lanes);
        let lines = lines.ptr();
        for first in (0..self.columns).step_by(lanes) {
            let count = lanes.min(self.columns - first);
            // The floats of a row fill two vectors, or part of them.
            let (low, high) = ((2 * count).min(lanes), (2 * count).saturating_sub(lanes));
            // SAFETY: the columns lie within the input and the result, and are this task's own; the buffer
            // holds two vectors for every element of a column, and each is written before it is read.
            unsafe {
                let from = self.x.as_ptr().add(self.at + 2 * first);
                for j in 0..n {
                    let p = from.add(2 * j * self.inner);
                    let (a, b) = if count == lanes {
                        (s.load(p), s.load(p.add(lanes)))
                    } else {
                        (s.load_n(p, low), s.load_n(p.add(low), high))
                    };
                    let (re, im) = s.unzip(a, b);
                    s.store(lines.add(2 * j * lanes), re);
                    s.store(lines.add((2 * j + 1) * lanes), im);
                }
                transform(s, self.lines, lines, Parts::new::<S>(self.inverse));
                let to = self.to.get().add(self.at + 2 * first);
                for k in 0..n {
                    let from = lines.add(*self.lines.order.get_unchecked(k) as usize * 2 * lanes);
                    let (a, b) = s.zip(s.mul(s.load(from), scale), s.mul(s.load(from.add(lanes)), scale));
                    let p = to.add(2 * k * self.inner);
                    if count == lanes {
                        s.store(p, a);
                        s.store(p.add(lanes), b);
                    } else {
                        s.store_n(p, a, low);
                        s.store_n(p.add(low), b, high);
                    }
                }
            }
        }
    }
}
