//! Updates of slices, and slices whose start is computed.
//!
//! An array that nobody else asks for is updated where it is. Others are written in one pass: rows are copied,
//! and combined with the update where it meets them. Starts that are arrays count from the back if negative, and are moved so that the slice is
//! inside.

use smallvec::{SmallVec, smallvec};

use super::combine::{Combine, Mode, combine_row, with_combine};
use super::copy::copy_all;
use super::gather::check_indices;
use super::lists::Indices;
use super::logic::select;
use super::view::{near_steps, slice_of};
use super::walk::{Carrier, Cursor, GRAIN, Spread, Strided, copy_range, par_chunks, with_carrier};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, Strides, axis, broadcast, row_major};
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};

/// Where a slice starts.
#[derive(Debug, Clone)]
enum Starts {
    /// At elements that are known.
    At(SmallVec<[isize; 6]>),
    /// Along these axes, where the last input says; along others, at the first element.
    Given(SmallVec<[usize; 6]>),
}

#[derive(Debug, Clone)]
struct SliceUpdate {
    starts: Starts,
    steps: SmallVec<[isize; 6]>,
    mode: Mode,
}

impl Op for SliceUpdate {
    fn name(&self) -> &'static str {
        "slice_update"
    }

    fn export(&self) -> Export {
        match &self.starts {
            Starts::At(starts) => Record::new("slice_update")
                .with("starts", &starts[..])
                .with("steps", &self.steps[..])
                .with("mode", self.mode.name())
                .into(),
            Starts::Given(axes) if self.mode == Mode::Set => {
                Record::new("dynamic_slice_update").with("axes", &axes[..]).into()
            }
            Starts::Given(_) => Export::Never,
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_combine!(l.dtype(), update::<_>(self, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match (&self.starts, self.mode) {
            (Starts::At(starts), Mode::Set) if self.steps.iter().all(|step| *step > 0) => {
                crate::gpu::moves::slice_update(l, starts, &self.steps)
            }
            (Starts::At(starts), mode) => {
                crate::gpu::scatter::update_slice(l, starts, &[], &self.steps, mode)
            }
            (Starts::Given(axes), mode) => crate::gpu::scatter::update_slice(l, &[], axes, &self.steps, mode),
        }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [source, update, ..] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (out, cotangent) = (rule.output, rule.cotangent()?);
        let zero = Array::scalar(0.0, cotangent.dtype())?;
        let starts = rule.inputs.get(2);
        let put = |into: &Array, update: Array, mode: Mode| {
            let op = SliceUpdate { mode, ..self.clone() };
            let inputs = [Some(into), Some(&update), starts].into_iter().flatten().cloned().collect();
            Array::lazy(into.0.shape.clone(), into.dtype(), OpRef::new(op), inputs)
        };
        let cut = |x: &Array| match (&self.starts, starts) {
            (Starts::Given(axes), Some(starts)) => {
                let axes: SmallVec<[isize; 6]> = axes.iter().map(|at| *at as isize).collect();
                x.dynamic_slice(starts, &axes, update.shape())
            }
            (Starts::At(starts), _) => slice_of(x, starts, &self.steps, update.shape()),
            (Starts::Given(_), None) => Err(Error::value("slice_update", "a slice has no start")),
        };
        rule.each(|at| {
            Ok(Some(match (at, self.mode) {
                (0, Mode::Set) => put(&cotangent, zeros_like(update)?, Mode::Set)?,
                (0, Mode::Add) => cotangent.clone(),
                (0, Mode::Multiply) => {
                    cotangent.multiply(put(&source.ones_like()?, update.clone(), Mode::Multiply)?)?
                }
                (0, Mode::Max | Mode::Min) => select(&out.equal(source)?, &cotangent, &zero)?,
                (1, Mode::Set | Mode::Add) => cut(&cotangent)?,
                (1, Mode::Multiply) => cut(&cotangent)?.multiply(cut(source)?)?,
                (1, Mode::Max | Mode::Min) => select(&cut(out)?.equal(update)?, &cut(&cotangent)?, &zero)?,
                _ => return Ok(None),
            }))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let Starts::At(starts) = &self.starts else { return rule.one_by_one() };
        let op = SliceUpdate {
            starts: Starts::At(std::iter::once(0).chain(starts.iter().copied()).collect()),
            steps: std::iter::once(1).chain(self.steps.iter().copied()).collect(),
            mode: self.mode,
        };
        rule.apply(OpRef::new(op), smallvec![rule.full(0)?, rule.full(1)?])
    }
}

/// What one update is, with every axis.
struct Update {
    shape: Shape,
    starts: SmallVec<[isize; 6]>,
    steps: SmallVec<[isize; 6]>,
    sizes: Shape,
    strides: Strides,
    offset: isize,
}

impl Update {
    /// Joins the last axes where the update covers them whole.
    fn join(&mut self, source: &mut Strides) {
        while self.shape.len() > 1 {
            let last = self.shape.len() - 1;
            let (length, before) = (self.shape[last], last - 1);
            let whole = self.starts[last] == 0 && self.steps[last] == 1 && self.sizes[last] == length;
            let joins = whole
                && (self.steps[before] == 1 || self.sizes[before] == 1)
                && source[before] == source[last] * length as isize
                && self.strides[before] == self.strides[last] * length as isize;
            if !joins {
                return;
            }
            self.shape[before] *= length;
            self.sizes[before] *= length;
            self.starts[before] *= length as isize;
            self.steps[before] = 1;
            (source[before], self.strides[before]) = (source[last], self.strides[last]);
            for list in [source as &mut Strides, &mut self.strides] {
                list.truncate(last);
            }
            self.starts.truncate(last);
            self.steps.truncate(last);
            self.shape.truncate(last);
            self.sizes.truncate(last);
        }
    }

    /// Where the row at a place of the outer axes is in the update, if the update meets it.
    fn row(&self, place: &[usize]) -> Option<isize> {
        let mut at = self.offset;
        for (axis, &place) in place.iter().enumerate() {
            let moved = place as isize - self.starts[axis];
            let (index, rest) = (moved / self.steps[axis], moved % self.steps[axis]);
            if rest != 0 || index < 0 || index as usize >= self.sizes[axis] {
                return None;
            }
            at += index * self.strides[axis];
        }
        Some(at)
    }

    /// For the outer axes: where the first row is that the update meets, and how far the next ones are.
    fn moves(&self) -> (isize, Strides) {
        let own = row_major(&self.shape);
        let outer = self.shape.len() - 1;
        let first = (0..outer).map(|axis| self.starts[axis] * own[axis]).sum();
        (first, (0..outer).map(|axis| self.steps[axis] * own[axis]).collect())
    }
}

/// Starts read from an array.
fn read_starts(
    indices: Indices<'_>,
    list: &Spread,
    axes: &[usize],
    shape: &[usize],
    sizes: &[usize],
) -> SmallVec<[isize; 6]> {
    let mut starts: SmallVec<[isize; 6]> = smallvec![0; shape.len()];
    let mut cursor = Cursor::new(&list.shape, [&list.strides], 0);
    for &axis in axes {
        starts[axis] = indices.get(list.offset + cursor.at[0], shape[axis], sizes[axis]);
        cursor.advance();
    }
    starts
}

fn update<T: Combine>(op: &SliceUpdate, l: &Lowering<'_>) -> Result<Data> {
    let (op, mode) = (op.clone(), op.mode.on(l.dtype()));
    let (source, new) = (Strided::input(l, 0), Strided::input(l, 1));
    let list = match op.starts {
        Starts::At(_) => None,
        Starts::Given(_) => Some((Strided::input(l, 2), l.input_dtype(2))),
    };
    // What nobody can ask for again is updated where it is.
    let (in_place, result) = match l.take_in_place() {
        Some(owned) => (true, owned.into_data()),
        None => (false, Data::contiguous(l.output()?, l.shape())),
    };
    let mut encoder = l.stream().command("slice_update").read_range(&new.data.buffer, new.bytes.clone());
    if let Some((list, _)) = &list {
        encoder = encoder.read_range(&list.data.buffer, list.bytes.clone());
    }
    encoder = if in_place {
        encoder.read_write_range(&result.buffer, source.bytes.clone())
    } else {
        encoder.read_range(&source.data.buffer, source.bytes.clone()).write(&result.buffer)
    };
    let spread_list = list.as_ref().map(|(list, dtype)| (list.spread(), *dtype));
    let (source_, new_) = (source.spread(), new.spread());
    encoder.run(move |native| {
        let (source, new, list) = (source_, new_, spread_list);
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        if to.is_empty() {
            return Ok(());
        }
        let from = views[0].as_slice::<T>()?;
        let old = match views.last() {
            Some(old) if !in_place => Some(old.as_slice::<T>()?),
            _ => None,
        };
        let starts = match (&op.starts, &list) {
            (Starts::Given(axes), Some((list, dtype))) => {
                let indices = Indices::of(&views[1], *dtype)?;
                read_starts(indices, list, axes, &source.shape, &new.shape)
            }
            (Starts::At(starts), _) => starts.clone(),
            (Starts::Given(_), None) => return Err("a slice has no start".into()),
        };
        let mut strides = source.strides.clone();
        let mut update = Update {
            shape: source.shape.clone(),
            starts,
            steps: op.steps.clone(),
            sizes: new.shape.clone(),
            strides: new.strides.clone(),
            offset: new.offset,
        };
        update.join(&mut strides);
        let Some((&length, outer)) = update.shape.split_last() else {
            if let Some(old) = old {
                copy_range(to, old, source.offset, &[], &[], 0);
            }
            combine_row(mode, to, 1, from, new.offset, 0);
            return Ok(());
        };
        let last = outer.len();
        let (start, step, size) = (update.starts[last], update.steps[last], update.sizes[last]);
        let stride = update.strides[last];
        // The update's elements in rising order of the target.
        let (low, by, first, stride) = if step > 0 || size == 0 {
            (start, step.max(1), 0, stride)
        } else {
            let back = (size - 1) as isize;
            (start + back * step, -step, back * stride, -stride)
        };
        let put = |row: &mut [T], place: isize| {
            let end = low as usize + (size - 1) * by as usize + 1;
            combine_row(mode, &mut row[low as usize..end], by as usize, from, place + first, stride);
        };
        let updates: usize = update.sizes.iter().product();
        if in_place && updates < GRAIN {
            let (base, moves) = update.moves();
            let mut cursor = Cursor::new(&update.sizes[..last], [&moves[..last], &update.strides[..last]], 0);
            for _ in 0..updates / size.max(1) {
                let row = (base + cursor.at[0]) as usize;
                put(&mut to[row..row + length], update.offset + cursor.at[1]);
                cursor.advance();
            }
            return Ok(());
        }
        par_chunks(to, (GRAIN / length).max(1) * length, |begin, part| {
            let mut cursor = Cursor::new(outer, [&strides[..last]], begin / length);
            for row in part.chunks_mut(length) {
                let at = source.offset + cursor.at[0];
                let met = if size == 0 { None } else { update.row(cursor.place()) };
                match (old, met) {
                    (None, _) => {}
                    (_, Some(_)) if mode == Mode::Set && size == length => {}
                    (Some(old), _) => super::walk::copy_row(row, old, at, strides[last]),
                }
                if let Some(place) = met {
                    put(row, place);
                }
                cursor.advance();
            }
        });
        Ok(())
    })?;
    Ok(result)
}

/// A slice of known size that starts where an array says.
#[derive(Debug)]
struct DynamicSlice(SmallVec<[usize; 6]>);

impl Op for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }

    fn export(&self) -> Export {
        Record::new("dynamic_slice").with("axes", &self.0[..]).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_carrier!(l.dtype(), slice::<_>(&self.0, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::scatter::dynamic_slice(l, &self.0)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let axes: SmallVec<[isize; 6]> = self.0.iter().map(|at| *at as isize).collect();
        let zeros = zeros_like(&rule.inputs[0])?;
        rule.only(zeros.dynamic_slice_update(&rule.cotangent()?, &rule.inputs[1], &axes))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.is_batched(1) {
            return rule.one_by_one();
        }
        let axes = self.0.iter().map(|at| at + 1).collect();
        rule.apply(OpRef::new(DynamicSlice(axes)), smallvec![rule.front(0)?, rule.inputs[1].clone()])
    }
}

fn slice<T: Carrier>(axes: &SmallVec<[usize; 6]>, l: &Lowering<'_>) -> Result<Data> {
    let (source, list, dtype) = (Strided::input(l, 0), Strided::input(l, 1), l.input_dtype(1));
    let (axes, sizes): (_, Shape) = (axes.clone(), l.shape().into());
    let output = l.output()?;
    let (source_, list_) = (source.spread(), list.spread());
    l.stream()
        .command("dynamic_slice")
        .read_range(&source.data.buffer, source.bytes.clone())
        .read_range(&list.data.buffer, list.bytes.clone())
        .write(&output)
        .run(move |native| {
            let (source, list) = (source_, list_);
            let [from, view, to] = native.take()?;
            let starts = read_starts(Indices::of(view, dtype)?, &list, &axes, &source.shape, &sizes);
            let moved: isize = starts.iter().zip(&source.strides).map(|(start, stride)| start * stride).sum();
            let part = Spread { offset: source.offset + moved, shape: sizes, ..source };
            copy_all(to.as_mut_slice::<T>()?, from.as_slice::<T>()?, &part)
        })?;
    Ok(Data::contiguous(output, l.shape()))
}

impl Array {
    /// The array with a slice replaced by `update`, which broadcasts to it. Bounds are those of
    /// [`slice`](Array::slice).
    pub fn slice_update(
        &self,
        update: &Array,
        start: &[isize],
        stop: &[isize],
        step: &[isize],
    ) -> Result<Array> {
        self.slice_update_by(Mode::Set, update, start, stop, step)
    }

    pub(super) fn slice_update_by(
        &self,
        mode: Mode,
        update: &Array,
        start: &[isize],
        stop: &[isize],
        step: &[isize],
    ) -> Result<Array> {
        // The slice checks its bounds and knows its shape.
        let slice = self.slice(start, stop, step)?;
        let update = fit("slice_update", update, slice.shape())?.astype(self.dtype())?;
        if update.size() == 0 {
            return Ok(self.clone());
        }
        let starts = (0..self.ndim())
            .map(|at| {
                let length = self.shape()[at] as isize;
                let from = if start[at] < 0 { start[at].saturating_add(length) } else { start[at] };
                from.clamp(0, length - 1)
            })
            .collect();
        let op = SliceUpdate { starts: Starts::At(starts), steps: near_steps(step, slice.shape()), mode };
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(op), smallvec![self.clone(), update])
    }

    /// A slice of `sizes` that starts where `starts` says along `axes`, and at the first element along
    /// the others.
    pub fn dynamic_slice(&self, starts: &Array, axes: &[isize], sizes: &[usize]) -> Result<Array> {
        let axes = self.check_starts("slice", starts, axes, sizes)?;
        let inputs = smallvec![self.clone(), starts.clone()];
        Array::lazy(sizes.into(), self.dtype(), OpRef::new(DynamicSlice(axes)), inputs)
    }

    /// The array with `update` in place of the slice of its shape that starts where `starts` says along
    /// `axes`, and at the first element along the others.
    pub fn dynamic_slice_update(&self, update: &Array, starts: &Array, axes: &[isize]) -> Result<Array> {
        let missing = self.ndim().saturating_sub(update.ndim());
        let sizes: Shape = std::iter::repeat_n(1, missing).chain(update.shape().iter().copied()).collect();
        let axes = self.check_starts("slice_update", starts, axes, &sizes)?;
        let update = update.broadcast_to(&sizes)?.astype(self.dtype())?;
        let steps = super::gather::smallvec_of(1, self.ndim());
        let op = SliceUpdate { starts: Starts::Given(axes), steps, mode: Mode::Set };
        let inputs = smallvec![self.clone(), update, starts.clone()];
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(op), inputs)
    }

    fn check_starts(
        &self,
        op: &str,
        starts: &Array,
        axes: &[isize],
        sizes: &[usize],
    ) -> Result<SmallVec<[usize; 6]>> {
        check_indices(op, starts)?;
        crate::shape::axes(op, axes, self.ndim())?;
        let fits = starts.ndim() <= 1
            && starts.size() == axes.len()
            && sizes.len() == self.ndim()
            && sizes.iter().zip(self.shape()).all(|(size, length)| size <= length);
        if !fits {
            let what = format!(
                "{} starts along axes {axes:?} for a slice of {sizes:?} of an array of shape {:?}",
                starts.size(),
                self.shape()
            );
            return Err(Error::shape(op, what));
        }
        axes.iter().map(|one| axis(op, *one, self.ndim())).collect()
    }
}

/// `update` stretched to a shape; leading axes of length one too many are dropped.
pub(super) fn fit(op: &str, update: &Array, shape: &[usize]) -> Result<Array> {
    let extra = update.ndim().saturating_sub(shape.len());
    let update = if update.shape()[..extra].iter().all(|length| *length == 1) && extra > 0 {
        let own: SmallVec<[isize; 6]> = update.shape()[extra..].iter().map(|x| *x as isize).collect();
        update.reshape(&own)?
    } else {
        update.clone()
    };
    if broadcast(op, update.shape(), shape)?[..] != *shape {
        let what = format!("an update of shape {:?} for a slice of shape {shape:?}", update.shape());
        return Err(Error::shape(op, what));
    }
    update.broadcast_to(shape)
}

pub(super) fn read_update(replay: &Replay<'_>) -> Result<Array> {
    let [x, update] = replay.inputs()?;
    let (starts, steps) = (replay.axes("starts")?, replay.axes("steps")?);
    let traced = replay.traced.get(1).map_or(update.shape(), |shape| shape);
    let (start, stop) = crate::export::shapes::slice(replay, &starts, &steps, traced)?;
    x.slice_update_by(replay.choice("mode", &Mode::NAMES)?, update, &start, &stop, &steps)
}

pub(super) fn read_dynamic_update(replay: &Replay<'_>) -> Result<Array> {
    let [x, update, starts] = replay.inputs()?;
    x.dynamic_slice_update(update, starts, &replay.axes("axes")?)
}

pub(super) fn read_dynamic(replay: &Replay<'_>) -> Result<Array> {
    let [x, starts] = replay.inputs()?;
    let sizes = crate::export::shapes::sizes(replay, replay.shape())?;
    x.dynamic_slice(starts, &replay.axes("axes")?, &sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::row_major;

    #[test]
    fn axes_that_an_update_covers_whole_join_the_one_before() {
        let shape: Shape = smallvec![2, 3, 4];
        let mut source = row_major(&shape);
        let sizes: Shape = smallvec![2, 2, 4];
        let mut update = Update {
            shape,
            starts: smallvec![0, 1, 0],
            steps: smallvec![1, 1, 1],
            strides: row_major(&sizes),
            sizes,
            offset: 0,
        };
        update.join(&mut source);
        assert_eq!(update.shape[..], [2, 12]);
        assert_eq!((update.starts[1], update.sizes[1]), (4, 8));
    }
}
