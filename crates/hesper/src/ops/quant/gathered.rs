//! Products with quantized matrices that indices choose: the layers of a mixture of experts.

use half::{bf16, f16};
use hesper_compute::{Activations, MatMut, MatRef, QuantFormat, qmatmul};
use hesper_cpu::Cores;
use smallvec::SmallVec;

use super::convert::of_groups;
use super::matmul::{check_inner, product_type};
use super::weights::Weights;
use super::{QuantMode, Quantized};
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::ops::gather::broadcast_indices;
use crate::ops::grouped::{all_of, one_list};
use crate::ops::lists::Indices;
use crate::ops::walk::{Cursor, Strided};
use crate::ops::{Op, OpRef};
use crate::transform::rule::{Backward, Batch, Cotangents};
use crate::{Dtype, Element};

/// Inputs: activations `[batch, m, k]`, two lists of indices of one shape, and a stack of weights.
#[derive(Debug)]
struct GatherQmm {
    format: QuantFormat,
    transpose: bool,
}

impl GatherQmm {
    fn run<T: Element + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (x, weights) = (Strided::row_major(l, 0)?, Weights::of(l, 3, self.format)?);
        let lists = [Strided::input(l, 1), Strided::input(l, 2)];
        let types = [l.input_dtype(1), l.input_dtype(2)];
        let transpose = self.transpose;
        let output = l.output()?;
        let n = l.shape()[l.shape().len() - 1];
        let buffers = [&x, &lists[0], &lists[1]].map(|bound| bound.data.buffer.clone());
        let mut bound = l.stream().command(self.name());
        for (buffer, one) in buffers.iter().zip([&x, &lists[0], &lists[1]]) {
            bound = bound.read_range(buffer, one.bytes.clone());
        }
        weights.bind(bound).write(&output).run({
            let weights = weights.clone();
            move |native| {
                let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
                let (all, out) = (inputs[0].as_slice::<T>()?, out.as_mut_slice::<T>()?);
                let (m, k) = (x.shape[1], x.shape[2]);
                let indices = [Indices::of(&inputs[1], types[0])?, Indices::of(&inputs[2], types[1])?];
                let matrices: usize = weights.batch().iter().product();
                let mut cursor = Cursor::new(&lists[0].shape, [lists[0].strides(), lists[1].strides()], 0);
                // Products with one matrix are one product: it is read once.
                let mut chosen: Vec<(usize, usize, usize)> = Vec::with_capacity(out.len() / (m * n));
                for at in 0..out.len() / (m * n) {
                    let left = indices[0].get(lists[0].offset + cursor.at[0], x.shape[0], 1) as usize;
                    let right = indices[1].get(lists[1].offset + cursor.at[1], matrices, 1) as usize;
                    chosen.push((right, at, left));
                    cursor.advance();
                }
                chosen.sort_unstable();
                let zero = <T as bytemuck::Zeroable>::zeroed();
                let (mut rows, mut products) = (Vec::new(), Vec::new());
                for list in chosen.chunk_by(|a, b| a.0 == b.0) {
                    let w = weights.matrix(inputs, list[0].0)?;
                    rows.clear();
                    for (_, _, left) in list {
                        rows.extend_from_slice(&all[left * m * k..(left + 1) * m * k]);
                    }
                    products.clear();
                    products.resize(list.len() * m * n, zero);
                    MatRef::row_major(&rows, list.len() * m, k)
                        .and_then(|rows| {
                            let to = MatMut::row_major(&mut products, list.len() * m, n)?;
                            qmatmul(&Cores, rows, &w, transpose, to, Activations::Exact)
                        })
                        .map_err(|error| error.to_string())?;
                    for ((_, at, _), product) in list.iter().zip(products.chunks(m * n)) {
                        out[at * m * n..(at + 1) * m * n].copy_from_slice(product);
                    }
                }
                Ok(())
            }
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for GatherQmm {
    fn name(&self) -> &'static str {
        "gather_qmm"
    }

    fn export(&self) -> Export {
        Record::new("gather_qmm").format(self.format).with("transpose", self.transpose).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            _ => self.run::<f32>(l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (format, transpose) = (self.format, self.transpose);
        crate::gpu::compose::compose(l, |inputs| {
            let [x, left, right, codes, scales, rest @ ..] = inputs else {
                return Err(Error::value("gather_qmm", "five inputs expected"));
            };
            let of = |array: &Array| array.take(right.clone(), Some(0));
            let (codes, scales) = (of(codes)?, of(scales)?);
            let biases = rest.first().map(of).transpose()?;
            let (group, bits) = (Some(format.group()), Some(format.bits()));
            let mode = QuantMode::of(format);
            let w = codes.dequantize(&scales, biases.as_ref(), group, bits, mode, Some(x.dtype()))?;
            let w = if transpose { w.swapaxes(-1, -2)? } else { w };
            x.take(left.clone(), Some(0))?.matmul(&w)
        })
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, left, right) = (&rule.inputs[0], &rule.inputs[1], &rule.inputs[2]);
        let cotangent = rule.cotangent()?;
        // For each product one matrix, added where its operand came from.
        let collect = |of: &Array, list: &Array, shares: &Array| {
            let updates = shares.expand_dims(&[-3])?;
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
            return Err(Error::shape(OP, what));
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

pub(in crate::ops) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x, left, right, w, scales, others @ ..] = replay.inputs else {
        return Err(replay.wrong("too few inputs"));
    };
    let (mode, group, bits) = super::read_format(replay)?;
    let (transpose, lists) = (replay.flag("transpose")?, (Some(left), Some(right)));
    x.gather_qmm(w, scales, others.first(), lists.0, lists.1, transpose, Some(group), Some(bits), mode)
}
