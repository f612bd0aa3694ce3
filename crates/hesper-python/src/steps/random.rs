//! Random numbers: MLX scales words by divisions and keeps bounds as arrays.

use hesper::random::{self, Draws};
use hesper::{Array, Category, Dtype};

fn number(value: f64, dtype: Dtype) -> hesper::Result<Array> {
    Array::scalar(value, dtype)
}

/// The largest number below one.
fn below_one(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => 1.0 - 1.0 / 2048.0,
        Dtype::Bfloat16 => 1.0 - 1.0 / 256.0,
        _ => 1.0 - 1.0 / 16_777_216.0,
    }
}

/// The number above minus one in single precision.
const ABOVE_MINUS_ONE: f64 = -1.0 + 1.0 / 16_777_216.0;

pub fn uniform(
    low: &Array,
    high: &Array,
    shape: &[usize],
    dtype: Dtype,
    key: Option<&Array>,
) -> hesper::Result<Array> {
    let wide = Dtype::Float32;
    let (high, low) = (high.astype(dtype)?, low.astype(dtype)?);
    let span = high.subtract(&low)?;
    let words = random::bits(shape, key)?.astype(wide)?;
    let shares = words.divide(number(4_294_967_296.0, wide)?)?;
    let shares = shares.minimum(number(below_one(dtype), wide)?)?.astype(dtype)?;
    span.multiply(shares)?.add(low)
}

/// Numbers between -1 and 1, both excluded.
fn symmetric(shape: &[usize], key: Option<&Array>) -> hesper::Result<Array> {
    let wide = Dtype::Float32;
    uniform(&number(ABOVE_MINUS_ONE, wide)?, &number(1.0, wide)?, shape, wide, key)
}

pub fn normal(
    shape: &[usize],
    dtype: Dtype,
    loc: Option<Array>,
    scale: Option<Array>,
    key: Option<&Array>,
) -> hesper::Result<Array> {
    if dtype.is(Category::Complex) && loc.is_none() && scale.is_none() {
        // Both parts have half of the variance.
        let pairs: Vec<usize> = shape.iter().copied().chain([2]).collect();
        let pairs = symmetric(&pairs, key)?.erfinv()?;
        return pairs.view(dtype)?.squeeze(-1);
    }
    let mut factor = number(std::f64::consts::SQRT_2, dtype)?;
    if let Some(scale) = scale {
        factor = factor.multiply(scale.astype(dtype)?)?;
    }
    let samples = factor.multiply(symmetric(shape, key)?.erfinv()?.astype(dtype)?)?;
    loc.map_or(Ok(samples.clone()), |loc| loc.astype(dtype)?.add(samples))
}

pub fn bernoulli(p: &Array, shape: &[usize], key: Option<&Array>) -> hesper::Result<Array> {
    let wide = Dtype::Float32;
    let words = random::bits(shape, key)?.astype(wide)?;
    words.less(p.multiply(number(4_294_967_808.0, wide)?)?)
}

pub fn randint(
    low: &Array,
    high: &Array,
    shape: &[usize],
    dtype: Dtype,
    key: Option<&Array>,
) -> hesper::Result<Array> {
    let drawn = uniform(low, high, shape, Dtype::Float32, key)?.floor()?.astype(dtype)?;
    let last = high.subtract(Array::integer(1, high.dtype())?)?;
    drawn.minimum(last.astype(dtype)?)?.maximum(low.astype(dtype)?)
}

pub fn truncated_normal(
    lower: &Array,
    upper: &Array,
    shape: Option<&[usize]>,
    dtype: Dtype,
    key: Option<&Array>,
) -> hesper::Result<Option<Array>> {
    let parameters = if lower.ndim() > upper.ndim() { lower.shape() } else { upper.shape() };
    let shape = shape.unwrap_or(parameters).to_vec();
    let root = number(std::f64::consts::SQRT_2, dtype)?;
    let (lower, upper) = (lower.astype(dtype)?, upper.astype(dtype)?);
    let end = upper.divide(&root)?.erf()?;
    let start = lower.divide(&root)?.erf()?;
    let drawn = root.multiply(uniform(&start, &end, &shape, dtype, key)?.erfinv()?)?;
    upper.minimum(drawn)?.maximum(lower).map(Some)
}

pub fn gumbel(shape: &[usize], dtype: Dtype, key: Option<&Array>) -> hesper::Result<Array> {
    let drawn = uniform(&number(0.0, dtype)?, &number(1.0, dtype)?, shape, dtype, key)?;
    drawn.log()?.negative()?.log()?.negative()
}

pub fn laplace(
    shape: &[usize],
    dtype: Dtype,
    loc: f64,
    scale: f64,
    key: Option<&Array>,
) -> hesper::Result<Option<Array>> {
    let drawn = symmetric(shape, key)?;
    let signs = drawn.sign()?;
    let minus = number(-1.0, dtype)?.astype(Dtype::Float32)?;
    let logarithm = minus.multiply(drawn.abs()?)?.log1p()?;
    let mut samples = signs.multiply(logarithm)?.astype(dtype)?;
    if scale != 1.0 {
        samples = number(scale, dtype)?.multiply(samples)?;
    }
    if loc != 0.0 {
        samples = number(loc, dtype)?.add(samples)?;
    }
    Ok(Some(samples))
}

pub fn categorical(
    logits: &Array,
    axis: isize,
    draws: &Draws<'_>,
    key: Option<&Array>,
) -> hesper::Result<Option<Array>> {
    let rank = logits.ndim() as isize;
    let axis = if axis < 0 { axis + rank } else { axis };
    if rank == 0 || !(0..rank).contains(&axis) || logits.dtype().is(Category::Complex) {
        return Ok(None);
    }
    let (mut shape, mut logits) = (logits.shape().to_vec(), logits.clone());
    match draws {
        Draws::One => {}
        Draws::Many(count) => {
            shape.push(*count);
            logits = logits.expand_dims(-1)?;
        }
        Draws::Shape(given) if axis == rank - 1 && given.len() + 1 >= shape.len() => {
            shape = given.iter().copied().chain(shape.last().copied()).collect();
        }
        Draws::Shape(_) => return Ok(None),
    }
    let along = if matches!(draws, Draws::Shape(_)) { shape.len() as isize - 1 } else { axis };
    gumbel(&shape, Dtype::Float32, key)?.add(logits)?.argmax(along).map(Some)
}

/// Numbers in random order.
pub fn order(count: usize, key: Option<&Array>) -> hesper::Result<Array> {
    random::bits(&[count], key)?.argsort(0)
}

/// The rows of an axis in random order.
pub fn permute(array: &Array, axis: isize, key: Option<&Array>) -> hesper::Result<Option<Array>> {
    let rank = array.ndim() as isize;
    let at = if axis < 0 { axis + rank } else { axis };
    if !(0..rank).contains(&at) {
        return Ok(None);
    }
    array.take(order(array.shape()[at as usize], key)?, at).map(Some)
}

/// The next global key and the key of a call, from the global one.
pub fn split(key: &Array) -> hesper::Result<[Array; 2]> {
    let both = random::split(key, 2)?;
    let half = |at: isize| both.slice_axis(0, at, at + 1, 1)?.reshape(&[2]);
    Ok([half(0)?, half(1)?])
}
