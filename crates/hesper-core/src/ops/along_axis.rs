//! Elements along one axis, found by an array of indices that has the same axes.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::gather::check_indices;
use super::logic::select;
use super::scatter::numbered;
use super::update_mode::UpdateMode;
use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, axis, broadcast};

/// The elements of the first input that the indices of the second point at along an axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct TakeAlong(pub usize);

impl Op for TakeAlong {
    fn name(&self) -> &'static str {
        "take_along_axis"
    }

    fn export(&self) -> Export {
        Record::new("take_along_axis").with("axis", self.0).into()
    }

    fn indices(&self) -> Range<usize> {
        1..2
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let zeros = zeros_like(&rule.inputs[0])?;
        rule.only(zeros.scatter_add_axis(&rule.inputs[1], &rule.cotangent()?, self.0 as isize))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(OpRef::new(TakeAlong(self.0 + 1)), smallvec![rule.full(0)?, rule.full(1)?])
    }
}

/// The first input with the elements that the indices of the second point at along an axis combined with the
/// third.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PutAlong(pub usize, pub UpdateMode);

impl Op for PutAlong {
    fn name(&self) -> &'static str {
        "put_along_axis"
    }

    fn export(&self) -> Export {
        Record::new("put_along_axis").with("axis", self.0).with("mode", self.1.name()).into()
    }

    fn indices(&self) -> Range<usize> {
        1..2
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [_, indices, values] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (cotangent, along) = (rule.cotangent()?, Some(self.0 as isize));
        if !matches!(self.1, UpdateMode::Set | UpdateMode::Add) {
            return Err(Error::value(self.name(), "has a derivative only if it sets or adds"));
        }
        rule.each(|at| {
            Ok(Some(match at {
                0 if self.1 == UpdateMode::Set => {
                    cotangent.put_along_axis(indices, &zeros_like(values)?, along)?
                }
                0 => cotangent.clone(),
                _ if self.1 == UpdateMode::Set => {
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

impl Array {
    /// The elements that `indices` point at along an axis. Except along it, both broadcast. Without an
    /// axis, both are one row.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[3, 1, 2], [6, 5, 4]];
    /// let order = x.argsort(1)?;
    /// assert_eq!(x.take_along_axis(&order, 1)?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn take_along_axis(&self, indices: &Array, along: impl Into<Option<isize>>) -> Result<Array> {
        let Some(along) = along.into() else {
            return self.reshape(&[-1])?.take_along_axis(&indices.reshape(&[-1])?, Some(0));
        };
        let (along, source, indices) = self.align("take_along_axis", indices, along)?;
        let (shape, op) = (indices.0.shape.clone(), OpRef::new(TakeAlong(along)));
        Array::lazy(shape, self.dtype(), op, smallvec![source, indices])
    }

    /// The array with `values` in place of the elements that `indices` point at along an axis; without
    /// an axis, of the array as one row. Where several meet, the last one stays.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[3, 1], [6, 5]];
    /// let y = x.put_along_axis(&array![[1], [0]], &array![[9], [8]], 1)?;
    /// assert_eq!(y.to_vec::<i32>()?, [3, 9, 8, 5]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn put_along_axis(
        &self,
        indices: &Array,
        values: &Array,
        along: impl Into<Option<isize>>,
    ) -> Result<Array> {
        self.put_by(UpdateMode::Set, "put_along_axis", indices, values, along.into())
    }

    /// Like [`put_along_axis`](Array::put_along_axis), adding the values.
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let counts = Array::zeros(&[4], Dtype::Int32)?;
    /// let seen = array![1, 3, 1];
    /// assert_eq!(counts.scatter_add_axis(&seen, &array![1, 1, 1], 0)?.to_vec::<i32>()?, [0, 2, 0, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter_add_axis(&self, indices: &Array, values: &Array, along: isize) -> Result<Array> {
        self.put_by(UpdateMode::Add, "scatter_add_axis", indices, values, Some(along))
    }

    fn put_by(
        &self,
        mode: UpdateMode,
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
            return Err(Error::shape(op, what).with_shapes([self, &indices]));
        }
        let values = values.astype(self.dtype())?.broadcast_to(indices.shape())?;
        let inputs = smallvec![self.clone(), indices, values];
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(PutAlong(along, mode)), inputs)
    }

    /// The axis from the front, and both arrays broadcast along the others.
    fn align(&self, op: &str, indices: &Array, along: isize) -> Result<(usize, Array, Array)> {
        let along = axis(op, along, self.ndim())?;
        check_indices(op, indices)?;
        if indices.ndim() != self.ndim() {
            let what = format!("indices of shape {:?} for an array of {:?}", indices.shape(), self.shape());
            return Err(Error::shape(op, what).with_shapes([self, indices]));
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

reader!("take_along_axis", One(read_take));
fn read_take(replay: &Replay<'_>) -> Result<Array> {
    let [x, indices] = replay.inputs()?;
    x.take_along_axis(indices, Some(replay.axis("axis")?))
}

reader!("put_along_axis", One(read_put));
fn read_put(replay: &Replay<'_>) -> Result<Array> {
    let [x, indices, values] = replay.inputs()?;
    let mode = replay.choice("mode", &UpdateMode::NAMES)?;
    x.put_by(mode, "put_along_axis", indices, values, Some(replay.axis("axis")?))
}
