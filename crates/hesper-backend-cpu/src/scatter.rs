//! Scatters: updates are combined with the slices that index arrays select, in the order of the indices.

use std::ops::Range;

use crate::walk::{CopyOnWrite, Cursor, GRAIN, Strided, collapse, each_row, par_chunks};
use hesper_compute::Par;
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::index_arrays::IndexedAxis;
use hesper_core::ops::scatter::Scatter;
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::{Shape, Strides, row_major};

use crate::Cpu;
use crate::combine::{Combiner, with_combiner};
use crate::copy::Carrier;
use crate::index_arrays::IndexArrays;

/// Threads split the output only if a slice has at least this many contiguous elements.
const MIN_SHARED_WIDTH: usize = 16;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Scatter>()
}

impl Lower<Scatter> for Cpu {
    fn lower(op: &Scatter, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_combiner!(l.dtype(), run(op, l)).map(Some)
    }
}

/// The updates, in row-major order if they are many and lie across memory: each element of a slice would be
/// on a cache line of its own.
fn updates_of(l: &Lowering<'_>) -> Result<Strided> {
    let given = Strided::input(l, 1);
    let innermost = given.shape.iter().zip(given.strides()).rev().find(|(length, _)| **length != 1);
    let across = innermost.is_some_and(|(_, stride)| stride.unsigned_abs() > 1);
    if across && given.shape.iter().product::<usize>() >= GRAIN {
        Strided::row_major(l, 1)
    } else {
        Ok(given)
    }
}

fn run<T: Carrier>(op: &Scatter, l: &Lowering<'_>, combine: Combiner<T>) -> Result<Data> {
    let (axes, mode) = (op.axes.clone(), op.mode.on(l.dtype()));
    let (updates, lists) = (updates_of(l)?, IndexArrays::inputs(l, 2));
    let result = CopyOnWrite::of(l)?;
    let shape: Shape = l.shape().into();
    let (result_, updates_, lists_) = (result.access(), updates.layout(), lists.layout());
    let encoder = l.stream().command("scatter").read_range(&updates.data.buffer, updates.bytes.clone());
    result.bind(lists.read(encoder)).run(move |native| {
        let (updates, lists) = (updates_, lists_);
        let (to, views) = result_.open::<T>(native.views())?;
        let new = views[0].as_slice::<T>()?;
        if to.is_empty() || new.is_empty() {
            return Ok(());
        }
        let rank = updates.shape.len() - shape.len();
        let (points, sizes) = updates.shape.split_at(rank);
        let (point_strides, size_strides) = updates.strides.split_at(rank);
        let into = row_major(&shape);
        let indexed =
            |axis: &usize| IndexedAxis { length: shape[*axis], size: sizes[*axis], stride: into[*axis] };
        let offsets = lists.open(&views[1..], axes.iter().map(indexed).collect())?.all_offsets();
        let (points, [point_strides]) = collapse(points, [point_strides]);

        // No two updates with different indices before the first indexed axis write the same element, so
        // threads split those axes.
        let first = axes.iter().copied().min().unwrap_or(0);
        let before = if sizes[..first] == shape[..first] { first } else { 0 };
        let slices = SliceLayout::new(&sizes[before..], &into[before..], &size_strides[before..]);
        let update = |to: &mut [T], within: Range<usize>, start: isize| {
            each_row(&points, [&point_strides], 0, offsets.len(), |range, [from], [step]| {
                slices.update(
                    (mode, combine),
                    to,
                    &within,
                    &offsets[range],
                    new,
                    updates.offset + start + from,
                    step,
                );
            });
        };
        let block: usize = shape[before..].iter().product();
        if block < to.len() {
            par_chunks(to, (GRAIN / block).max(1) * block, |first, part| {
                let mut cursor = Cursor::new(&shape[..before], [&size_strides[..before]], first / block);
                for one in part.chunks_exact_mut(block) {
                    update(one, 0..block, cursor.at[0]);
                    cursor.advance();
                }
            });
        } else {
            // Each task has a part of the output and applies the updates inside of it.
            let threads = hesper_cpu::Cores.threads();
            let shared = threads > 1 && slices.is_wide() && new.len() >= GRAIN;
            let part = if shared { to.len().div_ceil(4 * threads).max(GRAIN / 4) } else { to.len() };
            par_chunks(to, part, |low, part| update(part, low..low + part.len(), 0));
        }
        Ok(())
    })?;
    Ok(result.into_data())
}

/// The layout of one slice, in the output and in the updates.
struct SliceLayout {
    /// All but the last axis.
    outer: Shape,
    to_strides: Strides,
    from_strides: Strides,
    /// The last axis: its length, and its strides in output and updates.
    width: usize,
    step: usize,
    stride: isize,
}

impl SliceLayout {
    fn new(sizes: &[usize], to: &[isize], from: &[isize]) -> Self {
        let (mut outer, [mut to_strides, mut from_strides]) = collapse(sizes, [to, from]);
        let width = outer.pop().unwrap_or(1);
        let (step, stride) = (to_strides.pop().unwrap_or(0), from_strides.pop().unwrap_or(0));
        let step = if width == 1 { 1 } else { step as usize };
        SliceLayout { outer, to_strides, from_strides, width, step, stride }
    }

    /// Whether threads gain by splitting the output.
    fn is_wide(&self) -> bool {
        self.step == 1 && self.width >= MIN_SHARED_WIDTH
    }

    /// Updates the slices at `offsets` in order, restricted to the range `within` of the output. The first
    /// update is at `start`, the next ones are `by` apart.
    #[allow(clippy::too_many_arguments, reason = "two sides, each with memory, offset and step")]
    fn update<T: Carrier>(
        &self,
        (mode, combine): (UpdateMode, Combiner<T>),
        part: &mut [T],
        within: &Range<usize>,
        offsets: &[isize],
        new: &[T],
        start: isize,
        by: isize,
    ) {
        if self.width == 1 && self.outer.is_empty() {
            return (combine.points)(mode, part, offsets, new, start, by);
        }
        let mut one = |target: usize, from: isize| {
            if self.step == 1 {
                let (a, b) = (target.max(within.start), (target + self.width).min(within.end));
                if a < b {
                    let from = from + (a - target) as isize * self.stride;
                    let row = &mut part[a - within.start..b - within.start];
                    (combine.row)(mode, row, 1, new, from, self.stride);
                }
            } else {
                let end = target + (self.width - 1) * self.step + 1;
                (combine.row)(mode, &mut part[target..end], self.step, new, from, self.stride);
            }
        };
        let runs: usize = self.outer.iter().product();
        let mut start = start;
        for offset in offsets {
            if self.outer.is_empty() {
                one(*offset as usize, start);
            } else {
                let mut run = Cursor::new(&self.outer, [&self.to_strides, &self.from_strides], 0);
                for _ in 0..runs {
                    one((offset + run.at[0]) as usize, start + run.at[1]);
                    run.advance();
                }
            }
            start += by;
        }
    }
}
