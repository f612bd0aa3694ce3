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
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

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
    let total = sizes.iter().sum();
    let room = Scratch::<f32>::new(total);
    // SAFETY: the buffer has `total` elements, and all of them are initialized here.
    let mut rest = unsafe {
        room.ptr().write_bytes(0, total);
        std::slice::from_raw_parts_mut(room.ptr(), total)
    };
    let [k, v, sum_k, sum_v, q, out_q, g, weights, scores] = sizes.map(|size| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(size);
        rest = others;
        part
    });
    for i in 0..keys {
        // SAFETY: the caller's promise.
        unsafe {
            load::<T>(simd, Job::row::<T>(&job.k, b, head, i), &mut k[i * d..][..d], 1.0);
            load::<T>(simd, Job::row::<T>(&job.v, b, head, i), &mut v[i * e..][..e], 1.0);
        }
    }
    let share = s.q_heads / s.kv_heads;
    for head in head * share..(head + 1) * share {
        for q0 in (0..s.q_len).step_by(block.max(1)) {
            let n = block.min(s.q_len - q0);
            for i in 0..n {
                // SAFETY: the caller's promise.
                unsafe {
                    load::<T>(simd, Job::row::<T>(&job.q, b, head, q0 + i), &mut q[i * d..][..d], job.scale);
                    load::<T>(simd, Job::row::<T>(cotangent, b, head, q0 + i), &mut g[i * e..][..e], 1.0);
                }
            }
            // With a causal mask the last query reads the most keys. A first query without a visible key
            // reads all of them.
            let blind = job.seen(q0) > job.seen(q0 + n - 1);
            let m = if blind { keys } else { job.seen(q0 + n - 1) };
            let (weights, scores) = (&mut weights[..n * m], &mut scores[..n * m]);
            multiply(par, (&*q, n, d), false, (&*k, m, d), true, weights, 1.0, false);
            for i in 0..n {
                let row = &mut weights[i * m..][..m];
                if !matches!(job.mask, Mask::All) && m > job.clear(q0 + i) {
                    job.apply::<T>(b, head, q0 + i, 0, row, 1);
                }
            }
            multiply(par, (&*g, n, e), false, (&*v, m, e), true, scores, 1.0, false);
            let bounded = matches!(job.mask, Mask::Causal | Mask::Marked { .. });
            dispatch(simd, SoftmaxGradient { weights, scores, m, bounded });
            multiply(par, (&*weights, n, m), true, (&*g, n, e), false, &mut sum_v[..m * e], 1.0, true);
            multiply(par, (&*scores, n, m), true, (&*q, n, d), false, &mut sum_k[..m * d], 1.0, true);
            multiply(par, (&*scores, n, m), false, (&*k, m, d), false, &mut out_q[..n * d], job.scale, false);
            for i in 0..n {
                // SAFETY: the caller's promise.
                unsafe { store::<T>(simd, &out_q[i * d..][..d], job.out_row::<T>(b, head, q0 + i)) };
            }
        }
    }
    for i in 0..keys {
        let row = (b * keys + i) * s.kv_heads + head;
        // SAFETY: the caller's promise; the row lies in the cotangent.
        unsafe {
            store::<T>(simd, &sum_k[i * d..][..d], dk.get().add(row * d));
            store::<T>(simd, &sum_v[i * e..][..e], dv.get().add(row * e));
        }
    }
}

/// `c = alpha * a b`, plus the old `c` if `accumulate`. Operands are row-major, and transposed on request.
fn multiply(
    par: &dyn Par,
    (a, a_rows, a_cols): (&[f32], usize, usize),
    transpose_a: bool,
    (b, b_rows, b_cols): (&[f32], usize, usize),
    transpose_b: bool,
    c: &mut [f32],
    alpha: f32,
    accumulate: bool,
) {
    let view = |data, rows, cols, transpose: bool| {
        let matrix = MatRef::row_major(data, rows, cols)?;
        Ok::<_, Mismatch>(if transpose { matrix.transposed() } else { matrix })
    };
    let mut run = || {
        let (a, b) = (view(a, a_rows, a_cols, transpose_a)?, view(b, b_rows, b_cols, transpose_b)?);
        let c = MatMut::row_major(c, a.rows(), b.cols())?;
        let beta = if accumulate { 1.0 } else { 0.0 };
        gemm(par, a, b, c, &GemmOptions { alpha, beta })
    };
    let fits = run();
    debug_assert!(fits.is_ok(), "{fits:?}");
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
                    let w = s.mul(s.load_n(p.add(j), n), share);
                    s.store_n(p.add(j), w, n);
                    along = s.fma(w, s.load_n(g.add(j), n), along);
                    j += n;
                }
                let along = s.splat(s.reduce_add(along));
                j = 0;
                while j < m {
                    let n = (m - j).min(S::LANES);
                    let change = s.sub(s.load_n(g.add(j), n), along);
                    s.store_n(g.add(j), s.mul(s.load_n(p.add(j), n), change), n);
                    j += n;
                }
            }
            if bounded && state.top == f32::MIN {
                scores.fill(0.0);
            }
        }
    }
}

/// Loads a row in single precision, times a factor.
///
/// # Safety
/// The row has as many elements as `to`.
unsafe fn load<T: Float>(simd: Simd, from: *const T, to: &mut [f32], by: f32) {
    struct Load<'a, T>(*const T, &'a mut [f32], f32);
    impl<T: Float> Kernel for Load<'_, T> {
        type Out = ();
        #[inline(always)]
        fn run<S: Isa>(self, s: S) {
            let Load(from, to, by) = self;
            let by = s.splat(by);
            let mut j = 0;
            while j < to.len() {
                let n = (to.len() - j).min(S::LANES);
                // SAFETY: the caller's promise.
                unsafe { s.store_n(to.as_mut_ptr().add(j), s.mul(T::load_n(s, from.add(j), n), by), n) };
                j += n;
            }
        }
    }
    dispatch(simd, Load(from, to, by));
}

/// Stores a row in the precision of `T`.
///
/// # Safety
/// The row has as many elements as `from`, and no other thread accesses it.
unsafe fn store<T: Float>(simd: Simd, from: &[f32], to: *mut T) {
    struct Store<'a, T>(&'a [f32], *mut T);
    impl<T: Float> Kernel for Store<'_, T> {
        type Out = ();
        #[inline(always)]
        fn run<S: Isa>(self, s: S) {
            let Store(from, to) = self;
            let mut j = 0;
            while j < from.len() {
                let n = (from.len() - j).min(S::LANES);
                // SAFETY: the caller's promise.
                unsafe { T::store_n(s, to.add(j), s.load_n(from.as_ptr().add(j), n), n) };
                j += n;
            }
        }
    }
    dispatch(simd, Store(from, to));
}
