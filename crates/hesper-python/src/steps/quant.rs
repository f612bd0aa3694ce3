//! Decoding of quantized weights: MLX shifts the codes out of their words.

use hesper::{Array, Dtype, concatenate};

pub fn dequantize(
    words: &Array,
    scales: &Array,
    biases: &Array,
    group: usize,
    bits: usize,
) -> hesper::Result<Option<Array>> {
    if words.dtype() != Dtype::Uint32 || words.ndim() == 0 || !(2..=8).contains(&bits) || bits == 7 {
        return Ok(None);
    }
    let number = |value: usize| Array::integer(value as i64, Dtype::Uint32);
    let count = |end: usize| Array::arange(0..end as i64, Some(Dtype::Uint32));
    let codes = if bits.is_power_of_two() {
        let decoded = (1..=32 / bits).map(|place| {
            let shifted = words.left_shift(number(32 - bits * place)?)?;
            shifted.right_shift(number(32 - bits)?)?.expand_dims(-1)
        });
        concatenate(&decoded.collect::<hesper::Result<Vec<_>>>()?, -1)?
    } else {
        let digits = words.expand_dims(-1)?.right_shift(count(32)?)?;
        let digits = digits.bitwise_and(Array::try_from_slice(&[1u32], &[1])?)?;
        let digits = reshaped(&digits, words, &[-1, bits as isize])?;
        digits.left_shift(count(bits)?)?.sum(-1)?
    };
    let codes = reshaped(&codes, words, &[-1, group as isize])?.astype(scales.dtype())?;
    let decoded = codes.multiply(scales.expand_dims(-1)?)?.add(biases.expand_dims(-1)?)?;
    reshaped(&decoded, words, &[-1]).map(Some)
}

/// An array with the axes of another but for the last, and others.
fn reshaped(x: &Array, like: &Array, rest: &[isize]) -> hesper::Result<Array> {
    let own = like.shape()[..like.ndim() - 1].iter().map(|length| *length as isize);
    x.reshape(&own.chain(rest.iter().copied()).collect::<Vec<_>>())
}
