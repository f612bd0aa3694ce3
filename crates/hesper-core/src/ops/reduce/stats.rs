//! Means, variances, medians and sums of exponentials.

use smallvec::SmallVec;

use super::{ReduceKind, without};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::identity::BitEq;
use crate::ops::logic::select;
use crate::ops::norm::not_of_scalar;
use crate::{Axes, Dtype};

pub fn mean(x: &Array, axes: &Axes) -> Result<Array> {
    let over = axes.resolve("mean", x.ndim())?;
    let count: usize = over.iter().map(|at| x.shape()[*at]).product();
    let input = x.astype(x.dtype().to_inexact())?;
    input.reduce_axes(ReduceKind::Sum(BitEq(1.0 / count as f64)), over, axes.is_kept())
}

pub fn variance(x: &Array, axes: &Axes, ddof: isize, root: bool) -> Result<Array> {
    let op = if root { "std" } else { "var" };
    let over = axes.resolve(op, x.ndim())?;
    let count = over.iter().map(|at| x.shape()[*at]).product::<usize>() as f64;
    let input = x.astype(x.dtype().to_inexact())?;
    if input.dtype().size() > 4 {
        // No wider type to sum in: distances to the mean, in a second pass.
        let mean = input.reduce_axes(ReduceKind::Sum(BitEq(1.0 / count)), over.clone(), true)?;
        let distance = input.subtract(&mean)?.abs()?.square()?;
        let scale = 1.0 / (count - ddof as f64).max(0.0);
        let variance = distance.reduce_axes(ReduceKind::Sum(BitEq(scale)), over, axes.is_kept())?;
        return if root { variance.sqrt() } else { Ok(variance) };
    }
    input.reduce_axes(
        ReduceKind::Variance { count: BitEq(count), ddof: BitEq(ddof as f64), root },
        over,
        axes.is_kept(),
    )
}

pub fn median(x: &Array, axes: &Axes) -> Result<Array> {
    let over = axes.resolve("median", x.ndim())?;
    if over.iter().any(|at| x.shape()[*at] == 0) {
        let what = format!("axes {over:?} of an array of shape {:?} have no elements", x.shape());
        return Err(Error::value("median", what));
    }
    if over.is_empty() && x.ndim() > 0 {
        return Err(Error::value("median", "there are no axes to reduce; name at least one"));
    }
    let rows = x.astype(x.dtype().to_inexact())?.rows_over(&over)?;
    let middle = rows.middle()?;
    if !axes.is_kept() || over.is_empty() {
        return Ok(middle);
    }
    let over: SmallVec<[isize; 6]> = over.iter().map(|at| *at as isize).collect();
    middle.expand_dims(&over[..])
}

pub fn logsumexp(x: &Array, axes: &Axes) -> Result<Array> {
    if x.size() == 0 {
        let what = format!("an array of shape {:?} has no elements", x.shape());
        return Err(Error::value("logsumexp", what));
    }
    not_of_scalar("logsumexp", axes, x)?;
    let over = axes.resolve("logsumexp", x.ndim())?;
    let input = x.astype(x.dtype().to_inexact())?;
    if over.is_empty() {
        return Ok(input);
    }
    let last = over.iter().rev().enumerate().all(|(back, at)| at + back + 1 == x.ndim());
    let rows = if last && input.dtype().is(Category::Floating) {
        Some(input.rows_over(&over)?)
    } else {
        input.turned_to_columns(&over)?
    };
    if let Some(rows) = rows {
        let rows = rows.logsumexp_rows()?;
        let shape: SmallVec<[isize; 6]> =
            without(x.shape(), &over, axes.is_kept()).iter().map(|length| *length as isize).collect();
        return rows.reshape(&shape);
    }
    let wide = if input.dtype().size() < 4 { Dtype::Float32 } else { input.dtype() };
    let x = input.astype(wide)?;
    let top = x.reduce_axes(ReduceKind::Max, over.clone(), true)?;
    // Infinity less infinity is no number: there the top is left out.
    let top = select(&top.isfinite()?, &top, &Array::scalar(0.0, wide)?)?;
    let sum = x.subtract(&top)?.exp()?.reduce_axes(ReduceKind::Sum(BitEq(1.0)), over.clone(), true)?;
    let result = sum.log()?.add(&top)?.astype(input.dtype())?;
    let shape: SmallVec<[isize; 6]> =
        without(x.shape(), &over, axes.is_kept()).iter().map(|length| *length as isize).collect();
    result.reshape(&shape)
}

impl Array {
    /// The array with some axes moved to the end and joined to one.
    pub(crate) fn rows_over(&self, over: &[usize]) -> Result<Array> {
        // The last axis alone is there already: no view stands between what makes the rows and what reads
        // them.
        if over.len() == 1 && over[0] + 1 == self.ndim() {
            return Ok(self.clone());
        }
        let kept: SmallVec<[usize; 6]> = (0..self.ndim()).filter(|at| !over.contains(at)).collect();
        let order: SmallVec<[isize; 6]> = kept.iter().chain(over).map(|at| *at as isize).collect();
        let turned = self.transpose(&order)?;
        if over.len() == 1 {
            return Ok(turned);
        }
        if over.is_empty() {
            return turned.expand_dims(-1);
        }
        turned.flatten(kept.len() as isize, -1)
    }
}
