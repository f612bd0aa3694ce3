//! Where the largest or smallest element of an axis is: the first of equals. NaN is never chosen over a
//! number.

use super::Axis;
use crate::error::{Mismatch, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::simd::{Isa, Kernel, dispatch};

/// Elements that are compared before one of them is looked for.
const BLOCK: usize = 1024;

/// A type with an order.
pub trait Ordered: Copy + Send + Sync + PartialOrd + 'static {
    /// Below or equal to every number.
    const LOWEST: Self;
    /// Above or equal to every number.
    const HIGHEST: Self;
    #[doc(hidden)]
    fn run(par: &dyn Par, max: bool, x: &[Self], axis: Axis, out: &mut [u32]);
}

macro_rules! ordered {
    ($($t:ty: $low:expr, $high:expr;)*) => {$(
        impl Ordered for $t {
            const LOWEST: Self = $low;
            const HIGHEST: Self = $high;
            fn run(par: &dyn Par, max: bool, x: &[Self], axis: Axis, out: &mut [u32]) {
                along(par, max, x, axis, out);
            }
        }
    )*};
}

ordered! {
    u8: Self::MIN, Self::MAX; u16: Self::MIN, Self::MAX; u32: Self::MIN, Self::MAX; u64: Self::MIN, Self::MAX;
    i8: Self::MIN, Self::MAX; i16: Self::MIN, Self::MAX; i32: Self::MIN, Self::MAX; i64: Self::MIN, Self::MAX;
    f32: Self::NEG_INFINITY, Self::INFINITY; f64: Self::NEG_INFINITY, Self::INFINITY;
    half::bf16: Self::NEG_INFINITY, Self::INFINITY; half::f16: Self::NEG_INFINITY, Self::INFINITY;
}

/// The position of the largest (`max`) or smallest element along an axis; 0 if all are NaN.
pub fn arg_extreme<T: Ordered>(
    par: &dyn Par,
    max: bool,
    x: &[T],
    axis: Axis,
    out: &mut [u32],
) -> Result<(), Mismatch> {
    same("elements of the input", axis.elements()?, x.len())?;
    same("elements of the result", axis.outer * axis.inner, out.len())?;
    if axis.len == 0 && !out.is_empty() {
        return Err(Mismatch { what: "elements of an axis to choose from", expected: 1, given: 0 });
    }
    T::run(par, max, x, axis, out);
    Ok(())
}

fn along<T: Ordered>(par: &dyn Par, max: bool, x: &[T], axis: Axis, out: &mut [u32]) {
    let Axis { outer, len, inner } = axis;
    if out.is_empty() {
        return;
    }
    let to = Shared::new(out.as_mut_ptr());
    let simd = par.simd();
    let chunk = grain(par, outer, (16384 / (len * inner)).max(1));
    chunks(par, outer, chunk, |a, b| {
        for o in a..b {
            // SAFETY: blocks are this task's own.
            let out = unsafe { to.slice(o * inner, inner) };
            dispatch(simd, Block { max, x: &x[o * len * inner..][..len * inner], len, inner, out });
        }
    });
}

struct Block<'a, T> {
    max: bool,
    x: &'a [T],
    len: usize,
    inner: usize,
    out: &'a mut [u32],
}

impl<T: Ordered> Kernel for Block<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        match (self.inner, self.max) {
            (1, true) => self.out[0] = row(self.x, T::LOWEST, |a, b| a > b),
            (1, false) => self.out[0] = row(self.x, T::HIGHEST, |a, b| a < b),
            (_, true) => columns(self, |a, b| a > b),
            (_, false) => columns(self, |a, b| a < b),
        }
    }
}

#[inline(always)]
fn row<T: Ordered>(x: &[T], worst: T, better: impl Fn(T, T) -> bool) -> u32 {
    let (mut best, mut at, mut found) = (worst, 0, false);
    for (b, block) in x.chunks(BLOCK).enumerate() {
        // First only the best value, which vectorises; its place is looked for when it is a new best.
        let mut acc = [worst; 64];
        let chunks = block.chunks_exact(64);
        let tail = chunks.remainder();
        for c in chunks {
            for i in 0..64 {
                acc[i] = if better(c[i], acc[i]) { c[i] } else { acc[i] };
            }
        }
        for (a, v) in acc.iter_mut().zip(tail) {
            *a = if better(*v, *a) { *v } else { *a };
        }
        let top = acc.into_iter().fold(worst, |t, v| if better(v, t) { v } else { t });
        if (!found || better(top, best))
            && let Some(i) = block.iter().position(|v| *v == top)
        {
            (best, at, found) = (top, b * BLOCK + i, true);
        }
    }
    at as u32
}

#[inline(always)]
fn columns<T: Ordered>(b: Block<'_, T>, better: impl Fn(T, T) -> bool) {
    let mut best = b.x[..b.inner].to_vec();
    b.out.fill(0);
    for k in 1..b.len {
        let row = &b.x[k * b.inner..][..b.inner];
        for j in 0..b.inner {
            #[allow(clippy::eq_op, reason = "a number that is not itself is NaN")]
            let take = better(row[j], best[j]) || (best[j] != best[j] && row[j] == row[j]);
            best[j] = if take { row[j] } else { best[j] };
            b.out[j] = if take { k as u32 } else { b.out[j] };
        }
    }
}
