//! Products with quantized matrices.

use std::ops::Range;

use smallvec::SmallVec;

use super::convert::of_groups;
use super::{Activations, QuantFormat, QuantMode, Quantized};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};
use crate::shape::{Shape, broadcast};

/// Inputs: activations and the parts of the weights. A matrix that all activations share has two axes, and
/// all axes of the activations but the last are rows; otherwise all have the same batch axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuantizedMatmul {
    /// The format of the codes.
    pub format: QuantFormat,
    /// Whether activations are multiplied with the transposed matrix.
    pub transpose: bool,
    /// Whether activations may be rounded.
    pub activations: Activations,
}

impl Op for QuantizedMatmul {
    fn name(&self) -> &'static str {
        "quantized_matmul"
    }

    fn export(&self) -> Export {
        let record = Record::new("quantized_matmul").format(self.format).with("transpose", self.transpose);
        record.with("rounded", self.activations == Activations::Int8).into()
    }

    fn indices(&self) -> Range<usize> {
        1..if QuantMode::of(self.format) == QuantMode::Affine { 2 } else { 3 }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, cotangent) = (&rule.inputs[0], rule.cotangent()?);
        rule.each(|at| match (at, rule.inputs.get(3)) {
            (0, _) => {
                let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
                inputs[0] = cotangent.clone();
                let op = QuantizedMatmul { transpose: !self.transpose, ..*self };
                Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::new(op), inputs).map(Some)
            }
            (2 | 3, Some(biases)) => {
                let (w, scales) = (&rule.inputs[1], &rule.inputs[2]);
                // Rows of a shared matrix are summed up together.
                let flat = |array: &Array| match w.ndim() {
                    2 => array.reshape(&[-1, array.shape()[array.ndim() - 1] as isize]),
                    _ => Ok(array.clone()),
                };
                let (x, cotangent) = (flat(x)?, flat(&cotangent)?);
                let (left, right) = if self.transpose { (&cotangent, &x) } else { (&x, &cotangent) };
                let dense = left.swapaxes(-1, -2)?.matmul(right)?;
                of_groups(self.format, &dense, w, [scales, biases], at == 2).map(Some)
            }
            _ => Ok(None),
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.output.size() == 0 || rule.size == 0 {
            return rule.one_by_one();
        }
        if rule.inputs[1].ndim() - usize::from(rule.axes[1].is_some()) == 2 {
            if rule.axes[1..].iter().all(Option::is_none) {
                // A shared matrix: the new axis adds rows.
                let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
                inputs[0] = rule.front(0)?;
                return rule.apply(rule.op.clone(), inputs);
            }
            // A matrix for each slice: the axes before the last become the rows of each.
            let mut inputs =
                (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<SmallVec<[Array; 3]>>>()?;
            let [size, .., k] = *inputs[0].shape() else { return rule.one_by_one() };
            inputs[0] = inputs[0].reshape(&[size as isize, -1, k as isize])?;
            let (rows, n) = (inputs[0].shape()[1], rule.output.shape()[rule.output.ndim() - 1]);
            let shape: Shape = [size, rows, n].into_iter().collect();
            let result = Array::lazy(shape, rule.output.dtype(), rule.op.clone(), inputs)?;
            return Ok((result.reshape(&rule.shape())?, 0));
        }
        let inputs = (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The type that a product with a quantized matrix is computed in.
pub fn product_type(
    op: &str,
    x: &Array,
    scales: &Array,
    biases: Option<&Array>,
    mode: QuantMode,
) -> Result<Dtype> {
    let dtype = match biases {
        Some(biases) if mode == QuantMode::Affine => {
            x.dtype().promote(scales.dtype()).promote(biases.dtype())
        }
        _ => x.dtype(),
    };
    if !dtype.is(Category::Floating) {
        let what = "takes floating-point numbers, and was given an array".into();
        return Err(Error::Type { op: op.into(), what, dtype: x.dtype() });
    }
    Ok(dtype)
}

/// Refuses activations whose rows do not fit the matrix.
pub fn check_inner(op: &str, x: &Array, q: &Quantized, transpose: bool) -> Result<()> {
    let (k, n) = q.operand(transpose);
    if x.shape().last() != Some(&k) {
        let what = format!(
            "an array of shape {:?} times a matrix of {k} rows and {n} columns (codes of shape {:?}, groups \
             of {}, {} bits{})",
            x.shape(),
            q.w.shape(),
            q.format.group(),
            q.format.bits(),
            if transpose { ", transposed" } else { "" }
        );
        return Err(Error::shape(op, what).with_shapes([x, &q.w]));
    }
    Ok(())
}

impl Array {
    /// The product with a quantized matrix, or with its transpose. Axes before the last two broadcast; a
    /// vector counts as a row. The codes are read in place.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode};
    /// let w = Array::ones(&[8, 64], Dtype::Float32)?;
    /// let (codes, scales, biases) = w.quantize(None, None, QuantMode::Affine)?;
    /// let x = Array::ones(&[1, 64], Dtype::Float32)?;
    /// let y = x.quantized_matmul(&codes, &scales, biases.as_ref(), true, None, None, QuantMode::Affine)?;
    /// assert_eq!(y.to_vec::<f32>()?, [64.0; 8]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn quantized_matmul(
        &self,
        w: &Array,
        scales: &Array,
        biases: Option<&Array>,
        transpose: bool,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<Array> {
        let exact = Activations::Exact;
        self.quantized_matmul_with(w, scales, biases, transpose, group_size, bits, mode, exact)
    }

    /// [`Array::quantized_matmul`] with a choice of what may happen to the activations before they are
    /// multiplied. Rounded to 8 bits they are off by at most 1/254 of the largest of their block of 32, and
    /// the result by at most the sum of that times `|w|` over its blocks.
    ///
    /// ```
    /// use hesper::{Activations, Array, Dtype, QuantMode};
    /// let (w, scales, biases) = Array::ones(&[8, 64], Dtype::Float32)?.quantize(None, None, QuantMode::Affine)?;
    /// let x = Array::ones(&[1, 64], Dtype::Float32)?;
    /// let (mode, rounded) = (QuantMode::Affine, Activations::Int8);
    /// let y = x.quantized_matmul_with(&w, &scales, biases.as_ref(), true, None, None, mode, rounded)?;
    /// assert!((y.to_vec::<f32>()?[0] - 64.0).abs() < 0.5);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn quantized_matmul_with(
        &self,
        w: &Array,
        scales: &Array,
        biases: Option<&Array>,
        transpose: bool,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
        activations: Activations,
    ) -> Result<Array> {
        const OP: &str = "quantized_matmul";
        let mut q = Quantized::new(OP, w, scales, biases, group_size, bits, mode)?;
        let dtype = product_type(OP, self, scales, biases, mode)?;
        check_inner(OP, self, &q, transpose)?;
        if dtype == Dtype::Float64 {
            let whole = w.dequantize(scales, biases, group_size, bits, mode, Some(dtype))?;
            let right = if transpose { whole.swapaxes(-1, -2)? } else { whole };
            return self.astype(dtype)?.matmul(&right);
        }
        let (k, n) = q.operand(transpose);
        let x = self.astype(dtype)?;
        // A vector counts as a row.
        let x = if x.ndim() == 1 { x.reshape(&[1, k])? } else { x };
        let x = if w.ndim() == 2 {
            x
        } else {
            let batch = broadcast(OP, &x.shape()[..x.ndim() - 2], &w.shape()[..w.ndim() - 2])?;
            let stretch = |array: &Array| {
                let last = &array.shape()[array.ndim() - 2..];
                array.broadcast_to(&batch.iter().chain(last).copied().collect::<Shape>())
            };
            (q.w, q.scales) = (stretch(&q.w)?, stretch(&q.scales)?);
            q.biases = q.biases.as_ref().map(stretch).transpose()?;
            stretch(&x)?
        };
        let mut full = x.0.shape.clone();
        let last = full.len() - 1;
        full[last] = n;
        let product = if full.contains(&0) {
            Array::zeros(&full, dtype)?
        } else {
            let op = QuantizedMatmul { format: q.format, transpose, activations };
            Array::lazy(full, dtype, OpRef::new(op), q.inputs([x]))?
        };
        if self.ndim() == 1 { product.squeeze(-2) } else { Ok(product) }
    }

    /// The product with the transpose of `w`, with this array quantized first in the format of `w`. `w` is a
    /// matrix of floats, which is quantized too, or with `scales` a quantized matrix. For the modes whose
    /// codes are floats.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode};
    /// let x = Array::ones(&[2, 32], Dtype::Float32)?;
    /// let y = x.qqmm(&x, None, None, None, QuantMode::Mxfp8)?;
    /// assert_eq!(y.to_vec::<f32>()?, [32.0; 4]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn qqmm(
        &self,
        w: &Array,
        scales: Option<&Array>,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<Array> {
        const OP: &str = "qqmm";
        let floats = |array: &Array| match array.dtype() {
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Ok(()),
            dtype => {
                let what = "takes float32, float16 or bfloat16, and was given an array".into();
                Err(Error::Type { op: OP.into(), what, dtype })
            }
        };
        floats(self)?;
        if mode == QuantMode::Affine {
            return Err(Error::value(OP, "affine codes are not multiplied with each other"));
        }
        if w.ndim() != 2 {
            let what = format!("a matrix expected, not an array of shape {:?}", w.shape());
            return Err(Error::shape(OP, what).with_shapes([w]));
        }
        let (codes, scales) = match scales {
            Some(scales) => (w.clone(), scales.clone()),
            None if w.dtype() == Dtype::Uint32 => {
                return Err(Error::value(OP, "a quantized matrix needs its scales"));
            }
            None => {
                floats(w)?;
                let (codes, scales, _) = w.quantize(group_size, bits, mode)?;
                (codes, scales)
            }
        };
        let q = Quantized::new(OP, &codes, &scales, None, group_size, bits, mode)?;
        check_inner(OP, self, &q, true)?;
        let rows = if self.ndim() == 1 { self.expand_dims(0)? } else { self.clone() };
        let (own, own_scales, _) = rows.quantize(group_size, bits, mode)?;
        let rounded = own.dequantize(&own_scales, None, group_size, bits, mode, Some(self.dtype()))?;
        let rounded = if self.ndim() == 1 { rounded.squeeze(0)? } else { rounded };
        rounded.quantized_matmul(&codes, &scales, None, true, group_size, bits, mode)
    }
}

reader!("quantized_matmul", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, w, scales, others @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    let (mode, group, bits) = super::read_format(replay)?;
    let activations = if replay.flag("rounded")? { Activations::Int8 } else { Activations::Exact };
    let (biases, transpose) = (others.first(), replay.flag("transpose")?);
    x.quantized_matmul_with(w, scales, biases, transpose, Some(group), Some(bits), mode, activations)
}
