//! The derivative of norms: each row and its cotangent are read once.

use half::{bf16, f16};
use hesper_compute::{Float, NormGradientInputs, norm_gradient};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::{RowOp, not_floats};
use hesper_core::ops::norm_gradient::NormGradient;
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<NormGradient>()
}

impl Lower<NormGradient> for Cpu {
    fn lower(op: &NormGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.input_dtype(0) {
            Dtype::Float16 => run::<f16>(op, l),
            Dtype::Bfloat16 => run::<bf16>(op, l),
            Dtype::Float32 => run::<f32>(op, l),
            dtype => Err(not_floats(op.name(), dtype)),
        }
    }
}

fn run<T: Element + Float>(op: &NormGradient, l: &Lowering<'_>) -> Result<Option<Data>> {
    let (centred, eps) = match op.norm {
        RowOp::LayerNorm { eps, .. } => (true, eps.0 as f32),
        RowOp::RmsNorm { eps, .. } => (false, eps.0 as f32),
        _ => return Ok(None),
    };
    let shape = l.input_shape(0);
    let n = shape[shape.len() - 1];
    let inputs = (0..l.input_count()).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
    let output = op.parts.memory(l)?;
    let mut command = l.stream().command(op.name());
    for (at, data) in inputs.iter().enumerate() {
        let (bytes, _) = reach(data, l.input_shape(at), T::DTYPE.size());
        command = command.read_range(&data.buffer, bytes);
    }
    for part in 0..op.parts.outputs.len() {
        command = command.write_range(&output, op.parts.range(part));
    }
    let (count, (weight, bias)) = (inputs.len(), op.norm.vectors());
    let (weight, bias) = (weight && op.vectors, bias && op.vectors);
    command.run(move |native| {
        let (given, results) = native.views().split_at_mut(count);
        let [x, weights @ .., cotangent] = given else { return Ok(()) };
        let inputs = NormGradientInputs {
            x: x.as_slice::<T>()?,
            weight: weights.first().map(|weight| weight.as_slice()).transpose()?,
            cotangent: cotangent.as_slice()?,
            n,
            eps,
            centred,
        };
        let mut results = results.iter_mut().map(|view| view.as_mut_slice::<T>());
        let Some(dx) = results.next().transpose()? else { return Ok(()) };
        let dw = if weight { results.next().transpose()? } else { None };
        let db = if bias { results.next().transpose()? } else { None };
        norm_gradient(&Cores, inputs, dx, [dw, db]).map_err(crate::refused)
    })?;
    Ok(Some(Data::contiguous(output, l.shape())))
}
