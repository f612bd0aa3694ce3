//! Scatters: updates of elements and slices that index arrays point at.
//!
//! Updates of the same element are applied in the order of the index arrays' elements, whatever the number of
//! threads. Indices are treated as by gathers.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::gather::broadcast_indices;
use super::logic::select;
use super::update_mode::UpdateMode;
use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::axis;

/// The first input with slices combined with those of the second, at the indices of the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// The axis that each index array indexes.
    pub axes: SmallVec<[usize; 6]>,
    /// How slices are combined.
    pub mode: UpdateMode,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn export(&self) -> Export {
        Record::new("scatter").with("axes", &self.axes[..]).with("mode", self.mode.name()).into()
    }

    fn indices(&self) -> Range<usize> {
        2..usize::MAX
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
                (0, UpdateMode::Set) => cotangent.scatter(lists, &zeros_like(updates)?, &axes)?,
                (0, UpdateMode::Add) => cotangent.clone(),
                (0, UpdateMode::Multiply) => {
                    cotangent.multiply(source.ones_like()?.scatter_prod(lists, updates, &axes)?)?
                }
                (0, UpdateMode::Max | UpdateMode::Min) => select(&out.equal(source)?, &cotangent, &zero)?,
                (1, UpdateMode::Set) => {
                    // Of updates that meet, the one that stayed has a part in the result.
                    let numbers = numbered(updates.shape())?;
                    let none = Array::zeros(source.shape(), Dtype::Int64)?;
                    let stayed = at_points(&none.scatter(lists, &numbers, &axes)?)?.equal(&numbers)?;
                    select(&stayed, &at_points(&cotangent)?, &zero)?
                }
                (1, UpdateMode::Add) => at_points(&cotangent)?,
                (1, UpdateMode::Multiply) => {
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
                (1, UpdateMode::Max | UpdateMode::Min) => {
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
        let updates = updates.expand_dims(points)?;
        Ok((source.scatter_by(self.mode, &lists, &updates, &axes)?, 0))
    }
}

/// Numbers from one on, in a shape.
pub fn numbered(shape: &[usize]) -> Result<Array> {
    Array::ones(shape, Dtype::Int64)?.reshape(&[-1])?.cumsum(Some(0), false, true)?.reshape(shape)
}

impl Array {
    /// The array with slices replaced by `updates`: for each element of the index arrays (broadcast to one
    /// shape) the slice that starts where they point along `axes`. `updates` has the axes of the indices,
    /// then one for each axis of the array. Where updates meet, the last one stays.
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let x = Array::zeros(&[3, 2], Dtype::Int32)?;
    /// let rows = array![[[1, 2]], [[3, 4]]]; // for each index a slice of one row
    /// let y = x.scatter(&[array![2, 0]], &rows, &[0])?;
    /// assert_eq!(y.to_vec::<i32>()?, [3, 4, 0, 0, 1, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(UpdateMode::Set, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), adding the updates.
    ///
    /// ```
    /// use hesper::array;
    /// let (places, ones) = (array![2, 0, 2], array![[1], [1], [1]]);
    /// let y = array![10, 10, 10].scatter_add(&[places], &ones, &[0])?;
    /// assert_eq!(y.to_vec::<i32>()?, [11, 10, 12]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter_add(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(UpdateMode::Add, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), multiplying by the updates.
    ///
    /// ```
    /// use hesper::array;
    /// let y = array![1, 2, 3].scatter_prod(&[array![1, 1]], &array![[5], [2]], &[0])?;
    /// assert_eq!(y.to_vec::<i32>()?, [1, 20, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter_prod(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(UpdateMode::Multiply, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), keeping the larger one.
    ///
    /// ```
    /// use hesper::array;
    /// let y = array![1, 2, 3].scatter_max(&[array![0, 2]], &array![[9], [0]], &[0])?;
    /// assert_eq!(y.to_vec::<i32>()?, [9, 2, 3]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter_max(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(UpdateMode::Max, indices, updates, axes)
    }

    /// Like [`scatter`](Array::scatter), keeping the smaller one.
    ///
    /// ```
    /// use hesper::array;
    /// let y = array![1, 2, 3].scatter_min(&[array![0, 2]], &array![[9], [0]], &[0])?;
    /// assert_eq!(y.to_vec::<i32>()?, [1, 2, 0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn scatter_min(&self, indices: &[Array], updates: &Array, axes: &[isize]) -> Result<Array> {
        self.scatter_by(UpdateMode::Min, indices, updates, axes)
    }

    pub(crate) fn scatter_by(
        &self,
        mode: UpdateMode,
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
            return Err(Error::shape("scatter", what).with_shapes([self, updates]));
        }
        let mut inputs: SmallVec<[Array; 3]> = smallvec![self.clone(), updates.astype(self.dtype())?];
        inputs.extend(lists);
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(Scatter { axes, mode }), inputs)
    }
}

reader!("scatter", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, updates, indices @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    x.scatter_by(replay.choice("mode", &UpdateMode::NAMES)?, indices, updates, &replay.axes("axes")?)
}
