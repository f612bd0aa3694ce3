//! Attention of many queries: blocks of queries times blocks of keys, with the packed products.
//!
//! Everything is computed transposed, with one column per query. A block of scores has one row per key, so
//! the softmax runs over whole vectors of queries, and its weights have the layout that the product with the
//! values needs. Keys and values are packed once and shared by all queries and query heads that read them.
//! These heads are processed together, so that a block spans few positions of the sequence.

use std::marker::PhantomData;

use super::{Job, Mask};
use crate::gemm::micro::{Column, Tile};
use crate::gemm::precision::{Precision, Single};
use crate::par::{Par, Shared};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch, load_lanes, math, store_lanes};

/// Keys per block: a multiple of the panel width at every SIMD level.
const BLOCK_KEYS: usize = 192;
/// Most floats of keys and values that are packed at once, unless one head has more.
const MAX_PACKED_FLOATS: usize = 8 << 20;

/// The register tile of a SIMD level: `mr` keys by `nr` queries.
#[derive(Clone, Copy)]
struct TileSize {
    mr: usize,
    nr: usize,
}

struct TileSizeOf;

impl Kernel for TileSizeOf {
    type Out = TileSize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> TileSize {
        TileSize { mr: S::MR, nr: S::NV * S::LANES }
    }
}

/// The layout of the packed keys and values of a head.
#[derive(Clone, Copy)]
struct Layout {
    /// Floats of a block of keys.
    keys: usize,
    /// Floats of the values of a block.
    values: usize,
    blocks: usize,
}

impl Layout {
    fn head(&self) -> usize {
        self.blocks * (self.keys + self.values)
    }
}

/// Packs keys and values of some heads, then runs one task per block of their queries, long ones first.
pub(super) fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    run_within::<T>(par, job, MAX_PACKED_FLOATS);
}

/// [`run`] with at most `room` packed floats, unless one head needs more.
pub(super) fn run_within<T: Float>(par: &dyn Par, job: &Job<'_>, room: usize) {
    let simd = par.simd();
    let TileSize { mr, nr } = dispatch(simd, TileSizeOf);
    let s = &job.shape;
    let layout = Layout {
        keys: BLOCK_KEYS * s.head_dim,
        // Full-width stores may write one vector past the end.
        values: BLOCK_KEYS * s.value_dim.next_multiple_of(mr) + 16,
        blocks: s.kv_len.div_ceil(BLOCK_KEYS),
    };
    // Query heads of a block, and queries of each.
    let share = s.q_heads / s.kv_heads;
    let parts = share.div_ceil(nr);
    let heads = share.div_ceil(parts);
    let queries = nr / heads;
    let places = s.q_len.div_ceil(queries);

    let pairs = s.batch * s.kv_heads;
    let together = (room / layout.head().max(1)).clamp(1, pairs);
    let packed = Scratch::<f32>::new(together * layout.head() + 64);
    let packed = Shared::new(packed.ptr());
    let mut first = 0;
    while first < pairs {
        let count = together.min(pairs - first);
        par.run(count * layout.blocks, &|t| {
            let (pair, block) = (t / layout.blocks, t % layout.blocks);
            dispatch(simd, Pack::<T> { job, layout, packed, pair, first, block, of: PhantomData });
        });
        par.run(count * parts * places, &|t| {
            let (pair, rest) = (t / (parts * places), t % (parts * places));
            let (place, part) = (places - 1 - rest / parts, rest % parts);
            let (h0, h1) = (part * share / parts, (part + 1) * share / parts);
            let (q0, q1) = (place * queries, s.q_len.min((place + 1) * queries));
            let own = packed.get().wrapping_add(pair * layout.head());
            let (b, kv_head) = ((first + pair) / s.kv_heads, (first + pair) % s.kv_heads);
            let heads = (kv_head * share + h0, kv_head * share + h1);
            let block = Block::<T> { job, layout, packed: own, b, heads, queries: (q0, q1), of: PhantomData };
            dispatch(simd, block);
        });
        first += count;
    }
}

/// Packs one block of keys and values.
struct Pack<'a, 'b, T> {
    job: &'a Job<'b>,
    layout: Layout,
    packed: Shared<f32>,
    /// The index of the head among those that are packed now, and the index of the first of these.
    pair: usize,
    first: usize,
    block: usize,
    of: PhantomData<T>,
}

impl<T: Float> Kernel for Pack<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { job, layout, packed, pair, first, block, .. } = self;
        let shape = &job.shape;
        let (b, head) = ((first + pair) / shape.kv_heads, (first + pair) % shape.kv_heads);
        let k0 = block * BLOCK_KEYS;
        let n = BLOCK_KEYS.min(shape.kv_len - k0);
        let to = packed.get().wrapping_add(pair * layout.head() + block * (layout.keys + layout.values));
        // SAFETY: the keys and values exist; the block has room for whole panels.
        unsafe {
            let from = Job::row::<T>(&job.k, b, head, k0);
            panels::<S, T>(s, from, job.k.strides[2], 1, n, shape.head_dim, to);
            let from = Job::row::<T>(&job.v, b, head, k0);
            panels::<S, T>(s, from, 1, job.v.strides[2], shape.value_dim, n, to.add(layout.keys));
        }
    }
}

/// Packs `n` lines of `k` elements into panels as wide as a tile is high.
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
    k: usize,
    dst: *mut f32,
) {
    let mut at = 0;
    while at < n {
        let from = src.wrapping_offset(at as isize * ws);
        // SAFETY: the caller's promise.
        unsafe { Single::<T>::pack(s, from, ws, ks, (n - at).min(S::MR), S::MR, k, dst.add(at * k)) };
        at += S::MR;
    }
}

/// Queries of heads that share keys and values: one column per query and head, the heads of a query adjacent.
struct Block<'a, 'b, T> {
    job: &'a Job<'b>,
    layout: Layout,
    packed: *const f32,
    b: usize,
    /// Range of query heads.
    heads: (usize, usize),
    /// Range of queries.
    queries: (usize, usize),
    of: PhantomData<T>,
}

impl<T: Float> Kernel for Block<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { job, layout, packed, b, heads: (h0, h1), queries: (q0, q1), .. } = self;
        let shape = &job.shape;
        let (d, dv) = (shape.head_dim, shape.value_dim);
        let (heads, n) = (h1 - h0, (h1 - h0) * (q1 - q0));
        // The vectors that the queries take: a panel is as wide as its tile.
        let width = n.next_multiple_of(S::LANES);
        let height = dv.next_multiple_of(S::LANES);
        let q = Scratch::<f32>::new(width * d);
        let scores = Scratch::<f32>::new(BLOCK_KEYS * width);
        let out = Scratch::<f32>::new(height * width);
        // The running maximum of each column, and its sum of weights relative to the maximum.
        let mut tops = [f32::NEG_INFINITY; 48];
        let mut sums = [0.0f32; 48];
        if let Some(sinks) = job.sinks {
            for c in 0..n {
                tops[c] = sinks[h0 + c % heads];
                sums[c] = 1.0;
            }
        }
        // With a causal mask the last query reads the most keys. A first query without a visible key reads
        // all of them.
        let blind = job.seen(q0) > job.seen(q1 - 1);
        let limit = if blind { shape.kv_len } else { job.seen(q1 - 1) };

        // SAFETY: shapes and strides name valid rows; buffers have the sizes of the blocks.
        unsafe {
            let lines = Scratch::<f32>::new(n * d);
            for c in 0..n {
                let from = Job::row::<T>(&job.q, b, h0 + c % heads, q0 + c / heads);
                scale_row::<S, T>(s, from, lines.ptr().add(c * d), d, job.scale);
            }
            Single::<f32>::pack(s, lines.ptr(), d as isize, 1, n, width, d, q.ptr());
            out.ptr().write_bytes(0, height * width);
            let mut k0 = 0;
            while k0 < limit {
                let m = BLOCK_KEYS.min(limit - k0);
                let keys = packed.add(k0 / BLOCK_KEYS * (layout.keys + layout.values));
                let values = keys.add(layout.keys);
                let first = Tile::<Single<f32>> {
                    k: d,
                    a: keys,
                    b: q.ptr(),
                    next: values,
                    c: scores.ptr(),
                    ldc: width,
                    cols: width,
                    accumulate: false,
                };
                s.call(Column { first, rows: m, panel: S::MR * d });
                for c in 0..n {
                    let (head, query) = (h0 + c % heads, q0 + c / heads);
                    if !matches!(job.mask, Mask::All) && k0 + m > job.clear(query) {
                        let column = std::slice::from_raw_parts_mut(scores.ptr().add(c), (m - 1) * width + 1);
                        job.apply::<T>(b, head, query, k0, column, width);
                    }
                }
                let mut c = 0;
                while c < width {
                    let (top, sum) = (&mut tops[c..c + S::LANES], &mut sums[c..c + S::LANES]);
                    let before = weigh(s, scores.ptr().add(c), width, m, top, sum);
                    if let Some(before) = before {
                        for i in 0..dv {
                            let p = out.ptr().add(i * width + c);
                            s.store(p, s.mul(s.load(p), before));
                        }
                    }
                    c += S::LANES;
                }
                let first = Tile::<Single<f32>> {
                    k: m,
                    a: values,
                    b: scores.ptr(),
                    next: values.wrapping_add(layout.values),
                    c: out.ptr(),
                    ldc: width,
                    cols: width,
                    accumulate: true,
                };
                let packed = BLOCK_KEYS.min(shape.kv_len - k0);
                s.call(Column { first, rows: dv, panel: S::MR * packed });
                k0 += m;
            }
            finish::<S>(s, out.ptr(), width, height, width, &sums);
            for c in 0..n {
                let to = job.out_row::<T>(b, h0 + c % heads, q0 + c / heads);
                let from = out.ptr().add(c * height);
                let mut j = 0;
                while j < dv {
                    let m = (dv - j).min(S::LANES);
                    store_lanes(s, to.add(j), load_lanes(s, from.add(j), m), m);
                    j += m;
                }
            }
        }
    }
}

/// `to = from * by`.
///
/// # Safety
/// Both hold `n` elements.
#[inline(always)]
unsafe fn scale_row<S: Isa, T: Float>(s: S, from: *const T, to: *mut f32, n: usize, by: f32) {
    let by = s.splat(by);
    let mut j = 0;
    while j < n {
        let m = (n - j).min(S::LANES);
        // SAFETY: the caller's promise.
        unsafe { store_lanes(s, to.add(j), s.mul(load_lanes(s, from.add(j), m), by), m) };
        j += m;
    }
}

/// Turns a vector of columns of `m` scores into weights relative to their new maxima. Returns the factors by
/// which earlier sums must be multiplied, unless all are one.
///
/// # Safety
/// `m` rows of a vector each, `ld` apart, are readable and writable.
#[inline(always)]
unsafe fn weigh<S: Isa>(
    s: S,
    scores: *mut f32,
    ld: usize,
    m: usize,
    tops: &mut [f32],
    sums: &mut [f32],
) -> Option<S::F> {
    // SAFETY: the caller's promise; the slices have a vector each.
    unsafe {
        let old = s.load(tops.as_ptr());
        let mut most = [old; 4];
        let mut i = 0;
        while i + 4 <= m {
            for (j, most) in most.iter_mut().enumerate() {
                *most = s.max(s.load(scores.add((i + j) * ld)), *most);
            }
            i += 4;
        }
        while i < m {
            most[0] = s.max(s.load(scores.add(i * ld)), most[0]);
            i += 1;
        }
        let top = s.max(s.max(most[0], most[1]), s.max(most[2], most[3]));
        // A column whose scores are all minus infinity has no maximum yet.
        let at = s.max(top, s.splat(f32::MIN));
        let mut sum = s.zero();
        for i in 0..m {
            let p = scores.add(i * ld);
            let e = math::exp(s, s.sub(s.load(p), at));
            sum = s.add(sum, e);
            s.store(p, e);
        }
        let mut grown = [0.0; 16];
        s.store(grown.as_mut_ptr(), s.sub(at, old));
        let before = math::exp(s, s.sub(old, at));
        s.store(sums.as_mut_ptr(), s.fma(s.load(sums.as_ptr()), before, sum));
        s.store(tops.as_mut_ptr(), top);
        grown[..S::LANES].iter().any(|x| *x != 0.0).then_some(before)
    }
}

/// Divides every column by its sum and transposes the block in place: column `c` becomes row `c` of `height`
/// elements.
///
/// # Safety
/// The block has `height` rows with a stride of `ld`, of which `width` elements are used; both are multiples
/// of the vector length.
#[inline(always)]
unsafe fn finish<S: Isa>(s: S, out: *mut f32, ld: usize, height: usize, width: usize, sums: &[f32; 48]) {
    let transposed = Scratch::<f32>::new(height * width);
    // SAFETY: the caller's promise; the buffer holds as much.
    unsafe {
        let mut c = 0;
        while c < width {
            let sum = s.load(sums.as_ptr().add(c));
            let mut i = 0;
            while i < height {
                let mut rows = [s.zero(); 16];
                for j in 0..S::LANES {
                    rows[j] = s.div(s.load(out.add((i + j) * ld + c)), sum);
                }
                s.transpose(&rows, transposed.ptr().add(c * height + i), height);
                i += S::LANES;
            }
            c += S::LANES;
        }
        std::ptr::copy_nonoverlapping(transposed.ptr(), out, height * width);
    }
}
