//! A norm, products with packed matrices and an epilogue, as one command.

use crate::walk::Strided;
use hesper_compute::{GgufMat, LayerEpilogue, gguf_layer};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::packed_layer::{Epilogue, PackedLayer};
use hesper_core::shape::is_row_major;
use hesper_cpu::Cores;
use smallvec::SmallVec;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<PackedLayer>()
}

impl Lower<PackedLayer> for Cpu {
    /// `None` for inputs that would be copied first: the ops by themselves read them as they are.
    fn lower(op: &PackedLayer, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !(0..l.input_count()).all(|at| is_row_major(l.input_shape(at), &l.input(at).strides)) {
            return Ok(None);
        }
        let output = l.output()?;
        let bound = (0..l.input_count()).map(|at| Strided::row_major(l, at));
        let bound = bound.collect::<Result<SmallVec<[Strided; 5]>>>()?;
        let cols = l.input_shape(0).last().copied().unwrap_or(0);
        let (eps, matrices, activations, end) = (op.eps, op.matrices.clone(), op.activations, op.end);
        let mut command = l.stream().command(op.name());
        for one in &bound {
            command = command.read_range(&one.data.buffer, one.bytes.clone());
        }
        command.write(&output).run(move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let x = inputs[0].as_slice::<f32>()?;
            let norm = match eps {
                Some(eps) => Some((inputs[1].as_slice::<f32>()?, eps.0)),
                None => None,
            };
            let first = 1 + usize::from(eps.is_some());
            let mut all: SmallVec<[GgufMat<'_>; 3]> = SmallVec::new();
            for (at, (format, rows)) in matrices.iter().enumerate() {
                let matrix = GgufMat::new(*format, *rows, cols, inputs[first + at].as_slice()?);
                all.push(matrix.map_err(crate::refused)?);
            }
            let end = match end {
                Epilogue::Plain => LayerEpilogue::Plain,
                Epilogue::AddResidual => {
                    LayerEpilogue::AddResidual(inputs[first + matrices.len()].as_slice::<f32>()?)
                }
                Epilogue::SiluGate => LayerEpilogue::SiluGate,
            };
            gguf_layer(&Cores, x, norm, &all, end, activations, out.as_mut_slice::<f32>()?)
                .map_err(crate::refused)
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
