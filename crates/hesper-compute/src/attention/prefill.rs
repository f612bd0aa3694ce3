//! Many queries: blocks of queries times blocks of keys, through the packed products.

use super::Job;
use super::softmax::Running;
use crate::gemm::kind::{Kind, Single};
use crate::gemm::micro::{Column, NV, Tile};
use crate::par::Par;
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Row panels of a block of queries.
const PANELS: usize = 6;
/// Keys of a block.
const KEYS: usize = 256;

struct QueryRows;

impl Kernel for QueryRows {
    type Out = usize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::MR * PANELS
    }
}

/// One task for every block of queries of every head, long ones first.
pub(super) fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let simd = par.simd();
    let rows = dispatch(simd, QueryRows);
    let s = &job.shape;
    let blocks = s.q_len.div_ceil(rows);
    par.run(s.batch * s.q_heads * blocks, &|t| {
        let (b, rest) = (t / (s.q_heads * blocks), t % (s.q_heads * blocks));
        let (block, head) = (blocks - 1 - rest / s.q_heads, rest % s.q_heads);
        let q0 = block * rows;
        let n = rows.min(s.q_len - q0);
        dispatch(simd, Block::<T> { job, b, head, q0, n, of: std::marker::PhantomData });
    });
}

struct Block<'a, 'b, T> {
    job: &'a Job<'b>,
    b: usize,
    head: usize,
    q0: usize,
    n: usize,
    of: std::marker::PhantomData<T>,
}

/// Packs `n` lines of `k` elements into panels of `width`.
///
/// # Safety
/// The lines exist, and `dst` has room for whole panels and 64 bytes more.
#[inline(always)]
unsafe fn panels<S: Isa, T: Float>(
    s: S,
    src: *const T,
    ws: isize,
    ks: isize,
    n: usize,
    width: usize,
    k: usize,
    dst: *mut f32,
) {
    let mut at = 0;
    while at < n {
        let from = src.wrapping_offset(at as isize * ws);
        // SAFETY: the caller's promise.
        unsafe { Single::<T>::pack(s, from, ws, ks, (n - at).min(width), width, k, dst.add(at * k)) };
        at += width;
    }
}

impl<T: Float> Kernel for Block<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { job, b, head, q0, n, .. } = self;
        let shape = &job.shape;
        let (d, dv) = (shape.head_dim, shape.value_dim);
        let kv_head = head / (shape.q_heads / shape.kv_heads);
        let nr = NV * S::LANES;
        let mr = S::MR;
        let rows = PANELS * mr;
        let dv_padded = dv.next_multiple_of(nr);
        let q = Scratch::<f32>::new(rows * d);
        let keys = Scratch::<f32>::new(KEYS * d);
        let values = Scratch::<f32>::new(KEYS * dv_padded);
        let scores = Scratch::<f32>::new(rows * KEYS);
        let weights = Scratch::<f32>::new(rows * KEYS);
        let out = Scratch::<f32>::new(rows * dv_padded);
        let mut running = [Running::new(job.sinks.map(|s| s[head])); 12 * PANELS];
        // The last query sees most; the first may see none, and then all are needed.
        let blind = job.seen(q0) > job.seen(q0 + n - 1);
        let limit = if blind { shape.kv_len } else { job.seen(q0 + n - 1) };

        // SAFETY: shapes and strides name valid rows; buffers have the sizes of the blocks.
        unsafe {
            let line = Scratch::<f32>::new(rows * d);
            for i in 0..n {
                let from = Job::row::<T>(&job.q, b, head, q0 + i);
                for j in 0..d {
                    *line.ptr().add(i * d + j) = (*from.add(j)).to_f32() * job.scale;
                }
            }
            panels(s, line.ptr().cast_const(), d as isize, 1, n, mr, d, q.ptr());
            for i in 0..n * dv_padded {
                *out.ptr().add(i) = 0.0;
            }
            let mut k0 = 0;
            while k0 < limit {
                let m = KEYS.min(limit - k0);
                let stride = job.k.strides[2];
                panels(s, Job::row::<T>(&job.k, b, kv_head, k0), stride, 1, m, nr, d, keys.ptr());
                let mut c = 0;
                while c < m {
                    let first = Tile::<Single<f32>> {
                        k: d,
                        a: q.ptr(),
                        b: keys.ptr().add(c * d),
                        c: scores.ptr().add(c),
                        ldc: KEYS,
                        cols: (m - c).min(nr),
                        accumulate: false,
                    };
                    s.call(Column { first, rows: n, panel: mr * d });
                    c += nr;
                }
                for (i, running) in running.iter_mut().enumerate().take(n) {
                    let row = std::slice::from_raw_parts_mut(scores.ptr().add(i * KEYS), m);
                    job.apply::<T>(b, head, q0 + i, k0, row);
                    let before = running.take(s, row);
                    if before != 1.0 {
                        scale_row(s, out.ptr().add(i * dv_padded), dv_padded, before);
                    }
                }
                panels(s, scores.ptr().cast_const(), KEYS as isize, 1, n, mr, m, weights.ptr());
                let stride = job.v.strides[2];
                panels(s, Job::row::<T>(&job.v, b, kv_head, k0), 1, stride, dv, nr, m, values.ptr());
                let mut c = 0;
                while c < dv {
                    let first = Tile::<Single<f32>> {
                        k: m,
                        a: weights.ptr(),
                        b: values.ptr().add(c * m),
                        c: out.ptr().add(c),
                        ldc: dv_padded,
                        cols: (dv - c).min(nr),
                        accumulate: true,
                    };
                    s.call(Column { first, rows: n, panel: mr * m });
                    c += nr;
                }
                k0 += m;
            }
            for (i, running) in running.iter().enumerate().take(n) {
                let row = out.ptr().add(i * dv_padded);
                store_row::<S, T>(s, row, job.out_row(b, head, q0 + i), dv, running.sum);
            }
        }
    }
}

/// # Safety
/// The row holds `n` floats, whole vectors.
#[inline(always)]
unsafe fn scale_row<S: Isa>(s: S, row: *mut f32, n: usize, by: f32) {
    let by = s.splat(by);
    let mut j = 0;
    while j < n {
        // SAFETY: the caller's promise.
        unsafe { s.store(row.add(j), s.mul(s.load(row.add(j)), by)) };
        j += S::LANES;
    }
}

/// Divides a row by its sum of weights.
///
/// # Safety
/// Both hold `n` elements.
#[inline(always)]
pub(super) unsafe fn store_row<S: Isa, T: Float>(s: S, row: *const f32, to: *mut T, n: usize, sum: f32) {
    let sum = s.splat(sum);
    let mut j = 0;
    while j < n {
        let m = (n - j).min(S::LANES);
        // SAFETY: the caller's promise.
        unsafe { T::store_n(s, to.add(j), s.div(s.load_n(row.add(j), m), sum), m) };
        j += m;
    }
}
