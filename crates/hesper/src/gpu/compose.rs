//! Ops that a GPU computes as a graph of others.
//!
//! Their inputs become arrays of the op's stream, a function builds the graph, and its commands are encoded in the op's
//! place. Element-wise parts of it fuse as everywhere.

use smallvec::SmallVec;

use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::shape::signed;
use crate::{Dtype, place, select};

/// Lowers an op as the graph that `build` makes of its inputs; the result has the op's shape and type.
pub(crate) fn compose(
    l: &mut Lowering<'_>,
    build: impl FnOnce(&[Array]) -> Result<Array>,
) -> Result<Option<Data>> {
    l.bring()?;
    let stream = l.stream().clone();
    place::with_stream(&stream, || {
        let inputs = (0..l.input_count())
            .map(|at| Array::ready(l.input_shape(at).into(), l.input_dtype(at), l.input(at).clone()))
            .collect::<Result<SmallVec<[Array; 4]>>>()?;
        let output = build(&inputs)?;
        if output.shape() != l.shape() || output.dtype() != l.dtype() {
            let (given, expected) = ((output.shape(), output.dtype()), (l.shape(), l.dtype()));
            return Err(Error::value("compose", format!("a graph gave {given:?} for {expected:?}")));
        }
        drop(inputs);
        crate::eval::schedule(&[&output])?;
        output.data().map(Some)
    })
}

/// Two inputs of an op.
fn two(inputs: &[Array]) -> Result<[&Array; 2]> {
    match inputs {
        [a, b, ..] => Ok([a, b]),
        _ => Err(Error::value("compose", "two inputs expected")),
    }
}

/// The cross entropy of rows with places along them.
pub(crate) fn cross_entropy(inputs: &[Array]) -> Result<Array> {
    let [logits, targets] = two(inputs)?;
    let logits = if logits.dtype().size() < 4 { logits.astype(Dtype::Float32)? } else { logits.clone() };
    let classes = logits.shape()[logits.ndim() - 1] as f64;
    let chosen = logits.take_along_axis(&targets.expand_dims(&[-1])?, Some(-1))?.squeeze(Some(&[-1]))?;
    let losses = logits.logsumexp(Some(&[-1]), false)?.subtract(chosen)?;
    let known = targets.less(classes as i64)?.logical_and(targets.greater_equal(-(classes as i64))?)?;
    let none = Array::scalar(f64::NAN, losses.dtype())?;
    select(&known, &losses, &none)?.astype(Dtype::Float32)
}

/// The place of the largest number of each row; NaN is none.
pub(crate) fn choose(inputs: &[Array]) -> Result<Array> {
    let numbers = &inputs[0];
    let low = Array::scalar(f64::NEG_INFINITY, numbers.dtype())?;
    select(&numbers.isnan()?, &low, numbers)?.argmax(Some(-1), false)
}

/// The middle of each row, or the mean of the two in the middle; NaN if one of the row is.
pub(crate) fn median(inputs: &[Array]) -> Result<Array> {
    let x = &inputs[0];
    let (last, length) = (x.ndim() - 1, x.shape()[x.ndim() - 1] as isize);
    // NaN is last.
    let sorted = x.sort(Some(-1))?;
    let middle = sorted.slice_axis(last, (length - 1) / 2, length / 2 + 1, 1)?.mean(Some(&[-1]), false)?;
    if !x.dtype().is(crate::dtype::Category::Inexact) {
        return Ok(middle);
    }
    let end = sorted.slice_axis(last, length - 1, length, 1)?.squeeze(Some(&[-1]))?;
    select(&end.isnan()?, &end, &middle)
}

/// Rows in the order that sorts words.
pub(crate) fn permuted(inputs: &[Array]) -> Result<Array> {
    let [rows, words] = two(inputs)?;
    rows.take(words.argsort(Some(0))?, Some(0))
}

/// A square matrix of `side` rows with a vector on its diagonal number `k`.
pub(crate) fn diagonal(inputs: &[Array], side: usize, k: isize) -> Result<Array> {
    let vector = &inputs[0];
    let (side, count) = (side as isize, vector.shape()[0] as isize);
    let zeros = Array::zeros(&[(side * side) as usize], vector.dtype())?;
    if count == 0 {
        return zeros.reshape(&[side, side]);
    }
    let start = (-k).max(0) * side + k.max(0);
    let stop = start + (count - 1) * (side + 1) + 1;
    zeros.slice_update(vector, &[start], &[stop], &[side + 1])?.reshape(&[side, side])
}

/// Products of matrices that two lists choose.
pub(crate) fn chosen_products(inputs: &[Array]) -> Result<Array> {
    let [a, b, left, right] = inputs else {
        return Err(Error::value("gather_mm", "four inputs expected"));
    };
    a.take(left.clone(), Some(0))?.matmul(&b.take(right.clone(), Some(0))?)
}

/// Products over segments of the inner axis: what is outside of a segment is left out of its product.
pub(crate) fn segment_products(inputs: &[Array]) -> Result<Array> {
    let [a, b, segments] = inputs else {
        return Err(Error::value("segmented_mm", "three inputs expected"));
    };
    let k = a.shape()[1] as i64;
    let mut shape = signed(&segments.shape()[..segments.ndim() - 1]);
    shape.extend([a.shape()[0] as isize, b.shape()[1] as isize]);
    // A negative bound counts from one behind the last element.
    let bounds = segments.astype(Dtype::Int64)?.reshape(&[-1, 1, 2])?;
    let bounds = select(&bounds.less(0)?, &bounds.add(k + 1)?, &bounds)?;
    let places = Array::from_slice(&(0..k).collect::<Vec<i64>>());
    let inside = places
        .greater_equal(bounds.slice_axis(2, 0, 1, 1)?)?
        .logical_and(places.less(bounds.slice_axis(2, 1, 2, 1)?)?)?;
    let zero = Array::scalar(0.0, a.dtype())?;
    select(&inside, a, &zero)?.matmul(b)?.reshape(&shape)
}

/// The Walsh-Hadamard transform of rows: products with matrices of signs, for each factor of the length one. `signs`
/// is the matrix of the factor that is no power of two.
pub(crate) fn hadamard(inputs: &[Array], order: usize, signs: &[f32], scale: f32) -> Result<Array> {
    let (x, dtype) = (&inputs[0], inputs[0].dtype());
    let shape = signed(x.shape());
    let length = x.shape()[x.ndim() - 1];
    let mut factors: Vec<(usize, Array)> = Vec::new();
    let mut left = length / order;
    while left > 1 {
        let part = left.min(64);
        let sign = |at: usize| if ((at / part) & (at % part)).count_ones() % 2 == 0 { 1.0f32 } else { -1.0 };
        let matrix: Vec<f32> = (0..part * part).map(sign).collect();
        factors.push((part, Array::try_from_slice(&matrix, &[part, part])?));
        left /= part;
    }
    if order > 1 {
        factors.push((order, Array::try_from_slice(signs, &[order, order])?));
    }
    let mut y = x.astype(Dtype::Float32)?;
    // Places inside of the factors before.
    let mut inner = 1usize;
    for (part, matrix) in factors {
        y = y.reshape(&[-1, part as isize, inner as isize])?;
        y = if inner == 1 {
            y.reshape(&[-1, part as isize])?.matmul(&matrix.t()?)?
        } else {
            matrix.matmul(&y)?
        };
        inner *= part;
    }
    y.multiply(f64::from(scale))?.astype(dtype)?.reshape(&shape)
}

/// The nearest 8-bit floats (E4M3) of float32, as bytes.
pub(crate) fn fp8(inputs: &[Array]) -> Result<Array> {
    let x = &inputs[0];
    let word = |number: i64| Array::integer(number, Dtype::Uint32);
    let sign = x.view(Dtype::Uint32)?.right_shift(24)?.bitwise_and(&word(0x80)?)?;
    let size = x.abs()?.minimum(448.0)?;
    let small = size.multiply(512.0)?.round(0)?.astype(Dtype::Uint32)?;
    let bits = size.view(Dtype::Uint32)?;
    let odd = bits.right_shift(20)?.bitwise_and(&word(1)?)?;
    let large = bits.add(&word(0x7_ffff)?)?.add(odd)?.right_shift(20)?.subtract(&word(120 << 3)?)?;
    let code = select(&size.less(1.0 / 64.0)?, &small, &large)?;
    let code = select(&x.isnan()?, &word(0x7f)?, &code)?;
    sign.bitwise_or(&code)?.astype(Dtype::Uint8)
}
