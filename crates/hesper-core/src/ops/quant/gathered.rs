//! Products with gathered quantized matrices: the layers of a mixture of experts.

use std::ops::Range;

use smallvec::SmallVec;

use super::convert::of_groups;
use super::matmul::{check_inner, product_type};
use super::{QuantFormat, QuantMode, Quantized};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::gather::broadcast_indices;
use crate::ops::grouped::{all_of, one_list};
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};

/// Inputs: activations `[batch, m, k]`, two index arrays of one shape, and a stack of weights.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GatherQmm {
    /// The format of the codes.
    pub format: QuantFormat,
    /// Whether activations are multiplied with the transposed matrices.
    pub transpose: bool,
}

impl Op for GatherQmm {
    fn name(&self) -> &'static str {
        "gather_qmm"
    }

    fn export(&self) -> Export {
        Record::new("gather_qmm").format(self.format).with("transpose", self.transpose).into()
    }

    fn indices(&self) -> Range<usize> {
        1..if QuantMode::of(self.format) == QuantMode::Affine { 4 } else { 5 }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, left, right) = (&rule.inputs[0], &rule.inputs[1], &rule.inputs[2]);
        let cotangent = rule.cotangent()?;
        // Scatters one matrix for each product to the place of its operand.
        let collect = |of: &Array, list: &Array, shares: &Array| {
            let updates = shares.expand_dims(-3)?;
            of.scatter_add(std::slice::from_ref(list), &updates, &[0])
        };
        rule.each(|at| match (at, rule.inputs.get(5)) {
            (0, _) => {
                let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
                let count = left.size() as isize;
                let (rows, cols) = (cotangent.shape()[left.ndim()], cotangent.shape()[left.ndim() + 1]);
                inputs[0] = cotangent.reshape(&[count, rows as isize, cols as isize])?;
                inputs[1] = all_of(left.shape())?;
                let op = GatherQmm { format: self.format, transpose: !self.transpose };
                let mut shape = cotangent.0.shape.clone();
                let last = shape.len() - 1;
                shape[last] = x.shape()[2];
                let shares = Array::lazy(shape, x.dtype(), OpRef::new(op), inputs)?;
                collect(&x.zeros_like()?, left, &shares).map(Some)
            }
            (4 | 5, Some(biases)) => {
                let (w, scales) = (&rule.inputs[3], &rule.inputs[4]);
                let own = x.take(left.clone(), Some(0))?;
                let (a, b) = if self.transpose { (&cotangent, &own) } else { (&own, &cotangent) };
                let shares = a.swapaxes(-1, -2)?.matmul(b)?;
                let matrix = &shares.shape()[shares.ndim() - 2..];
                let zeros = Array::zeros(&[w.shape()[0], matrix[0], matrix[1]], shares.dtype())?;
                let dense = collect(&zeros, right, &shares)?;
                of_groups(self.format, &dense, w, [scales, biases], at == 4).map(Some)
            }
            _ => Ok(None),
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.size == 0 {
            return rule.one_by_one();
        }
        let (mut inputs, left) = one_list(rule, &[0], 1)?;
        let stack: SmallVec<[usize; 3]> = (3..rule.inputs.len()).collect();
        let (weights, right) = one_list(rule, &stack, 2)?;
        inputs.extend([left, right]);
        inputs.extend(weights);
        rule.apply(rule.op.clone(), inputs)
    }
}

impl Array {
    /// Products of matrices of this array with quantized matrices, both chosen by flat indices of the axes
    /// before the last two. Indices broadcast; without them, a side's matrices are taken in order.
    ///
    /// ```
    /// use hesper::{Array, Dtype, QuantMode, array};
    /// let experts = Array::ones(&[2, 8, 64], Dtype::Float32)?.multiply(array![[[1.0]], [[3.0]]])?;
    /// let (w, scales, biases) = experts.quantize(None, None, QuantMode::Affine)?;
    /// let x = Array::ones(&[1, 64], Dtype::Float32)?;
    /// let (biases, chosen, mode) = (biases.as_ref(), array![1, 0], QuantMode::Affine);
    /// let y = x.gather_qmm(&w, &scales, biases, None, Some(&chosen), true, None, None, mode)?;
    /// assert_eq!((y.shape(), y.to_vec::<f32>()?[0], y.to_vec::<f32>()?[8]), (&[2, 1, 8][..], 192.0, 64.0));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn gather_qmm(
        &self,
        w: &Array,
        scales: &Array,
        biases: Option<&Array>,
        left: Option<&Array>,
        right: Option<&Array>,
        transpose: bool,
        group_size: Option<usize>,
        bits: Option<usize>,
        mode: QuantMode,
    ) -> Result<Array> {
        const OP: &str = "gather_qmm";
        if left.is_none() && right.is_none() {
            return self.quantized_matmul(w, scales, biases, transpose, group_size, bits, mode);
        }
        let mut q = Quantized::new(OP, w, scales, biases, group_size, bits, mode)?;
        let dtype = product_type(OP, self, scales, biases, mode)?;
        check_inner(OP, self, &q, transpose)?;
        if self.ndim() < 2 {
            let what = format!("an array of shape {:?} holds no matrices", self.shape());
            return Err(Error::shape(OP, what).with_shapes([self, w]));
        }
        let (k, n) = q.operand(transpose);
        let batch_x = &self.shape()[..self.ndim() - 2];
        let batch_w = &w.shape()[..w.ndim() - 2];
        let given = |list: Option<&Array>, batch: &[usize]| list.cloned().map_or_else(|| all_of(batch), Ok);
        let (mut shape, lists) = broadcast_indices(OP, &[given(left, batch_x)?, given(right, batch_w)?])?;
        let m = self.shape()[self.ndim() - 2];
        shape.extend([m, n]);
        if shape.contains(&0) || k == 0 {
            return Array::zeros(&shape, dtype);
        }
        let flat = |array: &Array| {
            let (batch, matrix) = array.shape().split_at(array.ndim() - 2);
            let count: usize = batch.iter().product();
            array.reshape(&[count as isize, matrix[0] as isize, matrix[1] as isize])
        };
        let x = flat(&self.astype(dtype)?)?;
        (q.w, q.scales) = (flat(&q.w)?, flat(&q.scales)?);
        q.biases = q.biases.as_ref().map(flat).transpose()?;
        if x.shape()[0] == 0 || q.w.shape()[0] == 0 {
            return Err(Error::value(OP, "there are no matrices to choose from"));
        }
        if dtype == Dtype::Float64 {
            let whole = w.dequantize(scales, biases, group_size, bits, mode, Some(dtype))?;
            let matrices = if transpose { whole.swapaxes(-1, -2)? } else { whole };
            return self.astype(dtype)?.gather_mm(&matrices, Some(&lists[0]), Some(&lists[1]));
        }
        let before: SmallVec<[Array; 3]> = [x].into_iter().chain(lists).collect();
        let op = GatherQmm { format: q.format, transpose };
        Array::lazy(shape, dtype, OpRef::new(op), q.inputs(before))
    }
}

reader!("gather_qmm", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, left, right, w, scales, others @ ..] = replay.inputs else {
        return Err(replay.wrong("too few inputs"));
    };
    let (mode, group, bits) = super::read_format(replay)?;
    let (transpose, lists) = (replay.flag("transpose")?, (Some(left), Some(right)));
    x.gather_qmm(w, scales, others.first(), lists.0, lists.1, transpose, Some(group), Some(bits), mode)
}
