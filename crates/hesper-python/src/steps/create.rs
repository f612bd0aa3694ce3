//! Samples of ranges and windows: MLX computes them from a count of their elements.

use std::f64::consts::PI;

use hesper::{Array, Dtype, concatenate};

fn number(value: f64) -> hesper::Result<Array> {
    Array::scalar(value, Dtype::Float32)
}

fn counted(count: usize) -> hesper::Result<Array> {
    Array::arange(0..count as i64, Some(Dtype::Float32))
}

/// Samples between two numbers, each a weighted sum of them.
pub fn linspace(start: f64, stop: f64, count: usize, dtype: Dtype) -> hesper::Result<Option<Array>> {
    if count < 2 {
        return Ok(None);
    }
    let share = counted(count)?.divide(number(count as f64 - 1.0)?)?;
    let before = number(1.0)?.subtract(&share)?.multiply(number(start)?)?;
    before.add(share.multiply(number(stop)?)?)?.astype(dtype).map(Some)
}

/// A window by its name.
pub fn window(name: &str, count: usize) -> hesper::Result<Option<Array>> {
    if count < 2 {
        return Ok(None);
    }
    let places = |turn: f64| number(turn / (count as f64 - 1.0))?.multiply(counted(count)?);
    let weighted = |weight: f64, x: &Array| number(weight)?.multiply(x);
    let found = match name {
        "hanning" => places(PI)?.sin()?.square()?,
        "hamming" => number(0.54)?.subtract(weighted(0.46, &places(2.0 * PI)?.cos()?)?)?,
        "blackman" => {
            let wave = places(2.0 * PI)?.cos()?;
            let first = number(0.34)?.subtract(weighted(0.5, &wave)?)?;
            first.add(weighted(0.16, &wave.square()?)?)?
        }
        _ => number(1.0)?.subtract(places(2.0)?.subtract(number(1.0)?)?.abs()?)?,
    };
    Ok(Some(found))
}

/// The frequencies of a Fourier transform, or of one of real numbers.
pub fn frequencies(count: usize, distance: f64, real: bool) -> hesper::Result<Option<Array>> {
    if count == 0 {
        return Ok(None);
    }
    let wide = Some(Dtype::Float32);
    let half = count as i64 / 2;
    let places = if real {
        counted(count / 2 + 1)?
    } else {
        let (first, second) =
            (Array::arange(0..(count as i64 + 1) / 2, wide)?, Array::arange(-half..0, wide)?);
        concatenate(&[first, second], 0)?
    };
    places.multiply(number(1.0 / (count as f64 * distance))?).map(Some)
}
