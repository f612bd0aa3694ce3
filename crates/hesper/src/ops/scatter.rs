//! Scatters: updates of elements and slices that index arrays point at.
//!
//! Updates that meet the same element are applied in the order of the index arrays' elements, whatever
//! the number of threads. Indices are treated as by gathers.

use smallvec::{SmallVec, smallvec};

use super::combine::{Combine, Mode, combine_row, with_combine};
use super::gather::{Indices, broadcast_indices};
use super::logic::select;
use super::walk::{Cursor, GRAIN, Strided, collapse, par_chunks};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::shape::{axis, row_major, signed};
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
    let source = Strided::row_major(l, 0)?;
    let updates = Strided::input(l, 1);
    let lists: Vec<(Strided, Dtype)> =
        (0..axes.len()).map(|at| (Strided::input(l, at + 2), l.input_dtype(at + 2))).collect();
    let output = l.output()?;
    let buffers: Vec<_> = lists.iter().map(|(list, _)| list.data.buffer.clone()).collect();
    let (source_buffer, update_buffer) = (source.data.buffer.clone(), updates.data.buffer.clone());
    let mut encoder = l
        .stream()
        .encode("scatter")
        .read_range(&source_buffer, source.bytes.clone())
        .read_range(&update_buffer, updates.bytes.clone());
    for ((list, _), buffer) in lists.iter().zip(&buffers) {
        encoder = encoder.read_range(buffer, list.bytes.clone());
    }
    encoder.write(&output).run(move |native| {
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        let old = views[0].as_slice::<T>()?;
        par_chunks(to, GRAIN, |first, part| part.copy_from_slice(&old[first..first + part.len()]));
        let new = views[1].as_slice::<T>()?;
        let indices: SmallVec<[Indices<'_>; 4]> = views[2..]
            .iter()
            .zip(&lists)
            .map(|(view, (_, dtype))| Indices::of(view, *dtype))
            .collect::<std::result::Result<_, _>>()?;
        if to.is_empty() || new.is_empty() {
            return Ok(());
        }
        let rank = updates.shape.len() - source.shape.len();
        let (points, sizes) = updates.shape.split_at(rank);
        let (point_strides, size_strides) = updates.strides().split_at(rank);
        let into = row_major(&source.shape);
        let (slice, [to_strides, from_strides]) = collapse(sizes, [&into, size_strides]);
        let last = slice.len() - 1;
        let (width, step, stride) = (slice[last], to_strides[last], from_strides[last]);
        let runs: usize = slice[..last].iter().product();
        let count: usize = points.iter().product();
        // Each task owns a part of the output and looks for the updates that meet it.
        let shared = (width == 1 || step == 1) && width >= WIDE && count * runs * width >= GRAIN;
        let part = if shared { to.len().div_ceil(16).max(GRAIN / 4) } else { to.len() };
        par_chunks(to, part, |low, part| {
            let high = low + part.len();
            let mut cursors: SmallVec<[Cursor<'_, 1>; 4]> =
                lists.iter().map(|(list, _)| Cursor::new(&list.shape, [list.strides()], 0)).collect();
            let mut update = Cursor::new(points, [point_strides], 0);
            for _ in 0..count {
                let mut start = 0;
                for (k, cursor) in cursors.iter_mut().enumerate() {
                    let along = axes[k];
                    let place = lists[k].0.offset + cursor.at[0];
                    start += indices[k].get(place, source.shape[along], sizes[along]) * into[along];
                    cursor.advance();
                }
                let mut run = Cursor::new(&slice[..last], [&to_strides[..last], &from_strides[..last]], 0);
                for _ in 0..runs {
                    let (target, from) =
                        ((start + run.at[0]) as usize, updates.offset + update.at[0] + run.at[1]);
                    if width == 1 || step == 1 {
                        let (a, b) = (target.max(low), (target + width).min(high));
                        if a < b {
                            let from = from + (a - target) as isize * stride;
                            combine_row(mode, &mut part[a - low..b - low], 1, new, from, stride);
                        }
                    } else {
                        let end = target + (width - 1) * step as usize + 1;
                        combine_row(mode, &mut part[target..end], step as usize, new, from, stride);
                    }
                    run.advance();
                }
                update.advance();
            }
        });
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
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
