//! Softmax, norms, log-sum-exp: a row is read once if it fits into a block's registers. Rows come from memory
//! or from a slot.

use hesper_backend_gpu::{Source, read, row_op_number};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
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

/// The type that rows of a type are computed in; `None` if there are no kernels for it.
fn accumulator(dtype: Dtype) -> Option<Dtype> {
    match dtype {
        Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Some(Dtype::Float32),
        Dtype::Float64 => Some(Dtype::Float64),
        _ => None,
    }
}

impl Lower<RowOp> for Cuda {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (kind, eps) = row_op_number(op);
        let (name, (weight, bias)) = (op.name(), op.vectors());
        let dtype = l.input_dtype(0);
        let Some(accumulator) = accumulator(dtype) else { return Ok(None) };
        l.bring()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let rows: usize = shape[..shape.len() - 1].iter().product();
        if rows == 0 || length == 0 {
            let output = l.output()?;
            l.stream().command(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let source = Source::row_major(l)?;
        let count = 1 + usize::from(weight) + usize::from(bias);
        let vectors = (1..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let starts = vectors.iter().map(|vector| vector.offset as usize * dtype.size());
        let aligned = (length * dtype.size()).is_multiple_of(16)
            && source.is_aligned()
            && starts.into_iter().all(|start| start.is_multiple_of(16));
        let constants = Constants::default().sizes(&[rows, length]);
        let constants = match accumulator {
            Dtype::Float64 => constants.double(eps),
            _ => constants.float(eps as f32),
        };
        let constants = constants.flag(weight).flag(bias);
        let held = held(length * dtype.size() / 16).filter(|_| aligned);
        let kernel = |name: &str| {
            Kernel::new(l.stream(), TEXT, name).of(kind).of(dtype).of(accumulator).slot(source.slot())
        };
        let launch = match held {
            Some((threads, words)) => {
                let (blocks, size) = (rows.div_ceil((256 / threads).max(1)), threads.max(256));
                kernel("held").of(threads).of(words).try_threads(
                    constants,
                    [blocks * size, 1, 1],
                    [size, 1, 1],
                )?
            }
            None if source.is_cheap() => {
                kernel("read_again").try_threads(constants, [rows * 256, 1, 1], [256, 1, 1])?
            }
            None => None,
        };
        let Some(launch) = launch else {
            l.materialize()?;
            return Self::lower(op, l);
        };
        let output = l.output()?;
        let mut command = source.bind(l.stream().command(name));
        for (there, at) in [(weight, 1), (bias, 1 + usize::from(weight))] {
            command = match there {
                true => read(command, l, at, &vectors[at - 1]),
                false => source.bind_unused(command),
            };
        }
        launch.encode(command.write(&output))?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }

    fn takes_rows(_: &RowOp, _: &[usize], dtype: Dtype) -> bool {
        accumulator(dtype).is_some()
    }
}
