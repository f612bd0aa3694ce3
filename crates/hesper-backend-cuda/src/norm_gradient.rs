//! The derivative of norms: rows and cotangent are read once, sums for weight and bias stay in registers.

use hesper_backend_gpu::{Shared, is_float, read};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::RowOp;
use hesper_core::ops::norm_gradient::NormGradient;
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::chip::multiprocessors;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("norm_gradient.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<NormGradient>()
}

/// Threads per row, and words of sixteen bytes per thread; `None` for rows that do not fit into registers.
fn tiling(length: usize, dtype: Dtype) -> Option<(usize, usize)> {
    if !(length * dtype.size()).is_multiple_of(16) || !is_float(dtype) {
        return None;
    }
    match length * dtype.size() / 16 {
        words @ 1..=128 => Some((32, words.div_ceil(32))),
        words @ 129..=512 => Some((256, words.div_ceil(256))),
        words @ 513..=2048 => Some((512, words.div_ceil(512))),
        _ => None,
    }
}

impl Lower<NormGradient> for Cuda {
    fn lower(op: &NormGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (dtype, shape) = (l.input_dtype(0), l.input_shape(0));
        let length = shape[shape.len() - 1];
        let rows = shape.iter().product::<usize>() / length.max(1);
        let (centred, eps) = match op.norm {
            RowOp::LayerNorm { eps, .. } => (true, eps.0),
            RowOp::RmsNorm { eps, .. } => (false, eps.0),
            _ => return Ok(None),
        };
        let Some((threads, words)) = tiling(length, dtype).filter(|_| rows > 0) else {
            return <Shared<Cuda> as Lower<NormGradient>>::lower(op, l);
        };
        l.bring()?;
        let (weighted, last) = (op.norm.vectors().0, l.input_count() - 1);
        let mut inputs = (0..=last).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let is_aligned = |data: &Data| (data.offset as usize * dtype.size()).is_multiple_of(16);
        if !inputs.iter().all(is_aligned) {
            return <Shared<Cuda> as Lower<NormGradient>>::lower(op, l);
        }
        let cotangent = inputs.remove(last);
        let (stream, output) = (l.stream(), op.parts.memory(l)?);
        let block = threads.max(256);
        // Two blocks keep a multiprocessor busy; fewer sums are left to add.
        let blocks = rows.div_ceil(block / threads).min(2 * multiprocessors(stream));
        let sums = stream.alloc(if op.vectors { blocks * 2 * length * 4 } else { 16 })?;
        let kernel = Kernel::new(stream, TEXT, "norm_gradient").of(centred).of(dtype).of(threads).of(words);
        let constants = Constants::default().sizes(&[rows, length]).float(eps as f32);
        let launch = kernel.groups(constants.flag(weighted).flag(op.vectors), [blocks, 1, 1], block)?;
        let command = read(stream.command(op.name()), l, 0, &inputs[0]);
        let weight = inputs.get(1).map_or((0, &inputs[0]), |weight| (1, weight));
        let command = read(read(command, l, weight.0, weight.1), l, last, &cotangent);
        launch.encode(command.write_range(&output, op.parts.range(0)).write(&sums))?;
        let (weight, bias) = op.norm.vectors();
        let which = [weight.then_some(0), bias.then_some(1)];
        let parts = op.parts.outputs.len();
        for (part, which) in (1..parts).zip(which.into_iter().flatten()) {
            let kernel = Kernel::new(stream, TEXT, "norm_gradient_vectors").of(dtype);
            let constants = Constants::default().sizes(&[length, blocks]).int(which);
            let launch = kernel.groups(constants, [length.div_ceil(32), 1, 1], 256)?;
            let command = stream.command(op.name()).read(&sums);
            launch.encode(command.write_range(&output, op.parts.range(part)))?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_held_by_threads_or_composed() {
        assert_eq!(tiling(768, Dtype::Bfloat16), Some((32, 3)));
        assert_eq!(tiling(4, Dtype::Float32), Some((32, 1)));
        assert_eq!(tiling(4096, Dtype::Bfloat16), Some((256, 2)));
        assert_eq!(tiling(8192, Dtype::Float32), Some((512, 4)));
        for (length, dtype) in
            [(33, Dtype::Float32), (8196, Dtype::Float32), (768, Dtype::Float64), (0, Dtype::Float32)]
        {
            assert_eq!(tiling(length, dtype), None);
        }
    }
}
