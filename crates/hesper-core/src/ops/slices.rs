//! Updates of slices, and slices whose start is computed.
//!
//! Starts that are arrays count from the back if negative, and are clamped so that the slice is inside of the
//! array.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::gather::{check_indices, smallvec_of};
use super::logic::select;
use super::update_mode::UpdateMode;
use super::view::{near_steps, slice_of};
use super::{Op, OpRef, PatternOp};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, axis, broadcast};

/// The start of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Starts {
    /// Known elements.
    At(SmallVec<[isize; 6]>),
    /// Along these axes the elements of the last input, along others zero.
    Given(SmallVec<[usize; 6]>),
}

/// The first input with a slice combined with the second.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SliceUpdate {
    /// Where the slice starts.
    pub starts: Starts,
    /// The step of the slice along each axis.
    pub steps: SmallVec<[isize; 6]>,
    /// How the slice is combined.
    pub mode: UpdateMode,
}

impl Op for SliceUpdate {
    fn name(&self) -> &'static str {
        "slice_update"
    }

    fn pattern(&self) -> PatternOp {
        let known = matches!(self.starts, Starts::At(_)) && self.steps.iter().all(|step| *step == 1);
        if known && self.mode == UpdateMode::Set { PatternOp::Update } else { PatternOp::None }
    }

    fn export(&self) -> Export {
        match &self.starts {
            Starts::At(starts) => Record::new("slice_update")
                .with("starts", &starts[..])
                .with("steps", &self.steps[..])
                .with("mode", self.mode.name())
                .into(),
            Starts::Given(axes) if self.mode == UpdateMode::Set => {
                Record::new("dynamic_slice_update").with("axes", &axes[..]).into()
            }
            Starts::Given(_) => Export::Never,
        }
    }

    fn indices(&self) -> Range<usize> {
        2..usize::MAX
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [source, update, ..] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (out, cotangent) = (rule.output, rule.cotangent()?);
        let zero = Array::scalar(0.0, cotangent.dtype())?;
        let starts = rule.inputs.get(2);
        let put = |into: &Array, update: Array, mode: UpdateMode| {
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
                (0, UpdateMode::Set) => put(&cotangent, zeros_like(update)?, UpdateMode::Set)?,
                (0, UpdateMode::Add) => cotangent.clone(),
                (0, UpdateMode::Multiply) => {
                    cotangent.multiply(put(&source.ones_like()?, update.clone(), UpdateMode::Multiply)?)?
                }
                (0, UpdateMode::Max | UpdateMode::Min) => select(&out.equal(source)?, &cotangent, &zero)?,
                (1, UpdateMode::Set | UpdateMode::Add) => cut(&cotangent)?,
                (1, UpdateMode::Multiply) => cut(&cotangent)?.multiply(cut(source)?)?,
                (1, UpdateMode::Max | UpdateMode::Min) => {
                    select(&cut(out)?.equal(update)?, &cut(&cotangent)?, &zero)?
                }
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

/// A slice of known size whose start along these axes is the second input.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct DynamicSlice(pub SmallVec<[usize; 6]>);

impl Op for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }

    fn export(&self) -> Export {
        Record::new("dynamic_slice").with("axes", &self.0[..]).into()
    }

    fn indices(&self) -> Range<usize> {
        1..2
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

impl Array {
    /// The array with a slice replaced by `update`, which broadcasts to it. Bounds are those of
    /// [`slice`](Array::slice).
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let x = Array::zeros(&[2, 4], Dtype::Int32)?;
    /// let y = x.slice_update(&array![7, 8], &[0, 1], &[2, 4], &[1, 2])?;
    /// assert_eq!(y.to_vec::<i32>()?, [0, 7, 0, 8, 0, 7, 0, 8]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn slice_update(
        &self,
        update: &Array,
        start: &[isize],
        stop: &[isize],
        step: &[isize],
    ) -> Result<Array> {
        self.slice_update_by(UpdateMode::Set, update, start, stop, step)
    }

    pub(crate) fn slice_update_by(
        &self,
        mode: UpdateMode,
        update: &Array,
        start: &[isize],
        stop: &[isize],
        step: &[isize],
    ) -> Result<Array> {
        let (starts, shape) = self.sliced(start, stop, step)?;
        let update = fit("slice_update", update, &shape)?.astype(self.dtype())?;
        if update.size() == 0 {
            return Ok(self.clone());
        }
        let op = SliceUpdate { starts: Starts::At(starts), steps: near_steps(step, &shape), mode };
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(op), smallvec![self.clone(), update])
    }

    /// A slice of `sizes` that starts where `starts` says along `axes`, and at the first element along
    /// the others.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let x = array![[1, 2, 3], [4, 5, 6]];
    /// let column = x.argmax(1)?.max(())?.astype(Dtype::Int32)?; // computed, not a number of the program
    /// assert_eq!(x.dynamic_slice(&column, &[1], &[2, 1])?.to_vec::<i32>()?, [3, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dynamic_slice(&self, starts: &Array, axes: &[isize], sizes: &[usize]) -> Result<Array> {
        let axes = self.check_starts("slice", starts, axes, sizes)?;
        let inputs = smallvec![self.clone(), starts.clone()];
        Array::lazy(sizes.into(), self.dtype(), OpRef::new(DynamicSlice(axes)), inputs)
    }

    /// The array with `update` in place of the slice of its shape that starts where `starts` says along
    /// `axes`, and at the first element along the others.
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let memory = Array::zeros(&[4, 2], Dtype::Int32)?;
    /// let memory = memory.dynamic_slice_update(&array![[1, 2]], &array![2], &[0])?;
    /// assert_eq!(memory.to_vec::<i32>()?, [0, 0, 0, 0, 1, 2, 0, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dynamic_slice_update(&self, update: &Array, starts: &Array, axes: &[isize]) -> Result<Array> {
        // An axis that the update lacks is replaced as a whole, unless it has a start.
        let missing = self.ndim().saturating_sub(update.ndim());
        let rank = self.ndim() as isize;
        let starts_along = |at: usize| axes.iter().any(|axis| axis.rem_euclid(rank.max(1)) == at as isize);
        let whole = |(at, length): (usize, &usize)| if starts_along(at) { 1 } else { *length };
        let sizes: Shape = (self.shape()[..missing].iter().enumerate().map(whole))
            .chain(update.shape().iter().copied())
            .collect();
        let axes = self.check_starts("slice_update", starts, axes, &sizes)?;
        let update = update.broadcast_to(&sizes)?.astype(self.dtype())?;
        let steps = smallvec_of(1, self.ndim());
        let op = SliceUpdate { starts: Starts::Given(axes), steps, mode: UpdateMode::Set };
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
        let counted = starts.size() == axes.len() && axes.len() <= self.ndim();
        if counted {
            crate::shape::axes(op, axes, self.ndim())?;
        }
        let fits = counted
            && starts.ndim() <= 1
            && sizes.len() == self.ndim()
            && sizes.iter().zip(self.shape()).all(|(size, length)| size <= length);
        if !fits {
            let what = format!(
                "{} starts along axes {axes:?} for a slice of {sizes:?} of an array of shape {:?}",
                starts.size(),
                self.shape()
            );
            return Err(Error::shape(op, what).with_shapes([self, starts]));
        }
        axes.iter().map(|one| axis(op, *one, self.ndim())).collect()
    }
}

/// `update` stretched to a shape; leading axes of length one too many are dropped.
pub fn fit(op: &str, update: &Array, shape: &[usize]) -> Result<Array> {
    let extra = update.ndim().saturating_sub(shape.len());
    let update = if update.shape()[..extra].iter().all(|length| *length == 1) && extra > 0 {
        let own: SmallVec<[isize; 6]> = update.shape()[extra..].iter().map(|x| *x as isize).collect();
        update.reshape(&own)?
    } else {
        update.clone()
    };
    if broadcast(op, update.shape(), shape)?[..] != *shape {
        let what = format!("an update of shape {:?} for a slice of shape {shape:?}", update.shape());
        return Err(Error::shape(op, what).with_shapes([&update]));
    }
    update.broadcast_to(shape)
}

reader!("slice_update", One(read_update));
fn read_update(replay: &Replay<'_>) -> Result<Array> {
    let [x, update] = replay.inputs()?;
    let (starts, steps) = (replay.axes("starts")?, replay.axes("steps")?);
    let traced = replay.traced.get(1).map_or(update.shape(), |shape| shape);
    let (start, stop) = super::replay_shapes::slice(replay, &starts, &steps, traced)?;
    x.slice_update_by(replay.choice("mode", &UpdateMode::NAMES)?, update, &start, &stop, &steps)
}

reader!("dynamic_slice_update", One(read_dynamic_update));
fn read_dynamic_update(replay: &Replay<'_>) -> Result<Array> {
    let [x, update, starts] = replay.inputs()?;
    x.dynamic_slice_update(update, starts, &replay.axes("axes")?)
}

reader!("dynamic_slice", One(read_dynamic));
fn read_dynamic(replay: &Replay<'_>) -> Result<Array> {
    let [x, starts] = replay.inputs()?;
    let sizes = super::replay_shapes::sizes(replay, replay.shape())?;
    x.dynamic_slice(starts, &replay.axes("axes")?, &sizes)
}
