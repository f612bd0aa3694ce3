//! A few rows of activations times a matrix of blocks, which are decoded in registers.
//!
//! Activations are packed once into tiles of up to sixteen rows ([`Tiles`]). Each row of blocks is then read
//! once for all rows of a tile. The order of a sum does not depend on the tile: a row of activations has
//! bit-identical results alone and in a batch.

use hesper_types::GgmlType;

use super::decode::widen;
use super::gguf::{BLOCK, DecodeLine, GgufMat};
use crate::mat::MatRef;
use crate::par::Shared;
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, Simd, dispatch};

/// Prefetch distance in bytes.
const PREFETCH_BYTES: usize = 8192;
/// Block headers read at once.
const GROUP: usize = 16;
/// Bytes of a tile that stay in the L1 cache beside the sums and the blocks.
const L1_TILE_BYTES: usize = 36 << 10;
/// Rows of blocks that share a pass over a tile.
const PASS_ROWS: usize = 16;

/// Rows of activations, packed into tiles: in a tile, the elements of one block of all its rows are
/// contiguous.
pub(super) struct Tiles {
    m: usize,
    k: usize,
    max_rows: usize,
    values: Scratch<f32>,
}

// SAFETY: tasks only read the values.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// Packs contiguous rows.
    pub(super) fn of(simd: Simd, x: MatRef<'_, f32>) -> Self {
        let (m, k) = (x.rows, x.cols);
        let values = Scratch::<f32>::new(m * k);
        let max_rows = dispatch(simd, MaxTileRows);
        let mut i = 0;
        while i < m {
            let rows = tile(m - i, max_rows);
            for b in 0..k / BLOCK {
                for r in 0..rows {
                    // SAFETY: a block of a row, and its range of the tile.
                    unsafe {
                        let to = values.ptr().add(i * k + (b * rows + r) * BLOCK);
                        std::ptr::copy_nonoverlapping(x.at(i + r, b * BLOCK), to, BLOCK);
                    }
                }
            }
            i += rows;
        }
        Self { m, k, max_rows, values }
    }

    /// Products with rows `j0..j1` of a matrix. `sink(j, sums)` receives those of row `j`, one per row of
    /// activations.
    pub(super) fn times(
        &self,
        simd: Simd,
        w: &GgufMat<'_>,
        j0: usize,
        j1: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) {
        debug_assert_eq!(self.k, w.cols);
        let sums = Scratch::<f32>::new(PASS_ROWS * self.m + 16);
        let heads = BlockHeaders::new(if w.kind.is_plain() { PASS_ROWS * (w.cols / BLOCK) } else { 0 });
        let mut j = j0;
        while j < j1 {
            let count = (j1 - j).min(PASS_ROWS);
            let to = Shared::new(sums.ptr());
            let rows = BlockRows { x: self, w, j, count, heads: &heads, to };
            match w.kind {
                GgmlType::Q4_0 => dispatch(simd, DotBlocks::<Q4_0>(rows, std::marker::PhantomData)),
                GgmlType::Q4_1 => dispatch(simd, DotBlocks::<Q4_1>(rows, std::marker::PhantomData)),
                GgmlType::Q8_0 => dispatch(simd, DotBlocks::<Q8_0>(rows, std::marker::PhantomData)),
                _ => dispatch(simd, DotDecoded(rows)),
            }
            for r in 0..count {
                // SAFETY: the kernel has written the sums of every row.
                sink(j + r, unsafe { to.slice(r * self.m, self.m) });
            }
            j += count;
        }
    }
}

/// Most rows of a tile at a SIMD level.
struct MaxTileRows;

impl Kernel for MaxTileRows {
    type Out = usize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::LANES
    }
}

/// Rows of the next tile.
#[inline(always)]
fn tile(left: usize, max_rows: usize) -> usize {
    match left.min(max_rows) {
        16.. => 16,
        8.. => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// The block format as a type, so that kernels are specialized.
trait Blocks {
    const FORMAT: GgmlType;
}

macro_rules! blocks {
    ($($name:ident),*) => {$(
        struct $name;
        impl Blocks for $name {
            const FORMAT: GgmlType = GgmlType::$name;
        }
    )*};
}
blocks!(Q4_0, Q4_1, Q8_0);

/// Rows `j..j + count` of blocks times all tiles; the sums of a row are contiguous.
struct BlockRows<'a, 'b> {
    x: &'a Tiles,
    w: &'a GgufMat<'b>,
    j: usize,
    count: usize,
    heads: &'a BlockHeaders,
    to: Shared<f32>,
}

struct DotBlocks<'a, 'b, B>(BlockRows<'a, 'b>, std::marker::PhantomData<B>);

impl<B: Blocks> Kernel for DotBlocks<'_, '_, B> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let BlockRows { x, w, j, count, heads, .. } = self.0;
        heads.read(s, w, j, count);
        let mut i = 0;
        while i < x.m {
            // SAFETY: the rows exist, and sums have room.
            unsafe {
                i += match tile(x.m - i, x.max_rows) {
                    16 => self.tile::<S, 1, 16>(s, i),
                    8 if S::LANES == 16 => self.tile::<S, 2, 8>(s, i),
                    8 => self.tile::<S, 1, 8>(s, i),
                    4 if S::LANES == 16 => self.tile::<S, 4, 4>(s, i),
                    4 => self.tile::<S, 2, 4>(s, i),
                    2 => self.tile::<S, 4, 2>(s, i),
                    _ => self.tile::<S, 4, 1>(s, i),
                };
            }
        }
    }
}

impl<B: Blocks> DotBlocks<'_, '_, B> {
    /// Rows `i..i + T` of activations with `R` rows of blocks at a time, for a few independent sums. A tile
    /// that exceeds the L1 cache is processed in pieces, with the sums in memory.
    ///
    /// # Safety
    /// The rows exist, and the result has room.
    #[inline(always)]
    unsafe fn tile<S: Isa, const R: usize, const T: usize>(&self, s: S, i: usize) -> usize {
        let BlockRows { x, w, j, count, to, .. } = self.0;
        let blocks = w.cols / BLOCK;
        let bytes = R * blocks * B::FORMAT.block_bytes();
        // SAFETY: the caller's promise.
        unsafe {
            let xs = x.values.ptr().add(i * x.k);
            let piece = (L1_TILE_BYTES / (T * BLOCK * 4)).max(1);
            let pieces = blocks.div_ceil(piece).max(1);
            let piece = blocks.div_ceil(pieces).max(1);
            let waiting = Scratch::<f32>::new(if pieces > 1 { PASS_ROWS * T * S::LANES } else { 0 });
            for p in 0..pieces {
                let (b0, b1) = (p * piece, ((p + 1) * piece).min(blocks));
                let mut r0 = 0;
                while r0 < count {
                    if i == 0 && p == 0 {
                        // Prefetch the blocks after these rows: hardware prefetchers stop at page boundaries.
                        let begin =
                            w.block(j + r0, 0).wrapping_add(PREFETCH_BYTES.max(PASS_ROWS / R * bytes));
                        let mut line = 0;
                        while line < bytes {
                            s.prefetch(begin.wrapping_add(line));
                            line += 64;
                        }
                    }
                    let place = waiting.ptr().add(r0 * T * S::LANES);
                    let mut sums = [[s.zero(); T]; R];
                    if p > 0 {
                        for r in 0..R.min(count - r0) {
                            for t in 0..T {
                                sums[r][t] = s.load(place.add((r * T + t) * S::LANES));
                            }
                        }
                    }
                    dot::<S, B, R, T>(s, &self.0, r0, b0, b1, xs, &mut sums);
                    if p + 1 < pieces {
                        for r in 0..R.min(count - r0) {
                            for t in 0..T {
                                s.store(place.add((r * T + t) * S::LANES), sums[r][t]);
                            }
                        }
                    } else {
                        let mut all = [s.zero(); 16];
                        for r in 0..R {
                            for t in 0..T {
                                all[r * T + t] = sums[r][t];
                            }
                        }
                        let mut totals = [0.0f32; 16];
                        s.reduce_adds(&all, R * T, totals.as_mut_ptr());
                        for r in 0..R.min(count - r0) {
                            let row = to.get().add((r0 + r) * x.m + i);
                            std::ptr::copy_nonoverlapping(totals.as_ptr().add(r * T), row, T);
                        }
                    }
                    r0 += R;
                }
            }
        }
        T
    }
}

/// Blocks `b0..b1` of `R` rows from row `r0` on times a tile of `T` rows, added to sums. Rows past the last
/// repeat it.
///
/// # Safety
/// The rows exist, and `xs` is a tile of `T` rows.
#[inline(always)]
unsafe fn dot<S: Isa, B: Blocks, const R: usize, const T: usize>(
    s: S,
    rows: &BlockRows<'_, '_>,
    r0: usize,
    b0: usize,
    b1: usize,
    xs: *const f32,
    sums: &mut [[S::F; T]; R],
) {
    let BlockRows { w, j, count, heads, .. } = *rows;
    let (blocks, bytes) = (w.cols / BLOCK, B::FORMAT.block_bytes());
    // SAFETY: the caller's promise.
    unsafe {
        let mut codes = [std::ptr::null(); R];
        let mut at = [0; R];
        for r in 0..R {
            let row = (r0 + r).min(count - 1);
            codes[r] = w.block(j + row, b0).wrapping_add(B::FORMAT.head());
            at[r] = row * blocks + b0;
        }
        let (scales, offsets) = (heads.scales(), heads.offsets());
        for b in 0..b1 - b0 {
            let x = xs.add((b0 + b) * T * BLOCK);
            for r in 0..R {
                let q = codes[r].wrapping_add(b * bytes);
                let scale = s.splat(*scales.add(at[r] + b));
                let offset = s.splat(*offsets.add(at[r] + b));
                let mut e = 0;
                while e < BLOCK / 2 {
                    let (low, high) = if B::FORMAT == GgmlType::Q8_0 {
                        (s.mul(s.signed(q.add(e)), scale), s.mul(s.signed(q.add(BLOCK / 2 + e)), scale))
                    } else {
                        s.nibbles(q.add(e), scale, offset)
                    };
                    for t in 0..T {
                        sums[r][t] = s.fma(low, s.load(x.add(t * BLOCK + e)), sums[r][t]);
                    }
                    for t in 0..T {
                        sums[r][t] = s.fma(high, s.load(x.add(t * BLOCK + BLOCK / 2 + e)), sums[r][t]);
                    }
                    e += S::LANES;
                }
            }
        }
    }
}

/// Elements that are decoded at a time: the longest block, or several short ones.
const PIECE: usize = 256;

/// Rows of blocks that are decoded first, a piece of some rows at a time.
struct DotDecoded<'a, 'b>(BlockRows<'a, 'b>);

impl Kernel for DotDecoded<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let BlockRows { x, .. } = self.0;
        let mut i = 0;
        while i < x.m {
            // SAFETY: the rows exist, and sums have room.
            unsafe {
                i += match tile(x.m - i, x.max_rows) {
                    16 => self.tile::<S, 1, 16>(s, i),
                    8 => self.tile::<S, 1, 8>(s, i),
                    4 => self.tile::<S, 2, 4>(s, i),
                    2 => self.tile::<S, 4, 2>(s, i),
                    _ => self.tile::<S, 8, 1>(s, i),
                };
            }
        }
    }
}

impl DotDecoded<'_, '_> {
    /// Rows `i..i + T` of activations with `R` rows of blocks at a time, for a few independent sums.
    ///
    /// # Safety
    /// The rows exist, and the result has room.
    #[inline(always)]
    unsafe fn tile<S: Isa, const R: usize, const T: usize>(&self, s: S, i: usize) -> usize {
        let BlockRows { x, w, j, count, to, .. } = self.0;
        let mut pieces = [[0.0f32; PIECE]; R];
        let mut r0 = 0;
        while r0 < count {
            let mut sums = [[s.zero(); T]; R];
            let mut from = 0;
            while from < x.k {
                let len = PIECE.min(x.k - from);
                // Rows past the last repeat it.
                for (r, piece) in pieces.iter_mut().enumerate() {
                    let row = j + (r0 + r).min(count - 1);
                    s.call(DecodeLine { w, row, from, len, dst: piece.as_mut_ptr() });
                }
                // SAFETY: the caller's promise.
                let xs = unsafe { x.values.ptr().add(i * x.k + from * T) };
                for b in 0..len / BLOCK {
                    let mut e = 0;
                    while e < BLOCK {
                        for r in 0..R {
                            // SAFETY: the piece holds the block, and the tile its rows.
                            unsafe {
                                let w = s.load(pieces[r].as_ptr().add(b * BLOCK + e));
                                for t in 0..T {
                                    let x = s.load(xs.add((b * T + t) * BLOCK + e));
                                    sums[r][t] = s.fma(w, x, sums[r][t]);
                                }
                            }
                        }
                        e += S::LANES;
                    }
                }
                from += len;
            }
            let mut all = [s.zero(); 16];
            for r in 0..R {
                all[r * T..(r + 1) * T].copy_from_slice(&sums[r]);
            }
            let mut totals = [0.0f32; 16];
            // SAFETY: there are at most sixteen sums; the result has room for the sums of existing rows.
            unsafe {
                s.reduce_adds(&all, R * T, totals.as_mut_ptr());
                for r in 0..R.min(count - r0) {
                    let row = to.get().add((r0 + r) * x.m + i);
                    std::ptr::copy_nonoverlapping(totals.as_ptr().add(r * T), row, T);
                }
            }
            r0 += R;
        }
        T
    }
}

/// Scales and offsets from the headers of the blocks of some rows, row by row, followed by zeros.
struct BlockHeaders {
    room: usize,
    values: Scratch<f32>,
    /// The headers as stored in the blocks.
    words: Scratch<u32>,
}

impl BlockHeaders {
    /// Room for `blocks` blocks.
    fn new(blocks: usize) -> Self {
        let room = blocks.next_multiple_of(GROUP) + GROUP;
        let (values, words) = (Scratch::<f32>::new(2 * room), Scratch::<u32>::new(room));
        for g in 0..2 * room {
            // SAFETY: the buffer has that many elements.
            unsafe { *values.ptr().add(g) = 0.0 };
        }
        Self { room, values, words }
    }

    #[inline(always)]
    fn scales(&self) -> *mut f32 {
        self.values.ptr()
    }

    #[inline(always)]
    fn offsets(&self) -> *mut f32 {
        self.values.ptr().wrapping_add(self.room)
    }

    /// Reads the headers of `rows` rows from row `j` on, which have at most as many blocks as there is room
    /// for. An element is `scale * code + offset`; 8-bit codes are signed.
    #[inline(always)]
    fn read<S: Isa>(&self, s: S, w: &GgufMat<'_>, j: usize, rows: usize) {
        let (blocks, bytes) = (rows * (w.cols / BLOCK), w.kind.block_bytes());
        let (words, scales, offsets) = (self.words.ptr(), self.scales(), self.offsets());
        debug_assert!(blocks <= self.room - GROUP);
        let (begin, end) = (w.block(j, 0), w.data.as_ptr_range().end);
        let mut from = 0;
        // SAFETY: the blocks exist, each has four bytes at least, and the buffers hold an element for each
        // and a group more; blocks of a group that would reach past the data are read one by one.
        unsafe {
            if w.kind == GgmlType::Q4_1 {
                while from < blocks && begin.wrapping_add((from + GROUP) * bytes) <= end {
                    s.heads_q4_1(begin.add(from * bytes), scales.add(from), offsets.add(from));
                    from += GROUP;
                }
            }
            // Gather all headers, then convert them: the second loop is vectorized.
            for b in from..blocks {
                *words.add(b) = begin.add(b * bytes).cast::<u32>().read_unaligned();
            }
            for b in from..blocks {
                let word = *words.add(b);
                let scale = widen(word as u16);
                *scales.add(b) = scale;
                *offsets.add(b) = match w.kind {
                    GgmlType::Q4_1 => widen((word >> 16) as u16),
                    GgmlType::Q4_0 => -8.0 * scale,
                    _ => 0.0,
                };
            }
            // Clear the elements that a group has written past the last block.
            for b in blocks..blocks + GROUP {
                (*scales.add(b), *offsets.add(b)) = (0.0, 0.0);
            }
        }
    }
}
