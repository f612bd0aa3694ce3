//! The loops of all reductions.
//!
//! A result is cut into segments of fixed length, each folded in lanes and blocks, and the segments are
//! combined as a tree. Cuts depend on shapes alone: the same numbers come out whatever the number of
//! threads. Where results lie side by side in memory they are computed side by side, row upon row; else
//! each is folded for itself.

use bytemuck::{Pod, Zeroable};

use super::layout::{Layout, locate};
use crate::ops::native::{GRAIN, par_chunks_mut, par_pieces};

/// Independent accumulators of a fold, so that it fills the vector units.
const LANES: usize = 16;
/// Elements added one after the other to one accumulator before it is added to the total.
const BLOCK: usize = 64;
/// Most results that are computed side by side by one task.
const WIDTH: usize = 2048;

/// How elements are combined.
pub(in crate::ops) trait Reducer: Sync {
    /// An element.
    type In: Pod + Send + Sync;
    /// What elements are combined in.
    type Acc: Copy + Send + Sync;
    /// A result.
    type Out: Pod + Send + Sync;

    /// What changes nothing.
    fn identity(&self) -> Self::Acc;
    /// An element, the `at`-th of its result.
    fn load(&self, x: Self::In, at: usize) -> Self::Acc;
    /// Two combined.
    fn combine(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The result.
    fn finish(&self, acc: Self::Acc) -> Self::Out;

    /// All elements of a row, of which the first is the `start`-th of its result.
    #[inline]
    fn fold(&self, row: &[Self::In], start: usize) -> Self::Acc {
        let mut total = [self.identity(); LANES];
        if row.len() < LANES {
            let mut acc = total[0];
            for (at, x) in row.iter().enumerate() {
                acc = self.combine(acc, self.load(*x, start + at));
            }
            return acc;
        }
        for (number, block) in row.chunks(LANES * BLOCK).enumerate() {
            let mut acc = [self.identity(); LANES];
            let first = start + number * LANES * BLOCK;
            let (chunks, rest) = block.as_chunks::<LANES>();
            for (chunk_at, chunk) in chunks.iter().enumerate() {
                for lane in 0..LANES {
                    acc[lane] =
                        self.combine(acc[lane], self.load(chunk[lane], first + chunk_at * LANES + lane));
                }
            }
            for (lane, x) in rest.iter().enumerate() {
                acc[lane] = self.combine(acc[lane], self.load(*x, first + chunks.len() * LANES + lane));
            }
            for lane in 0..LANES {
                total[lane] = self.combine(total[lane], acc[lane]);
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                total[lane] = self.combine(total[lane], total[lane + half]);
            }
            half /= 2;
        }
        total[0]
    }
}

/// Computes all results.
pub(super) fn run<R: Reducer>(reducer: &R, layout: &Layout, x: &[R::In], out: &mut [R::Out]) {
    if out.is_empty() {
        return;
    }
    if layout.length() == 0 {
        return out.fill(reducer.finish(reducer.identity()));
    }
    match layout.width() {
        Some(_) => side_by_side(reducer, layout, x, out),
        None => one_by_one(reducer, layout, x, out),
    }
}

/// Each result is folded for itself.
fn one_by_one<R: Reducer>(reducer: &R, layout: &Layout, x: &[R::In], out: &mut [R::Out]) {
    let length = layout.length();
    let segments = length.div_ceil(GRAIN);
    let segment = |item: usize| {
        let (output, number) = (item / segments, item % segments);
        let start = number * GRAIN;
        fold_range(reducer, layout, x, locate(&layout.kept, output), start, length.min(start + GRAIN))
    };
    if segments == 1 {
        let grain = (GRAIN / length).max(1);
        return par_chunks_mut(out, grain, |task, chunk| {
            for (at, result) in chunk.iter_mut().enumerate() {
                *result = reducer.finish(segment(task * grain + at));
            }
        });
    }
    let mut partial = vec![reducer.identity(); out.len() * segments];
    par_chunks_mut(&mut partial, 1, |task, chunk| chunk[0] = segment(task));
    tree(reducer, &mut partial, segments, 1, out);
}

/// The elements `start..end` of the result whose first element is at `base`.
fn fold_range<R: Reducer>(
    reducer: &R,
    layout: &Layout,
    x: &[R::In],
    base: usize,
    start: usize,
    end: usize,
) -> R::Acc {
    let (outer, inner) = layout.reduced.split_at(layout.reduced.len() - 1);
    let (length, stride) = inner[0];
    let (mut total, mut acc, mut rows) = (reducer.identity(), reducer.identity(), 0);
    let mut at = start;
    while at < end {
        let column = at % length;
        let take = (length - column).min(end - at);
        let first = base + locate(outer, at / length) + column * stride;
        let row = if stride == 1 {
            reducer.fold(&x[first..first + take], at)
        } else {
            fold_strided(reducer, x, first, stride, take, at)
        };
        acc = reducer.combine(acc, row);
        rows += 1;
        if rows % BLOCK == 0 {
            total = reducer.combine(total, acc);
            acc = reducer.identity();
        }
        at += take;
    }
    reducer.combine(total, acc)
}

/// Elements with gaps are gathered first.
fn fold_strided<R: Reducer>(
    reducer: &R,
    x: &[R::In],
    first: usize,
    stride: usize,
    count: usize,
    start: usize,
) -> R::Acc {
    let mut gathered = [R::In::zeroed(); LANES * BLOCK];
    let mut acc = reducer.identity();
    let mut done = 0;
    while done < count {
        let take = (count - done).min(gathered.len());
        for (at, slot) in gathered[..take].iter_mut().enumerate() {
            *slot = x[first + (done + at) * stride];
        }
        acc = reducer.combine(acc, reducer.fold(&gathered[..take], start + done));
        done += take;
    }
    acc
}

/// Neighbouring results are computed together.
fn side_by_side<R: Reducer>(reducer: &R, layout: &Layout, x: &[R::In], out: &mut [R::Out]) {
    let (outer, inner) = layout.kept.split_at(layout.kept.len() - 1);
    let (width, step) = inner[0];
    let length = layout.length();
    let cell = width.min(WIDTH);
    // Rows of a segment: a multiple of the block, and at most as many blocks as a block has rows.
    let rows = (4 * GRAIN / cell).next_multiple_of(BLOCK).min(BLOCK * BLOCK);
    let segments = length.div_ceil(rows);
    let compute = |line: usize, column: usize, acc: &mut [R::Acc], scratch: &mut Vec<R::Acc>| {
        let base = locate(outer, line / segments) + column * step;
        let start = (line % segments) * rows;
        accumulate(reducer, layout, x, base, step, start..length.min(start + rows), acc, scratch);
    };
    // One task takes several narrow lines, or a part of a wide one.
    let lines = (GRAIN / (cell * length.min(rows)).max(1)).max(1);
    if segments == 1 {
        let pieces = cut(out, width, cell, lines);
        return par_pieces(pieces, |_, (line, column, piece)| {
            let (mut acc, mut scratch) = (vec![reducer.identity(); cell], Vec::new());
            for (number, part) in piece.chunks_mut(cell).enumerate() {
                let acc = &mut acc[..part.len()];
                compute(line + number, column, acc, &mut scratch);
                for (result, acc) in part.iter_mut().zip(acc) {
                    *result = reducer.finish(*acc);
                }
            }
        });
    }
    let mut partial = vec![reducer.identity(); out.len() * segments];
    par_pieces(cut(&mut partial, width, cell, lines), |_, (line, column, piece)| {
        let mut scratch = Vec::new();
        for (number, part) in piece.chunks_mut(cell).enumerate() {
            compute(line + number, column, part, &mut scratch);
        }
    });
    tree(reducer, &mut partial, segments, width, out);
}

/// Cuts lines of `width` elements into pieces of several whole lines, or of one part of a line that is
/// `cell` wide. Each piece comes with its first line and column.
fn cut<T>(all: &mut [T], width: usize, cell: usize, lines: usize) -> Vec<(usize, usize, &mut [T])> {
    if cell == width {
        return all.chunks_mut(width * lines).enumerate().map(|(at, piece)| (at * lines, 0, piece)).collect();
    }
    let part = |line: usize, (at, piece)| (line, at * cell, piece);
    all.chunks_mut(width)
        .enumerate()
        .flat_map(|(line, whole)| {
            whole.chunks_mut(cell).enumerate().map(move |at_piece| part(line, at_piece))
        })
        .collect()
}

/// Rows are combined element by element into `acc`.
fn accumulate<R: Reducer>(
    reducer: &R,
    layout: &Layout,
    x: &[R::In],
    base: usize,
    step: usize,
    rows: std::ops::Range<usize>,
    acc: &mut [R::Acc],
    scratch: &mut Vec<R::Acc>,
) {
    let width = acc.len();
    acc.fill(reducer.identity());
    let row_at = |row: usize| {
        let first = base + locate(&layout.reduced, row);
        &x[first..first + (width - 1) * step + 1]
    };
    let mut start = rows.start;
    while start < rows.end {
        let end = rows.end.min(start + BLOCK);
        // The first block goes to its place, later ones are summed up beside it first.
        let first = start == rows.start;
        if !first {
            scratch.clear();
            scratch.resize(width, reducer.identity());
        }
        let target: &mut [R::Acc] = if first { acc } else { scratch };
        let mut at = start;
        while at + 4 <= end && step == 1 {
            let (a, b, c, d) = (row_at(at), row_at(at + 1), row_at(at + 2), row_at(at + 3));
            for (((t, a), b), (c, d)) in target.iter_mut().zip(a).zip(b).zip(c.iter().zip(d)) {
                let left = reducer.combine(reducer.load(*a, at), reducer.load(*b, at + 1));
                let right = reducer.combine(reducer.load(*c, at + 2), reducer.load(*d, at + 3));
                *t = reducer.combine(*t, reducer.combine(left, right));
            }
            at += 4;
        }
        while at < end {
            for (t, a) in target.iter_mut().zip(row_at(at).iter().step_by(step.max(1))) {
                *t = reducer.combine(*t, reducer.load(*a, at));
            }
            at += 1;
        }
        if !first {
            for (t, s) in acc.iter_mut().zip(scratch.iter()) {
                *t = reducer.combine(*t, *s);
            }
        }
        start = end;
    }
}

/// Combines the segments of each result: lines of `width`, `segments` of them for each line of `out`.
fn tree<R: Reducer>(reducer: &R, partial: &mut [R::Acc], segments: usize, width: usize, out: &mut [R::Out]) {
    for (all, results) in partial.chunks_mut(segments * width).zip(out.chunks_mut(width)) {
        let mut step = 1;
        while step < segments {
            for at in (0..segments - step).step_by(2 * step) {
                let (left, right) = all.split_at_mut((at + step) * width);
                for (a, b) in left[at * width..][..width].iter_mut().zip(&right[..width]) {
                    *a = reducer.combine(*a, *b);
                }
            }
            step *= 2;
        }
        for (result, acc) in results.iter_mut().zip(all.iter()) {
            *result = reducer.finish(*acc);
        }
    }
}
