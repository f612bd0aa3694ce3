//! Products with quantized matrices. Codes are read in place.

use crate::walk::{Cursor, Strided, collapse};
use hesper_compute::{MatMut, MatRef, qmatmul};
use hesper_core::backend::{Data, Lower, Lowering, Op};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::matmul::QuantizedMatmul;
use hesper_core::{Element, Result};
use hesper_cpu::Cores;
use smallvec::SmallVec;

use super::weights::Weights;
use crate::Cpu;
use crate::dispatch::with_float;

impl Lower<QuantizedMatmul> for Cpu {
    fn lower(op: &QuantizedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(op, l))
    }
}

fn run<T: Element + hesper_compute::Float>(op: &QuantizedMatmul, l: &Lowering<'_>) -> Result<Data> {
    let (mut x, (bound, weights)) = (Strided::input(l, 0), Weights::of(l, 1, op.format)?);
    let (transpose, activations) = (op.transpose, op.activations);
    let shape = l.shape();
    let (axes, n) = (shape.len() - 2, shape[shape.len() - 1]);
    // Beside a shared matrix all axes before the last one are rows.
    let shared = weights.batch().is_empty();
    let mut rows = collapse(&x.shape[..=axes], [&x.strides()[..=axes]]);
    if shared && rows.0.len() > 1 {
        x = Strided::row_major(l, 0)?;
        rows = collapse(&x.shape[..=axes], [&x.strides()[..=axes]]);
    }
    let (axes, m, step) = match shared {
        true => (0, rows.0[0], rows.1[0][0]),
        false => (axes, shape[axes], x.strides()[axes]),
    };
    let (strides, k, offset) = (x.strides(), x.shape[x.shape.len() - 1], x.offset);
    let column = strides[strides.len() - 1];
    let batch: SmallVec<[usize; 2]> = SmallVec::from_slice(&x.shape[..axes]);
    let strides: SmallVec<[isize; 2]> = SmallVec::from_slice(&strides[..axes]);
    let output = l.output()?;
    let mut command = l.stream().command(op.name()).read_range(&x.data.buffer, x.bytes.clone());
    bound.bind(&mut command);
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let (all, out) = (inputs[0].as_slice::<T>()?, out.as_mut_slice::<T>()?);
        for (number, out) in out.chunks_mut((m * n).max(1)).enumerate() {
            let first = offset + Cursor::new(&batch, [&strides], number).at[0];
            let w = weights.matrix(inputs, number)?;
            MatRef::strided(all, first as usize, m, k, step, column)
                .and_then(|x| qmatmul(&Cores, x, &w, transpose, MatMut::row_major(out, m, n)?, activations))
                .map_err(crate::refused)?;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, shape))
}
