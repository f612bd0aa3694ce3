//! Softmax and the logarithm of a sum of exponentials over several axes.

use hesper::transform::stop_gradient;
use hesper::{Array, Axes, Category, Dtype, axes, select};

use super::traced_step;
use crate::primitives::ints;

fn list(over: &[usize]) -> Vec<isize> {
    over.iter().map(|axis| *axis as isize).collect()
}

/// Whether an array has floats or integers.
fn is_ordered(x: &Array) -> bool {
    x.dtype().is(Category::Floating) || x.dtype().is(Category::Integer)
}

pub fn softmax(x: &Array, over: &Axes) -> hesper::Result<Option<Array>> {
    let over = over.resolve("softmax", x.ndim())?;
    let last = over[..] == [x.ndim().saturating_sub(1)];
    if over.is_empty() || last || x.size() == 0 || !is_ordered(x) {
        return Ok(None);
    }
    let kept = || axes(list(&over)).keepdims();
    let distance = x.subtract(&stop_gradient(&x.max(kept())?)?)?;
    let powers = distance.astype(x.dtype().to_inexact())?.exp()?;
    powers.divide(&powers.sum(kept())?)?.astype(x.dtype()).map(Some)
}

/// A reduction by its name.
pub fn over(name: &str, x: &Array, axes: &Axes) -> hesper::Result<Option<Array>> {
    match name {
        "logsumexp" => logsumexp(x, axes),
        "median" if x.dtype().is(Category::Floating) && x.ndim() > 0 && x.size() > 0 => {
            // MLX moves the last axis to the end, too.
            let over = axes.resolve("median", x.ndim())?;
            if over[..] != [x.ndim() - 1] {
                return Ok(None);
            }
            let order: Vec<i64> = (0..x.ndim() as i64).collect();
            let turned = traced_step("Transpose", vec![ints(&order)], &[x], x.shape(), x.dtype())?;
            turned.median(axes).map(Some)
        }
        "mean" if !x.dtype().is(Category::Inexact) && x.size() > 0 => {
            let over = axes.resolve("mean", x.ndim())?;
            let count: usize = over.iter().map(|axis| x.shape()[*axis]).product();
            let sum = x.sum(axes)?.astype(Dtype::Float32)?;
            sum.multiply(Array::scalar(1.0 / count as f64, Dtype::Float32)?).map(Some)
        }
        "mean" if axes.resolve("mean", x.ndim())?.is_empty() => {
            x.multiply(Array::scalar(1.0, x.dtype())?).map(Some)
        }
        "mean" if x.dtype().is(Category::Inexact) => {
            let over = axes.resolve("mean", x.ndim())?;
            if over.iter().any(|axis| x.shape()[*axis] != 1) {
                return Ok(None);
            }
            x.sum(axes)?.multiply(Array::scalar(1.0, x.dtype())?).map(Some)
        }
        _ => Ok(None),
    }
}

fn logsumexp(x: &Array, over: &Axes) -> hesper::Result<Option<Array>> {
    let (kept, over) = (over.is_kept(), over.resolve("logsumexp", x.ndim())?);
    if over.is_empty() || x.size() == 0 || !is_ordered(x) {
        return Ok(None);
    }
    let (over, wide) = (list(&over), x.dtype().to_inexact());
    if over[..] == [x.ndim() as isize - 1] {
        let result = x.logsumexp(-1)?;
        return if kept { result.expand_dims(-1) } else { Ok(result) }.map(Some);
    }
    let all = || axes(over.clone()).keepdims();
    let top = stop_gradient(&x.max(all())?)?;
    let sum = x.subtract(&top)?.astype(wide)?.exp()?.sum(all())?;
    let [shown, sum] =
        if kept { [top.clone(), sum] } else { [top.squeeze(over.clone())?, sum.squeeze(over)?] };
    let logarithm = sum.log()?;
    let shape: Vec<isize> = shown.shape().iter().map(|length| *length as isize).collect();
    let result = logarithm.add(if kept { top } else { top.reshape(&shape)? }.astype(wide)?)?;
    let is = |number: f64| shown.equal(Array::scalar(number, x.dtype())?);
    let infinite = if x.dtype().is(Category::Floating) {
        is(f64::INFINITY)?.logical_or(is(f64::NEG_INFINITY)?)?
    } else {
        Array::zeros(shown.shape(), Dtype::Bool)?
    };
    select(&infinite, &shown.astype(wide)?, &result).map(Some)
}
