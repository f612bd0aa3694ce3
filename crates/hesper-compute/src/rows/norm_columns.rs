//! Softmax and log-sum-exp along an axis other than the last: adjacent columns together, in strips that stay
//! in the cache over all passes.

use super::Axis;
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch, math};

/// Elements of a strip.
const STRIP_ELEMENTS: usize = 1 << 16;
/// Fewest columns of a strip, unless the array has fewer.
const MIN_STRIP_WIDTH: usize = 32;
/// Most columns of a strip.
const MAX_STRIP_WIDTH: usize = 1024;
/// Rows added to a partial sum before it is added to the total.
const RUN: usize = 64;

/// `e^x / sum(e^x)` along an axis.
pub fn softmax_along<T: Float>(par: &dyn Par, x: &[T], axis: Axis, out: &mut [T]) -> Result<(), Mismatch> {
    same("elements of the result", x.len(), out.len())?;
    strips(par, x, axis, Shared::new(out.as_mut_ptr()), false)
}

/// `log(sum(e^x))` along an axis.
pub fn logsumexp_along<T: Float>(par: &dyn Par, x: &[T], axis: Axis, out: &mut [T]) -> Result<(), Mismatch> {
    same("elements of the result", axis.outer * axis.inner, out.len())?;
    strips(par, x, axis, Shared::new(out.as_mut_ptr()), true)
}

fn strips<T: Float>(par: &dyn Par, x: &[T], axis: Axis, to: Shared<T>, sums: bool) -> Result<(), Mismatch> {
    same("elements of the input", axis.elements()?, x.len())?;
    let Axis { outer, len, inner } = axis;
    if x.is_empty() {
        return Ok(());
    }
    // Narrower strips if there would be too few for all threads; results do not depend on it.
    let shares = (4 * par.threads()).div_ceil(outer);
    let strip_width = (STRIP_ELEMENTS / len)
        .min(inner.div_ceil(shares))
        .clamp(MIN_STRIP_WIDTH, MAX_STRIP_WIDTH)
        .next_multiple_of(MIN_STRIP_WIDTH);
    let strips = inner.div_ceil(strip_width);
    let group = (16384 / (len * strip_width.min(inner))).max(1);
    let simd = par.simd();
    chunks(par, outer * strips, group, |a, b| {
        for t in a..b {
            let (o, j0) = (t / strips, t % strips * strip_width);
            let n = strip_width.min(inner - j0);
            dispatch(simd, Strip { x: &x[o * len * inner + j0..], to, o, j0, n, len, inner, sums });
        }
    });
    Ok(())
}

/// The vector at `j`, with zeros past the end of the row.
#[inline(always)]
fn vector<S: Isa, T: Float>(s: S, row: &[T], j: usize) -> S::F {
    // SAFETY: only elements of the row are read.
    unsafe {
        let from = row.as_ptr().add(j);
        if j + S::LANES <= row.len() { T::load(s, from) } else { T::load_n(s, from, row.len() - j) }
    }
}

struct Strip<'a, T> {
    /// From the first column on.
    x: &'a [T],
    to: Shared<T>,
    o: usize,
    j0: usize,
    n: usize,
    len: usize,
    inner: usize,
    /// Whether only the logarithms of the sums are stored.
    sums: bool,
}

impl<T: Float> Kernel for Strip<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Strip { x, to, o, j0, n, len, inner, sums } = self;
        let strip_width = n.next_multiple_of(S::LANES);
        let exps = Scratch::<f32>::new(if sums { 0 } else { len * strip_width });
        let (mut top, mut part) = ([f32::NEG_INFINITY; MAX_STRIP_WIDTH], [0.0f32; MAX_STRIP_WIDTH]);
        let mut sum = [0.0f32; MAX_STRIP_WIDTH];
        for k in 0..len {
            let row = &x[k * inner..][..n];
            for j in (0..strip_width).step_by(S::LANES) {
                let p = top[j..].as_mut_ptr();
                // SAFETY: whole vectors of the array.
                unsafe { s.store(p, s.max(vector(s, row, j), s.load(p))) };
            }
        }
        // No shift if all elements are minus infinity. An infinite maximum determines a logarithm without a
        // shift.
        let mut at = top;
        for at in &mut at[..strip_width] {
            *at = if *at == f32::NEG_INFINITY || sums && *at == f32::INFINITY { 0.0 } else { *at };
        }
        for k0 in (0..len).step_by(RUN) {
            part[..strip_width].fill(0.0);
            for k in k0..len.min(k0 + RUN) {
                let row = &x[k * inner..][..n];
                for j in (0..strip_width).step_by(S::LANES) {
                    // SAFETY: whole vectors of the arrays, and of the buffer, whose rows are padded to them.
                    unsafe {
                        let e = math::exp(s, s.sub(vector(s, row, j), s.load(at.as_ptr().add(j))));
                        let p = part.as_mut_ptr().add(j);
                        s.store(p, s.add(s.load(p), e));
                        if !sums {
                            s.store(exps.ptr().add(k * strip_width + j), e);
                        }
                    }
                }
            }
            for (sum, part) in sum[..strip_width].iter_mut().zip(&part) {
                *sum += part;
            }
        }
        if sums {
            // SAFETY: these results are the task's own.
            let out = unsafe { to.slice(o * inner + j0, n) };
            for (j, out) in out.iter_mut().enumerate() {
                *out = T::from_f32(sum[j].ln() + at[j]);
            }
            return;
        }
        for by in &mut sum[..strip_width] {
            *by = 1.0 / *by;
        }
        for k in 0..len {
            // SAFETY: columns are this task's own.
            let out = unsafe { to.slice((o * len + k) * inner + j0, n) };
            for j in (0..n).step_by(S::LANES) {
                // SAFETY: whole vectors of the buffer and the array; only elements of the result are written.
                unsafe {
                    let v = s.mul(s.load(exps.ptr().add(k * strip_width + j)), s.load(sum.as_ptr().add(j)));
                    let to = out.as_mut_ptr().add(j);
                    if j + S::LANES <= n { T::store(s, to, v) } else { T::store_n(s, to, v, n - j) }
                }
            }
        }
    }
}
