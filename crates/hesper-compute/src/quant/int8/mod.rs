//! Activations rounded to 8 bits in blocks of 32, times codes of up to 8 bits as integers.
//!
//! Weights are unpacked and interleaved while they are read: a panel holds as many rows as a vector has
//! lanes, and each 32-bit lane four neighbouring codes of its row. A step of the innermost loop multiplies
//! such a vector with four bytes of a row of activations. A single row of activations would use each unpacked
//! code once, so at the level with wide dot products rows of weights are multiplied one by one instead
//! (`simd::unit_sums`).
//!
//! Sums over a unit (weights that share a scale) are exact integers. They are scaled and added in `f32`, unit
//! after unit, so a row of activations has bit-identical results alone and in a batch, with any number of
//! threads, and at every SIMD level that has a fused multiply-add.

mod activations;
pub(super) mod weights;

pub(super) use activations::Rounded;
pub(super) use weights::ByteCodes;

use crate::mat::{MatMut, MatRef};
use crate::par::{Par, chunks, grain};
use crate::scratch::Scratch;
#[cfg(target_arch = "x86_64")]
use crate::simd::amx::{TILE_ROWS, Tiles};
#[cfg(target_arch = "x86_64")]
use crate::simd::unit_sums::{GROUP, last_unit_sums, unit_sums};
use crate::simd::{Isa, Kernel, Local, Simd, dispatch_dot};

/// Activations that share a step.
pub(super) const BLOCK: usize = 32;
/// Elements of a row that are unpacked at once: two panels of them fit the smallest L1 caches, of 32 KiB.
const CHUNK: usize = 512;
/// Panels multiplied at once.
const PANELS: usize = 2;
/// Most rows of activations multiplied at once: their sums with both panels fit 32 registers.
const TILE: usize = 6;

/// `y = x w^T`; the rows of `x` are contiguous.
pub(super) fn product(par: &dyn Par, x: MatRef<'_, f32>, w: &ByteCodes<'_>, y: &MatMut<'_, f32>) {
    let simd = par.simd();
    let x = &Rounded::of(par, x, w.rounding);
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
pub(super) fn times(
    simd: Simd,
    x: &Rounded,
    w: &ByteCodes<'_>,
    j0: usize,
    j1: usize,
    sink: &mut dyn FnMut(usize, usize, &[f32]),
) {
    debug_assert_eq!(x.rounding, w.rounding);
    dispatch_dot(simd, Times { x, w, j0, j1, sink });
}

struct Times<'a, 'b> {
    x: &'a Rounded,
    w: &'a ByteCodes<'a>,
    j0: usize,
    j1: usize,
    sink: &'b mut dyn FnMut(usize, usize, &[f32]),
}

impl Kernel for Times<'_, '_> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        #[cfg(target_arch = "x86_64")]
        if S::WIDE_DOTS && self.x.rows == 1 {
            return self.one_row(s);
        }
        let Self { x, w, j0, j1, sink } = self;
        let width = PANELS * S::LANES;
        let (panel, sums) = (Panel::new::<S>(w.rounding.unit), Scratch::<f32>::new(x.rows * width));
        let mut j = j0;
        while j < j1 {
            let have = (j1 - j).min(width);
            let mut from = 0;
            while from < x.cols {
                let len = (x.cols - from).min(CHUNK);
                // SAFETY: the rows exist and have these elements; the panel has room for a chunk.
                unsafe {
                    for p in 0..PANELS {
                        // Rows past the last repeat it.
                        let rows = std::array::from_fn(|r| (j + p * S::LANES + r).min(j + have - 1));
                        panel.unpack(s, p, w, &rows, from, len);
                        // Read the next chunk, of these rows or of the next ones, while this one is
                        // multiplied.
                        if from + len < x.cols {
                            w.prefetch(s, &rows, from + len, (x.cols - from - len).min(CHUNK));
                        } else {
                            w.prefetch(s, &rows.map(|r| (r + width).min(j1 - 1)), 0, x.cols.min(CHUNK));
                        }
                    }
                }
                let (panel, to) = (&panel, sums.ptr());
                match (w.rounding.unit, w.is_wide()) {
                    (16, _) => s.call(Chunk::<16, false> { w, panel, x, from, len, to }),
                    (_, false) => s.call(Chunk::<BLOCK, false> { w, panel, x, from, len, to }),
                    (_, true) => s.call(Chunk::<BLOCK, true> { w, panel, x, from, len, to }),
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

#[cfg(target_arch = "x86_64")]
impl Times<'_, '_> {
    /// The products with one row of activations: integer sums over units row by row of the matrix, then the
    /// sums of sixteen rows as in [`Chunk::tile`].
    #[inline(always)]
    fn one_row<S: Isa>(self, s: S) {
        let Self { x, w, j0, j1, sink } = self;
        let unit = w.rounding.unit;
        let units = x.cols / unit;
        let whole = units / GROUP * GROUP;
        let integers = Scratch::<i32>::new(S::LANES * whole);
        let chunk = w.scale_chunk();
        let numbers = chunk / unit * S::LANES;
        let (scales, offsets) = (Scratch::<f32>::new(numbers), Scratch::<f32>::new(numbers));
        let (steps, starts, row_sums) = (x.steps(0), x.starts(0), x.sums(0));
        let mut j = j0;
        while j < j1 {
            let have = (j1 - j).min(S::LANES);
            let rows = std::array::from_fn(|r| (j + r).min(j + have - 1));
            let mut total = s.zero();
            // SAFETY: the rows exist and have these units; the buffers have room for them. `WIDE_DOTS` proves
            // the instructions of `unit_sums`.
            unsafe {
                w.prefetch_scales(s, j + have, have);
                for r in 0..have {
                    let (codes, layout) = w.row(j + r);
                    unit_sums(layout, codes, x.bytes(0), units, integers.ptr().add(r * whole));
                }
                let mut from = 0;
                while from < x.cols {
                    let len = (x.cols - from).min(chunk);
                    w.scales(s, &rows, from, len, scales.ptr(), offsets.ptr());
                    let (first, count) = (from / unit, len / unit);
                    for group in (0..count).step_by(GROUP) {
                        let mut sums = [0.0f32; GROUP * 16];
                        if first + group < whole {
                            let at = integers.ptr().add(first + group).cast::<f32>();
                            let mut lines = [s.zero(); 16];
                            for (r, line) in lines.iter_mut().enumerate().take(have) {
                                *line = s.load(at.add(r * whole));
                            }
                            s.transpose(&lines, sums.as_mut_ptr(), S::LANES);
                        } else {
                            let layout = w.row(j).1;
                            let codes = rows.map(|row| w.row(row).0);
                            last_unit_sums(layout, &codes, x.bytes(0), units, sums.as_mut_ptr().cast());
                        }
                        for u in group..count.min(group + GROUP) {
                            let mut sum = s.load(sums.as_ptr().add((u - group) * S::LANES));
                            if w.rounding.zero != 0 {
                                sum = s.add_int(sum, s.splat_int(*starts.add(first + u)));
                            }
                            let scale = s.load(scales.ptr().add(u * S::LANES));
                            let factor = s.mul(scale, s.splat(*steps.add(first + u)));
                            total = s.fma(s.int_to_float(sum), factor, total);
                            if w.has_offsets() {
                                let sum = s.splat(*row_sums.add(first + u));
                                total = s.fma(s.load(offsets.ptr().add(u * S::LANES)), sum, total);
                            }
                        }
                    }
                    from += len;
                }
                let mut values = [0.0f32; 16];
                s.store(values.as_mut_ptr(), total);
                sink(0, j, &values[..have]);
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

    /// Unpacks elements `from..from + len` of rows into panel `p`.
    ///
    /// # Safety
    /// The rows have these elements, and the panel has room.
    #[inline(always)]
    unsafe fn unpack<S: Isa>(
        &self,
        s: S,
        p: usize,
        w: &ByteCodes<'_>,
        rows: &[usize; 16],
        from: usize,
        len: usize,
    ) {
        let place = p * CHUNK / w.rounding.unit * S::LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let codes = self.codes.ptr().add(p * CHUNK / 4 * S::LANES);
            let (scales, offsets) = (self.scales.ptr().add(place), self.offsets.ptr().add(place));
            w.unpack(s, rows, from, len, codes);
            w.scales(s, rows, from, len, scales, offsets);
        }
    }
}

/// Elements `from..from + len` of unpacked panels times all rows of activations. It is compiled for the unit
/// and for whether codes have eight bits, and shared by all formats.
struct Chunk<'a, const UNIT: usize, const WIDE: bool> {
    w: &'a ByteCodes<'a>,
    panel: &'a Panel,
    x: &'a Rounded,
    from: usize,
    len: usize,
    /// Room for a row of all panels for each row of activations.
    to: *mut f32,
}

impl<S: Isa, const UNIT: usize, const WIDE: bool> Local<S> for Chunk<'_, UNIT, WIDE> {
    #[inline(always)]
    fn run(self, s: S) {
        let rows = self.x.rows;
        // SAFETY: the chunk was made with unpacked panels, and with room for the sums of all rows.
        unsafe {
            let done = self.in_tile_registers(s);
            let left = rows - done;
            let tiles = left.div_ceil(TILE);
            for t in 0..tiles {
                let (i, end) = (done + t * left / tiles, done + (t + 1) * left / tiles);
                let to = self.to.add(i * PANELS * S::LANES);
                match end - i {
                    1 => self.tile::<S, 1>(s, i, to),
                    2 => self.tile::<S, 2>(s, i, to),
                    3 => self.tile::<S, 3>(s, i, to),
                    4 => self.tile::<S, 4>(s, i, to),
                    5 => self.tile::<S, 5>(s, i, to),
                    _ => self.tile::<S, TILE>(s, i, to),
                }
            }
        }
    }
}

impl<const UNIT: usize, const WIDE: bool> Chunk<'_, UNIT, WIDE> {
    /// The width of codes as [`Isa::dot_bytes`] distinguishes it.
    const BITS: usize = if WIDE { 8 } else { 6 };

    /// [`Chunk::tile`] with tile registers, for as many rows as these take. Returns the number of rows.
    ///
    /// # Safety
    /// As for [`Chunk::tile`].
    #[inline(always)]
    unsafe fn in_tile_registers<S: Isa>(&self, s: S) -> usize {
        #[cfg(target_arch = "x86_64")]
        let Self { x, to, .. } = *self;
        #[cfg(target_arch = "x86_64")]
        if S::WIDE_DOTS
            && S::LANES == TILE_ROWS
            && x.rows >= TILE_ROWS
            && let Some(tiles) = Tiles::new(UNIT)
        {
            let whole = x.rows / TILE_ROWS * TILE_ROWS;
            for i in (0..whole).step_by(TILE_ROWS) {
                for n in 0..PANELS {
                    // SAFETY: the caller's promise.
                    unsafe { self.tile_amx(s, &tiles, i, n, to.add((i * PANELS + n) * S::LANES)) };
                }
            }
            return whole;
        }
        let _ = s;
        0
    }

    /// [`Chunk::tile`] of sixteen rows and panel `n`, with integer sums from tile registers.
    ///
    /// # Safety
    /// As for [`Chunk::tile`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn tile_amx<S: Isa>(&self, s: S, tiles: &Tiles, i: usize, n: usize, to: *mut f32) {
        let Self { w, panel, x, from, len, .. } = *self;
        let (first, units) = (from / UNIT, len / UNIT);
        let row_units = x.cols / UNIT;
        let mut totals = [s.zero(); TILE_ROWS];
        // Two buffers: the integers of a unit are computed while those before are scaled.
        let mut sums = [[0i32; TILE_ROWS * TILE_ROWS]; 2];
        // SAFETY: the caller's promise.
        unsafe {
            let codes = panel.codes.ptr().add(n * CHUNK / 4 * S::LANES).cast::<u8>();
            let place = n * CHUNK / UNIT * S::LANES;
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
                let codes = codes.add(u * UNIT * S::LANES);
                tiles.dot(bytes.add(u * UNIT), x.cols, codes, to);
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
                    if w.rounding.zero != 0 {
                        sum = s.add_int(sum, s.splat_int(*starts.add(m * row_units + u)));
                    }
                    let factor = s.mul(scale, s.splat(*steps.add(m * row_units + u)));
                    totals[m] = s.fma(s.int_to_float(sum), factor, totals[m]);
                    if w.has_offsets() {
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

    /// Adds products of rows `i..i + M` of activations with both panels to sums, or sets them in the first
    /// chunk.
    ///
    /// # Safety
    /// The rows exist, the panels are unpacked, and `to` has room for a row of all panels for each row.
    #[inline(always)]
    unsafe fn tile<S: Isa, const M: usize>(&self, s: S, i: usize, to: *mut f32) {
        let Self { w, panel, x, from, len, .. } = *self;
        let (first, units) = (from / UNIT, len / UNIT);
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
                if w.rounding.zero != 0 {
                    for m in 0..M {
                        sums[m] = [s.splat_int(*x.starts(i + m).add(first + u)); PANELS];
                    }
                }
                for q in 0..UNIT / 4 {
                    let at = u * (UNIT / 4) + q;
                    let mut codes_of = [s.zero(); PANELS];
                    for n in 0..PANELS {
                        codes_of[n] = s.load(codes.add((n * CHUNK / 4 + at) * S::LANES));
                    }
                    for m in 0..M {
                        let word = s.splat_bytes(bytes.add(m * x.cols + 4 * at));
                        for n in 0..PANELS {
                            sums[m][n] = s.dot_bytes(sums[m][n], codes_of[n], word, Self::BITS);
                        }
                    }
                }
                for m in 0..M {
                    let step = s.splat(*x.steps(i + m).add(first + u));
                    for n in 0..PANELS {
                        let place = (n * (CHUNK / UNIT) + u) * S::LANES;
                        let factor = s.mul(s.load(scales.add(place)), step);
                        totals[m][n] = s.fma(s.int_to_float(sums[m][n]), factor, totals[m][n]);
                        if w.has_offsets() {
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
