//! Products with quantized matrices.

use half::{bf16, f16};
use hesper_compute::{Activations, MatMut, MatRef, QuantFormat, qmatmul};
use hesper_cpu::Cores;
use smallvec::SmallVec;

use super::convert::of_groups;
use super::weights::Weights;
use super::{QuantMode, Quantized};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose::compose;
use crate::gpu::quant::Affine;
use crate::ops::command::Commands;
use crate::ops::walk::{Cursor, Strided};
use crate::ops::{Op, OpRef};
use crate::shape::{Shape, broadcast};
use crate::transform::rule::{Backward, Batch, Cotangents};
use crate::{Dtype, Element};

/// Inputs: activations and the parts of the weights, all with the same batch axes.
#[derive(Debug, Clone, Copy)]
struct QuantizedMatmul {
    format: QuantFormat,
    transpose: bool,
    activations: Activations,
}

impl QuantizedMatmul {
    fn run<T: Element + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (x, weights) = (Strided::input(l, 0), Weights::of(l, 1, self.format)?);
        let (transpose, activations) = (self.transpose, self.activations);
        let shape = l.shape();
        let axes = shape.len() - 2;
        let (m, n) = (shape[axes], shape[axes + 1]);
        let output = l.output()?;
        let buffer = x.data.buffer.clone();
        let bound = l.stream().command(self.name()).read_range(&buffer, x.bytes.clone());
        weights.bind(bound).write(&output).run({
            let weights = weights.clone();
            move |native| {
                let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
                let (all, out) = (inputs[0].as_slice::<T>()?, out.as_mut_slice::<T>()?);
                let (batch, k) = (&x.shape[..axes], x.shape[axes + 1]);
                let strides = x.strides();
                for (number, out) in out.chunks_mut((m * n).max(1)).enumerate() {
                    let first = x.offset + Cursor::new(batch, [&strides[..axes]], number).at[0];
                    let w = weights.matrix(inputs, number)?;
                    MatRef::strided(all, first as usize, m, k, strides[axes], strides[axes + 1])
                        .and_then(|x| {
                            qmatmul(&Cores, x, &w, transpose, MatMut::row_major(out, m, n)?, activations)
                        })
                        .map_err(|error| error.to_string())?;
                }
                Ok(())
            }
        })?;
        Ok(Data::contiguous(output, shape))
    }
}

impl Op for QuantizedMatmul {
    fn name(&self) -> &'static str {
        "quantized_matmul"
    }

    fn export(&self) -> Export {
        let record = Record::new("quantized_matmul").format(self.format).with("transpose", self.transpose);
        record.with("rounded", self.activations == Activations::Int8).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            _ => self.run::<f32>(l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match self.format {
            QuantFormat::Affine { bits, group } => Affine { bits, group }.lower(l, self.transpose),
            format => compose(l, |inputs| {
                let [x, codes, scales, ..] = inputs else {
                    return Err(Error::value("quantized_matmul", "three inputs expected"));
                };
                let (mode, group, bits) = (QuantMode::of(format), Some(format.group()), Some(format.bits()));
                let w = codes.dequantize(scales, None, group, bits, mode, Some(x.dtype()))?;
                x.matmul(&if self.transpose { w.swapaxes(-1, -2)? } else { w })
            }),
        }
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
                let (left, right) = if self.transpose { (&cotangent, x) } else { (x, &cotangent) };
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
        if rule.axes[1..].iter().all(Option::is_none) && rule.output.ndim() == 2 {
            // One matrix for all: more rows.
            let x = rule.front(0)?;
            let rows = x.shape()[0] * x.shape()[1];
            let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
            inputs[0] = x.reshape(&[rows as isize, x.shape()[2] as isize])?;
            let shape: Shape = [rows, rule.output.shape()[1]].into_iter().collect();
            let result = Array::lazy(shape, rule.output.dtype(), rule.op.clone(), inputs)?;
            let shape: SmallVec<[isize; 6]> = rule.shape().iter().map(|length| *length as isize).collect();
            return Ok((result.reshape(&shape)?, 0));
        }
        let inputs = (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The type that a product with a quantized matrix is computed in.
pub(super) fn product_type(
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
pub(super) fn check_inner(op: &str, x: &Array, q: &Quantized, transpose: bool) -> Result<()> {
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
        return Err(Error::shape(op, what));
    }
    Ok(())
}

impl Array {
    /// The product with a quantized matrix, or with its transpose. Axes before the last two broadcast; a
    /// vector counts as a row. The codes are read where they lie.
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
        let lead = &self.shape()[..self.ndim() - 1];
        let rows = lead.last().copied().unwrap_or(1);
        let signed = |shape: &[usize]| -> SmallVec<[isize; 6]> {
            shape.iter().map(|length| *length as isize).collect()
        };
        let mut shape: Shape;
        let x = if w.ndim() == 2 {
            // One matrix for all rows.
            shape = lead.iter().copied().chain([n]).collect();
            let all: usize = lead.iter().product();
            self.astype(dtype)?.reshape(&signed(&[all, k]))?
        } else {
            let own = &lead[..lead.len().saturating_sub(1)];
            let batch = broadcast(OP, own, &w.shape()[..w.ndim() - 2])?;
            let with = |last: [usize; 2]| -> Shape { batch.iter().copied().chain(last).collect() };
            let stretch = |array: &Array| {
                array.broadcast_to(&with([array.shape()[array.ndim() - 2], array.shape()[array.ndim() - 1]]))
            };
            (q.w, q.scales) = (stretch(&q.w)?, stretch(&q.scales)?);
            q.biases = q.biases.as_ref().map(stretch).transpose()?;
            shape = batch.clone();
            shape.extend((self.ndim() > 1).then_some(rows));
            shape.push(n);
            let whole = if self.ndim() == 1 { self.reshape(&[1, k as isize])? } else { self.clone() };
            whole.astype(dtype)?.broadcast_to(&with([rows, k]))?
        };
        let mut full = x.0.shape.clone();
        let last = full.len() - 1;
        full[last] = n;
        if full.contains(&0) {
            return Array::zeros(&shape, dtype);
        }
        let op = QuantizedMatmul { format: q.format, transpose, activations };
        Array::lazy(full, dtype, OpRef::new(op), q.inputs([x]))?.reshape(&signed(&shape))
    }
}

pub(in crate::ops) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, w, scales, others @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    let (mode, group, bits) = super::read_format(replay)?;
    let activations = if replay.flag("rounded")? { Activations::Int8 } else { Activations::Exact };
    let (biases, transpose) = (others.first(), replay.flag("transpose")?);
    x.quantized_matmul_with(w, scales, biases, transpose, Some(group), Some(bits), mode, activations)
}
