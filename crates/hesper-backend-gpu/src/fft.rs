//! Fourier transforms: one kernel for rows that fit into threadgroup memory; longer rows as transforms of
//! their factors.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::fft::{FftKind, Transform, unscaled};
use hesper_core::{Array, Dtype, Result, concatenate};

use crate::walk::fits;
use crate::{Gpu, Shared};

/// Largest factor of a row of the kernel.
const LARGEST: usize = 4095;

/// Parameters of a kernel that transforms rows.
#[derive(Debug)]
pub struct FourierRows {
    /// The number of the kind in the texts. 0: complex; 1: to the non-negative frequencies; 2: from these to
    /// real numbers.
    pub kind: u32,
    /// Whether the input is real.
    pub is_real: bool,
    /// How many rows there are.
    pub rows: usize,
    /// Elements of a row of the input.
    pub given: usize,
    /// Elements of a row of the output.
    pub kept: usize,
    /// The length of the transform.
    pub length: usize,
    /// Whether it is the inverse transform.
    pub inverse: bool,
    /// The factor of the results.
    pub scale: f32,
    /// How many factors the length has.
    pub factors: u32,
    /// Up to four different factors of 16 bits: the factor, and its multiplicity in the low 4 bits.
    pub radices: u64,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Transform>()
}

impl<G: Gpu> Lower<Transform> for Shared<G> {
    fn lower(op: &Transform, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (kind, inverse, scale) = (op.kind, op.inverse, op.scale.0 as f32);
        if l.input_dtype(0).real() == Dtype::Float64 || !fits::<G>(l) {
            return Ok(None);
        }
        let Some(parts) = split(G::LONGEST_FFT, op.length).filter(|_| op.length > G::LONGEST_FFT) else {
            return rows::<G>(l, kind, inverse, op.length, scale);
        };
        let given = if kind == FftKind::ComplexToReal { op.length / 2 + 1 } else { op.length };
        if l.input_shape(0).last() < Some(&given) {
            return Ok(None);
        }
        compose(l, |inputs| {
            let x = inputs[0].slice_axis(inputs[0].ndim() - 1, 0, given as isize, 1)?;
            by_parts(&x, kind, parts, inverse)?.multiply(f64::from(scale))
        })
    }
}

/// Factors and their multiplicities, packed for the kernel; `None` if there are too many.
fn factors(length: usize) -> Option<(u32, u64)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut left = length;
    // Fours first: a pass for two twos.
    for radix in [4].into_iter().chain(2..=LARGEST) {
        let mut times = 0;
        while left.is_multiple_of(radix) && left > 1 {
            left /= radix;
            times += 1;
        }
        if times > 0 {
            found.push((radix, times));
        }
        if left == 1 {
            break;
        }
    }
    // What has many small factors joins them.
    while found.len() > 4 {
        let (one, other) = (found.pop()?, found.pop()?);
        let product = one.0.checked_pow(one.1 as u32)?.checked_mul(other.0.checked_pow(other.1 as u32)?)?;
        found.push((product, 1));
    }
    let fits = left == 1 && found.iter().all(|(radix, times)| *radix <= LARGEST && *times < 16);
    if !fits {
        return None;
    }
    let packed =
        found.iter().enumerate().map(|(at, (radix, times))| ((radix << 4 | times) as u64) << (16 * at));
    Some((found.iter().map(|one| one.1 as u32).sum(), packed.sum()))
}

/// Two factors of a length that is longer than the `longest` of the kernel, each of which fits.
fn split(longest: usize, length: usize) -> Option<(usize, usize)> {
    let root = (length as f64).sqrt() as usize;
    let fits = |part: usize| part <= longest && factors(part).is_some();
    (1..=root.max(1))
        .rev()
        .map(|part| (part, length / part))
        .find(|(part, other)| part * other == length && fits(*part) && fits(*other))
        .filter(|(part, _)| *part > 1)
}

/// Transforms of the last axis of `length` elements; `None` if rows are too long.
fn rows<G: Gpu>(
    l: &mut Lowering<'_>,
    kind: FftKind,
    inverse: bool,
    length: usize,
    scale: f32,
) -> Result<Option<Data>> {
    if length == 0 || length > G::LONGEST_FFT {
        return Ok(None);
    }
    let Some((factors, radices)) = factors(length) else { return Ok(None) };
    l.bring()?;
    let shape = l.input_shape(0);
    let given = shape[shape.len() - 1];
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let kept = l.shape()[l.shape().len() - 1];
    let input = l.row_major(0)?;
    let output = l.output()?;
    let (bytes, _) = reach(&input, shape, l.input_dtype(0).size());
    let command = l.stream().command("fft").read_range(&input.buffer, bytes).write(&output);
    if rows == 0 || kept == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let kind = match kind {
        FftKind::Complex => 0,
        FftKind::RealToComplex => 1,
        FftKind::ComplexToReal => 2,
    };
    let is_real = l.input_dtype(0) == Dtype::Float32;
    let rows = FourierRows { kind, is_real, rows, given, kept, length, inverse, scale, factors, radices };
    G::fft(l.stream(), &rows)?.encode(command)?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// A long transform of rows as transforms of `parts` elements with twiddle factors between them, not scaled.
fn by_parts(x: &Array, kind: FftKind, parts: (usize, usize), inverse: bool) -> Result<Array> {
    let (one, other) = (parts.0 as isize, parts.1 as isize);
    let length = parts.0 * parts.1;
    let last = x.ndim() - 1;
    let mut x = x.astype(Dtype::Complex64)?;
    if kind == FftKind::ComplexToReal {
        // The missing frequencies mirror the given ones.
        let mirrored = x.slice_axis(last, (length - 1) as isize / 2, 0, -1)?.conjugate()?;
        x = concatenate(&[x, mirrored], last as isize)?;
    }
    let mut shape = hesper_core::shape::signed(x.shape());
    let columns = x.reshape(&[-1, one, other])?.swapaxes(1, 2)?;
    let sign = if inverse { 1.0 } else { -1.0 };
    let angle = |at: usize| {
        let (row, column) = (at / parts.0, at % parts.0);
        let turn = (row * column % length) as f64 / length as f64;
        sign * 2.0 * std::f64::consts::PI * turn
    };
    let turns: Vec<f32> =
        (0..length).flat_map(|at| [angle(at).cos() as f32, angle(at).sin() as f32]).collect();
    let turns = Array::try_from_slice(&turns, &[parts.1, parts.0 * 2])?.view(Dtype::Complex64)?;
    let turned = unscaled(&columns, inverse)?.multiply(&turns)?.swapaxes(1, 2)?;
    shape[last] = length as isize;
    let whole = unscaled(&turned, inverse)?.swapaxes(1, 2)?.reshape(&shape)?;
    match kind {
        FftKind::Complex => Ok(whole),
        FftKind::RealToComplex => whole.slice_axis(last, 0, (length / 2 + 1) as isize, 1),
        FftKind::ComplexToReal => whole.real(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_a_length_are_packed_with_how_often_each_comes() {
        let unpack = |packed: u64| -> Vec<(u64, u64)> {
            let parts = (0..4).map(|at| packed >> (16 * at) & 0xffff);
            parts.filter(|part| *part > 0).map(|part| (part >> 4, part & 15)).collect()
        };
        let (count, packed) = factors(1024).expect("fits");
        assert_eq!((count, unpack(packed)), (5, vec![(4, 5)]));
        let (count, packed) = factors(2 * 3 * 5 * 7 * 11).expect("fits");
        let product: u64 = unpack(packed).iter().map(|(radix, times)| radix.pow(*times as u32)).product();
        assert_eq!((count, product), (4, 2310));
        assert_eq!(factors(97).map(|found| found.0), Some(1));
        assert!(factors(8191).is_none());
    }

    #[test]
    fn long_rows_are_cut_into_parts_that_fit() {
        assert_eq!(split(8192, 1 << 20), Some((1024, 1024)));
        assert_eq!(split(8192, 8192 * 3), Some((128, 192)));
        assert_eq!(split(8192, 2 * 1_000_003), None);
    }
}
