//! Elements along one axis, found by an array of indices that has the same axes.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::combine::{Combine, Mode, combine_points, with_combine};
use super::gather::{check_indices, gather_points};
use super::lists::{Along, Indices};
use super::logic::select;
use super::scatter::numbered;
use super::walk::{Carrier, GRAIN, Renewed, Spread, Strided, collapse, each_row, par_chunks, with_carrier};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, Strides, axis, broadcast, row_major};
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};

#[derive(Debug)]
struct TakeAlong(usize);

impl Op for TakeAlong {
    fn name(&self) -> &'static str {
        "take_along_axis"
    }

    fn export(&self) -> Export {
        Record::new("take_along_axis").with("axis", self.0).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_carrier!(l.dtype(), take::<_>(self.0, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::moves::take_along(l, self.0)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let zeros = zeros_like(&rule.inputs[0])?;
        rule.only(zeros.scatter_add_axis(&rule.inputs[1], &rule.cotangent()?, self.0 as isize))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(OpRef::new(TakeAlong(self.0 + 1)), smallvec![rule.full(0)?, rule.full(1)?])
    }
}

/// Strides without the step along an axis: the indices make it.
fn still(strides: &[isize], along: usize) -> Strides {
    let mut strides: Strides = strides.into();
    strides[along] = 0;
    strides
}

/// Elements whose places are computed together.
const PIECE: usize = 1 << 10;

/// Calls `f` with the offsets of elements that a list of indices names, counted row by row from `first`, a piece at a
/// time: which of the `count` elements they are, where they are, and where by the second of `strides` the first of them
/// is and how far apart the next ones are. An element is where the first of `strides` says, and further along by its index.
fn each_piece(
    list: (&Spread, Indices<'_>, Along),
    strides: [&[isize]; 2],
    first: usize,
    count: usize,
    mut f: impl FnMut(Range<usize>, &mut [isize], isize, isize),
) {
    let (list, indices, along) = list;
    let [rest, others] = strides;
    let (shape, [rest, places, others]) = collapse(&list.shape, [rest, &list.strides, others]);
    let mut offsets = [0isize; PIECE];
    each_row(
        &shape,
        [&rest, &places, &others],
        first,
        count,
        |range, [at, place, other], [by, step, stride]| {
            for begin in range.clone().step_by(PIECE) {
                let end = (begin + PIECE).min(range.end);
                let skipped = (begin - range.start) as isize;
                let offsets = &mut offsets[..end - begin];
                let mut next = at + skipped * by;
                for offset in offsets.iter_mut() {
                    *offset = next;
                    next += by;
                }
                indices.add_to(offsets, list.offset + place + skipped * step, step, along);
                f(begin..end, offsets, other + skipped * stride, stride);
            }
        },
    );
}

fn take<T: Carrier>(along: usize, l: &Lowering<'_>) -> Result<Data> {
    let (source, list, dtype) = (Strided::input(l, 0), Strided::input(l, 1), l.input_dtype(1));
    let output = l.output()?;
    let (source_, list_) = (source.spread(), list.spread());
    l.stream()
        .command("take_along_axis")
        .read_range(&source.data.buffer, source.bytes.clone())
        .read_range(&list.data.buffer, list.bytes.clone())
        .write(&output)
        .run(move |native| {
            let (source, list) = (source_, list_);
            let [from, view, to] = native.take()?;
            let (from, indices) = (from.as_slice::<T>()?, Indices::of(view, dtype)?);
            let rest = still(&source.strides, along);
            let along = Along { length: source.shape[along], size: 1, stride: source.strides[along] };
            par_chunks(to.as_mut_slice::<T>()?, GRAIN, |first, part| {
                let count = part.len();
                each_piece((&list, indices, along), [&rest, &rest], first, count, |range, offsets, _, _| {
                    gather_points(&mut part[range], from, source.offset, offsets);
                });
            });
            Ok(())
        })?;
    Ok(Data::contiguous(output, l.shape()))
}

#[derive(Debug)]
struct PutAlong(usize, Mode);

impl Op for PutAlong {
    fn name(&self) -> &'static str {
        "put_along_axis"
    }

    fn export(&self) -> Export {
        Record::new("put_along_axis").with("axis", self.0).with("mode", self.1.name()).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_combine!(l.dtype(), put::<_>(self, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::scatter::put_along(l, self.0, self.1)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [_, indices, values] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (cotangent, along) = (rule.cotangent()?, Some(self.0 as isize));
        if !matches!(self.1, Mode::Set | Mode::Add) {
            return Err(Error::value(self.name(), "has a derivative only if it sets or adds"));
        }
        rule.each(|at| {
            Ok(Some(match at {
                0 if self.1 == Mode::Set => cotangent.put_along_axis(indices, &zeros_like(values)?, along)?,
                0 => cotangent.clone(),
                _ if self.1 == Mode::Set => {
                    // Of values that meet, the one that stayed has a part in the result.
                    let numbers = numbered(values.shape())?;
                    let none = Array::zeros(rule.output.shape(), Dtype::Int64)?;
                    let placed = none.put_along_axis(indices, &numbers, along)?;
                    let stayed = placed.take_along_axis(indices, along)?.equal(&numbers)?;
                    let zero = Array::scalar(0.0, cotangent.dtype())?;
                    select(&stayed, &cotangent.take_along_axis(indices, along)?, &zero)?
                }
                _ => cotangent.take_along_axis(indices, along)?,
            }))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let inputs = smallvec![rule.full(0)?, rule.full(1)?, rule.full(2)?];
        rule.apply(OpRef::new(PutAlong(self.0 + 1, self.1)), inputs)
    }
}

fn put<T: Combine>(op: &PutAlong, l: &Lowering<'_>) -> Result<Data> {
    let (along, mode) = (op.0, op.1.on(l.dtype()));
    let (list, dtype, new) = (Strided::input(l, 1), l.input_dtype(1), Strided::input(l, 2));
    let shape: Shape = l.shape().into();
    let result = Renewed::of(l)?;
    let (result_, list_, new_) = (result.opener(), list.spread(), new.spread());
    let encoder = l
        .stream()
        .command("put_along_axis")
        .read_range(&list.data.buffer, list.bytes.clone())
        .read_range(&new.data.buffer, new.bytes.clone());
    result.change(encoder).run(move |native| {
        let (list, new) = (list_, new_);
        let (to, views) = result_.open::<T>(native.views())?;
        let [view, new_view] = views else { return Ok(()) };
        let (indices, from) = (Indices::of(view, dtype)?, new_view.as_slice::<T>()?);
        if to.is_empty() {
            return Ok(());
        }
        let strides = row_major(&shape);
        let rest = still(&strides, along);
        // Updates meet only inside of one element of the axes before; a task has some of those.
        let block: usize = shape[along..].iter().product();
        let updates: usize = list.shape[along..].iter().product();
        let along = Along { length: shape[along], size: 1, stride: strides[along] };
        par_chunks(to, (GRAIN / block).max(1) * block, |first, part| {
            let (at, count) = (first / block * updates, part.len() / block * updates);
            let list = (&list, indices, along);
            each_piece(list, [&rest, &new.strides], at, count, |_, offsets, start, stride| {
                offsets.iter_mut().for_each(|offset| *offset -= first as isize);
                combine_points(mode, part, offsets, from, new.offset + start, stride);
            });
        });
        Ok(())
    })?;
    Ok(result.into_data())
}

impl Array {
    /// The elements that `indices` point at along an axis. Except along it, both broadcast. Without an
    /// axis, both are one row.
    pub fn take_along_axis(&self, indices: &Array, along: Option<isize>) -> Result<Array> {
        let Some(along) = along else {
            return self.reshape(&[-1])?.take_along_axis(&indices.reshape(&[-1])?, Some(0));
        };
        let (along, source, indices) = self.align("take_along_axis", indices, along)?;
        let (shape, op) = (indices.0.shape.clone(), OpRef::new(TakeAlong(along)));
        Array::lazy(shape, self.dtype(), op, smallvec![source, indices])
    }

    /// The array with `values` in place of the elements that `indices` point at along an axis; without
    /// an axis, of the array as one row. Where several meet, the last one stays.
    pub fn put_along_axis(&self, indices: &Array, values: &Array, along: Option<isize>) -> Result<Array> {
        self.put_by(Mode::Set, "put_along_axis", indices, values, along)
    }

    /// Like [`put_along_axis`](Array::put_along_axis), adding the values.
    pub fn scatter_add_axis(&self, indices: &Array, values: &Array, along: isize) -> Result<Array> {
        self.put_by(Mode::Add, "scatter_add_axis", indices, values, Some(along))
    }

    fn put_by(
        &self,
        mode: Mode,
        op: &'static str,
        indices: &Array,
        values: &Array,
        along: Option<isize>,
    ) -> Result<Array> {
        let Some(along) = along else {
            let shape: SmallVec<[isize; 6]> = self.shape().iter().map(|x| *x as isize).collect();
            let row = self.reshape(&[-1])?;
            let (indices, values) = (indices.reshape(&[-1])?, values.broadcast_to(indices.shape())?);
            return row.put_by(mode, op, &indices, &values.reshape(&[-1])?, Some(0))?.reshape(&shape);
        };
        let (along, source, indices) = self.align(op, indices, along)?;
        if source.shape() != self.shape() {
            let what = format!("indices of shape {:?} for an array of {:?}", indices.shape(), self.shape());
            return Err(Error::shape(op, what));
        }
        let values = values.astype(self.dtype())?.broadcast_to(indices.shape())?;
        let inputs = smallvec![self.clone(), indices, values];
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(PutAlong(along, mode)), inputs)
    }

    /// The axis from the front, and both arrays broadcast along the others.
    fn align(&self, op: &str, indices: &Array, along: isize) -> Result<(usize, Array, Array)> {
        check_indices(op, indices)?;
        let along = axis(op, along, self.ndim())?;
        if indices.ndim() != self.ndim() {
            let what = format!("indices of shape {:?} for an array of {:?}", indices.shape(), self.shape());
            return Err(Error::shape(op, what));
        }
        if self.shape()[along] == 0 && indices.size() > 0 {
            let what = format!("axis {along} of an array of shape {:?} has no elements", self.shape());
            return Err(Error::value(op, what));
        }
        let without = |array: &Array| -> Shape {
            let mut shape = array.0.shape.clone();
            shape[along] = 1;
            shape
        };
        let mut shape = broadcast(op, &without(self), &without(indices))?;
        shape[along] = self.shape()[along];
        let source = self.broadcast_to(&shape)?;
        shape[along] = indices.shape()[along];
        Ok((along, source, indices.broadcast_to(&shape)?))
    }
}

pub(super) fn read_take(replay: &Replay<'_>) -> Result<Array> {
    let [x, indices] = replay.inputs()?;
    x.take_along_axis(indices, Some(replay.axis("axis")?))
}

pub(super) fn read_put(replay: &Replay<'_>) -> Result<Array> {
    let [x, indices, values] = replay.inputs()?;
    let mode = replay.choice("mode", &Mode::NAMES)?;
    x.put_by(mode, "put_along_axis", indices, values, Some(replay.axis("axis")?))
}
