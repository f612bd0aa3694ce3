//! Scatters: updates of elements and slices that index arrays point at.
//!
//! Updates that meet the same element are applied in the order of the index arrays' elements, whatever
//! the number of threads. Indices are treated as by gathers.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::combine::{Combine, Mode, combine_points, combine_row, with_combine};
use super::gather::broadcast_indices;
use super::lists::{Along, Lists};
use super::logic::select;
use super::walk::{Cursor, GRAIN, Renewed, Strided, collapse, each_row, par_chunks};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, Strides, axis, row_major, signed};
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};

/// Contiguous elements of a slice from which on threads share the output.
const WIDE: usize = 16;

#[derive(Debug, Clone)]
struct Scatter {
    axes: SmallVec<[usize; 6]>,
    mode: Mode,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn export(&self) -> Export {
        Record::new("scatter").with("axes", &self.axes[..]).with("mode", self.mode.name()).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_combine!(l.dtype(), run::<_>(self, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::scatter::scatter(l, &self.axes, self.mode)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [source, updates, lists @ ..] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (out, cotangent) = (rule.output, rule.cotangent()?);
        let axes: SmallVec<[isize; 6]> = self.axes.iter().map(|at| *at as isize).collect();
        let sizes = &updates.shape()[updates.ndim() - source.ndim()..];
        let at_points = |x: &Array| x.gather(lists, &axes, sizes);
        let zero = Array::scalar(0.0, cotangent.dtype())?;
        rule.each(|at| {
            Ok(Some(match (at, self.mode) {
                (0, Mode::Set) => cotangent.scatter(lists, &zeros_like(updates)?, &axes)?,
                (0, Mode::Add) => cotangent.clone(),
                (0, Mode::Multiply) => {
                    cotangent.multiply(source.ones_like()?.scatter_prod(lists, updates, &axes)?)?
                }
                (0, Mode::Max | Mode::Min) => select(&out.equal(source)?, &cotangent, &zero)?,
                (1, Mode::Set) => {
                    // Of updates that meet, the one that stayed has a part in the result.
                    let numbers = numbered(updates.shape())?;
                    let none = Array::zeros(source.shape(), Dtype::Int64)?;
                    let stayed = at_points(&none.scatter(lists, &numbers, &axes)?)?.equal(&numbers)?;
                    select(&stayed, &at_points(&cotangent)?, &zero)?
                }
                (1, Mode::Add) => at_points(&cotangent)?,
                (1, Mode::Multiply) => {
                    // The product of all other factors: of two zeros neither changes anything.
                    let one = Array::scalar(1.0, cotangent.dtype())?;
                    let nonzero = |x: &Array, flat: &Array| select(flat, &one, x);
                    let (flat, flat_source) = (updates.equal(&zero)?, source.equal(&zero)?);
                    let divisor = nonzero(updates, &flat)?;
                    let product = nonzero(source, &flat_source)?.scatter_prod(lists, &divisor, &axes)?;
                    let zeros = flat_source.astype(Dtype::Int32)?.scatter_add(
                        lists,
                        &flat.astype(Dtype::Int32)?,
                        &axes,
                    )?;
                    let others = at_points(&zeros)?.equal(flat.astype(Dtype::Int32)?)?;
                    let product = at_points(&product)?.divide(&divisor)?;
                    at_points(&cotangent)?.multiply(select(&others, &product, &zero)?)?
                }
                (1, Mode::Max | Mode::Min) => {
                    select(&at_points(out)?.equal(updates)?, &at_points(&cotangent)?, &zero)?
                }
                _ => return Ok(None),
            }))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.size == 0 {
            return rule.one_by_one();
        }
        let rank = rule.output.ndim();
        let (source, updates) = (rule.full(0)?, rule.full(1)?);
        // Each slice has its own source: its number is one more index.
        let points = updates.ndim() - rank;
        let mut own: SmallVec<[isize; 6]> = smallvec![1; points];
        own[0] = rule.size as isize;
        let numbers: Vec<i64> = (0..rule.size as i64).collect();
        let mut lists = vec![Array::from_slice(&numbers).reshape(&own)?];
        for at in 2..rule.inputs.len() {
            lists.push(rule.full(at)?);
        }
        let axes: SmallVec<[isize; 6]> =
            std::iter::once(0).chain(self.axes.iter().map(|at| *at as isize + 1)).collect();
        let updates = updates.expand_dims(&[points as isize])?;
        Ok((source.scatter_by(self.mode, &lists, &updates, &axes)?, 0))
    }
}

/// Numbers from one on, in a shape.
pub(super) fn numbered(shape: &[usize]) -> Result<Array> {
    Array::ones(shape, Dtype::Int64)?.reshape(&[-1])?.cumsum(Some(0), false, true)?.reshape(&signed(shape))
}

fn run<T: Combine>(op: &Scatter, l: &Lowering<'_>) -> Result<Data> {
    let (axes, mode) = (op.axes.clone(), op.mode.on(l.dtype()));
    let (updates, lists) = (Strided::input(l, 1), Lists::inputs(l, 2));
    let result = Renewed::of(l)?;
    let shape: Shape = l.shape().into();
    let (result_, updates_, lists_) = (result.opener(), updates.spread(), lists.spread());
    let encoder = l.stream().command("scatter").read_range(&updates.data.buffer, updates.bytes.clone());
    result.change(lists.read(encoder)).run(move |native| {
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
        let along = |axis: &usize| Along { length: shape[*axis], size: sizes[*axis], stride: into[*axis] };
        let offsets = lists.open(&views[1..], axes.iter().map(along).collect())?.all_offsets();
        let (points, [point_strides]) = collapse(points, [point_strides]);

        // Updates meet only inside of one element of the axes that stand before all indexed ones.
        let first = axes.iter().copied().min().unwrap_or(0);
        let before = if sizes[..first] == shape[..first] { first } else { 0 };
        let blocks = Blocks::new(&sizes[before..], &into[before..], &size_strides[before..]);
        let update = |to: &mut [T], within: Range<usize>, start: isize| {
            each_row(&points, [&point_strides], 0, offsets.len(), |range, [from], [step]| {
                blocks.update(mode, to, &within, &offsets[range], new, updates.offset + start + from, step);
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
            // Each task owns a part of the output and looks for the updates that meet it.
            let shared = blocks.wide() && new.len() >= GRAIN;
            let part = if shared { to.len().div_ceil(16).max(GRAIN / 4) } else { to.len() };
            par_chunks(to, part, |low, part| update(part, low..low + part.len(), 0));
        }
        Ok(())
    })?;
    Ok(result.into_data())
}

/// The elements of one slice, in what is updated and in the updates.
struct Blocks {
    /// All but the last axis.
    outer: Shape,
    to_strides: Strides,
    from_strides: Strides,
    /// The last axis: elements that may be neighbours in both.
    width: usize,
    step: usize,
    stride: isize,
}

impl Blocks {
    fn new(sizes: &[usize], to: &[isize], from: &[isize]) -> Self {
        let (mut outer, [mut to_strides, mut from_strides]) = collapse(sizes, [to, from]);
        let width = outer.pop().unwrap_or(1);
        let (step, stride) = (to_strides.pop().unwrap_or(0), from_strides.pop().unwrap_or(0));
        let step = if width == 1 { 1 } else { step as usize };
        Blocks { outer, to_strides, from_strides, width, step, stride }
    }

    /// Whether threads gain by sharing the output.
    fn wide(&self) -> bool {
        self.step == 1 && self.width >= WIDE
    }

    /// Updates the slices at `offsets`, one after the other, as far as they are `within` a part of the
    /// whole. The first update is at `start`, the next ones go on by `by`.
    #[allow(clippy::too_many_arguments, reason = "two sides, each with memory, place and step")]
    fn update<T: Combine>(
        &self,
        mode: Mode,
        part: &mut [T],
        within: &Range<usize>,
        offsets: &[isize],
        new: &[T],
        start: isize,
        by: isize,
    ) {
        if self.width == 1 && self.outer.is_empty() {
            return combine_points(mode, part, offsets, new, start, by);
        }
        let runs: usize = self.outer.iter().product();
        let mut start = start;
        for offset in offsets {
            let mut run = Cursor::new(&self.outer, [&self.to_strides, &self.from_strides], 0);
            for _ in 0..runs {
                let (target, from) = ((offset + run.at[0]) as usize, start + run.at[1]);
                if self.step == 1 {
                    let (a, b) = (target.max(within.start), (target + self.width).min(within.end));
                    if a < b {
                        let from = from + (a - target) as isize * self.stride;
                        let row = &mut part[a - within.start..b - within.start];
                        combine_row(mode, row, 1, new, from, self.stride);
                    }
                } else {
                    let end = target + (self.width - 1) * self.step + 1;
                    combine_row(mode, &mut part[target..end], self.step, new, from, self.stride);
                }
                run.advance();
            }
            start += by;
        }
    }
}

impl Array {
    /// The array with slices replaced by `updates`: for each element of the index arrays (broadcast to one
    /// shape) the slice that starts where they point along `axes`. `updates` has the axes of the indices,
    /// then one for each axis of the array. Where updates meet, the last one stays.
    pub fn scatter(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(Mode::Set, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), adding the updates.
    pub fn scatter_add(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(Mode::Add, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), multiplying by the updates.
    pub fn scatter_prod(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(Mode::Multiply, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), keeping the larger one.
    pub fn scatter_max(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(Mode::Max, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), keeping the smaller one.
    pub fn scatter_min(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(Mode::Min, indices, updates, axes)
    }

    pub(super) fn scatter_by(
        &self,
        mode: Mode,
        indices: &[Array],
        updates: &Array,
        axes: &[isize],
    ) -> Result<Array> {
        crate::shape::axes("scatter", axes, self.ndim())?;
        let axes: SmallVec<[usize; 6]> =
            axes.iter().map(|one| axis("scatter", *one, self.ndim())).collect::<Result<_>>()?;
        let (points, lists) = broadcast_indices("scatter", indices)?;
        let sizes = updates.shape().get(points.len()..).unwrap_or_default();
        let fits = indices.len() == axes.len()
            && updates.ndim() == points.len() + self.ndim()
            && updates.shape()[..points.len()] == points[..]
            && sizes.iter().zip(self.shape()).all(|(size, length)| size <= length);
        if !fits {
            let what = format!(
                "updates of shape {:?} at indices of shape {points:?} along axes {axes:?} of shape {:?}",
                updates.shape(),
                self.shape()
            );
            return Err(Error::shape("scatter", what));
        }
        let mut inputs: SmallVec<[Array; 3]> = smallvec![self.clone(), updates.astype(self.dtype())?];
        inputs.extend(lists);
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(Scatter { axes, mode }), inputs)
    }
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, updates, indices @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    x.scatter_by(replay.choice("mode", &Mode::NAMES)?, indices, updates, &replay.axes("axes")?)
}
