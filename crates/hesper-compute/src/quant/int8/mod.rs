//! Activations rounded to 8 bits in blocks of 32, times codes of up to 8 bits as integers.
//!
//! Weights are unpacked and interleaved while they are read: a panel holds as many rows as a vector has
//! lanes, and each 32-bit lane four neighbouring codes of its row. A step of the innermost loop multiplies
//! such a vector with four bytes of a row of activations. Sums over a unit (weights that share a scale) are
//! exact integers. They are scaled and added in `f32`, unit after unit, so a row of activations has
//! bit-identical results alone and in a batch, with any number of threads, and at every SIMD level that has a
//! fused multiply-add.

mod activations;
pub(super) mod weights;

pub(super) use activations::Rounded;
pub(super) use weights::{ByteCodes, with_affine_codes, with_block_codes};

use hesper_types::GgmlType;

use self::activations::Rounding;
use super::gguf::GgufMat;
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, chunks, grain};
use crate::scratch::Scratch;
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::{TILE_ROWS, Tiles};
use crate::simd::{Isa, Kernel, Simd, dispatch_dot};

/// Activations that share a step.
pub(super) const BLOCK: usize = 32;
/// Elements of a row that are unpacked at once: two panels of them fit the smallest L1 caches, of 32 KiB.
const CHUNK: usize = 512;
/// Panels multiplied at once.
const PANELS: usize = 2;
/// Most rows of activations multiplied at once: their sums with both panels fit 32 registers.
const TILE: usize = 6;

/// `y = x w^T`; the rows of `x` are contiguous.
pub(super) fn product<W: ByteCodes>(par: &dyn Par, x: MatRef<'_, f32>, w: &W, y: &MatMut<'_, f32>) {
    let simd = par.simd();
    let x = &Rounded::of(par, x, W::ROUNDING);
    chunks(par, y.cols, task_rows(par, y.cols, x), |j0, j1| {
        times(simd, x, w, j0, j1, &mut |i, j, values| {
            for (at, value) in values.iter().enumerate() {
                // SAFETY: in the result, and this task alone writes it.
                unsafe { *y.at(i, j + at) = *value };
            }
        });
    });
}

/// Rows of a matrix of `n` rows for a task: whole panels.
pub(super) fn task_rows(par: &dyn Par, n: usize, x: &Rounded) -> usize {
    grain(par, n, 16384 / x.cols.max(1) / x.rows.max(1)).next_multiple_of(PANELS * 16)
}

/// Products of rounded rows with rows `j0..j1` of a matrix. `sink(i, j, values)` receives those of row `i`
/// with the rows from `j` on.
pub(super) fn times<W: ByteCodes>(
    simd: Simd,
    x: &Rounded,
    w: &W,
    j0: usize,
    j1: usize,
    sink: &mut dyn FnMut(usize, usize, &[f32]),
) {
    debug_assert_eq!(x.rounding, W::ROUNDING);
    dispatch_dot(simd, Times { x, w, j0, j1, sink });
}

/// What a matrix of blocks requires of the activations, if it can be multiplied as integers.
pub(super) fn block_rounding(w: &GgufMat<'_>) -> Option<Rounding> {
    fn of<W: ByteCodes>(_: &W) -> Option<Rounding> {
        Some(W::ROUNDING)
    }
    with_block_codes!(w, w => of(w), _ => None)
}

/// [`times`] for a matrix of blocks that has a [`block_rounding`].
pub(super) fn block_times(
    simd: Simd,
    x: &Rounded,
    w: &GgufMat<'_>,
    j0: usize,
    j1: usize,
    sink: &mut dyn FnMut(usize, usize, &[f32]),
) {
    with_block_codes!(w, w => times(simd, x, w, j0, j1, sink), _ => debug_assert!(false, "{:?}", w.kind));
}

struct Times<'a, 'b, W> {
    x: &'a Rounded,
    w: &'a W,
    j0: usize,
    j1: usize,
    sink: &'b mut dyn FnMut(usize, usize, &[f32]),
}

impl<W: ByteCodes> Kernel for Times<'_, '_, W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { x, w, j0, j1, sink } = self;
        let unit = W::ROUNDING.unit;
        let width = PANELS * S::LANES;
        let (panel, sums) = (Panel::new::<S>(unit), Scratch::<f32>::new(x.rows * width));
        let mut j = j0;
        while j < j1 {
            let have = (j1 - j).min(width);
            let mut from = 0;
            while from < x.cols {
                let len = (x.cols - from).min(CHUNK);
                let rows = PanelRows { w, panel: &panel, j, last: j + have - 1, from, len };
                // SAFETY: the rows exist and have these elements; the panel has room for a chunk, and the
                // sums for a row of a panel for each row of activations.
                unsafe {
                    // Rows past the last repeat it.
                    for p in 0..PANELS {
                        rows.unpack(s, p);
                    }
                    let done = rows.in_tile_registers(s, x, sums.ptr());
                    let left = x.rows - done;
                    let tiles = left.div_ceil(TILE);
                    for t in 0..tiles {
                        let (i, end) = (done + t * left / tiles, done + (t + 1) * left / tiles);
                        let to = sums.ptr().add(i * width);
                        rows.tile_of(s, x, i, end - i, to);
                    }
                }
                from += len;
            }
            for i in 0..x.rows {
                // SAFETY: the sums of row `i` have been written, unless the rows are empty.
                let values = unsafe { std::slice::from_raw_parts_mut(sums.ptr().add(i * width), have) };
                if x.cols == 0 {
                    values.fill(0.0);
                }
                sink(i, j, values);
            }
            j += have;
        }
    }
}

/// Unpacked weights of a chunk, panel by panel: for each unit its words of four codes, lane by lane; scales
/// and offsets for each unit, lane by lane.
struct Panel {
    codes: Scratch<f32>,
    scales: Scratch<f32>,
    offsets: Scratch<f32>,
}

impl Panel {
    #[inline(always)]
    fn new<S: Isa>(unit: usize) -> Self {
        let numbers = PANELS * CHUNK / unit * S::LANES;
        Self {
            codes: Scratch::new(PANELS * CHUNK / 4 * S::LANES),
            scales: Scratch::new(numbers),
            offsets: Scratch::new(numbers),
        }
    }
}

/// Elements `from..from + len` of the rows from `j` on; rows past the last repeat it.
struct PanelRows<'a, W> {
    w: &'a W,
    panel: &'a Panel,
    j: usize,
    last: usize,
    from: usize,
    len: usize,
}

impl<W: ByteCodes> PanelRows<'_, W> {
    const UNIT: usize = W::ROUNDING.unit;

    /// Unpacks panel `p`.
    ///
    /// # Safety
    /// The rows exist, and the panel has room.
    #[inline(always)]
    unsafe fn unpack<S: Isa>(&self, s: S, p: usize) {
        let Self { w, panel, j, last, from, len } = *self;
        let rows: [usize; 16] = std::array::from_fn(|r| (j + p * S::LANES + r).min(last));
        // SAFETY: the caller's promise.
        unsafe {
            let codes = panel.codes.ptr().add(p * CHUNK / 4 * S::LANES);
            let mut at = 0;
            while at < len {
                w.unpack(s, &rows, from + at, codes.add(at / 4 * S::LANES));
                at += W::STEP;
            }
            let place = p * CHUNK / Self::UNIT * S::LANES;
            w.scales(s, &rows, from, len, panel.scales.ptr().add(place), panel.offsets.ptr().add(place));
        }
    }

    /// [`PanelRows::tile`] with tile registers, for as many rows as these take. Returns the number of rows.
    ///
    /// # Safety
    /// As for [`PanelRows::tile`].
    #[inline(always)]
    unsafe fn in_tile_registers<S: Isa>(&self, s: S, x: &Rounded, to: *mut f32) -> usize {
        #[cfg(target_arch = "x86_64")]
        if S::TILES
            && S::LANES == TILE_ROWS
            && x.rows >= TILE_ROWS
            && let Some(tiles) = Tiles::new(Self::UNIT)
        {
            let whole = x.rows / TILE_ROWS * TILE_ROWS;
            for i in (0..whole).step_by(TILE_ROWS) {
                for n in 0..PANELS {
                    // SAFETY: the caller's promise.
                    unsafe { self.tile_amx(s, &tiles, x, i, n, to.add((i * PANELS + n) * S::LANES)) };
                }
            }
            return whole;
        }
        let _ = (s, x, to);
        0
    }

    /// [`PanelRows::tile`] of sixteen rows and panel `n`, with integer sums from tile registers.
    ///
    /// # Safety
    /// As for [`PanelRows::tile`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn tile_amx<S: Isa>(&self, s: S, tiles: &Tiles, x: &Rounded, i: usize, n: usize, to: *mut f32) {
        let Self { panel, from, len, .. } = *self;
        let (first, units) = (from / Self::UNIT, len / Self::UNIT);
        let row_units = x.cols / Self::UNIT;
        let mut totals = [s.zero(); TILE_ROWS];
        // Two buffers: the integers of a unit are computed while those before are scaled.
        let mut sums = [[0i32; TILE_ROWS * TILE_ROWS]; 2];
        // SAFETY: the caller's promise.
        unsafe {
            let codes = panel.codes.ptr().add(n * CHUNK / 4 * S::LANES).cast::<u8>();
            let place = n * CHUNK / Self::UNIT * S::LANES;
            let (scales, offsets) = (panel.scales.ptr().add(place), panel.offsets.ptr().add(place));
            let bytes = x.bytes(i).add(from);
            let (steps, starts) = (x.steps(i).add(first), x.starts(i).add(first));
            let row_sums = x.sums(i).add(first);
            if from > 0 {
                for m in 0..TILE_ROWS {
                    totals[m] = s.load(to.add(m * PANELS * S::LANES));
                }
            }
            let dot = |u: usize, to: *mut i32| {
                let codes = codes.add(u * Self::UNIT * S::LANES);
                tiles.dot(bytes.add(u * Self::UNIT), x.cols, codes, to);
            };
            dot(0, sums[0].as_mut_ptr());
            for u in 0..units {
                if u + 1 < units {
                    dot(u + 1, sums[(u + 1) % 2].as_mut_ptr());
                }
                let integers = sums[u % 2].as_ptr();
                let scale = s.load(scales.add(u * S::LANES));
                for m in 0..TILE_ROWS {
                    let mut sum = s.load(integers.add(m * TILE_ROWS).cast());
                    if W::ROUNDING.zero != 0 {
                        sum = s.add_int(sum, s.splat_int(*starts.add(m * row_units + u)));
                    }
                    let factor = s.mul(scale, s.splat(*steps.add(m * row_units + u)));
                    totals[m] = s.fma(s.int_to_float(sum), factor, totals[m]);
                    if W::OFFSETS {
                        let sum = s.splat(*row_sums.add(m * row_units + u));
                        totals[m] = s.fma(s.load(offsets.add(u * S::LANES)), sum, totals[m]);
                    }
                }
            }
            for m in 0..TILE_ROWS {
                s.store(to.add(m * PANELS * S::LANES), totals[m]);
            }
        }
    }

    /// [`PanelRows::tile`] for any number of rows up to [`TILE`].
    ///
    /// # Safety
    /// As for [`PanelRows::tile`].
    #[inline(always)]
    unsafe fn tile_of<S: Isa>(&self, s: S, x: &Rounded, i: usize, rows: usize, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => self.tile::<S, 1>(s, x, i, to),
                2 => self.tile::<S, 2>(s, x, i, to),
                3 => self.tile::<S, 3>(s, x, i, to),
                4 => self.tile::<S, 4>(s, x, i, to),
                5 => self.tile::<S, 5>(s, x, i, to),
                _ => self.tile::<S, TILE>(s, x, i, to),
            }
        }
    }

    /// Adds products of rows `i..i + M` of activations with both panels to sums, or sets them in the first
    /// chunk.
    ///
    /// # Safety
    /// The rows exist, the panels are unpacked, and `to` has room for a row of all panels for each row.
    #[inline(always)]
    unsafe fn tile<S: Isa, const M: usize>(&self, s: S, x: &Rounded, i: usize, to: *mut f32) {
        let Self { panel, from, len, .. } = *self;
        let (first, units) = (from / Self::UNIT, len / Self::UNIT);
        let (codes, scales, offsets) = (panel.codes.ptr(), panel.scales.ptr(), panel.offsets.ptr());
        let mut totals = [[s.zero(); PANELS]; M];
        // SAFETY: the caller's promise.
        unsafe {
            if from > 0 {
                for m in 0..M {
                    for n in 0..PANELS {
                        totals[m][n] = s.load(to.add((m * PANELS + n) * S::LANES));
                    }
                }
            }
            let bytes = x.bytes(i).add(from);
            for u in 0..units {
                let mut sums = [[s.zero(); PANELS]; M];
                if W::ROUNDING.zero != 0 {
                    for m in 0..M {
                        sums[m] = [s.splat_int(*x.starts(i + m).add(first + u)); PANELS];
                    }
                }
                for q in 0..Self::UNIT / 4 {
                    let at = u * (Self::UNIT / 4) + q;
                    let mut w = [s.zero(); PANELS];
                    for n in 0..PANELS {
                        w[n] = s.load(codes.add((n * CHUNK / 4 + at) * S::LANES));
                    }
                    for m in 0..M {
                        let word = s.splat_bytes(bytes.add(m * x.cols + 4 * at));
                        for n in 0..PANELS {
                            sums[m][n] = s.dot_bytes(sums[m][n], w[n], word, W::BITS);
                        }
                    }
                }
                for m in 0..M {
                    let step = s.splat(*x.steps(i + m).add(first + u));
                    for n in 0..PANELS {
                        let place = (n * (CHUNK / Self::UNIT) + u) * S::LANES;
                        let factor = s.mul(s.load(scales.add(place)), step);
                        totals[m][n] = s.fma(s.int_to_float(sums[m][n]), factor, totals[m][n]);
                        if W::OFFSETS {
                            let sum = s.splat(*x.sums(i + m).add(first + u));
                            totals[m][n] = s.fma(s.load(offsets.add(place)), sum, totals[m][n]);
                        }
                    }
                }
            }
            for m in 0..M {
                for n in 0..PANELS {
                    s.store(to.add((m * PANELS + n) * S::LANES), totals[m][n]);
                }
            }
        }
    }
}
