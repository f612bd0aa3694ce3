//! The gated delta rule.

use crate::walk::Strided;
use hesper_compute::{DeltaInputs, DeltaShape, gated_delta};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gated_delta::GatedDelta;
use hesper_core::{Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::Access;
use smallvec::SmallVec;

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<GatedDelta>()
}

impl Lower<GatedDelta> for Cpu {
    fn lower(op: &GatedDelta, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.input_dtype(0), run::<_>(op, l))
    }
}

fn shape(l: &Lowering<'_>) -> DeltaShape {
    let (q, v) = (l.input_shape(0), l.input_shape(2));
    DeltaShape { batch: q[0], length: q[1], k_heads: q[2], v_heads: v[2], key_dim: q[3], value_dim: v[3] }
}

fn run<T: Element + hesper_compute::Float>(op: &GatedDelta, l: &Lowering<'_>) -> Result<Data> {
    let bound: SmallVec<[Strided; 7]> =
        (0..l.input_count()).map(|at| Strided::row_major(l, at)).collect::<Result<_>>()?;
    let s = shape(l);
    let output = op.parts.memory(l)?;
    let mut command = l.stream().command(op.name());
    for one in &bound {
        command.add(&one.data.buffer, one.bytes.clone(), Access::Read);
    }
    command = command.write_range(&output, op.parts.range(0)).write_range(&output, op.parts.range(1));
    let (has_state, mask) = (op.state, op.mask);
    command.run(move |native| {
        let Some((state, rest)) = native.views().split_last_mut() else { return Ok(()) };
        let Some((out, inputs)) = rest.split_last_mut() else { return Ok(()) };
        let state = state.as_mut_slice::<f32>()?;
        if has_state {
            state.copy_from_slice(inputs[5].as_slice::<f32>()?);
        } else {
            state.fill(0.0);
        }
        let marks = if mask { Some(inputs[inputs.len() - 1].as_slice::<u8>()?) } else { None };
        let given = DeltaInputs {
            q: inputs[0].as_slice::<T>()?,
            k: inputs[1].as_slice()?,
            v: inputs[2].as_slice()?,
            decay: inputs[3].as_slice()?,
            rate: inputs[4].as_slice()?,
            marks,
        };
        gated_delta(&Cores, s, &given, state, out.as_mut_slice()?).map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
