//! The derivative of attention by queries, keys and values, block of queries by block of queries.
//!
//! A block's scores and weights are computed again from its queries; the matrix of all scores is never built.
//! A head of keys and values is one task. It adds the contributions of all blocks of queries that read it, in
//! order, so results do not depend on the number of threads.

use super::slices::{HeadSlice, MaskSlice, heads_of, inside, mask_of};
use super::softmax::Running;
use super::{AttentionShape, Heads, HeadsMut, Job, Mask};
use crate::error::{Mismatch, multiple, product, same};
use crate::gemm::{GemmOptions, gemm};
use crate::mat::{MatMut, MatRef};
use crate::par::{AtLevel, Par, Serial, Shared};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch, load_lanes, store_lanes};

/// Queries of a block: their scores stay in the cache.
const BLOCK_QUERIES: usize = 64;

/// The inputs of the derivative.
#[derive(Clone, Copy, Debug)]
pub struct GradientInputs<'a, T> {
    /// Queries.
    pub q: HeadSlice<'a, T>,
    /// Keys.
    pub k: HeadSlice<'a, T>,
    /// Values.
    pub v: HeadSlice<'a, T>,
    /// The cotangent of the result.
    pub cotangent: HeadSlice<'a, T>,
    /// The factor of the scores.
    pub scale: f32,
    /// Which keys a query sees.
    pub mask: MaskSlice<'a, T>,
}

/// The cotangents of queries, keys and values, written as sequences, rows, heads, elements: the heads of a
/// row are adjacent, as the projections need them.
pub fn attention_gradient<T: Float>(
    par: &dyn Par,
    shape: AttentionShape,
    inputs: GradientInputs<'_, T>,
    [dq, dk, dv]: [&mut [T]; 3],
) -> Result<(), Mismatch> {
    let s = &shape;
    let GradientInputs { q, k, v, cotangent, scale, mask } = inputs;
    multiple("query heads", s.kv_heads, s.q_heads)?;
    let rows = |heads: HeadSlice<'_, T>, what, count, length, width| {
        inside(what, heads.data.len(), heads.first, &[s.batch, count, length], &heads.strides, width)
    };
    rows(q, "elements of the queries", s.q_heads, s.q_len, s.head_dim)?;
    rows(k, "elements of the keys", s.kv_heads, s.kv_len, s.head_dim)?;
    rows(v, "elements of the values", s.kv_heads, s.kv_len, s.value_dim)?;
    rows(cotangent, "elements of the cotangent", s.q_heads, s.q_len, s.value_dim)?;
    let wide = |what, heads, length, width, given: usize| {
        same(what, product(what, &[s.batch, heads, length, width])?, given)
    };
    wide("elements of the queries' cotangent", s.q_heads, s.q_len, s.head_dim, dq.len())?;
    wide("elements of the keys' cotangent", s.kv_heads, s.kv_len, s.head_dim, dk.len())?;
    wide("elements of the values' cotangent", s.kv_heads, s.kv_len, s.value_dim, dv.len())?;
    let (row, across) = (s.head_dim as isize, (s.head_dim * s.q_heads) as isize);
    let job = Job {
        shape,
        q: heads_of(q).erased(),
        k: heads_of(k).erased(),
        v: heads_of(v).erased(),
        out: HeadsMut {
            ptr: dq.as_mut_ptr().cast::<()>(),
            strides: [across * s.q_len as isize, row, across],
        },
        scale,
        mask: mask_of(s, mask)?.erased(),
        sinks: None,
        spans: None,
        pages: None,
        group: 0,
    };
    let given = GradientJob { job, cotangent: heads_of(cotangent).erased() };
    let (dk, dv) = (Shared::new(dk.as_mut_ptr()), Shared::new(dv.as_mut_ptr()));
    let tasks = s.batch * s.kv_heads;
    let run = |par: &dyn Par, task: usize| {
        let given = &given;
        let (b, head) = (task / s.kv_heads, task % s.kv_heads);
        // SAFETY: every row lies within its slice; this task alone writes rows of its heads.
        unsafe { one_head::<T>(par, given, b, head, [dk, dv]) }
    };
    if tasks >= par.threads() {
        let alone = AtLevel(Serial, par.simd());
        par.run(tasks, &|task| run(&alone, task));
    } else {
        // Few heads: the threads share each product.
        (0..tasks).for_each(|task| run(par, task));
    }
    Ok(())
}

/// Attention and the cotangent of its result.
struct GradientJob<'a> {
    job: Job<'a>,
    cotangent: Heads<()>,
}

// SAFETY: tasks read the inputs and write rows of their own.
unsafe impl Sync for GradientJob<'_> {}

/// The cotangents of a head of keys and values, and of the queries that read it.
///
/// # Safety
/// The rows of the job exist, and no other thread accesses the cotangents of these heads.
unsafe fn one_head<T: Float>(
    par: &dyn Par,
    given: &GradientJob<'_>,
    b: usize,
    head: usize,
    [dk, dv]: [Shared<T>; 2],
) {
    let GradientJob { job, cotangent } = given;
    let (s, simd) = (&job.shape, par.simd());
    let (d, e, keys) = (s.head_dim, s.value_dim, s.kv_len);
    let block = BLOCK_QUERIES.min(s.q_len);
    let sizes =
        [keys * d, keys * e, keys * d, keys * e, block * d, block * d, block * e, block * keys, block * keys];
    let room = Scratch::<f32>::new(sizes.iter().sum());
    let mut next = room.ptr();
    let [k, v, sum_k, sum_v, q, out_q, g, weights, scores] = sizes.map(|size| {
        let part = next;
        next = next.wrapping_add(size);
        part
    });
    let rows = |heads: &Heads<()>, head, first, count, width, to, by| {
        let from = Job::row::<T>(heads, b, head, first);
        dispatch(simd, Load { from, stride: heads.strides[2], count, width, to, by });
    };
    rows(&job.k, head, 0, keys, d, k, 1.0);
    rows(&job.v, head, 0, keys, e, v, 1.0);
    // SAFETY: the parts of the buffer have these sizes.
    unsafe {
        sum_k.write_bytes(0, keys * d);
        sum_v.write_bytes(0, keys * e);
    }
    let share = s.q_heads / s.kv_heads;
    for head in head * share..(head + 1) * share {
        for q0 in (0..s.q_len).step_by(block.max(1)) {
            let n = block.min(s.q_len - q0);
            rows(&job.q, head, q0, n, d, q, job.scale);
            rows(cotangent, head, q0, n, e, g, 1.0);
            // With a causal mask the last query reads the most keys. A first query without a visible key
            // reads all of them.
            let blind = job.seen(q0) > job.seen(q0 + n - 1);
            let m = if blind { keys } else { job.seen(q0 + n - 1) };
            let by = |to, rows, cols, from: [Factor; 2], alpha, accumulate| {
                // SAFETY: the parts have these sizes; operands are initialized, and no result is an operand.
                unsafe { multiply(par, from, to, [rows, cols], alpha, accumulate) };
            };
            let part = |from: *mut f32, rows, cols| Factor { from, rows, cols, transposed: false };
            let transposed = |from, rows, cols| Factor { transposed: true, ..part(from, rows, cols) };
            by(weights, n, m, [part(q, n, d), transposed(k, m, d)], 1.0, false);
            for i in 0..n {
                if !matches!(job.mask, Mask::All) && m > job.clear(q0 + i) {
                    // SAFETY: the row was just computed.
                    let row = unsafe { std::slice::from_raw_parts_mut(weights.add(i * m), m) };
                    job.apply::<T>(b, head, q0 + i, 0, row, 1);
                }
            }
            by(scores, n, m, [part(g, n, e), transposed(v, m, e)], 1.0, false);
            let bounded = matches!(job.mask, Mask::Causal | Mask::Marked { .. });
            // SAFETY: both were just computed.
            let (all, changes) = unsafe {
                (
                    std::slice::from_raw_parts_mut(weights, n * m),
                    std::slice::from_raw_parts_mut(scores, n * m),
                )
            };
            dispatch(simd, SoftmaxGradient { weights: all, scores: changes, m, bounded });
            by(sum_v, m, e, [transposed(weights, n, m), part(g, n, e)], 1.0, true);
            by(sum_k, m, d, [transposed(scores, n, m), part(q, n, d)], 1.0, true);
            by(out_q, n, d, [part(scores, n, m), part(k, m, d)], job.scale, false);
            let to = job.out_row::<T>(b, head, q0);
            dispatch(simd, Store { from: out_q, to, stride: job.out.strides[2], count: n, width: d });
        }
    }
    for (from, to, width) in [(sum_k, dk, d), (sum_v, dv, e)] {
        let to = to.get().wrapping_add((b * keys * s.kv_heads + head) * width);
        let stride = (s.kv_heads * width) as isize;
        dispatch(simd, Store { from, to, stride, count: keys, width });
    }
}

/// A row-major operand of a product.
#[derive(Clone, Copy)]
struct Factor {
    from: *mut f32,
    rows: usize,
    cols: usize,
    transposed: bool,
}

/// `c = alpha * a b`, plus the old `c` if `accumulate`; all are row-major.
///
/// # Safety
/// The operands are initialized, the result too if it is read, and has the given rows and columns. It
/// overlaps no operand.
unsafe fn multiply(
    par: &dyn Par,
    from: [Factor; 2],
    to: *mut f32,
    [rows, cols]: [usize; 2],
    alpha: f32,
    accumulate: bool,
) {
    let view = |f: Factor| {
        // SAFETY: the caller's promise.
        let matrix = unsafe { MatRef::from_raw(f.from, f.rows, f.cols, f.cols as isize, 1) };
        if f.transposed { matrix.transposed() } else { matrix }
    };
    // SAFETY: the caller's promise.
    let c = unsafe { MatMut::from_raw(to, rows, cols, cols as isize, 1) };
    let beta = if accumulate { 1.0 } else { 0.0 };
    let done = gemm(par, view(from[0]), view(from[1]), c, &GemmOptions { alpha, beta });
    debug_assert!(done.is_ok(), "{done:?}");
}

/// Turns scores into weights, and the cotangents of weights into those of scores.
struct SoftmaxGradient<'a> {
    /// Scores; weights afterwards.
    weights: &'a mut [f32],
    /// Cotangents of the weights; of the scores afterwards.
    scores: &'a mut [f32],
    /// Keys.
    m: usize,
    /// Whether a query may see no key: all weights are equal then, whatever the scores are.
    bounded: bool,
}

impl Kernel for SoftmaxGradient<'_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { weights, scores, m, bounded } = self;
        if m == 0 {
            return;
        }
        for (weights, scores) in weights.chunks_exact_mut(m).zip(scores.chunks_exact_mut(m)) {
            let mut state = Running::new(None);
            state.take(s, weights);
            let (p, g) = (weights.as_mut_ptr(), scores.as_mut_ptr());
            let share = s.splat(1.0 / state.sum);
            let (mut along, mut j) = (s.zero(), 0);
            // SAFETY: every access stays within the rows.
            unsafe {
                while j < m {
                    let n = (m - j).min(S::LANES);
                    let w = s.mul(load_lanes(s, p.add(j), n), share);
                    store_lanes(s, p.add(j), w, n);
                    along = s.fma(w, load_lanes(s, g.add(j), n), along);
                    j += n;
                }
                let along = s.splat(s.reduce_add(along));
                j = 0;
                while j < m {
                    let n = (m - j).min(S::LANES);
                    let change = s.sub(load_lanes(s, g.add(j), n), along);
                    store_lanes(s, g.add(j), s.mul(load_lanes(s, p.add(j), n), change), n);
                    j += n;
                }
            }
            if bounded && state.top == f32::MIN {
                scores.fill(0.0);
            }
        }
    }
}

/// Loads rows in single precision, side by side, times a factor. They exist, and `to` has room for them.
struct Load<T> {
    from: *const T,
    stride: isize,
    count: usize,
    width: usize,
    to: *mut f32,
    by: f32,
}

impl<T: Float> Kernel for Load<T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Load { from, stride, count, width, to, by } = self;
        let by = s.splat(by);
        for row in 0..count {
            let (from, to) = (from.wrapping_offset(row as isize * stride), to.wrapping_add(row * width));
            for j in (0..width).step_by(S::LANES) {
                let n = (width - j).min(S::LANES);
                // SAFETY: the row has `width` elements in both.
                unsafe { store_lanes(s, to.add(j), s.mul(load_lanes(s, from.add(j), n), by), n) };
            }
        }
    }
}

/// Stores rows that lie side by side in the precision of `T`. They exist, and this thread alone writes them.
struct Store<T> {
    from: *const f32,
    to: *mut T,
    stride: isize,
    count: usize,
    width: usize,
}

impl<T: Float> Kernel for Store<T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Store { from, to, stride, count, width } = self;
        for row in 0..count {
            let (from, to) = (from.wrapping_add(row * width), to.wrapping_offset(row as isize * stride));
            for j in (0..width).step_by(S::LANES) {
                let n = (width - j).min(S::LANES);
                // SAFETY: the row has `width` elements in both.
                unsafe { store_lanes(s, to.add(j), load_lanes(s, from.add(j), n), n) };
            }
        }
    }
}
