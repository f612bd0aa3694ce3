//! Norms of vectors and matrices.

use smallvec::SmallVec;

use super::linalg::singular_values;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::{Axes, Dtype};

/// Which norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Norm {
    /// The root of the sum of squares: of vectors, matrices, or all elements.
    Euclidean,
    /// The same, of matrices only.
    Frobenius,
    /// The sum of singular values, of matrices only.
    Nuclear,
    /// The norm of an order: of a vector any, of a matrix 1, 2, infinity or their negatives.
    Order(f64),
}

/// A norm over [axes](Axes): of vectors along one, of matrices along two. With `()` the array must be a
/// vector or a matrix, unless the norm is [`Norm::Euclidean`], which then is of all elements.
///
/// ```
/// use hesper::{Array, linalg};
/// let x = Array::from_slice(&[3.0f32, 4.0]);
/// assert_eq!(linalg::norm(&x, linalg::Norm::Euclidean, ())?.item::<f32>()?, 5.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn norm(x: &Array, norm: Norm, over: impl Into<Axes>) -> Result<Array> {
    let over = over.into();
    let all: SmallVec<[isize; 6]> = (0..x.ndim() as isize).collect();
    let (axes, keepdims) = (over.named().unwrap_or(&all), over.is_kept());
    let x = x.astype(x.dtype().to_inexact())?;
    let fail = |what: String| Err(Error::value("norm", what));
    let euclidean = || -> Result<Array> {
        let squares = if x.dtype().is(Category::Complex) { x.abs()?.square()? } else { x.square()? };
        squares.sum(&over)?.sqrt()
    };
    match (norm, axes) {
        (Norm::Euclidean, _) if over.named().is_none() || axes.len() <= 2 => euclidean(),
        (Norm::Frobenius, [_, _]) => euclidean(),
        (Norm::Order(order), [_]) => vector(&x, order, over),
        (Norm::Order(order), [rows, columns]) => matrix(&x, order, *rows, *columns, keepdims),
        (Norm::Nuclear, [rows, columns]) => singular(&x, *rows, *columns, keepdims, |values| values.sum(-1)),
        (Norm::Nuclear, _) => fail(format!("the nuclear norm takes two axes, not {axes:?}")),
        (Norm::Frobenius, _) => fail(format!("the Frobenius norm takes two axes, not {axes:?}")),
        _ => fail(format!("takes one or two axes, not {} of shape {:?}", axes.len(), x.shape())),
    }
}

fn vector(x: &Array, order: f64, over: Axes) -> Result<Array> {
    if order == 2.0 {
        // Of complex numbers real, as the Euclidean norm is.
        return x.abs()?.square()?.sum(over)?.sqrt();
    }
    let result = if order == 0.0 {
        x.count_nonzero(over)?.astype(x.dtype())
    } else if order == f64::INFINITY {
        x.abs()?.max(over)
    } else if order == f64::NEG_INFINITY {
        x.abs()?.min(over)
    } else if order == 1.0 {
        x.abs()?.sum(over)
    } else {
        x.abs()?.power(order)?.sum(over)?.power(1.0 / order)
    }?;
    result.astype(x.dtype())
}

/// A norm that is a function of the singular values of each matrix.
fn singular(
    x: &Array,
    rows: isize,
    columns: isize,
    keepdims: bool,
    of: impl FnOnce(Array) -> Result<Array>,
) -> Result<Array> {
    let over = crate::shape::axes("norm", &[rows, columns], x.ndim())?;
    let wide = if x.dtype().size() < 4 { x.astype(Dtype::Float32)? } else { x.clone() };
    let last = over[0] + 2 == x.ndim() && over[1] + 1 == x.ndim();
    let matrices =
        if last { wide } else { wide.moveaxis(over[0] as isize, -1)?.moveaxis(over[1] as isize - 1, -1)? };
    let result = of(singular_values(&matrices)?)?;
    let result = if x.dtype().is(Category::Complex) { result } else { result.astype(x.dtype())? };
    if !keepdims {
        return Ok(result);
    }
    result.expand_dims(&over[..])
}

fn matrix(x: &Array, order: f64, rows: isize, columns: isize, keepdims: bool) -> Result<Array> {
    if order.abs() != 1.0 && order.abs() != 2.0 && !order.is_infinite() {
        let what = format!("order {order} of a matrix of shape {:?} is not defined", x.shape());
        return Err(Error::value("norm", what));
    }
    crate::shape::axes("norm", &[rows, columns], x.ndim())?;
    if order.abs() == 2.0 {
        return singular(x, rows, columns, keepdims, |values| {
            if order > 0.0 { values.max(-1) } else { values.min(-1) }
        });
    }
    // The axis that is summed over, then the one that is chosen from.
    let [rows, columns] = [rows, columns].map(|one| crate::shape::axis("norm", one, x.ndim()));
    let (rows, columns) = (rows?, columns?);
    let (summed, chosen) = if order.abs() == 1.0 { (rows, columns) } else { (columns, rows) };
    let (sums, chosen) = if keepdims {
        (x.abs()?.sum(Axes::from(summed as isize).keepdims())?, Axes::from(chosen as isize).keepdims())
    } else {
        // The axis that is chosen from moves with the one that is gone.
        let chosen = chosen - usize::from(chosen > summed);
        (x.abs()?.sum(summed as isize)?, Axes::from(chosen as isize))
    };
    let found = if order > 0.0 { sums.max(chosen)? } else { sums.min(chosen)? };
    found.astype(x.dtype())
}
