//! Comparisons of arrays as a whole, and with a tolerance.

use hesper::{Array, Category, Dtype, Tolerance};

use super::traced_step;

/// Whether two arrays are equal, where NaN may equal NaN.
pub fn array_equal(a: &Array, b: &Array, equal_nan: bool) -> hesper::Result<Option<Array>> {
    let dtype = a.dtype().promote(b.dtype());
    if a.shape() != b.shape() || !equal_nan || !dtype.is(Category::Inexact) {
        return Ok(None);
    }
    let (a, b) = (a.astype(dtype)?, b.astype(dtype)?);
    traced_step("Equal", vec![true.into()], &[&a, &b], a.shape(), Dtype::Bool)?.all(()).map(Some)
}

/// Whether elements are close: MLX takes tolerances of single precision, and asks integers for infinities
/// too.
pub fn isclose(a: &Array, b: &Array, tolerance: Tolerance) -> hesper::Result<Option<Array>> {
    if a.dtype().is(Category::Complex) || b.dtype().is(Category::Complex) {
        return Ok(None);
    }
    let number = |value: f64| Array::scalar(value, Dtype::Float32);
    let is = |x: &Array, value: f64| match x.dtype().is(Category::Floating) {
        true => x.equal(Array::scalar(value, x.dtype())?),
        false => Array::zeros(x.shape(), Dtype::Bool),
    };
    let allowed = number(tolerance.absolute)?.add(number(tolerance.relative)?.multiply(b.abs()?)?)?;
    let near = a.subtract(b)?.abs()?.less_equal(&allowed)?;
    let ends = |x: &Array| Ok::<_, hesper::Error>([is(x, f64::INFINITY)?, is(x, f64::NEG_INFINITY)?]);
    let ([above, below], [other_above, other_below]) = (ends(a)?, ends(b)?);
    let infinite = above.logical_or(&below)?.logical_or(other_above.logical_or(&other_below)?)?;
    let both = above.logical_and(&other_above)?.logical_or(below.logical_and(&other_below)?)?;
    let close = near.logical_and(infinite.logical_not()?)?.logical_or(both)?;
    if !tolerance.equal_nan {
        return Ok(Some(close));
    }
    close.logical_or(a.isnan()?.logical_and(b.isnan()?)?).map(Some)
}
