//! Quantizing and dequantizing.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::{QuantFormat, QuantMode, Quantized};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::multi::{Parts, together};
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};
use crate::shape::Shape;

/// Rounds groups of elements to codes. Gives codes, scales and biases in one buffer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Quantize {
    /// The format of the codes.
    pub format: QuantFormat,
    /// Where codes, scales and biases lie.
    pub parts: Parts,
}

impl Op for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn export(&self) -> Export {
        Record::new("quantize").format(self.format).into()
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        // Rows are quantized independently: the new axis adds rows.
        let ahead = |(shape, dtype): &(Shape, Dtype)| -> (Shape, Dtype) {
            (std::iter::once(rule.size).chain(shape.iter().copied()).collect(), *dtype)
        };
        let parts = Parts::new(self.parts.outputs.iter().map(ahead).collect())?;
        let op = OpRef::new(Quantize { format: self.format, parts: parts.clone() });
        together(rule, parts.arrays(op, smallvec![rule.front(0)?])?)
    }
}

/// The values that codes stand for.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Dequantize(pub QuantFormat);

impl Op for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn export(&self) -> Export {
        Record::new("dequantize").format(self.0).into()
    }

    fn indices(&self) -> Range<usize> {
        0..if QuantMode::of(self.0) == QuantMode::Affine { 1 } else { 2 }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (w, scales, biases) = (&rule.inputs[0], &rule.inputs[1], rule.inputs.get(2));
        let cotangent = rule.cotangent()?;
        rule.each(|at| match (at, biases) {
            (1 | 2, Some(biases)) => of_groups(self.0, &cotangent, w, [scales, biases], at == 1).map(Some),
            _ => Ok(None),
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let inputs = (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The cotangent of affine scales or biases, from that of the dequantized elements: sums over groups.
pub fn of_groups(
    format: QuantFormat,
    cotangent: &Array,
    w: &Array,
    [scales, biases]: [&Array; 2],
    of_scales: bool,
) -> Result<Array> {
    let (group, bits) = (Some(format.group()), Some(format.bits()));
    let grouped = |array: &Array| {
        let groups = scales.shape().iter().map(|length| *length as isize);
        let shape: SmallVec<[isize; 6]> = groups.chain([format.group() as isize]).collect();
        array.reshape(&shape)
    };
    let mut shares = grouped(cotangent)?;
    if of_scales {
        let (one, zero) = (scales.ones_like()?, biases.zeros_like()?);
        let codes = w.dequantize(&one, Some(&zero), group, bits, QuantMode::Affine, None)?;
        shares = shares.multiply(&grouped(&codes)?)?;
    }
    shares.sum(-1)
}

impl Array {
    /// Codes, scales and (where the mode has them) biases of a matrix or a stack of matrices, whose last
    /// axis is a multiple of the group. float64 is rounded to float32 first.
    ///
    /// ```
    /// use hesper::{Array, QuantMode};
    /// let x = Array::arange(0.0..64.0, None)?.reshape(&[2, 32])?;
    /// let (codes, scales, biases) = x.quantize(Some(32), Some(8), QuantMode::Affine)?;
    /// assert_eq!((codes.shape(), scales.shape()), (&[2, 8][..], &[2, 1][..]));
    /// let back = codes.dequantize(&scales, biases.as_ref(), Some(32), Some(8), QuantMode::Affine, None)?;
    /// let off = back.subtract(&x)?.abs()?.max(())?.item::<f32>()?;
    /// assert!(off < 0.1);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn quantize(
        &self,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<(Array, Array, Option<Array>)> {
        let format = mode.format("quantize", group_size, bits)?;
        let dtype = self.dtype();
        if !dtype.is(Category::Floating) {
            let what = "takes floating-point numbers, and was given an array".into();
            return Err(Error::Type { op: "quantize".into(), what, dtype });
        }
        let cols = self.shape().last().copied().unwrap_or(0);
        if self.ndim() < 2 || !cols.is_multiple_of(format.group()) {
            let what = format!("an array of shape {:?} in groups of {}", self.shape(), format.group());
            return Err(Error::shape("quantize", what).with_shapes([self]));
        }
        if dtype == Dtype::Float64 {
            let (codes, scales, biases) = self.astype(Dtype::Float32)?.quantize(group_size, bits, mode)?;
            if mode != QuantMode::Affine {
                return Ok((codes, scales, None));
            }
            let biases = biases.map(|biases| biases.astype(dtype)).transpose()?;
            return Ok((codes, scales.astype(dtype)?, biases));
        }
        let affine = mode == QuantMode::Affine;
        let last = |length: usize| -> Shape {
            let (rows, _) = self.shape().split_at(self.ndim() - 1);
            rows.iter().copied().chain([length]).collect()
        };
        let (words, groups) = (last(format.words(cols)), last(cols / format.group()));
        let scale_type = if affine { dtype } else { Dtype::Uint8 };
        let mut outputs = vec![(words, Dtype::Uint32), (groups.clone(), scale_type)];
        outputs.extend(affine.then_some((groups, dtype)));
        let parts = Parts::new(outputs)?;
        let op = OpRef::new(Quantize { format, parts: parts.clone() });
        let mut arrays = parts.arrays(op, smallvec![self.clone()])?.into_iter();
        match (arrays.next(), arrays.next()) {
            (Some(codes), Some(scales)) => Ok((codes, scales, arrays.next())),
            _ => Err(Error::value("quantize", "codes and scales expected")),
        }
    }

    /// The values that the codes of this array stand for, in the type of scales and biases, or bfloat16 where
    /// scales are bytes, unless a type is given.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode};
    /// let w = Array::linspace(-1.0, 1.0, 64, Dtype::Float32)?.reshape(&[1, 64])?;
    /// let packed = w.quantize(None, None, QuantMode::Affine)?;
    /// let back = packed.0.dequantize(&packed.1, packed.2.as_ref(), None, None, QuantMode::Affine, None)?;
    /// assert!(back.subtract(&w)?.abs()?.max(())?.item::<f32>()? < 0.07);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dequantize(
        &self,
        scales: &Array,
        biases: Option<&Array>,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
        dtype: Option<Dtype>,
    ) -> Result<Array> {
        let q = Quantized::new("dequantize", self, scales, biases, group_size, bits, mode)?;
        let usual = match biases {
            Some(biases) => scales.dtype().promote(biases.dtype()),
            None => Dtype::Bfloat16,
        };
        let dtype = dtype.unwrap_or(usual);
        if !dtype.is(Category::Floating) {
            let what = "gives floating-point numbers, and was asked for an array".into();
            return Err(Error::Type { op: "dequantize".into(), what, dtype });
        }
        let made = if dtype == Dtype::Float64 { Dtype::Float32 } else { dtype };
        let mut shape = self.0.shape.clone();
        let last = shape.len() - 1;
        shape[last] = q.cols;
        Array::lazy(shape, made, OpRef::new(Dequantize(q.format)), q.inputs([]))?.astype(dtype)
    }
}

reader!("quantize", Several(read_quantize));
fn read_quantize(replay: &Replay<'_>) -> Result<Vec<Array>> {
    let [x] = replay.inputs()?;
    let (mode, group, bits) = super::read_format(replay)?;
    let (codes, scales, biases) = x.quantize(Some(group), Some(bits), mode)?;
    Ok([codes, scales].into_iter().chain(biases).collect())
}

reader!("dequantize", One(read_dequantize));
fn read_dequantize(replay: &Replay<'_>) -> Result<Array> {
    let [codes, scales, others @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    let (mode, group, bits) = super::read_format(replay)?;
    codes.dequantize(scales, others.first(), Some(group), Some(bits), mode, Some(replay.dtype()))
}
