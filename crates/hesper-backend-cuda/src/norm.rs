//! Softmax, norms, log-sum-exp: a row is read once if it fits into a block's registers.

use hesper_backend_gpu::row_op_number;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::RowOp;
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("norm.cuh");

/// Threads per row, and words of sixteen bytes per thread. The order of a sum follows from both.
pub(crate) fn held(words: usize) -> Option<(usize, usize)> {
    match words {
        0..=32 => Some((32, 1)),
        33..=64 => Some((32, 2)),
        65..=128 => Some((32, 4)),
        129..=256 => Some((256, 1)),
        257..=512 => Some((256, 2)),
        513..=1024 => Some((256, 4)),
        1025..=2048 => Some((512, 4)),
        2049..=4096 => Some((1024, 4)),
        _ => None,
    }
}

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<RowOp>()
}

impl Lower<RowOp> for Cuda {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (kind, eps) = row_op_number(op);
        let (name, (weight, bias)) = (op.name(), op.vectors());
        let dtype = l.input_dtype(0);
        let accumulator = match dtype {
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Dtype::Float32,
            Dtype::Float64 => Dtype::Float64,
            _ => return Ok(None),
        };
        l.bring()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let count = 1 + usize::from(weight) + usize::from(bias);
        let inputs = (0..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let output = l.output()?;
        if rows == 0 || length == 0 {
            l.stream().command(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let mut command = l.stream().command(name);
        let mut aligned = (length * dtype.size()).is_multiple_of(16);
        // A missing vector is bound as the input, and not read.
        let vector = |there: bool, at: usize| if there { at } else { 0 };
        for at in [0, vector(weight, 1), vector(bias, 1 + usize::from(weight))] {
            let (bytes, _) = reach(&inputs[at], l.input_shape(at), dtype.size());
            aligned &= bytes.start.is_multiple_of(16);
            command = command.read_range(&inputs[at].buffer, bytes);
        }
        let constants = Constants::default().sizes(&[rows, length]);
        let constants = match accumulator {
            Dtype::Float64 => constants.double(eps),
            _ => constants.float(eps as f32),
        };
        let constants = constants.flag(weight).flag(bias);
        let kernel = |name: &str| Kernel::new(l.stream(), TEXT, name).of(kind).of(dtype).of(accumulator);
        let launch = match held(length * dtype.size() / 16).filter(|_| aligned) {
            Some((threads, words)) => {
                let blocks = rows.div_ceil((256 / threads).max(1));
                kernel("held").of(threads).of(words).groups(constants, [blocks, 1, 1], threads.max(256))?
            }
            None => kernel("read_again").groups(constants, [rows, 1, 1], 256)?,
        };
        launch.encode(command.write(&output))?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
