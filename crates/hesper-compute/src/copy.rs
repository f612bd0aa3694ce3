//! Strided copies, with transposes in tiles.

use crate::error::{Mismatch, at_least, product, same};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, Simd, dispatch};
use crate::strided::{self, Dim, joined_axes};

/// Elements of the smallest tasks, about.
const GRAIN: usize = 1 << 15;
/// Lines of the result that are transposed together.
const TILE: usize = 64;
/// Bytes of a line of the source that are read together, and of a line of the result that are written
/// together.
const BAND_BYTES: usize = 256;
const RUN_BYTES: usize = 512;

/// Copies an array between any two sets of strides (in elements, possibly negative or zero in `src`).
///
/// Adjacent axes are merged where strides allow it. If `src` is contiguous along an axis other than the
/// innermost, the copy transposes in tiles.
///
/// # Safety
/// Every element that shape and strides describe is valid; those of `dst` are distinct and not accessed by
/// another thread.
pub unsafe fn copy_strided<T: Copy + Send + Sync + 'static>(
    par: &dyn Par,
    shape: &[usize],
    src: *const T,
    src_strides: &[isize],
    dst: *mut T,
    dst_strides: &[isize],
) -> Result<(), Mismatch> {
    same("strides of the source", shape.len(), src_strides.len())?;
    same("strides of the result", shape.len(), dst_strides.len())?;
    let (src, dst) = (src.cast::<()>(), dst.cast::<()>());
    let axes: Vec<CopyDim> =
        joined_axes(shape, [src_strides, dst_strides]).map(|(n, [s, d])| (n, s, d)).collect();
    if shape.contains(&0) {
        return Ok(());
    }
    let (src, dst) = (Shared::new(src.cast_mut()), Shared::new(dst));
    // Elements are copied as unsigned integers of their size.
    match (size_of::<T>(), align_of::<T>()) {
        (1, _) => walk::<u8>(par, &axes, src, dst),
        (2, 2) => walk::<u16>(par, &axes, src, dst),
        (4, 4) => walk::<u32>(par, &axes, src, dst),
        (8, 8) => walk::<u64>(par, &axes, src, dst),
        (8, 4) => walk::<[u32; 2]>(par, &axes, src, dst),
        (16, 8) => walk::<[u64; 2]>(par, &axes, src, dst),
        _ => {
            let instead = "give elements of 1, 2, 4, 8 or 16 bytes";
            return Err(Mismatch::Unsupported { what: "copying elements of this size", instead });
        }
    }
    Ok(())
}

/// One side of a copy: the offset of its first element and a stride for each axis.
#[derive(Clone, Copy, Debug)]
pub struct StridedView<'a> {
    /// Offset of the first element.
    pub offset: isize,
    /// Stride of each axis.
    pub strides: &'a [isize],
}

impl StridedView<'_> {
    /// `Ok` if every element of a shape lies within `len` elements.
    fn within(self, shape: &[usize], len: usize) -> Result<(), Mismatch> {
        same("strides", shape.len(), self.strides.len())?;
        let dims = shape.iter().zip(self.strides).map(|(len, stride)| Dim { len: *len, stride: *stride });
        strided::within(self.offset, dims, len)
    }

    /// `Ok` if no two elements of a shape share an address: each stride spans all axes that follow.
    fn distinct(self, shape: &[usize]) -> Result<(), Mismatch> {
        let mut reach = 1usize;
        for (n, stride) in shape.iter().zip(self.strides).rev().filter(|(n, _)| **n > 1) {
            at_least("stride of an axis of the result", reach, usize::try_from(*stride).unwrap_or(0))?;
            reach = product("elements of the result", &[*stride as usize, *n])?;
        }
        Ok(())
    }
}

/// Copies elements of `src` with any strides to `dst`, whose axes must be in memory order.
pub fn copy_elements<T: Copy + Send + Sync + 'static>(
    par: &dyn Par,
    shape: &[usize],
    src: &[T],
    from: StridedView<'_>,
    dst: &mut [T],
    to: StridedView<'_>,
) -> Result<(), Mismatch> {
    if shape.contains(&0) {
        return Ok(());
    }
    from.within(shape, src.len())?;
    to.within(shape, dst.len())?;
    to.distinct(shape)?;
    let (src, dst) = (src.as_ptr().wrapping_offset(from.offset), dst.as_mut_ptr().wrapping_offset(to.offset));
    // SAFETY: all elements are within the slices; those of the result are distinct, and borrowed for writing.
    unsafe { copy_strided(par, shape, src, from.strides, dst, to.strides) }
}

/// Size, source stride, destination stride.
type CopyDim = (usize, isize, isize);

fn walk<W: Copy + Send + Sync + 'static>(par: &dyn Par, axes: &[CopyDim], src: Shared<()>, dst: Shared<()>) {
    let Some((&(n, ss, ds), outer)) = axes.split_last() else {
        // SAFETY: a single element, which the caller promised.
        unsafe { *dst.get().cast::<W>() = *src.get().cast::<W>() };
        return;
    };
    let streaming =
        axes.iter().map(|axis| axis.0).product::<usize>() * size_of::<W>() >= par.caches().non_temporal();
    let simd = par.simd();
    // The axis along which the source is contiguous, unless that is the last.
    let transposed = if ss.abs() != 1 { outer.iter().rposition(|a| a.1 == 1 && a.0 >= 8) } else { None };
    if let Some(t) = transposed.filter(|_| ds == 1 && n >= 8) {
        let (m, _, tds) = outer[t];
        let rest: Vec<CopyDim> = outer.iter().enumerate().filter(|(i, _)| *i != t).map(|(_, a)| *a).collect();
        let height = RUN_BYTES / size_of::<W>();
        let tiles = n.div_ceil(height);
        let count: usize = rest.iter().map(|a| a.0).product();
        // A task transposes bands of the source: `height` rows, all columns.
        chunks(par, count * tiles, (GRAIN / (m * height)).max(1), |a, b| {
            for i in a..b {
                let (so, dof) = offset(&rest, i / tiles);
                let j0 = i % tiles * height;
                let band = Transpose {
                    rows: height.min(n - j0),
                    cols: m,
                    src: src.get().cast::<W>().wrapping_offset(so + j0 as isize * ss),
                    ss,
                    dst: dst.get().cast::<W>().wrapping_offset(dof + j0 as isize),
                    ds: tds,
                    streaming,
                };
                dispatch(simd, band);
            }
        });
        return;
    }
    let count: usize = outer.iter().map(|a| a.0).product();
    if count == 1 {
        chunks(par, n, grain(par, n, GRAIN), |a, b| {
            // SAFETY: the caller's promise; parts are this task's own.
            unsafe {
                line::<W>(
                    src.get().cast::<W>().wrapping_offset(a as isize * ss),
                    ss,
                    dst.get().cast::<W>().wrapping_offset(a as isize * ds),
                    ds,
                    b - a,
                    (simd, streaming),
                );
            }
        });
        return;
    }
    let (lines, next_ss, next_ds) = outer[outer.len() - 1];
    chunks(par, count, grain(par, count, (GRAIN / n).max(1)), |a, b| {
        let mut i = a;
        while i < b {
            let run = (lines - i % lines).min(b - i);
            let (so, dof) = offset(outer, i);
            let (src, dst) =
                (src.get().cast::<W>().wrapping_offset(so), dst.get().cast::<W>().wrapping_offset(dof));
            i += run;
            // SAFETY: the caller's promise; lines are this task's own.
            unsafe {
                match n {
                    2 if (ss, ds, next_ds) == (0, 1, 2) => spread::<W, 2>(src, next_ss, dst, run),
                    3 if (ss, ds, next_ds) == (0, 1, 3) => spread::<W, 3>(src, next_ss, dst, run),
                    4 if (ss, ds, next_ds) == (0, 1, 4) => spread::<W, 4>(src, next_ss, dst, run),
                    _ => {
                        for k in 0..run as isize {
                            let (src, dst) =
                                (src.wrapping_offset(k * next_ss), dst.wrapping_offset(k * next_ds));
                            line::<W>(src, ss, dst, ds, n, (simd, streaming));
                        }
                    }
                }
            }
        }
    });
}

/// Writes each of `run` elements, `ss` apart, `N` times.
///
/// # Safety
/// All elements are valid at both addresses.
unsafe fn spread<W: Copy, const N: usize>(src: *const W, ss: isize, dst: *mut W, run: usize) {
    for k in 0..run {
        // SAFETY: the caller's promise.
        unsafe { dst.cast::<[W; N]>().add(k).write([*src.offset(k as isize * ss); N]) };
    }
}

/// The source and destination offsets of line `i` of the outer axes, in row-major order.
fn offset(axes: &[CopyDim], mut i: usize) -> (isize, isize) {
    let (mut s, mut d) = (0, 0);
    for a in axes.iter().rev() {
        let k = (i % a.0) as isize;
        (s, d) = (s + k * a.1, d + k * a.2);
        i /= a.0;
    }
    (s, d)
}

/// Copies `n[0]` lines of `n[1]` elements on the calling thread. Elements of a line are contiguous at `dst`,
/// lines `ds` apart.
///
/// # Safety
/// All elements are valid at both addresses, and those at `dst` distinct.
pub(crate) unsafe fn copy_box<W: Copy + 'static>(
    simd: Simd,
    n: [usize; 2],
    src: *const W,
    ss: [isize; 2],
    dst: *mut W,
    ds: usize,
) {
    /// Lines written together where the source is contiguous across lines: one cache line of each.
    const ACROSS: usize = 16;
    let ds = ds as isize;
    if ss[0] == 1 && ss[1] != 1 && n[0] >= 8 && n[1] >= 8 {
        return dispatch(
            simd,
            Transpose { rows: n[1], cols: n[0], src, ss: ss[1], dst, ds, streaming: false },
        );
    }
    if n[0] > 1 && ss[0].unsigned_abs() < ss[1].unsigned_abs() {
        for first in (0..n[0]).step_by(ACROSS) {
            for column in 0..n[1] as isize {
                for row in first as isize..n[0].min(first + ACROSS) as isize {
                    // SAFETY: the caller's promise.
                    unsafe { *dst.offset(row * ds + column) = *src.offset(row * ss[0] + column * ss[1]) };
                }
            }
        }
        return;
    }
    for row in 0..n[0] as isize {
        // SAFETY: the caller's promise.
        unsafe { line(src.offset(row * ss[0]), ss[1], dst.offset(row * ds), 1, n[1], (simd, false)) };
    }
}

/// Copies a line; with `streaming`, contiguous lines use non-temporal stores.
///
/// # Safety
/// `n` elements, at least one, are valid at both addresses.
unsafe fn line<W: Copy>(
    src: *const W,
    ss: isize,
    dst: *mut W,
    ds: isize,
    n: usize,
    (simd, streaming): (Simd, bool),
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (ss, ds) {
            (1, 1) if streaming => {
                dispatch(simd, Move { src: src.cast(), dst: dst.cast(), bytes: n * size_of::<W>() });
            }
            (-1, 1) => {
                let from = std::slice::from_raw_parts(src.sub(n - 1), n);
                dispatch(simd, Backwards { from, to: std::slice::from_raw_parts_mut(dst, n) });
            }
            (1, 1) => std::ptr::copy_nonoverlapping(src, dst, n),
            (0, 1) => std::slice::from_raw_parts_mut(dst, n).fill(*src),
            (_, 1) => {
                for i in 0..n {
                    *dst.add(i) = *src.offset(i as isize * ss);
                }
            }
            _ => {
                for i in 0..n {
                    *dst.offset(i as isize * ds) = *src.offset(i as isize * ss);
                }
            }
        }
    }
}

/// Copies elements in reverse.
struct Backwards<'a, W> {
    from: &'a [W],
    to: &'a mut [W],
}

impl<W: Copy> Kernel for Backwards<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (to, from) in self.to.iter_mut().zip(self.from.iter().rev()) {
            *to = *from;
        }
    }
}

/// Copies bytes with non-temporal stores. Both ranges are valid.
struct Move {
    src: *const u8,
    dst: *mut u8,
    bytes: usize,
}

impl Kernel for Move {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { src, dst, bytes } = self;
        let (size, count) = (4 * S::LANES, 4);
        // SAFETY: `line` passes valid ranges; whole vectors begin at multiples of their size.
        unsafe {
            let mut i = dst.align_offset(size).min(bytes);
            std::ptr::copy_nonoverlapping(src, dst, i);
            while i + count * size <= bytes {
                let mut v = [s.zero(); 4];
                for (k, v) in v.iter_mut().enumerate() {
                    *v = s.load(src.add(i + k * size).cast());
                }
                for (k, v) in v.iter().enumerate() {
                    s.stream(dst.add(i + k * size).cast(), *v);
                }
                i += count * size;
            }
            std::ptr::copy_nonoverlapping(src.add(i), dst.add(i), bytes - i);
        }
        s.fence();
    }
}

/// `dst[c * ds + r] = src[r * ss + c]`. All elements are valid.
struct Transpose<W> {
    rows: usize,
    cols: usize,
    src: *const W,
    ss: isize,
    dst: *mut W,
    ds: isize,
    /// Whether to use non-temporal stores.
    streaming: bool,
}

/// A transposed tile, aligned for vectors.
#[repr(align(64))]
struct TransposedTile([f32; 256]);

/// Where the lines of a transposed tile go: line `i` to `dst + i * stride`, in floats of any alignment.
#[derive(Clone, Copy)]
struct TileLines {
    dst: *mut f32,
    stride: usize,
    /// Whether to use non-temporal stores, for which every line is aligned.
    streaming: bool,
}

impl TileLines {
    /// Stores the transpose of `LANES` rows.
    ///
    /// # Safety
    /// All lines are writable.
    #[inline(always)]
    unsafe fn store<S: Isa>(self, s: S, rows: &[S::F; 16], room: &mut TransposedTile) {
        // SAFETY: the caller's promise; the buffer has room for a tile.
        unsafe {
            if !self.streaming {
                return s.transpose(rows, self.dst, self.stride);
            }
            s.transpose(rows, room.0.as_mut_ptr(), S::LANES);
            for i in 0..S::LANES {
                let line = s.load(room.0.as_ptr().add(i * S::LANES));
                s.stream(self.dst.wrapping_add(i * self.stride), line);
            }
        }
    }
}

/// Loads the rows of a tile of 4-byte elements, the first at `from` and the others `step` bytes apart.
///
/// # Safety
/// The rows have `LANES` elements.
#[inline(always)]
unsafe fn tile_rows<S: Isa>(s: S, from: *const u8, step: isize) -> [S::F; 16] {
    let mut rows = [s.zero(); 16];
    for (i, row) in rows.iter_mut().enumerate().take(S::LANES) {
        let line = from.wrapping_offset(i as isize * step);
        // SAFETY: the caller's promise.
        *row = unsafe { s.load(line.cast()) };
    }
    rows
}

/// Loads the even and the odd columns of a tile of 2-byte elements, `2 * LANES` on each side. A lane has the
/// elements of two neighbouring rows, so the transpose of the result has whole lines.
///
/// # Safety
/// The rows have `2 * LANES` elements.
#[inline(always)]
unsafe fn tile_row_pairs<S: Isa>(s: S, from: *const u8, step: isize) -> [[S::F; 16]; 2] {
    const LOW: u32 = 0xffff;
    let mut pairs = [[s.zero(); 16]; 2];
    for i in 0..S::LANES {
        let line = |k: usize| from.wrapping_offset((2 * i + k) as isize * step);
        // SAFETY: the caller's promise.
        let (upper, lower) = unsafe { (s.load(line(0).cast()), s.load(line(1).cast())) };
        pairs[0][i] = s.or(s.bits(upper, 0, LOW), s.bits(lower, -16, !LOW));
        pairs[1][i] = s.or(s.bits(upper, 16, LOW), s.bits(lower, 0, !LOW));
    }
    pairs
}

/// Lines this many bytes apart share few sets of an L1 cache, which the offset in a page selects: they evict
/// each other before their neighbours are written.
const ALIASED_BYTES: usize = 2048;

impl<W: Copy + 'static> Transpose<W> {
    /// Whether the result is better written through a buffer, in long stretches of one line.
    fn is_aliased(&self) -> bool {
        (self.ds.unsigned_abs() * size_of::<W>()).is_multiple_of(ALIASED_BYTES)
    }

    /// Transposes whole vectors, for elements of 2 or 4 bytes and a side of at least `n` elements. The last
    /// tile of a side overlaps the one before it.
    ///
    /// # Safety
    /// All elements are valid.
    #[inline(always)]
    unsafe fn tiles<S: Isa>(&self, s: S, n: usize, streaming: bool, room: &mut TransposedTile) {
        let (size, step) = (size_of::<W>(), self.ss * size_of::<W>() as isize);
        for row in (0..self.rows).step_by(n) {
            let r = row.min(self.rows - n);
            // Other lines of the result are not aligned.
            let streaming = streaming && r == row;
            for column in (0..self.cols).step_by(n) {
                let c = column.min(self.cols - n);
                let from = self.src.wrapping_offset(r as isize * self.ss + c as isize).cast::<u8>();
                let to = self.dst.wrapping_offset(c as isize * self.ds + r as isize);
                // Two lines of 2-byte elements are as long as one of floats.
                let lines = TileLines { dst: to.cast(), stride: self.ds as usize, streaming };
                // SAFETY: the caller's promise; both sides have at least `n` elements.
                unsafe {
                    if size == 4 {
                        lines.store(s, &tile_rows(s, from, step), room);
                    } else {
                        let [even, odd] = tile_row_pairs(s, from, step);
                        lines.store(s, &even, room);
                        let lines = TileLines { dst: to.wrapping_offset(self.ds).cast(), ..lines };
                        lines.store(s, &odd, room);
                    }
                }
            }
        }
    }

    /// The part of the matrix with these rows and columns, written to `dst`, whose lines are `ds` apart.
    fn part(&self, rows: (usize, usize), cols: (usize, usize), dst: *mut W, ds: isize) -> Self {
        let src = self.src.wrapping_offset(rows.0 as isize * self.ss + cols.0 as isize);
        Self { rows: rows.1, cols: cols.1, src, ss: self.ss, dst, ds, streaming: self.streaming }
    }

    /// Where an element of the result lies.
    fn to(&self, row: usize, column: usize) -> *mut W {
        self.dst.wrapping_offset(column as isize * self.ds + row as isize)
    }
}

impl<W: Copy + 'static> Kernel for Transpose<W> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { rows, cols, src, ss, dst, ds, streaming } = self;
        let size = size_of::<W>();
        // Elements of a vector: the side of a tile.
        let n = if size < 4 { 4 * S::LANES / size } else { S::LANES };
        if !(matches!(size, 2 | 4) && ds > 0 && rows >= n && cols >= n) {
            for c0 in (0..cols).step_by(TILE) {
                for r in 0..rows {
                    for c in c0..cols.min(c0 + TILE) {
                        // SAFETY: all elements of the matrix are valid.
                        unsafe { *self.to(r, c) = *src.offset(r as isize * ss + c as isize) };
                    }
                }
            }
            return;
        }
        // Whether whole vectors of every line are aligned.
        let lines = dst.addr().is_multiple_of(4 * S::LANES) && ds.unsigned_abs().is_multiple_of(n);
        let streaming = streaming && lines;
        let mut tile = TransposedTile([0.0; 256]);
        if !self.is_aliased() {
            let band = cols.min(BAND_BYTES / size);
            for c0 in (0..cols).step_by(band) {
                let c0 = c0.min(cols - n);
                let band = band.min(cols - c0);
                // SAFETY: all elements of the matrix are valid.
                unsafe {
                    self.part((0, rows), (c0, band), self.to(0, c0), ds).tiles(s, n, streaming, &mut tile)
                };
            }
        } else {
            let (height, band) = (rows.min(RUN_BYTES / size), cols.min(TILE));
            // Lines of the buffer do not share sets either.
            let step = RUN_BYTES / size + n;
            let room = Scratch::<W>::new(band * step);
            for c0 in (0..cols).step_by(band) {
                let c0 = c0.min(cols - n);
                let band = band.min(cols - c0);
                for r0 in (0..rows).step_by(height) {
                    let r0 = r0.min(rows - n);
                    let height = height.min(rows - r0);
                    let part = self.part((r0, height), (c0, band), room.ptr(), step as isize);
                    // SAFETY: all elements of the matrix are valid, and the buffer has room for the part.
                    unsafe {
                        part.tiles(s, n, false, &mut tile);
                        for line in 0..band {
                            let (from, to) = (room.ptr().add(line * step), self.to(r0, c0 + line));
                            let aligned = streaming && r0.is_multiple_of(n);
                            copy_line(s, from.cast(), to.cast(), height * size, aligned);
                        }
                    }
                }
            }
        }
        if streaming {
            s.fence();
        }
    }
}

/// Copies bytes in whole vectors, the last of which overlaps the one before it. `aligned`: with non-temporal
/// stores.
///
/// # Safety
/// Both ranges are valid, as long as a vector at least, and disjoint.
#[inline(always)]
unsafe fn copy_line<S: Isa>(s: S, from: *const u8, to: *mut u8, bytes: usize, aligned: bool) {
    let vector = 4 * S::LANES;
    for at in (0..bytes).step_by(vector) {
        let i = at.min(bytes - vector);
        // SAFETY: the caller's promise.
        unsafe {
            let v = s.load(from.add(i).cast());
            if aligned && i == at { s.stream(to.add(i).cast(), v) } else { s.store(to.add(i).cast(), v) }
        }
    }
}
