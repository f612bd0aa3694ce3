//! Gathers: elements and slices found by index arrays.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, axis, broadcast, signed};
use crate::{Dtype, Operand};

/// An error unless an array holds integers.
pub fn check_indices(op: &str, indices: &Array) -> Result<()> {
    if !indices.dtype().is(Category::Integer) {
        let what = "indices must be integers, and are an array".into();
        return Err(Error::Type { op: op.into(), what, dtype: indices.dtype() });
    }
    Ok(())
}

/// Index arrays stretched to one shape, and that shape.
pub fn broadcast_indices(op: &str, indices: &[Array]) -> Result<(Shape, Vec<Array>)> {
    let mut shape = Shape::new();
    for one in indices {
        check_indices(op, one)?;
        shape = broadcast(op, &shape, one.shape())?;
    }
    let all = indices.iter().map(|one| one.broadcast_to(&shape)).collect::<Result<_>>()?;
    Ok((shape, all))
}

/// For each element of the index arrays, the slice of the source that they point at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The axis that each index array indexes.
    pub axes: SmallVec<[usize; 6]>,
    /// The size of a slice along every axis of the source.
    pub sizes: Shape,
    /// How many axes of the slices stand before those of the index arrays.
    pub before: usize,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn export(&self) -> Export {
        let record = Record::new("gather").with("axes", &self.axes[..]).with("sizes", &self.sizes[..]);
        record.with("before", self.before).into()
    }

    fn indices(&self) -> Range<usize> {
        1..usize::MAX
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (source, lists) = (&rule.inputs[0], &rule.inputs[1..]);
        let cotangent = rule.cotangent()?;
        let points = cotangent.ndim() - self.sizes.len();
        // The axes of the indices come first in an update.
        let (middle, end) = (self.before, self.before + points);
        let order: SmallVec<[isize; 6]> =
            (middle..end).chain(0..middle).chain(end..cotangent.ndim()).map(|at| at as isize).collect();
        let axes: SmallVec<[isize; 6]> = self.axes.iter().map(|at| *at as isize).collect();
        let sum = zeros_like(source)?.scatter_add(lists, &cotangent.transpose(&order)?, &axes)?;
        Ok(std::iter::once(Some(sum)).chain(lists.iter().map(|_| None)).collect())
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let lists = 1..rule.inputs.len();
        let indexed = lists.clone().any(|at| rule.is_batched(at));
        let source = rule.front(0)?;
        let ahead =
            |length: usize| -> Shape { std::iter::once(length).chain(self.sizes.iter().copied()).collect() };
        if !indexed {
            let axes = self.axes.iter().map(|at| at + 1).collect();
            let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
            inputs[0] = source;
            let op = Gather { axes, sizes: ahead(rule.size), before: self.before + 1 };
            return rule.apply(OpRef::new(op), inputs);
        }
        let mut indices = lists.map(|at| rule.full(at)).collect::<Result<Vec<Array>>>()?;
        if !rule.is_batched(0) {
            let gathered = source.gather_at(&indices, self.axes.clone(), self.sizes.clone(), self.before)?;
            return Ok((gathered, self.before));
        }
        // Each slice has its own source: its number is one more index.
        let mut own: SmallVec<[isize; 6]> = smallvec![1; indices[0].ndim()];
        own[0] = rule.size as isize;
        let numbers: Vec<i64> = (0..rule.size as i64).collect();
        indices.insert(0, Array::from_slice(&numbers).reshape(&own)?);
        let axes = std::iter::once(0).chain(self.axes.iter().map(|at| at + 1)).collect();
        let gathered = source.gather_at(&indices, axes, ahead(1), self.before + 1)?;
        Ok((gathered.squeeze(0)?, self.before))
    }
}

impl Array {
    /// For each element of the index arrays (broadcast to one shape), the slice of `sizes` that starts
    /// where they point along `axes`. The result has the axes of the indices, then those of the slices.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[0, 1, 2, 3, 4, 5], &[3, 2])?;
    /// let rows = x.gather(&[Array::from_slice(&[2, 0])], &[0], &[1, 2])?;
    /// assert_eq!(rows.shape(), [2, 1, 2]);
    /// assert_eq!(rows.to_vec::<i32>()?, [4, 5, 0, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn gather(&self, indices: &[Array], axes: &[isize], sizes: &[usize]) -> Result<Array> {
        let named = crate::shape::axes("gather", axes, self.ndim())?;
        if indices.len() != axes.len() || sizes.len() != self.ndim() {
            let what = format!(
                "{} index arrays along axes {axes:?} with slices of {sizes:?} of an array of shape {:?}",
                indices.len(),
                self.shape()
            );
            return Err(Error::shape("gather", what).with_shapes([self]));
        }
        let fits = |axis: usize| {
            sizes[axis] <= self.shape()[axis] && (named.contains(&axis) || sizes[axis] == self.shape()[axis])
        };
        // A slice along an axis without indices starts at its first element.
        if (0..self.ndim()).any(|axis| sizes[axis] > self.shape()[axis]) {
            let what = format!("slices of {sizes:?} do not fit an array of shape {:?}", self.shape());
            return Err(Error::shape("gather", what).with_shapes([self]));
        }
        let source = if (0..self.ndim()).all(fits) {
            self.clone()
        } else {
            let stop: SmallVec<[isize; 6]> = (0..self.ndim())
                .map(|at| if named.contains(&at) { self.shape()[at] } else { sizes[at] } as isize)
                .collect();
            self.slice(&smallvec_of(0, self.ndim()), &stop, &smallvec_of(1, self.ndim()))?
        };
        let axes: SmallVec<[usize; 6]> =
            axes.iter().map(|one| axis("gather", *one, self.ndim())).collect::<Result<_>>()?;
        source.gather_at(indices, axes, sizes.into(), 0)
    }

    /// The gather with the axes of the indices behind `before` axes of the slices.
    pub(crate) fn gather_at(
        &self,
        indices: &[Array],
        axes: SmallVec<[usize; 6]>,
        sizes: Shape,
        before: usize,
    ) -> Result<Array> {
        let (points, indices) = broadcast_indices("gather", indices)?;
        let shape: Shape = sizes[..before].iter().chain(&points).chain(&sizes[before..]).copied().collect();
        let empty = axes.iter().any(|axis| self.shape()[*axis] < sizes[*axis].max(1));
        if empty && !shape.contains(&0) {
            let what = format!("no element to take from an array of shape {:?}", self.shape());
            return Err(Error::value("gather", what));
        }
        let mut inputs: SmallVec<[Array; 3]> = smallvec![self.clone()];
        inputs.extend(indices);
        Array::lazy(shape, self.dtype(), OpRef::new(Gather { axes, sizes, before }), inputs)
    }

    /// The elements at `indices` along an axis, or of the array as one row. The axes of the indices take
    /// the place of that axis.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let columns = x.take(Array::from_slice(&[1, 1, -2]), 1)?;
    /// assert_eq!(columns.to_vec::<f32>()?, [2.0, 2.0, 1.0, 4.0, 4.0, 3.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn take(&self, indices: impl Into<Operand>, along: impl Into<Option<isize>>) -> Result<Array> {
        let Some(along) = along.into() else { return self.flatten(0, -1)?.take(indices, Some(0)) };
        let along = axis("take", along, self.ndim())?;
        let indices = match indices.into() {
            Operand::Array(indices) => indices,
            Operand::Int(index) => {
                let length = self.shape()[along];
                Array::integer(
                    super::index::host_index("take", index as isize, length)? as i64,
                    Dtype::Int64,
                )?
            }
            _ => return Err(Error::value("take", "an index must be an integer")),
        };
        check_indices("take", &indices)?;
        if self.shape()[along] == 0 && indices.size() > 0 {
            let what = format!("axis {along} of an array of shape {:?} has no elements", self.shape());
            return Err(Error::value("take", what));
        }
        let mut sizes = self.0.shape.clone();
        sizes[along] = 1;
        let removed = along + indices.ndim();
        if self.shape()[along] > 0 {
            let gathered = self.gather_at(&[indices], smallvec![along], sizes, along)?;
            return gathered.squeeze(removed as isize);
        }
        sizes[along] = 0;
        let gathered = self.gather_at(&[indices], smallvec![along], sizes, along)?;
        let mut shape = signed(gathered.shape());
        shape.remove(removed);
        gathered.reshape(&shape)
    }
}

/// `count` times the same number.
pub fn smallvec_of(value: isize, count: usize) -> SmallVec<[isize; 6]> {
    smallvec![value; count]
}

reader!("gather", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, indices @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    let axes = replay.axes("axes")?;
    let sizes = super::replay_shapes::sizes(replay, &replay.lengths("sizes")?)?;
    let before = replay.length("before")?;
    crate::shape::axes("gather", &axes, x.ndim())?;
    let axes: SmallVec<[usize; 6]> =
        axes.iter().map(|one| axis("gather", *one, x.ndim())).collect::<Result<_>>()?;
    let fits = indices.len() == axes.len()
        && !axes.is_empty()
        && sizes.len() == x.ndim()
        && before <= sizes.len()
        && sizes.iter().zip(x.shape()).all(|(size, length)| size <= length);
    if !fits {
        return Err(replay.wrong("slices that do not fit its input"));
    }
    x.gather_at(indices, axes, sizes, before)
}
