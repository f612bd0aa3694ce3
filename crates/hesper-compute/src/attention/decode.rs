//! Attention of a few queries: each key and value is read once for all query heads that share it.
//!
//! Keys are split into parts of [`TASK_KEYS`], whatever the number of threads. Each part is a task with its
//! own running softmax; the partial results are combined in order.

use std::marker::PhantomData;
use std::ops::Range;

use super::Job;
use super::rows::RowReader;
use super::softmax::Running;
use crate::par::{Par, Shared};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Keys per task.
const TASK_KEYS: usize = 256;
/// Keys between two updates of the running maximum.
const STEP_KEYS: usize = 64;

/// Queries and results are `T`; `K` says how keys and values are stored.
pub(super) fn run<T: Float, K: RowReader>(par: &dyn Par, job: &Job<'_>) {
    let simd = par.simd();
    let s = &job.shape;
    let rows = s.q_heads / s.kv_heads * s.q_len;
    let parts = s.kv_len.div_ceil(TASK_KEYS).max(1);
    // For each part and row: maximum, sum, values.
    let width = s.value_dim + 2;
    let heads = s.batch * s.kv_heads;
    let partial = Scratch::<f32>::new(heads * parts * rows * width);
    let to = Shared::new(partial.ptr());
    par.run(heads * parts, &|t| {
        let (head, part) = (t / parts, t % parts);
        let to = to.get().wrapping_add(t * rows * width);
        let mut r0 = 0;
        while r0 < rows {
            let n = (rows - r0).min(4);
            let part = Part {
                job,
                b: head / s.kv_heads,
                kv_head: head % s.kv_heads,
                k0: (part * TASK_KEYS).max(job.span(head / s.kv_heads).0),
                k1: ((part + 1) * TASK_KEYS).min(job.span(head / s.kv_heads).1),
                r0,
                n,
                to: to.wrapping_add(r0 * width),
            };
            if n == 1 {
                dispatch(simd, Stream::<T, K, 1>(part, PhantomData));
            } else {
                dispatch(simd, Stream::<T, K, 4>(part, PhantomData));
            }
            r0 += n;
        }
    });
    let join = |h: usize| {
        for r in 0..rows {
            let from = to.get().wrapping_add((h * parts * rows + r) * width);
            let join = Join { job, b: h / s.kv_heads, kv_head: h % s.kv_heads, r, from, parts, rows };
            dispatch(simd, Joined::<T>(join, PhantomData));
        }
    };
    // For a few rows, starting threads costs more than combining the parts.
    if heads * parts * rows * width < 1 << 14 {
        (0..heads).for_each(join);
    } else {
        par.run(heads, &join);
    }
}

/// Rows `r0..r0 + n` of a key head against the keys `k0..k1`.
struct Part<'a, 'b> {
    job: &'a Job<'b>,
    b: usize,
    kv_head: usize,
    k0: usize,
    k1: usize,
    r0: usize,
    n: usize,
    to: *mut f32,
}

impl Part<'_, '_> {
    /// Query head and query of a row.
    fn query(&self, r: usize) -> (usize, usize) {
        query(self.job, self.kv_head, self.r0 + r)
    }
}

fn query(job: &Job<'_>, kv_head: usize, r: usize) -> (usize, usize) {
    let s = &job.shape;
    (kv_head * (s.q_heads / s.kv_heads) + r / s.q_len, r % s.q_len)
}

struct Stream<'a, 'b, T, K, const R: usize>(Part<'a, 'b>, PhantomData<(T, K)>);

impl<T: Float, K: RowReader, const R: usize> Kernel for Stream<'_, '_, T, K, R> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let p = &self.0;
        let shape = &p.job.shape;
        let (d, dv) = (shape.head_dim, shape.value_dim);
        let d_padded = d.next_multiple_of(S::LANES);
        let q = Scratch::<f32>::new(R * d_padded);
        let out = Scratch::<f32>::new(R * dv.next_multiple_of(S::LANES));
        let ld = dv.next_multiple_of(S::LANES);
        let unpacked = Scratch::<f32>::new(if K::UNPACKS { STEP_KEYS * d.max(dv) } else { 0 });
        let mut scores = [[0.0f32; STEP_KEYS]; R];
        let mut running = [Running::new(None); R];
        // SAFETY: shapes and strides name valid rows; buffers have the sizes of the rows.
        unsafe {
            for i in 0..R * d_padded {
                *q.ptr().add(i) = 0.0;
            }
            for i in 0..R * ld {
                *out.ptr().add(i) = 0.0;
            }
            for r in 0..p.n {
                let (head, i) = p.query(r);
                let from = Job::row::<T>(&p.job.q, p.b, head, i);
                for j in 0..d {
                    *q.ptr().add(r * d_padded + j) = (*from.add(j)).to_f32() * p.job.scale;
                }
            }
            let mut k = p.k0;
            while k < p.k1 {
                let m = STEP_KEYS.min(p.k1 - k);
                let mut j = 0;
                while j < m {
                    let place = (p.b, p.kv_head, k + j);
                    let (key, stride, run) = K::read(s, p.job, &p.job.k, place, m - j, d, unpacked.ptr());
                    let rows = j..j + run;
                    j = rows.end;
                    score::<S, K::Element, R>(s, q.ptr(), d, d_padded, key, stride, rows, &mut scores);
                }
                let mut before = [1.0f32; R];
                for r in 0..p.n {
                    let (head, i) = p.query(r);
                    p.job.apply::<T>(p.b, head, i, k, &mut scores[r][..m], 1);
                    before[r] = running[r].take(s, &mut scores[r][..m]);
                }
                let mut j = 0;
                while j < m {
                    let place = (p.b, p.kv_head, k + j);
                    let (value, stride, run) = K::read(s, p.job, &p.job.v, place, m - j, dv, unpacked.ptr());
                    let rows = j..j + run;
                    j = rows.end;
                    weigh::<S, K::Element, R>(s, &scores, &before, value, stride, rows, dv, out.ptr(), ld);
                    // Further runs of rows have a factor of one, which changes no bit: pages and adjacent
                    // rows give the same result.
                    before = [1.0; R];
                }
                k += m;
            }
            for (r, running) in running.iter().enumerate().take(p.n) {
                let to = p.to.add(r * (dv + 2));
                *to = running.top;
                *to.add(1) = running.sum;
                std::ptr::copy_nonoverlapping(out.ptr().add(r * ld), to.add(2), dv);
            }
        }
    }
}

/// `scores[r][j] = q[r] . key[j]` for the scores of `rows`, whose keys begin at `key`.
///
/// # Safety
/// The keys of `d` elements are readable, `q` holds `R` padded rows.
#[inline(always)]
unsafe fn score<S: Isa, T: Float, const R: usize>(
    s: S,
    q: *const f32,
    d: usize,
    d_padded: usize,
    key: *const T,
    stride: isize,
    rows: Range<usize>,
    scores: &mut [[f32; STEP_KEYS]; R],
) {
    let m = rows.len();
    let mut j = 0;
    // SAFETY: the caller's promise; the last key is repeated to fill a block of four.
    unsafe {
        while j < m {
            let at = |i: usize| key.offset((j + i).min(m - 1) as isize * stride);
            let keys = [at(0), at(1), at(2), at(3)];
            let mut acc = [[s.zero(); 4]; R];
            let mut e = 0;
            while e < d {
                let n = (d - e).min(S::LANES);
                for (c, key) in keys.iter().enumerate() {
                    let x = if n == S::LANES { T::load(s, key.add(e)) } else { T::load_n(s, key.add(e), n) };
                    for (r, acc) in acc.iter_mut().enumerate() {
                        acc[c] = s.fma(x, s.load(q.add(r * d_padded + e)), acc[c]);
                    }
                }
                e += n;
            }
            let mut all = [s.zero(); 16];
            for r in 0..R {
                for c in 0..4 {
                    all[4 * r + c] = acc[r][c];
                }
            }
            let mut sums = [0.0; 16];
            s.reduce_adds(&all, 4 * R, sums.as_mut_ptr());
            for r in 0..R {
                for c in 0..(m - j).min(4) {
                    scores[r][rows.start + j + c] = sums[4 * r + c];
                }
            }
            j += 4;
        }
    }
}

/// `out[r] = out[r] * before[r] + sum of scores[r][j] * value[j]` over the scores of `rows`, whose values
/// begin at `value`.
///
/// # Safety
/// The values of `dv` elements are readable, `out` holds `R` rows of `ld`.
#[inline(always)]
unsafe fn weigh<S: Isa, T: Float, const R: usize>(
    s: S,
    scores: &[[f32; STEP_KEYS]; R],
    before: &[f32; R],
    value: *const T,
    stride: isize,
    rows: Range<usize>,
    dv: usize,
    out: *mut f32,
    ld: usize,
) {
    const V: usize = 4;
    let (first, m) = (rows.start, rows.len());
    let mut e = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while e + V * S::LANES <= dv {
            let mut acc = [[s.zero(); V]; R];
            for (r, acc) in acc.iter_mut().enumerate() {
                for (c, a) in acc.iter_mut().enumerate() {
                    *a = s.mul(s.load(out.add(r * ld + e + c * S::LANES)), s.splat(before[r]));
                }
            }
            for j in 0..m {
                let row = value.offset(j as isize * stride).add(e);
                for c in 0..V {
                    let x = T::load(s, row.add(c * S::LANES));
                    for (r, acc) in acc.iter_mut().enumerate() {
                        acc[c] = s.fma(s.splat(scores[r][first + j]), x, acc[c]);
                    }
                }
            }
            for (r, acc) in acc.iter().enumerate() {
                for (c, a) in acc.iter().enumerate() {
                    s.store(out.add(r * ld + e + c * S::LANES), *a);
                }
            }
            e += V * S::LANES;
        }
        while e < dv {
            let n = (dv - e).min(S::LANES);
            for r in 0..R {
                let to = out.add(r * ld + e);
                let mut a = s.mul(s.load(to), s.splat(before[r]));
                for j in 0..m {
                    let x = T::load_n(s, value.offset(j as isize * stride).add(e), n);
                    a = s.fma(s.splat(scores[r][first + j]), x, a);
                }
                s.store(to, a);
            }
            e += n;
        }
    }
}

/// Combines the parts of one row.
struct Join<'a, 'b> {
    job: &'a Job<'b>,
    b: usize,
    kv_head: usize,
    r: usize,
    from: *const f32,
    parts: usize,
    rows: usize,
}

struct Joined<'a, 'b, T>(Join<'a, 'b>, PhantomData<T>);

impl<T: Float> Kernel for Joined<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Join { job, b, kv_head, r, from, parts, rows } = self.0;
        let dv = job.shape.value_dim;
        let (head, i) = query(job, kv_head, r);
        let total = Scratch::<f32>::new(dv);
        // SAFETY: every part of the row was written, with `dv + 2` floats.
        unsafe {
            let part = |p: usize| from.add(p * rows * (dv + 2));
            let start = Running::new(job.sinks.map(|s| s[head]));
            let top = (0..parts).fold(start.top, |t, p| t.max(*part(p)));
            let shift = if top == f32::NEG_INFINITY { 0.0 } else { top };
            let factor = |top: f32| if top == f32::NEG_INFINITY { 0.0 } else { (top - shift).exp() };
            let mut sum = start.sum * factor(start.top);
            for j in 0..dv {
                *total.ptr().add(j) = 0.0;
            }
            for p in 0..parts {
                let f = factor(*part(p));
                sum += *part(p).add(1) * f;
                for j in 0..dv {
                    *total.ptr().add(j) += *part(p).add(2 + j) * f;
                }
            }
            store_row::<S, T>(s, total.ptr(), job.out_row(b, head, i), dv, sum);
        }
    }
}

/// Divides a row by its sum of weights and stores it.
///
/// # Safety
/// Both hold `n` elements.
#[inline(always)]
unsafe fn store_row<S: Isa, T: Float>(s: S, row: *const f32, to: *mut T, n: usize, sum: f32) {
    let sum = s.splat(sum);
    let mut j = 0;
    while j < n {
        let m = (n - j).min(S::LANES);
        // SAFETY: the caller's promise.
        unsafe { T::store_n(s, to.add(j), s.div(s.load_n(row.add(j), m), sum), m) };
        j += m;
    }
}
