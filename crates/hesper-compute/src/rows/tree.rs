//! How reductions are split into tasks, and partial results combined.
//!
//! Splits depend on shapes only, so results do not depend on the number of threads.

use std::ops::Range;

use super::input::{ReduceInput, SumOrder, Tile, packed_width};
use super::source::{PIECE, PackedLines, Plain, RowScratch, Source, pieces};
use crate::par::{Par, Shared, chunks, grain};
use crate::scratch::Scratch;
use crate::simd::Simd;

/// Elements per task.
const GRAIN: usize = 16384;
/// Results whose ranges one task combines.
const JOIN_GRAIN: usize = 1024;

/// A reduction.
pub(super) trait Reducer: Copy + Sync {
    /// The element type.
    type In: Plain;
    /// The accumulator type.
    type Acc: Copy + Send + Sync;
    /// Most elements of a row per call of [`rows`](Self::rows).
    const PART: usize = PIECE;
    /// Most rows and columns of a tile.
    const RANGE: usize;
    const STRIP: usize;

    /// The result of no elements.
    fn empty(self) -> Self::Acc;
    /// Reduces contiguous rows of `len` elements to a result each.
    fn rows(self, simd: Simd, x: &[Self::In], len: usize, out: &mut [Self::Acc]);
    /// Reduces a part of a row that lies in lines to one result. False if it does not.
    fn packed(self, _simd: Simd, _x: PackedLines<'_, Self::In>, _out: &mut [Self::Acc]) -> bool {
        false
    }
    /// Reduces columns whose elements `rows` are contiguous to a result each, in the order of
    /// [`columns`](Self::columns). False if it does not.
    fn lines(
        self,
        _simd: Simd,
        _x: &ReduceInput<'_, Self::In>,
        _columns: Range<usize>,
        _rows: Range<usize>,
        _out: &mut [Self::Acc],
    ) -> bool {
        false
    }
    /// Reduces a tile to a result for each column.
    fn columns(self, simd: Simd, tile: &Tile<'_, Self::In>, out: &mut [Self::Acc]);
    /// Combines the partial results of a result, each of `part` elements.
    fn join(self, result: usize, part: usize, parts: &mut [Self::Acc]) -> Self::Acc;
    /// [`join`](Self::join) for neighbouring results: a line has the same part of each. False if the reduction
    /// joins them one by one.
    fn join_lines(self, _simd: Simd, _lines: &mut [&mut [Self::Acc]]) -> bool {
        false
    }
}

/// Combines neighbours until one is left.
pub(super) fn pairwise<A: Copy>(parts: &mut [A], join: impl Fn(A, A) -> A) -> A {
    let mut n = parts.len();
    while n > 1 {
        for i in 0..n / 2 {
            parts[i] = join(parts[2 * i], parts[2 * i + 1]);
        }
        if n % 2 == 1 {
            parts[n / 2] = parts[n - 1];
        }
        n = n.div_ceil(2);
    }
    parts[0]
}

/// Reduces strided memory in the order of the input.
pub(super) fn reduce<R: Reducer>(par: &dyn Par, r: R, x: &ReduceInput<'_, R::In>, out: &mut [R::Acc]) {
    match x.order() {
        SumOrder::Rows => by_rows(par, r, x, x.row_len(), out),
        SumOrder::Columns => by_columns(par, r, x, out),
    }
}

/// Reduces rows of `len` elements to a result each.
pub(super) fn by_rows<R: Reducer>(
    par: &dyn Par,
    r: R,
    x: &dyn Source<R::In>,
    len: usize,
    out: &mut [R::Acc],
) {
    if len == 0 {
        return out.fill(r.empty());
    }
    let (simd, results) = (par.simd(), out.len());
    if len <= R::PART {
        let to = Shared::new(out.as_mut_ptr());
        let chunk = grain(par, results, (GRAIN / len).max(1));
        return chunks(par, results, chunk, |a, b| {
            pieces(x, len, (a, b), &mut RowScratch::default(), |first, rows, piece| {
                // SAFETY: rows are this task's own.
                r.rows(simd, piece, len, unsafe { to.slice(first, rows) });
            });
        });
    }
    let parts = len.div_ceil(R::PART);
    let partial = Scratch::<R::Acc>::new(results * parts);
    let found = Shared::new(partial.ptr());
    // A task processes as many parts as a piece has, but down to a quarter of them if threads had no task.
    let most = (x.piece_len(len) / R::PART).max(1);
    let at_once = (results * parts).div_ceil(par.threads().max(1)).clamp(most.div_ceil(4), most);
    let tasks = parts.div_ceil(at_once);
    par.run(results * tasks, &|task| {
        let (result, part) = (task / tasks, task % tasks * at_once);
        let (first, end) = (part * R::PART, len.min((part + at_once) * R::PART));
        let mut room = RowScratch::default();
        let mut joined = RowScratch::default();
        x.parts(result * len + first, end - first, R::PART, &mut room, &mut |i, elements| {
            // SAFETY: parts are this task's own.
            let out = unsafe { found.slice(result * parts + part + i, 1) };
            if let Some(row) = elements.as_slice() {
                r.rows(simd, row, row.len(), out);
            } else if !r.packed(simd, elements, out) {
                let row = joined.take(elements.count);
                elements.join(row);
                r.rows(simd, row, row.len(), out);
            }
        });
    });
    for (result, out) in out.iter_mut().enumerate() {
        // SAFETY: all parts were written.
        *out = r.join(result, R::PART, unsafe { found.slice(result * parts, parts) });
    }
}

/// Reduces tiles of neighbouring results.
pub(super) fn by_columns<R: Reducer>(par: &dyn Par, r: R, x: &ReduceInput<'_, R::In>, out: &mut [R::Acc]) {
    let len = x.row_len();
    if len == 0 || out.is_empty() {
        return out.fill(r.empty());
    }
    let simd = par.simd();
    let (inner, strip) = match x.side_by_side() {
        Some(inner) => (inner, R::STRIP),
        None => (out.len(), packed_width(R::RANGE.min(len))),
    };
    // Otherwise columns are counted within a block.
    let lines = x.side_by_side().is_none();
    let outer = out.len() / inner;
    let (ranges, strips) = (len.div_ceil(R::RANGE), inner.div_ceil(strip));
    let partial = Scratch::<R::Acc>::new(if ranges > 1 { outer * ranges * inner } else { 0 });
    let to = Shared::new(out.as_mut_ptr());
    let found = if ranges > 1 { Shared::new(partial.ptr()) } else { to };
    let group = (GRAIN / (len.min(R::RANGE) * inner.min(strip))).max(1);
    chunks(par, outer * ranges * strips, group, |a, b| {
        let mut room = RowScratch::default();
        for task in a..b {
            let (o, range, s) = (task / (ranges * strips), task / strips % ranges, task % strips);
            let columns = s * strip..inner.min((s + 1) * strip);
            let rows = range * R::RANGE..len.min((range + 1) * R::RANGE);
            // SAFETY: this part of the results is the task's own.
            let out = unsafe { found.slice((o * ranges + range) * inner + columns.start, columns.len()) };
            if lines && x.has_lines(&rows) && r.lines(simd, x, columns.clone(), rows.clone(), out) {
                continue;
            }
            r.columns(simd, &x.tile(simd, o, columns, rows, &mut room), out);
        }
    });
    if ranges > 1 {
        let blocks = inner.div_ceil(JOIN_GRAIN);
        chunks(par, outer * blocks, (JOIN_GRAIN / inner).max(1), |a, b| {
            let (mut lines, mut parts) = (Vec::with_capacity(ranges), vec![r.empty(); ranges]);
            for task in a..b {
                let (o, first) = (task / blocks, task % blocks * JOIN_GRAIN);
                let n = JOIN_GRAIN.min(inner - first);
                lines.clear();
                // SAFETY: all parts were written; every task joins and writes its own results.
                let out = unsafe {
                    lines.extend(
                        (0..ranges).map(|range| found.slice((o * ranges + range) * inner + first, n)),
                    );
                    to.slice(o * inner + first, n)
                };
                if r.join_lines(simd, &mut lines) {
                    out.copy_from_slice(lines[0]);
                    continue;
                }
                for (j, out) in out.iter_mut().enumerate() {
                    for (part, line) in parts.iter_mut().zip(&lines) {
                        *part = line[j];
                    }
                    *out = r.join(o * inner + first + j, R::RANGE, &mut parts);
                }
            }
        });
    }
}

/// [`pairwise`] for each element of lines. The result is in the first one.
pub(super) fn pairwise_lines<A>(lines: &mut [&mut [A]], join: impl Fn(&mut [A], &[A])) {
    let mut step = 1;
    while step < lines.len() {
        for pair in lines.chunks_mut(2 * step) {
            if let Some((first, rest)) = pair.split_first_mut()
                && let Some(second) = rest.get(step - 1)
            {
                join(first, second);
            }
        }
        step *= 2;
    }
}
