//! Softmax and the logarithm of a sum of exponentials over several axes.

use hesper::{Array, Axes, Category, Dtype, axes, select};

fn list(over: &[usize]) -> Vec<isize> {
    over.iter().map(|axis| *axis as isize).collect()
}

pub fn softmax(x: &Array, over: &Axes) -> hesper::Result<Option<Array>> {
    let over = over.resolve("softmax", x.ndim())?;
    if over.len() < 2 || !x.dtype().is(Category::Floating) {
        return Ok(None);
    }
    let kept = || axes(list(&over)).keepdims();
    let powers = x.subtract(&x.max(kept())?)?.exp()?;
    powers.divide(&powers.sum(kept())?).map(Some)
}

/// A reduction by its name.
pub fn over(name: &str, x: &Array, axes: &Axes) -> hesper::Result<Option<Array>> {
    match name {
        "logsumexp" => logsumexp(x, axes),
        "mean" if x.dtype().is(Category::Integer) && x.size() > 0 => {
            let over = axes.resolve("mean", x.ndim())?;
            let count: usize = over.iter().map(|axis| x.shape()[*axis]).product();
            let sum = x.sum(axes)?.astype(Dtype::Float32)?;
            sum.multiply(Array::scalar(1.0 / count as f64, Dtype::Float32)?).map(Some)
        }
        _ => Ok(None),
    }
}

fn logsumexp(x: &Array, over: &Axes) -> hesper::Result<Option<Array>> {
    let (kept, over) = (over.is_kept(), over.resolve("logsumexp", x.ndim())?);
    if over.is_empty() || x.size() == 0 || !x.dtype().is(Category::Floating) {
        return Ok(None);
    }
    let over = list(&over);
    if over[..] == [x.ndim() as isize - 1] {
        let result = x.logsumexp(-1)?;
        return if kept { result.expand_dims(-1) } else { Ok(result) }.map(Some);
    }
    let all = || axes(over.clone()).keepdims();
    let top = x.max(all())?;
    let sum = x.subtract(&top)?.exp()?.sum(all())?;
    let [shown, sum] =
        if kept { [top.clone(), sum] } else { [top.squeeze(over.clone())?, sum.squeeze(over)?] };
    let logarithm = sum.log()?;
    let shape: Vec<isize> = shown.shape().iter().map(|length| *length as isize).collect();
    let result = logarithm.add(if kept { top } else { top.reshape(&shape)? })?;
    let is = |number: f64| shown.equal(Array::scalar(number, x.dtype())?);
    let infinite = is(f64::INFINITY)?.logical_or(is(f64::NEG_INFINITY)?)?;
    select(&infinite, &shown, &result).map(Some)
}
