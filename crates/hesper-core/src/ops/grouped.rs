//! Matrix products of gathered matrices, of segments, and of masked blocks.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::gather::{broadcast_indices, check_indices};
use super::{Op, OpRef};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, signed};
use crate::{Dtype, select};

fn no_type(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floats, and was given an array".into(), dtype }
}

/// Products of matrices `[batch, m, k]` and `[batch, k, n]` gathered by two index arrays.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GatherMm;

impl Op for GatherMm {
    fn name(&self) -> &'static str {
        "gather_mm"
    }

    fn export(&self) -> Export {
        Record::new("gather_mm").into()
    }

    fn indices(&self) -> Range<usize> {
        2..4
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [a, b, left, right] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let cotangent = rule.cotangent()?;
        let each = all_of(left.shape())?;
        let sum = |into: &Array, parts: Array, places: &Array| {
            let mut shape = signed(places.shape());
            shape.push(1);
            shape.extend(signed(&into.shape()[1..]));
            let places = std::slice::from_ref(places);
            zeros_like(into)?.scatter_add(places, &parts.reshape(&shape)?, &[0])
        };
        rule.each(|at| {
            Ok(match at {
                0 => {
                    let parts = cotangent.gather_mm(&b.swapaxes(-1, -2)?, Some(&each), Some(right))?;
                    Some(sum(a, parts, left)?)
                }
                1 => {
                    let parts = a.swapaxes(-1, -2)?.gather_mm(&cotangent, Some(left), Some(&each))?;
                    Some(sum(b, parts, right)?)
                }
                _ => None,
            })
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.size == 0 {
            return rule.one_by_one();
        }
        let (mut a, left) = one_list(rule, &[0], 2)?;
        let (b, right) = one_list(rule, &[1], 3)?;
        a.extend(b);
        a.extend([left, right]);
        rule.apply(rule.op.clone(), a)
    }
}

/// A side of gathered products under `vmap`: its `parts` with the slices of the new axis concatenated, and
/// the indices `list` into them.
pub fn one_list(rule: &Batch<'_>, parts: &[usize], list: usize) -> Result<(SmallVec<[Array; 3]>, Array)> {
    let indices = rule.full(list)?;
    if !parts.iter().any(|at| rule.is_batched(*at)) {
        return Ok((parts.iter().map(|at| rule.inputs[*at].clone()).collect(), indices));
    }
    let all = parts.iter().map(|at| {
        let full = rule.full(*at)?;
        let mut shape = signed(&full.shape()[1..]);
        shape[0] *= rule.size as isize;
        full.reshape(&shape)
    });
    let all = all.collect::<Result<SmallVec<[Array; 3]>>>()?;
    let each = (all[0].shape()[0] / rule.size) as i64;
    // Normalize indices within their slice before they are offset to it.
    let indices = indices.astype(Dtype::Int64)?;
    let ahead = indices.add(select(
        &indices.less(0)?,
        &Array::integer(each, Dtype::Int64)?,
        &indices.zeros_like()?,
    )?)?;
    let own = ahead.maximum(0)?.minimum(each - 1)?;
    let mut shape: SmallVec<[isize; 6]> = smallvec![1; own.ndim()];
    shape[0] = rule.size as isize;
    let starts: Vec<i64> = (0..rule.size as i64).map(|slice| slice * each).collect();
    Ok((all, own.add(Array::from_slice(&starts).reshape(&shape)?)?))
}

/// Products over segments of the inner axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SegmentedMm;

impl Op for SegmentedMm {
    fn name(&self) -> &'static str {
        "segmented_mm"
    }

    fn export(&self) -> Export {
        Record::new("segmented_mm").into()
    }

    fn indices(&self) -> Range<usize> {
        2..3
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [a, b, segments] = rule.inputs else { return rule.each(|_| Ok(None)) };
        let (m, k, n) = (a.shape()[0] as isize, a.shape()[1] as isize, b.shape()[1] as isize);
        let cotangent = rule.cotangent()?.reshape(&[-1, m, n])?;
        let bounds = segments.astype(Dtype::Int64)?.reshape(&[-1, 2])?;
        let places: Vec<i64> = (0..k as i64).collect();
        let places = Array::from_slice(&places);
        let inside = places
            .greater_equal(bounds.slice_axis(1, 0, 1, 1)?)?
            .logical_and(places.less(bounds.slice_axis(1, 1, 2, 1)?)?)?;
        let zero = Array::scalar(0.0, cotangent.dtype())?;
        rule.each(|at| {
            Ok(match at {
                0 => {
                    let all = cotangent.matmul(&b.t()?)?;
                    Some(select(&inside.expand_dims(1)?, &all, &zero)?.sum(0)?)
                }
                1 => {
                    let all = a.t()?.matmul(&cotangent)?;
                    Some(select(&inside.expand_dims(2)?, &all, &zero)?.sum(0)?)
                }
                _ => None,
            })
        })
    }
}

/// Flat indices of the batch axes, in order.
pub fn all_of(batch: &[usize]) -> Result<Array> {
    let list: Vec<i64> = (0..batch.iter().product::<usize>() as i64).collect();
    Array::try_from_slice(&list, batch)
}

impl Array {
    /// Matrix products of matrices that indices choose: flat indices of the axes before the last two, for
    /// each side. Both broadcast; without indices, a side's matrices are taken in order.
    ///
    /// ```
    /// use hesper::array;
    /// let rows = array![[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]];
    /// let experts = array![[[1.0], [0.0]], [[0.0], [1.0]]]; // the first column, and the second
    /// let chosen = array![1, 0, 1];
    /// let y = rows.gather_mm(&experts, None, Some(&chosen))?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0, 6.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn gather_mm(&self, other: &Array, left: Option<&Array>, right: Option<&Array>) -> Result<Array> {
        let dtype = self.dtype().promote(other.dtype());
        if left.is_none() && right.is_none() {
            return self.matmul(other);
        }
        if !dtype.is(Category::Floating) {
            return Err(no_type("gather_mm", dtype));
        }
        // A vector is a row on the left and a column on the right, as in a product.
        if self.ndim() == 1 {
            let rows = if other.ndim() == 1 { -1 } else { -2 };
            return self.expand_dims(0)?.gather_mm(other, left, right)?.squeeze(rows);
        }
        if other.ndim() == 1 {
            return self.gather_mm(&other.expand_dims(1)?, left, right)?.squeeze(-1);
        }
        let fits = self.ndim() >= 2
            && other.ndim() >= 2
            && self.shape()[self.ndim() - 1] == other.shape()[other.ndim() - 2];
        if !fits {
            let what = format!("shapes {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::shape("gather_mm", what).with_shapes([self, other]));
        }
        let (batch_a, [m, k]) = matrices(self);
        let (batch_b, [_, n]) = matrices(other);
        let given = |list: Option<&Array>, batch: &[usize]| list.cloned().map_or_else(|| all_of(batch), Ok);
        let lists = [given(left, batch_a)?, given(right, batch_b)?];
        let (mut shape, lists) = broadcast_indices("gather_mm", &lists)?;
        let count: usize = shape.iter().product();
        shape.extend([m, n]);
        let flat = |array: &Array, rows: usize, columns: usize| {
            let batch: usize = array.shape()[..array.ndim() - 2].iter().product();
            array.astype(dtype)?.reshape(&[batch, rows, columns])
        };
        let (a, b) = (flat(self, m, k)?, flat(other, k, n)?);
        if count > 0 && (a.shape()[0] == 0 || b.shape()[0] == 0) {
            return Err(Error::value("gather_mm", "there are no matrices to choose from"));
        }
        let [left, right] = &lists[..] else {
            return Err(Error::value("gather_mm", "two index arrays expected"));
        };
        let inputs = smallvec![a, b, left.clone(), right.clone()];
        Array::lazy(shape, dtype, OpRef::Static(&GatherMm), inputs)
    }

    /// Matrix products over segments of the inner axis: for each pair of `segments`, its start and its
    /// end, one product.
    ///
    /// ```
    /// use hesper::array;
    /// let (a, b) = (array![[1.0, 2.0, 3.0]], array![[1.0], [10.0], [100.0]]);
    /// let y = a.segmented_mm(&b, &array![[0, 2], [2, 3]])?; // columns 0 and 1, then column 2
    /// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[2, 1, 1][..], vec![21.0, 300.0]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn segmented_mm(&self, other: &Array, segments: &Array) -> Result<Array> {
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is(Category::Floating) {
            return Err(no_type("segmented_mm", dtype));
        }
        check_indices("segmented_mm", segments)?;
        let fits = self.ndim() == 2
            && other.ndim() == 2
            && self.shape()[1] == other.shape()[0]
            && segments.shape().last() == Some(&2);
        if !fits {
            let what = format!(
                "shapes {:?} and {:?} with segments {:?}",
                self.shape(),
                other.shape(),
                segments.shape()
            );
            return Err(Error::shape("segmented_mm", what).with_shapes([self, other, segments]));
        }
        let mut shape: Shape = segments.shape()[..segments.ndim() - 1].into();
        shape.extend([self.shape()[0], other.shape()[1]]);
        let inputs = smallvec![self.astype(dtype)?, other.astype(dtype)?, segments.clone()];
        Array::lazy(shape, dtype, OpRef::Static(&SegmentedMm), inputs)
    }

    /// The matrix product with blocks of the operands or the result masked: left out by bools, scaled by
    /// numbers. A mask has one element for each block of `block_size` rows and columns.
    ///
    /// ```
    /// use hesper::{Array, Dtype, array};
    /// let x = Array::ones(&[64, 64], Dtype::Float32)?;
    /// let upper = array![[true, true], [false, true]]; // which blocks of 32 by 32 of the result are computed
    /// let y = x.block_masked_mm(&x, 32, Some(&upper), None, None)?;
    /// assert_eq!(y.slice_axis(1, 0, 1, 1)?.sum(())?.item::<f32>()?, 32.0 * 64.0);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn block_masked_mm(
        &self,
        other: &Array,
        block_size: usize,
        out: Option<&Array>,
        left: Option<&Array>,
        right: Option<&Array>,
    ) -> Result<Array> {
        if !matches!(block_size, 16 | 32 | 64) {
            return Err(Error::value(
                "block_masked_mm",
                format!("block_size must be 16, 32 or 64, not {block_size}"),
            ));
        }
        let a = masked(self, left, block_size)?;
        let b = masked(other, right, block_size)?;
        masked(&a.matmul(&b)?, out, block_size)
    }
}

/// The batch axes and the last two.
fn matrices(array: &Array) -> (&[usize], [usize; 2]) {
    let (batch, matrix) = array.shape().split_at(array.ndim() - 2);
    (batch, [matrix[0], matrix[1]])
}

/// A matrix with its blocks masked.
fn masked(matrix: &Array, mask: Option<&Array>, block: usize) -> Result<Array> {
    let Some(mask) = mask else { return Ok(matrix.clone()) };
    let rank = matrix.ndim();
    let blocks = |back: usize| matrix.shape()[rank - back].div_ceil(block);
    let fits = |back: usize| [1, blocks(back)].contains(&mask.shape()[mask.ndim() - back]);
    if rank < 2 || mask.ndim() < 2 || !(1..=2).all(fits) {
        let what = format!("a mask of shape {:?} for blocks of {:?}", mask.shape(), matrix.shape());
        return Err(Error::shape("block_masked_mm", what).with_shapes([matrix, mask]));
    }
    let mut whole: Shape = mask.shape().into();
    (whole[mask.ndim() - 2], whole[mask.ndim() - 1]) = (blocks(2), blocks(1));
    let mask = &mask.broadcast_to(&whole)?;
    let (rows, columns) = (mask.ndim() - 2, mask.ndim() - 1);
    let wide = mask
        .repeat(block, Some(rows as isize))?
        .repeat(block, Some(columns as isize))?
        .slice_axis(rows, 0, matrix.shape()[rank - 2] as isize, 1)?
        .slice_axis(columns, 0, matrix.shape()[rank - 1] as isize, 1)?;
    if mask.dtype() == Dtype::Bool {
        return select(&wide, matrix, &Array::scalar(0.0, matrix.dtype())?);
    }
    matrix.multiply(wide.astype(matrix.dtype())?)
}

reader!("gather_mm", One(read_gathered));
fn read_gathered(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, left, right] = replay.inputs()?;
    a.gather_mm(b, Some(left), Some(right))
}

reader!("segmented_mm", One(read_segmented));
fn read_segmented(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, segments] = replay.inputs()?;
    a.segmented_mm(b, segments)
}
