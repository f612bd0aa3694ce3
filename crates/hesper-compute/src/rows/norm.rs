//! Softmax, log-sum-exp, layer norm and RMS norm of rows, computed in `f32` and rounded once.

use std::marker::PhantomData;

use super::source::{RowScratch, Source, pieces};
use crate::error::{Mismatch, multiple, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Float, FloatKind, Isa, Kernel, dispatch, math};

/// The op on each row.
#[derive(Clone, Copy)]
enum Op {
    Softmax,
    LogSumExp,
    /// Weight, bias, epsilon.
    LayerNorm(*const (), *const (), f32),
    /// Weight, epsilon.
    RmsNorm(*const (), f32),
}

struct NormRows<'a> {
    op: Op,
    x: &'a dyn Pieces,
    out: *mut (),
    rows: usize,
    n: usize,
    /// Whether non-temporal stores write the result.
    streaming: bool,
}

// SAFETY: tasks read shared rows and write rows of their own.
unsafe impl Sync for NormRows<'_> {}

/// Rows with the element type erased.
trait Pieces: Sync {
    /// Calls `f(first, rows, elements)` for the rows `a..b` of `n` elements, some at a time.
    fn each(&self, n: usize, range: (usize, usize), f: &mut dyn FnMut(usize, usize, *const ()));
}

/// Rows of a known type.
struct Typed<'a, T>(&'a dyn Source<T>);

impl<T> Pieces for Typed<'_, T> {
    fn each(&self, n: usize, range: (usize, usize), f: &mut dyn FnMut(usize, usize, *const ())) {
        pieces(self.0, n, range, &mut RowScratch::default(), |first, rows, piece| {
            f(first, rows, piece.as_ptr().cast());
        });
    }
}

/// `e^x / sum(e^x)` of every row of `n` elements.
pub fn softmax<T: Float>(par: &dyn Par, x: &dyn Source<T>, n: usize, out: &mut [T]) -> Result<(), Mismatch> {
    same("elements of the result", x.count(), out.len())?;
    run(par, Op::Softmax, x, n, out.as_mut_ptr())
}

/// `log(sum(e^x))` of every row of `n` elements.
pub fn logsumexp<T: Float>(
    par: &dyn Par,
    x: &dyn Source<T>,
    n: usize,
    out: &mut [T],
) -> Result<(), Mismatch> {
    same("elements of the result", x.count().checked_div(n).unwrap_or(0), out.len())?;
    run(par, Op::LogSumExp, x, n, out.as_mut_ptr())
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` of every row.
pub fn layer_norm<T: Float>(
    par: &dyn Par,
    x: &dyn Source<T>,
    n: usize,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    eps: f32,
    out: &mut [T],
) -> Result<(), Mismatch> {
    same("elements of the result", x.count(), out.len())?;
    let (w, b) = (vector(weight, n)?, vector(bias, n)?);
    run(par, Op::LayerNorm(w, b, eps), x, n, out.as_mut_ptr())
}

/// `x / sqrt(mean(x^2) + eps) * weight` of every row.
pub fn rms_norm<T: Float>(
    par: &dyn Par,
    x: &dyn Source<T>,
    n: usize,
    weight: Option<&[T]>,
    eps: f32,
    out: &mut [T],
) -> Result<(), Mismatch> {
    same("elements of the result", x.count(), out.len())?;
    let w = vector(weight, n)?;
    run(par, Op::RmsNorm(w, eps), x, n, out.as_mut_ptr())
}

fn vector<T>(v: Option<&[T]>, n: usize) -> Result<*const (), Mismatch> {
    match v {
        Some(v) => same("elements of weight or bias", n, v.len()).map(|()| v.as_ptr().cast()),
        None => Ok(std::ptr::null()),
    }
}

fn run<T: Float>(par: &dyn Par, op: Op, x: &dyn Source<T>, n: usize, out: *mut T) -> Result<(), Mismatch> {
    let rows = x.count().checked_div(n).unwrap_or(0);
    multiple("elements of the input", n, x.count())?;
    let streaming = size_of::<T>() == 4 && rows * n * size_of::<T>() >= par.caches().non_temporal();
    run_kind(T::KIND, par, &NormRows { op, x: &Typed(x), out: out.cast(), rows, n, streaming });
    Ok(())
}

fn run_kind(kind: FloatKind, par: &dyn Par, job: &NormRows<'_>) {
    let simd = par.simd();
    let chunk = grain(par, job.rows, (8192 / job.n.max(1)).max(1));
    chunks(par, job.rows, chunk, |a, b| {
        job.x.each(job.n, (a, b), &mut |first, rows, x| match kind {
            FloatKind::F32 => dispatch(simd, Part::<f32>(job, x, first, rows, PhantomData)),
            FloatKind::Bf16 => dispatch(simd, Part::<half::bf16>(job, x, first, rows, PhantomData)),
            FloatKind::F16 => dispatch(simd, Part::<half::f16>(job, x, first, rows, PhantomData)),
        });
    });
}

/// Rows of a job: their elements, the index of the first, and their count.
struct Part<'a, T>(&'a NormRows<'a>, *const (), usize, usize, PhantomData<T>);

impl<T: Float> Kernel for Part<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self(job, x, first, rows, _) = self;
        let (n, streaming) = (job.n, job.streaming);
        let buf = Scratch::<f32>::new(n);
        let (x, out) = (x.cast::<T>(), Shared::new(job.out.cast::<T>()));
        for at in 0..rows {
            let i = first + at;
            // SAFETY: the row lies in the piece, and its result in this task's part of the output.
            unsafe {
                let row = x.add(at * n);
                match job.op {
                    Op::Softmax => {
                        let top = largest(s, row, n);
                        let sum = exps(s, row, n, top, buf.ptr());
                        let by = s.splat(1.0 / sum);
                        let to = out.get().add(i * n);
                        let (mut j, mut m) = (0, lead::<S, T>(to, n, streaming));
                        while j < n {
                            s.prefetch(row.wrapping_add(n + j).cast());
                            let v = s.mul(s.load_n(buf.ptr().add(j), m), by);
                            if streaming && m == S::LANES {
                                s.stream(to.add(j).cast(), v);
                            } else {
                                T::store_n(s, to.add(j), v, m);
                            }
                            j += m;
                            m = (n - j).min(S::LANES);
                        }
                    }
                    Op::LogSumExp => {
                        let top = largest(s, row, n);
                        // An infinite or NaN maximum determines the sum without a shift.
                        let shift = if top.is_finite() { top } else { 0.0 };
                        let sum = exps(s, row, n, shift, buf.ptr());
                        *out.get().add(i) = T::from_f32(sum.ln() + shift);
                    }
                    Op::LayerNorm(w, b, eps) => {
                        layer::<S, T>(s, row, n, w.cast(), b.cast(), eps, out.get().add(i * n), streaming);
                    }
                    Op::RmsNorm(w, eps) => {
                        let (zero, m) = (s.zero(), n as f32);
                        let squares = total(s, row, n, zero, true);
                        let by = s.splat(1.0 / (squares / m + eps).sqrt());
                        let to = out.get().add(i * n);
                        scaled::<S, T>(s, row, n, zero, by, w.cast(), std::ptr::null(), to, streaming);
                    }
                }
            }
        }
        if streaming {
            s.fence();
        }
    }
}

/// # Safety
/// The row holds `n` elements.
#[inline(always)]
unsafe fn largest<S: Isa, T: Float>(s: S, row: *const T, n: usize) -> f32 {
    let low = s.splat(f32::NEG_INFINITY);
    let mut top = [low; 4];
    let step = 4 * S::LANES;
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + step <= n {
            for (c, t) in top.iter_mut().enumerate() {
                *t = s.max(T::load(s, row.add(j + c * S::LANES)), *t);
            }
            j += step;
        }
        let mut r = s.reduce_max(s.max(s.max(top[0], top[1]), s.max(top[2], top[3])));
        while j < n {
            r = r.max((*row.add(j)).to_f32());
            j += 1;
        }
        r
    }
}

/// Writes `e^(x - top)` and returns their sum.
///
/// # Safety
/// Row and buffer hold `n` elements.
#[inline(always)]
unsafe fn exps<S: Isa, T: Float>(s: S, row: *const T, n: usize, top: f32, buf: *mut f32) -> f32 {
    // Without a shift if all elements are minus infinity.
    let at = s.splat(if top == f32::NEG_INFINITY { 0.0 } else { top });
    let mut sums = [s.zero(); 2];
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + 2 * S::LANES <= n {
            for (c, sum) in sums.iter_mut().enumerate() {
                let e = math::exp(s, s.sub(T::load(s, row.add(j + c * S::LANES)), at));
                *sum = s.add(*sum, e);
                s.store(buf.add(j + c * S::LANES), e);
            }
            j += 2 * S::LANES;
        }
        let mut tail = 0.0;
        while j < n {
            let m = (n - j).min(S::LANES);
            let e = math::exp(s, s.sub(T::load_n(s, row.add(j), m), at));
            s.store_n(buf.add(j), e, m);
            for i in 0..m {
                tail += *buf.add(j + i);
            }
            j += m;
        }
        s.reduce_add(s.add(sums[0], sums[1])) + tail
    }
}

/// The sum of `x - shift` or of its squares.
///
/// # Safety
/// The row holds `n` elements.
#[inline(always)]
unsafe fn total<S: Isa, T: Float>(s: S, row: *const T, n: usize, shift: S::F, square: bool) -> f32 {
    let mut sums = [s.zero(); 4];
    let step = 4 * S::LANES;
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j + step <= n {
            for (c, sum) in sums.iter_mut().enumerate() {
                let v = s.sub(T::load(s, row.add(j + c * S::LANES)), shift);
                *sum = if square { s.fma(v, v, *sum) } else { s.add(*sum, v) };
            }
            j += step;
        }
        let mut buf = [0.0f32; 16];
        s.store(buf.as_mut_ptr(), shift);
        let mut tail = 0.0;
        while j < n {
            let v = (*row.add(j)).to_f32() - buf[0];
            tail += if square { v * v } else { v };
            j += 1;
        }
        s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) + tail
    }
}

/// # Safety
/// All rows hold `n` elements, weight and bias may be null.
#[inline(always)]
unsafe fn layer<S: Isa, T: Float>(
    s: S,
    row: *const T,
    n: usize,
    w: *const T,
    b: *const T,
    eps: f32,
    out: *mut T,
    streaming: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mean = total(s, row, n, s.zero(), false) / n as f32;
        let shift = s.splat(mean);
        let variance = total(s, row, n, shift, true) / n as f32;
        let by = s.splat(1.0 / (variance + eps).sqrt());
        scaled(s, row, n, shift, by, w, b, out, streaming);
    }
}

/// `(x - shift) * by * w + b`, with non-temporal stores if `streaming` (`T` is `f32` then).
///
/// # Safety
/// All rows hold `n` elements, weight and bias may be null.
#[inline(always)]
unsafe fn scaled<S: Isa, T: Float>(
    s: S,
    row: *const T,
    n: usize,
    shift: S::F,
    by: S::F,
    w: *const T,
    b: *const T,
    out: *mut T,
    streaming: bool,
) {
    let (mut j, mut m) = (0, lead::<S, T>(out, n, streaming));
    // SAFETY: the caller's promise.
    unsafe {
        while j < n {
            // Prefetch the next row.
            s.prefetch(row.wrapping_add(n + j).cast());
            if m == S::LANES {
                let mut v = s.mul(s.sub(T::load(s, row.add(j)), shift), by);
                if !w.is_null() {
                    v = s.mul(v, T::load(s, w.add(j)));
                }
                if !b.is_null() {
                    v = s.add(v, T::load(s, b.add(j)));
                }
                if streaming {
                    s.stream(out.add(j).cast(), v);
                } else {
                    T::store(s, out.add(j), v);
                }
            } else {
                let mut v = s.mul(s.sub(T::load_n(s, row.add(j), m), shift), by);
                if !w.is_null() {
                    v = s.mul(v, T::load_n(s, w.add(j), m));
                }
                if !b.is_null() {
                    v = s.add(v, T::load_n(s, b.add(j), m));
                }
                T::store_n(s, out.add(j), v, m);
            }
            j += m;
            m = (n - j).min(S::LANES);
        }
    }
}

/// Elements of the first step of a row of `n`: one vector, or fewer so that later vectors are aligned for
/// non-temporal stores.
#[inline(always)]
fn lead<S: Isa, T>(out: *const T, n: usize, streaming: bool) -> usize {
    let past = if streaming { out.addr() % (4 * S::LANES) / size_of::<T>() } else { 0 };
    (S::LANES - past).min(n)
}
