//! Products with gathered quantized matrices.

use crate::walk::{Cursor, Strided};
use hesper_compute::{Activations, MatMut, MatRef, qmatmul};
use hesper_core::backend::{Data, Lower, Lowering, Op};
use hesper_core::ops::command::Commands;
use hesper_core::ops::index_arrays::Indices;
use hesper_core::ops::quant::gathered::GatherQmm;
use hesper_core::{Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::Access;

use super::weights::Weights;
use crate::Cpu;
use crate::dispatch::with_float;

impl Lower<GatherQmm> for Cpu {
    fn lower(op: &GatherQmm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(op, l))
    }
}

fn run<T: Element + hesper_compute::Float>(op: &GatherQmm, l: &Lowering<'_>) -> Result<Data> {
    let (x, (bound, weights)) = (Strided::row_major(l, 0)?, Weights::of(l, 3, op.format)?);
    let lists = [Strided::input(l, 1), Strided::input(l, 2)];
    let types = [l.input_dtype(1), l.input_dtype(2)];
    let transpose = op.transpose;
    let output = l.output()?;
    let n = l.shape()[l.shape().len() - 1];
    let (matrices_of_x, m, k) = (x.shape[0], x.shape[1], x.shape[2]);
    let mut command = l.stream().command(op.name());
    for one in [&x, &lists[0], &lists[1]] {
        command.add(&one.data.buffer, one.bytes.clone(), Access::Read);
    }
    bound.bind(&mut command);
    command.write(&output).run({
        let lists = lists.each_ref().map(Strided::layout);
        move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let (all, out) = (inputs[0].as_slice::<T>()?, out.as_mut_slice::<T>()?);
            let indices = [Indices::of(&inputs[1], types[0])?, Indices::of(&inputs[2], types[1])?];
            let matrices: usize = weights.batch().iter().product();
            let mut cursor = Cursor::new(&lists[0].shape, [&lists[0].strides, &lists[1].strides], 0);
            // Products with the same matrix are computed as one, so the matrix is read once.
            let mut chosen: Vec<(usize, usize, usize)> = Vec::with_capacity(out.len() / (m * n));
            for at in 0..out.len() / (m * n) {
                let left = indices[0].get(lists[0].offset + cursor.at[0], matrices_of_x, 1) as usize;
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
                    .map_err(crate::refused)?;
                for ((_, at, _), product) in list.iter().zip(products.chunks(m * n)) {
                    out[at * m * n..(at + 1) * m * n].copy_from_slice(product);
                }
            }
            Ok(())
        }
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
