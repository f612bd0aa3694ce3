//! Large products: packed panels, blocked for the caches, parallel over tiles of the result.
//!
//! The right operand is packed once per range of columns and shared. Each task packs its own rows of the left
//! operand and computes a block of the result over the whole of K. If all rows fit one block, the left
//! operand is packed once instead, and tasks pack their columns on the fly.

use hesper_types::Caches;

use super::columns::{Columns, Panel};
use super::micro::{Column, Tile};
use super::precision::Precision;
use super::{Epilogue, Problem};
use crate::mat::MatMut;
use crate::par::{AtLevel, Par, Serial, Shared};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, Simd, dispatch, dispatch_pairs};

/// Most packed steps along K between two updates of the sums.
const KC: usize = 512;
/// Fewest and most rows of a block.
const MC: [usize; 2] = [32, 128];
/// Most rows for which the left operand is packed once and shared.
const MAX_SHARED_ROWS: usize = 192;
/// Most bytes of the packed right operand.
const B_BYTES: usize = 24 << 20;
/// Panels of columns that are packed together.
const GROUP: usize = 8;
/// Multiply-adds below which starting other threads costs more than it saves.
const SERIAL_WORK: usize = 1 << 18;
/// Longest K that is packed at once.
const K_MAX: usize = 16384;

/// The register tile of a SIMD level: its rows, and its columns as vectors of `lanes` elements.
#[derive(Clone, Copy)]
struct TileSize {
    mr: usize,
    vectors: usize,
    lanes: usize,
}

/// The columns of a result, divided into panels of about equally many vectors.
#[derive(Clone, Copy)]
struct Panels {
    count: usize,
    vectors: usize,
    lanes: usize,
}

impl Panels {
    /// Panels of at most the width of a tile. Few panels are as many as the threads can share: narrower
    /// tiles cost less than an idle thread.
    fn new(n: usize, tile: TileSize, threads: usize) -> Self {
        let vectors = n.div_ceil(tile.lanes);
        let least = vectors.div_ceil(tile.vectors);
        let count = if least < 8 * threads { least.next_multiple_of(threads).min(vectors) } else { least };
        Self { count, vectors, lanes: tile.lanes }
    }

    /// The first column of a panel, or the end of the last one.
    #[inline(always)]
    fn start(&self, panel: usize) -> usize {
        panel * self.vectors / self.count * self.lanes
    }

    /// The columns of neighbouring panels, padded to vectors.
    #[inline(always)]
    fn width(&self, from: usize, to: usize) -> usize {
        self.start(to) - self.start(from)
    }
}

/// Sizes of blocks that stay in the caches.
struct BlockSize {
    /// Rows of a block: with `KC` steps they take a quarter of the L2 cache.
    rows: usize,
    /// Bytes of a block of the result, which stays in the rest of the L2 cache while it accumulates along K.
    result: usize,
    /// Bytes of the packed right operand.
    packed: usize,
}

impl BlockSize {
    fn of<P: Precision>(Caches { l2, last }: Caches) -> Self {
        let rows = l2 / 4 / (KC * size_of::<P::Acc>().max(4));
        let packed = (last / 4 * 3).clamp(1 << 20, B_BYTES);
        Self { rows: rows.clamp(MC[0], MC[1]), result: l2.min(1 << 20) / 4 * 3, packed }
    }
}

struct TileSizeOf<P>(std::marker::PhantomData<P>);

impl<P: Precision> Kernel for TileSizeOf<P> {
    type Out = TileSize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> TileSize {
        TileSize { mr: S::MR, vectors: S::NV, lanes: P::lanes::<S>() }
    }
}

/// Dispatches to the SIMD levels that this precision distinguishes.
fn dispatch_for<P: Precision, K: Kernel>(simd: Simd, kernel: K) -> K::Out {
    if P::PAIRED { dispatch_pairs(simd, kernel) } else { dispatch(simd, kernel) }
}

/// Packed steps of each range of K but the last. Ranges are about equal, so that the last is not tiny, and
/// start at multiples of eight, where codes of any bit width start on a byte.
fn range_of<P: Precision>(k: usize) -> usize {
    let steps = k.div_ceil(P::step());
    steps.div_ceil(steps.div_ceil(KC).max(1)).next_multiple_of(8)
}

/// Where the sums of a block go.
enum Sink<A> {
    /// A matrix of sums with contiguous rows, overwritten or accumulated.
    Sums { ptr: Shared<A>, ld: usize, accumulate: bool },
    /// A buffer of the task, then the epilogue writes the result.
    Result,
}

/// `c = alpha * a b + beta * c`, with the epilogue.
pub(crate) fn run<P: Precision, B: Columns<P>, A: Columns<P>>(par: &dyn Par, p: &Problem<'_, P, B, A>) {
    let simd = par.simd();
    let alone = AtLevel(Serial, simd);
    let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
    let par = if work < SERIAL_WORK { &alone } else { par };
    let sizes = dispatch_for::<P, _>(simd, TileSizeOf::<P>(std::marker::PhantomData));
    let e = &p.epilogue;
    // Sums go straight to the result if it is overwritten, or the product is added to it or subtracted from
    // it.
    let added = (e.alpha == P::ONE || e.alpha == P::MINUS_ONE) && (e.beta == P::ZERO || e.beta == P::ONE);
    let direct = P::OUT_IS_ACC && added && p.c.col_stride == 1 && p.c.row_stride >= 0;
    let negate = direct && e.alpha == P::MINUS_ONE;
    if direct {
        let ptr = Shared::new(p.c.ptr.cast::<P::Acc>());
        let ld = p.c.row_stride as usize;
        for (i, k0) in (0..p.k).step_by(K_MAX).enumerate() {
            let sink = Sink::Sums { ptr, ld, accumulate: i > 0 || e.beta == P::ONE };
            pass(par, simd, sizes, p, k0, (p.k - k0).min(K_MAX), &sink, negate);
        }
    } else if p.k <= K_MAX {
        pass(par, simd, sizes, p, 0, p.k, &Sink::Result, false);
    } else {
        let sums = Scratch::<P::Acc>::new(p.m * p.n);
        let ptr = Shared::new(sums.ptr());
        for (i, k0) in (0..p.k).step_by(K_MAX).enumerate() {
            let sink = Sink::Sums { ptr, ld: p.n, accumulate: i > 0 };
            pass(par, simd, sizes, p, k0, (p.k - k0).min(K_MAX), &sink, false);
        }
        par.run(p.m, &|i| finish_rows(simd, p, i, 1, 0, p.n, ptr.get().wrapping_add(i * p.n), p.n));
    }
}

/// The result for `k == 0`.
pub(crate) fn empty<P: Precision, B: Columns<P>, A: Columns<P>>(par: &dyn Par, p: &Problem<'_, P, B, A>) {
    let zeros = vec![P::ZERO; p.n];
    for i in 0..p.m {
        finish_rows(par.simd(), p, i, 1, 0, p.n, zeros.as_ptr(), 0);
    }
}

/// The product over `k0..k0 + k`, negated if `negate`.
fn pass<P: Precision, B: Columns<P>, A: Columns<P>>(
    par: &dyn Par,
    simd: Simd,
    sizes: TileSize,
    p: &Problem<'_, P, B, A>,
    k0: usize,
    k: usize,
    sink: &Sink<P::Acc>,
    negate: bool,
) {
    let steps = k.div_ceil(P::step());
    let row_panels = p.m.div_ceil(sizes.mr);
    let threads = par.threads();
    let columns = Panels::new(p.n, sizes, threads);
    let (col_panels, nr) = (columns.count, sizes.vectors * sizes.lanes);

    if p.m <= MAX_SHARED_ROWS {
        // One block of rows: pack it once, columns on the fly.
        let a = Scratch::<P::Acc>::new(row_panels * sizes.mr * steps);
        let packed = Shared::new(a.ptr());
        let range = range_of::<P>(k);
        par.run(k.div_ceil(range * P::step()), &|c| {
            let from = c * range * P::step();
            let len = (k - from).min(range * P::step());
            let rows =
                PackRows { p, i0: 0, rows: p.m, k0: k0 + from, k: len, packed, from: c * range, negate };
            dispatch_for::<P, _>(simd, rows);
        });
        let groups = if threads == 1 { 1 } else { (threads * 4).min(col_panels) };
        par.run(groups, &|g| {
            let (c0, c1) = (g * col_panels / groups, (g + 1) * col_panels / groups);
            dispatch_for::<P, _>(simd, OnTheFly { p, sink, a: packed, k0, k, columns, c0, c1 });
        });
        return;
    }

    let per_panel = steps * nr * size_of::<P::Acc>();
    let blocks = BlockSize::of::<P>(par.caches());
    let chunk_panels = (blocks.packed / per_panel).clamp(8, col_panels.max(8));
    // Equal chunks, so that the last is not tiny.
    let chunks = col_panels.div_ceil(chunk_panels);
    let b = Scratch::<P::Acc>::new(col_panels.div_ceil(chunks) * nr * steps);
    let packed = Shared::new(b.ptr());
    // Enough blocks for load balance, and equally many per thread.
    let wanted = if threads == 1 { 1 } else { 8 * threads };
    let mut row_blocks = p.m.div_ceil(blocks.rows).max(wanted.min(p.m.div_ceil(blocks.rows / 2)));
    if row_blocks < wanted {
        row_blocks = row_blocks.next_multiple_of(threads).min(row_panels);
    }
    let block_bytes = row_panels.div_ceil(row_blocks) * sizes.mr * nr * size_of::<P::Acc>();
    for chunk in 0..chunks {
        let (c0, c1) = (chunk * col_panels / chunks, (chunk + 1) * col_panels / chunks);
        let panels = c1 - c0;
        let groups = panels.div_ceil(GROUP).next_multiple_of(threads).min(panels);
        par.run(groups, &|i| {
            let (g0, g1) = (c0 + i * panels / groups, c0 + (i + 1) * panels / groups);
            dispatch_for::<P, _>(simd, PackColumns { p, k0, k, columns, g0, g1, chunk: [c0, c1], packed });
        });
        let fit = (panels * block_bytes).div_ceil(blocks.result);
        let splits = fit.max(wanted.div_ceil(row_blocks)).clamp(1, panels.div_ceil(4));
        par.run(row_blocks * splits, &|t| {
            let (rb, cb) = (t / splits, t % splits);
            let (r0, r1) = (rb * row_panels / row_blocks, (rb + 1) * row_panels / row_blocks);
            let (q0, q1) = (cb * panels / splits, (cb + 1) * panels / splits);
            let block = Block {
                p,
                sink,
                b: packed,
                k0,
                k,
                columns,
                chunk: [c0, c1],
                r0,
                r1,
                c0: c0 + q0,
                c1: c0 + q1,
                negate,
            };
            dispatch_for::<P, _>(simd, block);
        });
    }
}

/// Packs rows of the left operand for one range of steps, after `from` steps of all panels.
struct PackRows<'a, 'b, P: Precision, B: Columns<P>, A: Columns<P>> {
    p: &'a Problem<'b, P, B, A>,
    i0: usize,
    rows: usize,
    k0: usize,
    k: usize,
    packed: Shared<P::Acc>,
    from: usize,
    negate: bool,
}

impl<P: Precision, B: Columns<P>, A: Columns<P>> Kernel for PackRows<'_, '_, P, B, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, i0, rows, k0, k, packed, from, negate } = self;
        let steps = k.div_ceil(P::step());
        let padded = rows.div_ceil(S::MR) * S::MR;
        let base = packed.get().wrapping_add(from * padded);
        let last = rows.div_ceil(S::MR) - 1;
        for panel in 0..=last {
            let (line, valid) = (i0 + panel * S::MR, (rows - panel * S::MR).min(S::MR));
            let dst = base.wrapping_add(panel * S::MR * steps);
            // SAFETY: the lines exist; the buffer has room for every range of steps. Packing may write past
            // the end of a panel. After the last panel of a range that is memory of another task, so this
            // panel goes through a buffer of its own.
            unsafe {
                let lines = Panel { k0, len: k, j0: line, valid, width: S::MR, dst };
                if panel < last {
                    p.a.pack(s, lines);
                } else {
                    let own = Scratch::<P::Acc>::new(S::MR * steps);
                    p.a.pack(s, Panel { dst: own.ptr(), ..lines });
                    std::ptr::copy_nonoverlapping(own.ptr(), dst, S::MR * steps);
                }
            }
        }
        if negate {
            // SAFETY: the panels of this range were just packed.
            unsafe { negate_packed::<S, P>(s, base, padded * steps) };
        }
    }
}

/// Negates packed elements.
///
/// # Safety
/// `count` elements are readable and writable.
#[inline(always)]
unsafe fn negate_packed<S: Isa, P: Precision>(s: S, packed: *mut P::Acc, count: usize) {
    let (minus, zero) = (P::splat(s, P::MINUS_ONE), P::splat(s, P::ZERO));
    let lanes = P::lanes::<S>();
    let mut at = 0;
    while at < count {
        let n = (count - at).min(lanes);
        // SAFETY: the caller's promise.
        unsafe {
            let to = packed.add(at);
            P::store_n(s, to, P::axpy(s, minus, P::load_n(s, to, n), zero), n);
        }
        at += n;
    }
}

/// Packs the panels `g0..g1` of columns over the whole range of K.
struct PackColumns<'a, 'b, P: Precision, B: Columns<P>, A: Columns<P>> {
    p: &'a Problem<'b, P, B, A>,
    k0: usize,
    k: usize,
    columns: Panels,
    g0: usize,
    g1: usize,
    /// The panels that are packed together.
    chunk: [usize; 2],
    packed: Shared<P::Acc>,
}

impl<P: Precision, B: Columns<P>, A: Columns<P>> Kernel for PackColumns<'_, '_, P, B, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, k0, k, columns, g0, g1, chunk: [c0, c1], packed } = self;
        let (all, before) = (columns.width(c0, c1), columns.width(c0, g0));
        let range = range_of::<P>(k) * P::step();
        let mut from = 0;
        while from < k {
            let len = (k - from).min(range);
            let steps = len.div_ceil(P::step());
            let dst = packed.get().wrapping_add(from / P::step() * all + before * steps);
            pack_group(s, p, k0 + from, len, columns, g0, g1, dst);
            from += len;
        }
    }
}

/// Packs neighbouring panels a few steps at a time, so that rows of the operand are read in long runs.
#[inline(always)]
fn pack_group<S: Isa, P: Precision, B: Columns<P>, A: Columns<P>>(
    s: S,
    p: &Problem<'_, P, B, A>,
    k0: usize,
    len: usize,
    columns: Panels,
    g0: usize,
    g1: usize,
    dst: *mut P::Acc,
) {
    let steps = len.div_ceil(P::step());
    let run = if p.b.is_contiguous_along_k() { len } else { 16 };
    let mut from = 0;
    while from < len {
        let n = (len - from).min(run);
        for panel in g0..g1 {
            let (j0, width) = (columns.start(panel), columns.width(panel, panel + 1));
            let valid = (p.n - j0).min(width);
            let to = dst.wrapping_add(columns.width(g0, panel) * steps + from / P::step() * width);
            // SAFETY: the buffer holds the group; packing whole vectors writes nothing past the panel.
            unsafe {
                p.b.pack(s, Panel { k0: k0 + from, len: n, j0, valid, width, dst: to });
            }
        }
        from += n;
    }
}

/// Computes panels of columns for one packed block of rows, packing each panel before it is used.
struct OnTheFly<'a, 'b, P: Precision, B: Columns<P>, A: Columns<P>> {
    p: &'a Problem<'b, P, B, A>,
    sink: &'a Sink<P::Acc>,
    a: Shared<P::Acc>,
    k0: usize,
    k: usize,
    columns: Panels,
    c0: usize,
    c1: usize,
}

impl<P: Precision, B: Columns<P>, A: Columns<P>> Kernel for OnTheFly<'_, '_, P, B, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, sink, a, k0, k, columns, c0, c1 } = self;
        let nr = S::NV * P::lanes::<S>();
        let padded = p.m.div_ceil(S::MR) * S::MR;
        // If columns are contiguous along K, one panel is packed at a time; otherwise several, for long runs
        // of a row.
        let group = if p.b.is_contiguous_along_k() { 1 } else { GROUP };
        let range = range_of::<P>(k);
        let b = Scratch::<P::Acc>::new(group * nr * range);
        let own = Scratch::<P::Acc>::new(if matches!(sink, Sink::Result) { p.m * group * nr } else { 0 });
        let mut g0 = c0;
        while g0 < c1 {
            let g1 = c1.min(g0 + group);
            let (c, ldc, keep) = match *sink {
                Sink::Sums { ptr, ld, accumulate } => {
                    (ptr.get().wrapping_add(columns.start(g0)), ld, accumulate)
                }
                Sink::Result => (own.ptr(), group * nr, false),
            };
            let mut from = 0;
            while from < k {
                let len = (k - from).min(range * P::step());
                let steps = len.div_ceil(P::step());
                pack_group(s, p, k0 + from, len, columns, g0, g1, b.ptr());
                for panel in g0..g1 {
                    let (before, width) = (columns.width(g0, panel), columns.width(panel, panel + 1));
                    let packed = b.ptr().wrapping_add(before * steps);
                    let next = if panel + 1 < g1 { packed.wrapping_add(width * steps) } else { b.ptr() };
                    let first = Tile::<P::Core> {
                        k: steps,
                        a: a.get().wrapping_add(from / P::step() * padded),
                        b: packed,
                        next,
                        c: c.wrapping_add(before),
                        ldc,
                        cols: (p.n - columns.start(panel)).min(width),
                        accumulate: keep || from > 0,
                    };
                    s.call(Column { first, rows: p.m, panel: S::MR * steps });
                }
                from += len;
            }
            if matches!(sink, Sink::Result) {
                let j0 = columns.start(g0);
                finish_in(s, p, 0, p.m, j0, p.n.min(columns.start(g1)) - j0, c, ldc);
            }
            g0 = g1;
        }
    }
}

/// Computes a block of the result from packed columns.
struct Block<'a, 'b, P: Precision, B: Columns<P>, A: Columns<P>> {
    p: &'a Problem<'b, P, B, A>,
    sink: &'a Sink<P::Acc>,
    b: Shared<P::Acc>,
    k0: usize,
    k: usize,
    columns: Panels,
    /// The panels that are packed together.
    chunk: [usize; 2],
    r0: usize,
    r1: usize,
    c0: usize,
    c1: usize,
    negate: bool,
}

impl<P: Precision, B: Columns<P>, A: Columns<P>> Kernel for Block<'_, '_, P, B, A> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { p, sink, b, k0, k, columns, chunk: [first, end], r0, r1, c0, c1, negate } = self;
        let (all, j0) = (columns.width(first, end), columns.start(c0));
        let i0 = r0 * S::MR;
        let rows = p.m.min(r1 * S::MR) - i0;
        let range = range_of::<P>(k);
        let a = Scratch::<P::Acc>::new((r1 - r0) * S::MR * range);
        let width = columns.width(c0, c1);
        let own = Scratch::<P::Acc>::new(if matches!(sink, Sink::Result) { rows * width } else { 0 });
        let (c, ldc, keep) = match *sink {
            Sink::Sums { ptr, ld, accumulate } => (ptr.get().wrapping_add(i0 * ld + j0), ld, accumulate),
            Sink::Result => (own.ptr(), width, false),
        };
        let mut from = 0;
        while from < k {
            let len = (k - from).min(range * P::step());
            let steps = len.div_ceil(P::step());
            for panel in r0..r1 {
                let valid = (p.m - panel * S::MR).min(S::MR);
                let dst = a.ptr().wrapping_add((panel - r0) * S::MR * steps);
                // SAFETY: the lines exist; the buffer holds the block, with room after it.
                unsafe {
                    let j0 = panel * S::MR;
                    p.a.pack(s, Panel { k0: k0 + from, len, j0, valid, width: S::MR, dst });
                }
            }
            if negate {
                // SAFETY: the panels were just packed.
                unsafe { negate_packed::<S, P>(s, a.ptr(), (r1 - r0) * S::MR * steps) };
            }
            let base = b.get().wrapping_add(from / P::step() * all);
            for panel in c0..c1 {
                let width = columns.width(panel, panel + 1);
                let packed = base.wrapping_add(columns.width(first, panel) * steps);
                let first = Tile::<P::Core> {
                    k: steps,
                    a: a.ptr(),
                    b: packed,
                    next: packed.wrapping_add(width * steps),
                    c: c.wrapping_add(columns.width(c0, panel)),
                    ldc,
                    cols: (p.n - columns.start(panel)).min(width),
                    accumulate: keep || from > 0,
                };
                s.call(Column { first, rows, panel: S::MR * steps });
            }
            from += len;
        }
        if matches!(sink, Sink::Result) {
            finish_in(s, p, i0, rows, j0, p.n.min(columns.start(c1)) - j0, c, ldc);
        }
    }
}

/// [`finish_in`] outside of a kernel.
fn finish_rows<P: Precision, B: Columns<P>, A: Columns<P>>(
    simd: Simd,
    p: &Problem<'_, P, B, A>,
    i0: usize,
    rows: usize,
    j0: usize,
    cols: usize,
    sums: *const P::Acc,
    ld: usize,
) {
    struct Finish<'a, 'b, P: Precision, B: Columns<P>, A: Columns<P>>(
        &'a Problem<'b, P, B, A>,
        usize,
        usize,
        usize,
        usize,
        *const P::Acc,
        usize,
    );
    impl<P: Precision, B: Columns<P>, A: Columns<P>> Kernel for Finish<'_, '_, P, B, A> {
        type Out = ();
        #[inline(always)]
        fn run<S: Isa>(self, s: S) {
            finish_in(s, self.0, self.1, self.2, self.3, self.4, self.5, self.6);
        }
    }
    dispatch_for::<P, _>(simd, Finish(p, i0, rows, j0, cols, sums, ld));
}

/// Writes sums to the result: scaled, added to the old result, rounded.
///
/// Sums may alias the result.
#[inline(always)]
pub(super) fn finish_in<S: Isa, P: Precision, B: Columns<P>, A: Columns<P>>(
    s: S,
    p: &Problem<'_, P, B, A>,
    i0: usize,
    rows: usize,
    j0: usize,
    cols: usize,
    sums: *const P::Acc,
    ld: usize,
) {
    for i in 0..rows {
        let from = sums.wrapping_add(i * ld);
        if p.c.col_stride == 1 {
            // SAFETY: the block lies in the result, and this task alone writes it.
            unsafe { finish_row(s, &p.epilogue, from, p.c.at(i0 + i, j0), cols) };
        } else {
            strided_row(s, p, from, i0 + i, j0, cols);
        }
    }
}

/// Finishes a row of a result whose columns are not contiguous, through a buffer.
#[inline(always)]
fn strided_row<S: Isa, P: Precision, B: Columns<P>, A: Columns<P>>(
    s: S,
    p: &Problem<'_, P, B, A>,
    from: *const P::Acc,
    i: usize,
    j0: usize,
    cols: usize,
) {
    let row = Scratch::<P::Out>::new(cols);
    let c: &MatMut<'_, P::Out> = &p.c;
    // SAFETY: the buffer holds a row; the block lies in the result, and this task alone writes it.
    unsafe {
        if p.epilogue.beta != P::ZERO {
            for j in 0..cols {
                *row.ptr().add(j) = *c.at(i, j0 + j);
            }
        }
        finish_row(s, &p.epilogue, from, row.ptr(), cols);
        for j in 0..cols {
            *c.at(i, j0 + j) = *row.ptr().add(j);
        }
    }
}

/// `to = alpha * from + beta * to`, rounded to the type of the result.
///
/// # Safety
/// `from` and `to` hold `cols` elements.
#[inline(always)]
pub(super) unsafe fn finish_row<S: Isa, P: Precision>(
    s: S,
    e: &Epilogue<P>,
    from: *const P::Acc,
    to: *mut P::Out,
    cols: usize,
) {
    let lanes = P::lanes::<S>();
    let scaled = e.alpha != P::ONE;
    let (alpha, beta) = (P::splat(s, e.alpha), P::splat(s, e.beta));
    let mut j = 0;
    while j < cols {
        let n = (cols - j).min(lanes);
        // SAFETY: `j + n <= cols`.
        unsafe {
            let mut v = P::load_n(s, from.add(j), n);
            if scaled {
                v = P::axpy(s, alpha, v, P::splat(s, P::ZERO));
            }
            if e.beta != P::ZERO {
                v = P::axpy(s, beta, P::load_out(s, to.add(j), n), v);
            }
            P::store_out(s, to.add(j), v, n);
        }
        j += n;
    }
}
