//! Convolutions without im2col. A tile of the output is a run of positions along the last axis (or two or
//! three short runs of neighbouring rows) and two vectors of output channels. It stays in registers over all
//! taps and input channels.
//!
//! A task computes a patch of the output. It transposes the input rows that the patch reads, so that
//! neighbours along the last axis are contiguous: one row per channel and per remainder of the stride. The
//! positions of a tile then read consecutive elements for every tap. Rows end in zeros, which serve as
//! padding after a row and before the next. The order of a sum does not depend on the patch.

use super::Job;
use crate::gemm::precision::{Precision, Single};
use crate::par::{AtLevel, Par, Serial, Shared};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, Local, Simd, dispatch};

/// Vectors of output channels in a tile.
const NV: usize = 2;
/// Positions in a patch along the last axis.
const PATCH_WIDTH: usize = 112;
/// Fewest and most floats of the transposed input of a patch.
const PATCH_FLOATS: [usize; 2] = [24 << 10, 96 << 10];
/// Fewest positions along the last axis for which a tile pays.
const MIN_WIDTH: usize = 4;

/// With at least this many weights and at most this many output positions, the packed product of windows is
/// faster: it packs weights on the fly.
const MIN_STREAMED_WEIGHTS: usize = 256 << 10;
const MAX_STREAMED_POSITIONS: usize = 192;

/// Multiply-adds below which starting other threads costs more than it saves.
const SERIAL_WORK: usize = 1 << 18;

/// Whether the convolution can be computed without im2col, and this is faster.
pub(super) fn fits(job: &Job<'_>) -> bool {
    let s = job.shape;
    let channels = s.channels / s.groups;
    let width =
        (PATCH_WIDTH.min(job.places[2]) + s.kernel[2] * s.dilation[2]).saturating_add(s.input_dilation[2]);
    let places = s.batch.saturating_mul(job.places.iter().product());
    let weights = s.out_channels.saturating_mul(s.taps()).saturating_mul(channels);
    s.input_dilation == [1; 3]
        && s.taps() > 1
        && (places > MAX_STREAMED_POSITIONS || weights < MIN_STREAMED_WEIGHTS)
        && job.places[2] >= MIN_WIDTH
        && channels > 0
        // One row of outputs must fit, and padding must not make rows much longer.
        && s.kernel[0].saturating_mul(s.kernel[1]).saturating_mul(channels).saturating_mul(width) <= 4 * PATCH_FLOATS[1]
        && s.kernel[2].saturating_mul(s.dilation[2]) <= 4 * PATCH_WIDTH
        && s.stride[2] <= 4
        && s.padding_low[2].unsigned_abs() <= 4 * PATCH_WIDTH
}

/// How the output is divided into patches, and what a patch needs.
struct Plan {
    /// Output channels of a panel of weights.
    nr: usize,
    /// Positions of a patch along the last axis and the one before.
    patch_width: usize,
    patch_height: usize,
    /// Patches along these axes.
    across: usize,
    down: usize,
}

/// Packs the weights and computes patch by patch.
pub(super) fn run<T: Float>(par: &dyn Par, job: &Job<'_>) {
    let (s, simd) = (job.shape, par.simd());
    let (cg, ng) = (s.channels / s.groups, s.out_channels / s.groups);
    let k = s.taps() * cg;
    let alone = AtLevel(Serial, simd);
    let work = s.batch * job.places.iter().product::<usize>();
    let par = if work.saturating_mul(ng).saturating_mul(k) < SERIAL_WORK { &alone } else { par };
    let nr = dispatch(simd, Lanes) * NV;
    let panels = ng.div_ceil(nr);
    let weights = Scratch::<f32>::new(s.groups * panels * nr * k);
    let w = Shared::new(weights.ptr());
    par.run(s.groups * panels, &|t| {
        dispatch(
            simd,
            PackWeights::<T> { job, nr, k, group: t / panels, panel: t % panels, to: w, of: of() },
        );
    });

    let [depth, height, width] = job.places;
    let across = width.div_ceil(PATCH_WIDTH);
    let patch_width = width.div_ceil(across);
    // As many output rows as their transposed input fits three eighths of the L2 cache, but enough patches
    // for all threads.
    let floats = par.caches().l2 / 8 * 3 / size_of::<f32>();
    let floats = floats.clamp(PATCH_FLOATS[0], PATCH_FLOATS[1]);
    let row = (s.kernel[0] * cg * (patch_width * s.stride[2] + s.kernel[2] * s.dilation[2])).max(1);
    let reach = (s.kernel[1] - 1) * s.dilation[1] + 1;
    let rows = (floats / row).saturating_sub(reach) / s.stride[1] + 1;
    let others = s.batch * s.groups * depth * across;
    let wanted = (par.threads() * 8).div_ceil(others).min(height);
    let down = height.div_ceil(rows).max(wanted);
    let patch_height = height.div_ceil(down);
    let down = height.div_ceil(patch_height);
    let plan = Plan { nr, patch_width, patch_height, across, down };
    par.run(others * down, &|t| patch::<T>(simd, job, &plan, w, t));
}

fn of<T>() -> std::marker::PhantomData<T> {
    std::marker::PhantomData
}

struct Lanes;

impl Kernel for Lanes {
    type Out = usize;
    #[inline(always)]
    fn run<S: Isa>(self, _: S) -> usize {
        S::LANES
    }
}

/// Packs the weights of a panel of output channels, for all taps and channels in order.
struct PackWeights<'a, 'b, T> {
    job: &'a Job<'b>,
    nr: usize,
    k: usize,
    group: usize,
    panel: usize,
    to: Shared<f32>,
    of: std::marker::PhantomData<T>,
}

impl<T: Float> Kernel for PackWeights<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { job, nr, k, group, panel, to, .. } = self;
        let ng = job.shape.out_channels / job.shape.groups;
        let valid = (ng - panel * nr).min(nr);
        let from = job.w.cast::<T>().wrapping_add((group * ng + panel * nr) * k);
        let to = to.get().wrapping_add((group * ng.div_ceil(nr) + panel) * nr * k);
        // SAFETY: the weights of the channels exist, and the buffer has room for whole panels.
        unsafe { Single::<T>::pack(s, from, k as isize, 1, valid, nr, k, to) };
    }
}

/// The transposed input of a patch: a row of `pitch` floats for each plane, row, channel and remainder.
struct TransposedInput {
    /// First input position along the last axis that a row holds.
    first: usize,
    pitch: usize,
    /// Input rows per plane.
    rows: usize,
    /// One past the last input position that a row holds.
    last: usize,
}

fn patch<T: Float>(simd: Simd, job: &Job<'_>, plan: &Plan, w: Shared<f32>, t: usize) {
    let s = job.shape;
    let cg = s.channels / s.groups;
    let [depth, height, width] = job.places;
    let (x, t) = (t % plan.across, t / plan.across);
    let (y, t) = (t % plan.down, t / plan.down);
    let (z, t) = (t % depth, t / depth);
    let (batch, group) = (t / s.groups, t % s.groups);
    let (x0, x1) = (x * plan.patch_width, width.min((x + 1) * plan.patch_width));
    let (y0, y1) = (y * plan.patch_height, height.min((y + 1) * plan.patch_height));
    if x0 >= x1 || y0 >= y1 {
        return;
    }

    let step = s.stride[2];
    let reach = (s.kernel[2] - 1) * s.dilation[2];
    let from = (x0 * step) as isize - s.padding_low[2];
    let until = ((x1 - 1) * step + reach) as isize - s.padding_low[2] + 1;
    let first = from.max(0) as usize;
    let last = until.clamp(first as isize, (s.input[2].max(first)) as isize) as usize;
    let before = (first as isize - from) as usize;
    let places = (last - first).div_ceil(step);
    let after = (until.max(first as isize) as usize - first).div_ceil(step);
    // A pitch of an odd number of cache lines spreads rows over all cache sets.
    let pitch = ((places + before.div_ceil(step)).max(after).div_ceil(16) | 1) * 16;
    let rows = (y1 - y0 - 1) * s.stride[1] + (s.kernel[1] - 1) * s.dilation[1] + 1;
    let transposed = TransposedInput { first, pitch, rows, last };

    // The offset of each tap and channel from the first position of a tile.
    let steps = Scratch::<isize>::new(s.taps() * cg);
    let mut at = 0;
    for tap in 0..s.taps() {
        let [_, kh, kw] = s.kernel;
        let mut tap = [tap / (kh * kw), tap / kw % kh, tap % kw];
        if s.flip {
            for d in 0..3 {
                tap[d] = s.kernel[d] - 1 - tap[d];
            }
        }
        let offset = from + (tap[2] * s.dilation[2]) as isize - first as isize;
        let (place, rest) = (offset.div_euclid(step as isize), offset.rem_euclid(step as isize));
        let row = (tap[0] * rows + tap[1] * s.dilation[1]) * cg;
        for c in 0..cg {
            let line = ((row + c) * step) as isize + rest;
            // SAFETY: the buffer has an entry for each.
            unsafe { *steps.ptr().add(at) = line * pitch as isize + place };
            at += 1;
        }
    }
    let corner = [batch, group, z, y0, y1, x0, x1];
    dispatch(simd, Patch::<T> { job, plan, w, transposed, corner, steps: steps.ptr(), of: of() });
}

struct Patch<'a, 'b, T> {
    job: &'a Job<'b>,
    plan: &'a Plan,
    w: Shared<f32>,
    transposed: TransposedInput,
    /// Batch, group, plane, range of rows, range of positions.
    corner: [usize; 7],
    steps: *const isize,
    of: std::marker::PhantomData<T>,
}

impl<T: Float> Kernel for Patch<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { job, plan, w, transposed, corner: [batch, group, z, y0, y1, x0, x1], steps, .. } = self;
        let shape = job.shape;
        let (cg, ng) = (shape.channels / shape.groups, shape.out_channels / shape.groups);
        let k = shape.taps() * cg;
        let line = cg * shape.stride[2] * transposed.pitch;
        // Zeros before the first row and after the last, as far as a tap or a tile may read.
        let margin = transposed.pitch.next_multiple_of(16) + 32;
        let input = Scratch::<f32>::new(shape.kernel[0] * transposed.rows * line + 2 * margin);
        // SAFETY: the buffer has the margins and a line for each row; only existing rows of the input are
        // read.
        let input = unsafe {
            input.ptr().write_bytes(0, margin);
            let lines = input.ptr().add(margin);
            for plane in 0..shape.kernel[0] {
                for row in 0..transposed.rows {
                    let to = lines.add((plane * transposed.rows + row) * line);
                    transpose_line::<S, T>(s, job, &transposed, batch, group, z, y0, plane, row, to);
                }
            }
            lines.add(shape.kernel[0] * transposed.rows * line).write_bytes(0, margin);
            lines.cast_const()
        };

        let pixels = if S::LANES == 16 { 14 } else { 6 };
        let tiles = (x1 - x0).div_ceil(pixels);
        // Short runs of several rows share loaded weights.
        let rows = if (MIN_WIDTH..=pixels).contains(&(x1 - x0)) { pixels / (x1 - x0) } else { 1 };
        let own = Scratch::<f32>::new(14 * plan.nr);
        let direct = size_of::<T>() == size_of::<f32>();
        for panel in 0..ng.div_ceil(plan.nr) {
            let cols = (ng - panel * plan.nr).min(plan.nr);
            let b = w.get().wrapping_add((group * ng.div_ceil(plan.nr) + panel) * plan.nr * k);
            let mut y = y0;
            while y < y1 {
                let rows = rows.min(y1 - y);
                let [_, height, width] = job.places;
                let row = ((batch * job.places[0] + z) * height + y) * width;
                for tile in 0..tiles {
                    let (from, to) = (tile * (x1 - x0) / tiles, (tile + 1) * (x1 - x0) / tiles);
                    let place = (row + x0 + from) * shape.out_channels + group * ng + panel * plan.nr;
                    let out = job.out.cast::<T>().wrapping_add(place);
                    let (c, ldc, next) = if direct {
                        (out.cast(), shape.out_channels, width * shape.out_channels)
                    } else {
                        (own.ptr(), plan.nr, (to - from) * plan.nr)
                    };
                    let down = shape.stride[1] * line;
                    let a = input.wrapping_add((y - y0) * down + from);
                    s.call(OutputTile { k, a, down, steps, b, c, ldc, next, cols, pixels: to - from, rows });
                    if !direct {
                        for i in 0..rows * (to - from) {
                            let (row, i) = (i / (to - from), i % (to - from));
                            // SAFETY: the sums of the tile were written; the position of the output is this
                            // task's own.
                            unsafe {
                                let sums = own.ptr().add(row * next + i * plan.nr);
                                store::<S, T>(s, sums, out.add((row * width + i) * shape.out_channels), cols);
                            }
                        }
                    }
                }
                y += rows;
            }
        }
    }
}

/// # Safety
/// Both hold `n` elements.
#[inline(always)]
unsafe fn store<S: Isa, T: Float>(s: S, from: *const f32, to: *mut T, n: usize) {
    let mut j = 0;
    while j < n {
        let m = (n - j).min(S::LANES);
        // SAFETY: the caller's promise.
        unsafe { T::store_n(s, to.add(j), s.load_n(from.add(j), m), m) };
        j += m;
    }
}

/// Transposes an input row that a patch reads, or writes zeros if it lies in the padding.
///
/// # Safety
/// `to` has room for the row, for every channel and remainder of the stride.
#[inline(always)]
unsafe fn transpose_line<S: Isa, T: Float>(
    s: S,
    job: &Job<'_>,
    transposed: &TransposedInput,
    batch: usize,
    group: usize,
    z: usize,
    y0: usize,
    plane: usize,
    row: usize,
    to: *mut f32,
) {
    let shape = job.shape;
    let (cg, step, pitch) = (shape.channels / shape.groups, shape.stride[2], transposed.pitch);
    let z = (z * shape.stride[0] + plane * shape.dilation[0]) as isize - shape.padding_low[0];
    let y = (y0 * shape.stride[1] + row) as isize - shape.padding_low[1];
    let inside =
        (z as usize) < shape.input[0] && (y as usize) < shape.input[1] && transposed.first < transposed.last;
    // SAFETY: the caller's promise; the positions `first..last` exist if the row does.
    unsafe {
        if !inside {
            to.write_bytes(0, cg * step * pitch);
            return;
        }
        let line = (batch * shape.input[0] + z as usize) * shape.input[1] + y as usize;
        for rest in 0..step {
            let x = transposed.first + rest;
            let valid = transposed.last.saturating_sub(x).div_ceil(step);
            let from =
                job.x.cast::<T>().wrapping_add((line * shape.input[2] + x) * shape.channels + group * cg);
            // Rows of one remainder are `step` rows apart.
            transpose::<S, T>(
                s,
                from,
                step * shape.channels,
                valid,
                cg,
                to.add(rest * pitch),
                pitch,
                step * pitch,
            );
        }
    }
}

/// `to[c * stride + i] = from[i * apart + c]` for `valid` positions, then zeros up to `pitch`, a multiple of
/// sixteen.
///
/// # Safety
/// All of these elements are valid.
#[inline(always)]
unsafe fn transpose<S: Isa, T: Float>(
    s: S,
    from: *const T,
    apart: usize,
    valid: usize,
    channels: usize,
    to: *mut f32,
    pitch: usize,
    stride: usize,
) {
    let mut i = 0;
    while i < pitch {
        let lines = valid.saturating_sub(i).min(S::LANES);
        let mut c = 0;
        while c < channels {
            let n = (channels - c).min(S::LANES);
            let mut rows = [s.zero(); 16];
            // SAFETY: the caller's promise; only existing elements are read.
            unsafe {
                for j in 0..lines {
                    let p = from.add((i + j) * apart + c);
                    rows[j] = if n == S::LANES { T::load(s, p) } else { T::load_n(s, p, n) };
                }
                if n == S::LANES {
                    s.transpose(&rows, to.add(c * stride + i), stride);
                } else {
                    let mut transposed = [0.0f32; 256];
                    s.transpose(&rows, transposed.as_mut_ptr(), S::LANES);
                    for j in 0..n {
                        let v = s.load(transposed.as_ptr().add(j * S::LANES));
                        s.store(to.add((c + j) * stride + i), v);
                    }
                }
            }
            c += n;
        }
        i += S::LANES;
    }
}

/// A tile of the output: adjacent positions of one or more rows, and up to `NV` vectors of channels.
struct OutputTile {
    /// Taps times channels.
    k: usize,
    /// The first position of the tile in the transposed input, and the distance to that of the next row.
    a: *const f32,
    down: usize,
    /// The offset of each tap and channel from there.
    steps: *const isize,
    b: *const f32,
    /// Sums, with the strides of positions and rows.
    c: *mut f32,
    ldc: usize,
    next: usize,
    cols: usize,
    pixels: usize,
    rows: usize,
}

impl<S: Isa> Local<S> for OutputTile {
    #[inline(always)]
    fn run(self, s: S) {
        macro_rules! of_pixels {
            ($(($r:literal $m:literal))*) => {
                // SAFETY: the tile was built with valid memory.
                unsafe {
                    match (self.rows, self.pixels, self.cols > S::LANES) {
                        $(($r, $m, true) if $r * $m <= 6 || S::LANES == 16 => taps::<S, $r, $m, 2>(s, &self),
                          ($r, $m, false) if $r * $m <= 6 || S::LANES == 16 => taps::<S, $r, $m, 1>(s, &self),)*
                        _ => {}
                    }
                }
            };
        }
        of_pixels!((1 14) (1 13) (1 12) (1 11) (1 10) (1 9) (1 8) (1 7) (1 6) (1 5) (1 4) (1 3) (1 2) (1 1)
            (2 7) (2 6) (2 5) (2 4) (3 4));
    }
}

/// # Safety
/// All memory that the tile describes is valid, for `R` rows of `M` positions.
#[inline(always)]
unsafe fn taps<S: Isa, const R: usize, const M: usize, const V: usize>(s: S, t: &OutputTile) {
    let mut acc = [[[s.zero(); V]; M]; R];
    let mut b = t.b;
    // Prefetch cache lines of the output while their sums are computed.
    let each = (R * M * V).div_ceil((t.k / 2).max(1));
    let mut line = 0;
    // SAFETY: the caller's promise.
    unsafe {
        for i in 0..t.k / 2 {
            for _ in 0..each {
                if line < R * M * V {
                    let (row, place) = (line / V / M, line / V % M);
                    s.prefetch(t.c.wrapping_add(row * t.next + place * t.ldc + line % V * S::LANES).cast());
                    line += 1;
                }
            }
            for j in 0..2 * NV {
                s.prefetch(b.wrapping_add((8 * NV + j) * S::LANES).cast());
            }
            tap::<S, R, M, V>(s, &mut acc, t.a.offset(*t.steps.add(2 * i)), t.down, b);
            let next = b.add(NV * S::LANES);
            tap::<S, R, M, V>(s, &mut acc, t.a.offset(*t.steps.add(2 * i + 1)), t.down, next);
            b = b.add(2 * NV * S::LANES);
        }
        if t.k % 2 == 1 {
            tap::<S, R, M, V>(s, &mut acc, t.a.offset(*t.steps.add(t.k - 1)), t.down, b);
        }
        for (row, sums) in acc.into_iter().enumerate() {
            for (i, sums) in sums.into_iter().enumerate() {
                for (j, v) in sums.into_iter().enumerate() {
                    let p = t.c.add(row * t.next + i * t.ldc + j * S::LANES);
                    let n = t.cols - j * S::LANES;
                    if n >= S::LANES { s.store(p, v) } else { s.store_n(p, v, n) }
                }
            }
        }
    }
}

/// Adds one tap of one channel.
///
/// # Safety
/// `M` floats of each of `R` rows of the input, `down` apart, and `V` vectors of the weights are readable.
#[inline(always)]
unsafe fn tap<S: Isa, const R: usize, const M: usize, const V: usize>(
    s: S,
    acc: &mut [[[S::F; V]; M]; R],
    a: *const f32,
    down: usize,
    b: *const f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut bv = [s.zero(); V];
        for (j, v) in bv.iter_mut().enumerate() {
            *v = s.load(b.add(j * S::LANES));
        }
        for (r, row) in acc.iter_mut().enumerate() {
            for (i, sums) in row.iter_mut().enumerate() {
                let av = s.splat(*a.add(r * down + i));
                for (c, v) in sums.iter_mut().zip(bv) {
                    *c = s.fma(av, v, *c);
                }
            }
        }
    }
}
