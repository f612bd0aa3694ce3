//! The input of a reduction: strided memory, read as contiguous rows or as tiles of neighbouring results.
//!
//! Kernels see contiguous memory only. Contiguous input is used in place; anything else is packed in the
//! cache, one row or tile at a time. Packing does not change the order of elements.

use std::ops::Range;

use super::source::{PIECE, PackedLines, Plain, RowScratch, Source};
use crate::copy::copy_box;
use crate::error::Mismatch;
use crate::simd::Simd;
use crate::strided::{self, Dim, joined_dims, locate};

/// Elements of the largest packed row.
const LARGEST_PIECE: usize = 1 << 20;
/// Elements of a packed tile.
const PACKED_TILE: usize = 1 << 15;
/// Rows of at least this length are read in place one by one; shorter ones are packed together.
const LONG_ROW: usize = 256;
/// Elements that share a cache line.
const LINE: usize = 16;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Bytes that are read together where a row is packed across memory: four cache lines, so that tasks of a
/// quarter of a piece still read whole ones.
const ACROSS_BYTES: usize = 256;

/// The order in which a result combines its elements, which are indexed in row-major order of the reduced
/// axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumOrder {
    /// As elements of a row: 64 lanes in blocks of 4096 elements, blocks pairwise.
    Rows,
    /// As elements of a column among others: groups of four in runs of 32, runs in ranges of 512, ranges
    /// pairwise.
    Columns,
}

/// The input of a reduction.
#[derive(Clone, Debug)]
pub struct ReduceInput<'a, T> {
    x: &'a [T],
    offset: isize,
    kept: &'a [Dim],
    reduced: &'a [Dim],
    /// Kept, then reduced axes, merged.
    all: Vec<Dim>,
    order: SumOrder,
    results: usize,
    len: usize,
}

impl<'a, T: Plain> ReduceInput<'a, T> {
    /// Elements of `x` from `offset` on: the kept axes, outermost first, and the reduced axes. If `order` is
    /// `None`, the order that reads memory best is used.
    pub fn new(
        x: &'a [T],
        offset: usize,
        kept: &'a [Dim],
        reduced: &'a [Dim],
        order: Option<SumOrder>,
    ) -> Result<Self, Mismatch> {
        let axes = || kept.iter().chain(reduced);
        strided::within(offset as isize, axes().copied(), x.len())?;
        let all = joined_dims(axes().copied()).collect();
        let order = order.unwrap_or_else(|| {
            let inner = reduced.last().map_or(1, |dim| dim.stride.unsigned_abs());
            match kept.last() {
                Some(dim) if inner == 0 || dim.stride.unsigned_abs() < inner => SumOrder::Columns,
                _ => SumOrder::Rows,
            }
        });
        let [results, len] = [kept, reduced].map(|dims| dims.iter().map(|dim| dim.len).product());
        Ok(Self { x, offset: offset as isize, kept, reduced, all, order, results, len })
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.results
    }

    /// How many elements are reduced to each result.
    pub(super) fn row_len(&self) -> usize {
        self.len
    }

    pub(super) fn order(&self) -> SumOrder {
        self.order
    }

    /// Element `element` of result `result`.
    pub(super) fn value(&self, result: usize, element: usize) -> T {
        self.x[(self.offset + locate(self.kept, result) + locate(self.reduced, element)) as usize]
    }

    /// How many neighbouring results are adjacent in memory.
    pub(super) fn side_by_side(&self) -> Option<usize> {
        self.kept.last().filter(|dim| dim.stride == 1).map(|dim| dim.len)
    }

    /// Whether rows are better read across than along: neighbouring results are adjacent in memory, elements
    /// of a row are not.
    pub(super) fn is_strided_across(&self) -> bool {
        let inner = self.reduced.last().map_or(1, |dim| dim.stride.unsigned_abs());
        inner != 1 && self.side_by_side().is_some_and(|width| width >= LINE)
    }

    /// Whether the elements `rows` of each result are contiguous.
    pub(super) fn has_lines(&self, rows: &Range<usize>) -> bool {
        let Some(inner) = self.reduced.last() else { return false };
        inner.stride == 1 && !rows.is_empty() && rows.start / inner.len == (rows.end - 1) / inner.len
    }

    /// The elements `rows` of a result, which are contiguous ([`has_lines`](Self::has_lines)).
    #[inline]
    pub(super) fn line(&self, result: usize, rows: Range<usize>) -> &'a [T] {
        let at = self.offset + locate(self.kept, result) + locate(self.reduced, rows.start);
        &self.x[at as usize..][..rows.len()]
    }

    /// The elements `rows` of neighbouring results. If results are adjacent in memory, `columns` are those of
    /// block `outer` of the last kept axis; otherwise `columns` counts all results.
    pub(super) fn tile<'t>(
        &'t self,
        simd: Simd,
        outer: usize,
        columns: Range<usize>,
        rows: Range<usize>,
        room: &'t mut RowScratch,
    ) -> Tile<'t, T> {
        let width = columns.len();
        if self.side_by_side().is_some() {
            let blocks = &self.kept[..self.kept.len() - 1];
            let base = self.offset + locate(blocks, outer) + columns.start as isize;
            return Tile { x: self.x, base, dims: self.reduced, first: rows.start, rows: rows.len(), width };
        }
        const ONE: Dim = Dim { len: 1, stride: 0 };
        let packed = room.take::<T>(rows.len() * width);
        let (&kept, kept_outer) = self.kept.split_last().unwrap_or((&ONE, &[]));
        let (&reduced, reduced_outer) = self.reduced.split_last().unwrap_or((&ONE, &[]));
        for (column, n, at) in runs(kept, columns.clone()) {
            let from = self.offset + locate(kept_outer, column / kept.len) + at;
            for (row, m, at) in runs(reduced, rows.clone()) {
                let from = from + locate(reduced_outer, row / reduced.len) + at;
                let to = (row - rows.start) * width + column - columns.start;
                // SAFETY: `new` has checked that all elements lie within `x`; the box lies within the tile.
                unsafe {
                    let (src, dst) = (self.x.as_ptr().offset(from), packed.as_mut_ptr().add(to));
                    copy_box(simd, [m, n], src, [reduced.stride, kept.stride], dst, width);
                }
            }
        }
        Tile { x: packed, base: 0, dims: &[], first: 0, rows: rows.len(), width }
    }

    /// Packs whole lines of the last axis from line `first` on, `step` elements apart.
    fn pack_lines(&self, first: usize, to: &mut [T], step: usize) {
        let simd = Simd::detect();
        let Some((&inner, outer)) = self.all.split_last() else { return };
        let Some(&across) = outer.last() else { return };
        let (mut line, end) = (first, first + to.len() / step);
        while line < end {
            let lines = (across.len - line % across.len).min(end - line);
            let box_to = &mut to[(line - first) * step..][..lines * step];
            // SAFETY: `new` has checked that all elements lie within `x`; the box fills its part of `to`.
            unsafe {
                let src = self.x.as_ptr().offset(self.offset + locate(&self.all, line * inner.len));
                let strides = [across.stride, inner.stride];
                copy_box(simd, [lines, inner.len], src, strides, box_to.as_mut_ptr(), step);
            }
            line += lines;
        }
    }

    /// Packs elements from index `first` on, in row-major order through kept and reduced axes.
    fn pack(&self, first: usize, to: &mut [T]) {
        let simd = Simd::detect();
        let Some((&inner, outer)) = self.all.split_last() else {
            return to.fill(self.x[self.offset as usize]);
        };
        let mut done = 0;
        while done < to.len() {
            let (at, left) = (first + done, to.len() - done);
            // Whole lines of the last axis form a box with those of the axis before.
            let lines = match outer.last() {
                Some(dim) if at % inner.len == 0 => {
                    (dim.len - at / inner.len % dim.len).min(left / inner.len)
                }
                _ => 0,
            };
            let (lines, n) =
                if lines > 1 { (lines, inner.len) } else { (1, left.min(inner.len - at % inner.len)) };
            let stride = outer.last().map_or(0, |dim| dim.stride);
            let box_to = &mut to[done..done + lines * n];
            // SAFETY: `new` has checked that all elements lie within `x`; the box fills its part of `to`.
            unsafe {
                let src = self.x.as_ptr().offset(self.offset + locate(&self.all, at));
                copy_box(simd, [lines, n], src, [stride, inner.stride], box_to.as_mut_ptr(), n);
            }
            done += lines * n;
        }
    }
}

/// The distance of packed lines of `len` elements: an odd number of cache lines, so that elements which are
/// stored together do not compete for the same lines of a cache.
fn line_step<T>(len: usize) -> usize {
    ((len * size_of::<T>()).div_ceil(CACHE_LINE) | 1) * (CACHE_LINE / size_of::<T>())
}

/// How many results a packed tile of `rows` elements each has.
pub(super) fn packed_width(rows: usize) -> usize {
    (PACKED_TILE / rows).max(LINE)
}

/// Splits a range of elements where the innermost axis ends: first element, length and offset along that
/// axis.
fn runs(dim: Dim, range: Range<usize>) -> impl Iterator<Item = (usize, usize, isize)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (first, inside) = (at, at % dim.len);
        at = range.end.min(first + dim.len - inside);
        (first < at).then(|| (first, at - first, inside as isize * dim.stride))
    })
}

impl<T: Plain> Source<T> for ReduceInput<'_, T> {
    fn count(&self) -> usize {
        self.results * self.len
    }

    fn piece<'a>(&'a self, at: usize, len: usize, room: &'a mut RowScratch) -> &'a [T] {
        if let Some(inner) = self.all.last()
            && inner.stride == 1
            && at % inner.len + len <= inner.len
        {
            return &self.x[(self.offset + locate(&self.all, at)) as usize..][..len];
        }
        let packed = room.take(len);
        self.pack(at, packed);
        packed
    }

    fn parts(
        &self,
        at: usize,
        len: usize,
        part: usize,
        room: &mut RowScratch,
        f: &mut dyn FnMut(usize, PackedLines<'_, T>),
    ) {
        // Lines that are adjacent in memory are packed whole, because elements of a line are far from each
        // other.
        let across = |[outer, inner]: [Dim; 2]| outer.stride == 1 && inner.stride != 1 && inner.len <= len;
        let lines = match self.all.last_chunk() {
            Some(&last @ [_, inner]) if across(last) => {
                let (first, end) = (at / inner.len, (at + len).div_ceil(inner.len));
                let step = line_step::<T>(inner.len);
                let packed = room.take((end - first) * step);
                self.pack_lines(first, packed, step);
                PackedLines { x: packed, len: inner.len, step, first: at % inner.len, count: len }
            }
            _ => PackedLines { x: self.piece(at, len, room), len, step: len, first: 0, count: len },
        };
        for (i, first) in (0..len).step_by(part).enumerate() {
            f(i, lines.range(first..len.min(first + part)));
        }
    }

    fn piece_len(&self, row: usize) -> usize {
        let Some((inner, outer)) = self.all.split_last() else { return PIECE };
        if inner.stride == 1 {
            return match inner.len {
                n if n == row && (LONG_ROW..=PIECE).contains(&row) => row,
                n if n >= row && row > PIECE => 4 * PIECE,
                _ => PIECE,
            };
        }
        let across = |dim: &Dim| dim.stride != 0 && dim.stride.unsigned_abs() < inner.stride.unsigned_abs();
        if !outer.iter().any(across) {
            return PIECE;
        }
        // Read neighbours in memory together, even if they go to other lines of the packed row.
        let lines = ACROSS_BYTES / size_of::<T>();
        (lines * inner.len).next_multiple_of(PIECE).min(LARGEST_PIECE)
    }
}

/// Rows of neighbouring results: row `k` has element `k` of each.
#[derive(Clone, Copy)]
pub(super) struct Tile<'t, T> {
    x: &'t [T],
    base: isize,
    /// The axes that rows are counted by; empty if rows are contiguous.
    dims: &'t [Dim],
    first: usize,
    pub(super) rows: usize,
    pub(super) width: usize,
}

impl<'t, T> Tile<'t, T> {
    /// A tile of contiguous rows.
    pub(super) fn packed(x: &'t [T], width: usize) -> Self {
        Self { x, base: 0, dims: &[], first: 0, rows: x.len() / width, width }
    }

    #[inline(always)]
    pub(super) fn row(&self, k: usize) -> &'t [T] {
        let at = match self.dims {
            [] => self.base as usize + k * self.width,
            [dim] => (self.base + (self.first + k) as isize * dim.stride) as usize,
            dims => (self.base + locate(dims, self.first + k)) as usize,
        };
        &self.x[at..at + self.width]
    }
}
