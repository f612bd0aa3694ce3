//! The cotangents of Fourier transforms: transforms in the other direction. Half of a symmetric spectrum
//! counts twice, but for its ends.

use hesper::{Array, Dtype, select};

use super::pointwise::ints;
use super::{Node, step};
use crate::primitives::Argument;

pub fn reverse(node: &Node, ct: &Array) -> hesper::Result<Option<Array>> {
    let (x, y) = (node.x(), node.y());
    let along = ints(node.arguments().first());
    let [inverse, real] = [1, 2].map(|at| matches!(node.primitive.flag(at), Some(true)));
    let other = |inverse: bool, real: bool, x: &Array, like: &Array| {
        let arguments = vec![node.arguments()[0].clone(), inverse.into(), real.into(), Argument::from(false)];
        step("FFT", arguments, &[x], like.shape(), like.dtype())
    };
    let whole = if real && inverse { y } else { x };
    let count: f64 = along.iter().map(|axis| whole.shape()[*axis as usize] as f64).product();
    let last = along.last().copied().unwrap_or_default() as usize;
    // The weights of half a spectrum.
    let weights = |half: &Array, middle: f64, end: f64| {
        let length = half.shape()[last];
        let mut to = vec![1isize; half.ndim()];
        to[last] = length as isize;
        let places = Array::arange(0..length as i64, Some(Dtype::Int32))?.reshape(&to)?;
        let stop = (whole.shape()[last].div_ceil(2)) as i64;
        let inner = places.greater(Array::integer(0, Dtype::Int32)?)?;
        let inner = inner.logical_and(places.less(Array::integer(stop, Dtype::Int32)?)?)?;
        let number = |value: f64| Array::complex([value, 0.0], Dtype::Complex64);
        select(&inner, number(middle)?, number(end)?)
    };
    Ok(Some(match (real, inverse) {
        (false, _) => {
            let scale = if inverse { 1.0 / count } else { count };
            other(!inverse, false, ct, x)?.multiply(Array::scalar(scale, x.dtype())?)?
        }
        (true, false) => {
            let weighted = ct.multiply(weights(ct, 0.5, 1.0)?)?;
            other(true, true, &weighted, x)?.multiply(Array::scalar(count, x.dtype())?)?
        }
        (true, true) => {
            let found = other(false, true, ct, x)?;
            found.multiply(weights(&found, 2.0 / count, 1.0 / count)?)?
        }
    }))
}
