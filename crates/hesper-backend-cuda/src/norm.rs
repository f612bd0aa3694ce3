//! Softmax, norms, log-sum-exp: a row is read once if it fits into a block's registers. Rows come from memory
//! or from a slot, and results go to memory with an epilogue or without.

use hesper_backend_gpu::{Launch, RowOpKernel};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

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

/// The type that rows of a type are computed in; `None` if there are no kernels for it.
fn accumulator(dtype: Dtype) -> Option<Dtype> {
    match dtype {
        Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => Some(Dtype::Float32),
        Dtype::Float64 => Some(Dtype::Float64),
        _ => None,
    }
}

/// Whether there are kernels for a type.
pub(crate) fn takes_row_op(dtype: Dtype) -> bool {
    accumulator(dtype).is_some()
}

/// The kernel of a row op.
pub(crate) fn row_op(stream: &Stream, rows: &RowOpKernel<'_>) -> Result<Option<Launch>> {
    let RowOpKernel { number, eps, dtype, length, source, .. } = *rows;
    let Some(accumulator) = accumulator(dtype) else { return Ok(None) };
    let constants = Constants::default().sizes(&[rows.rows, length]);
    let constants = match accumulator {
        Dtype::Float64 => constants.double(eps),
        _ => constants.float(eps as f32),
    };
    let constants = constants.flag(rows.weight).flag(rows.bias);
    let kernel = |name: &str| {
        let kernel = Kernel::new(stream, TEXT, name).of(number).of(dtype).of(accumulator);
        kernel.slot(source.slot()).epilogue(rows.sink.slot())
    };
    match held(length * dtype.size() / 16).filter(|_| rows.aligned) {
        Some((threads, words)) => {
            let (blocks, size) = (rows.rows.div_ceil((256 / threads).max(1)), threads.max(256));
            let grid = [blocks * size, 1, 1];
            kernel("held").of(threads).of(words).try_threads(constants, grid, [size, 1, 1])
        }
        None if source.is_cheap() => {
            kernel("read_again").of(rows.aligned).try_threads(constants, [rows.rows * 512, 1, 1], [512, 1, 1])
        }
        None => Ok(None),
    }
}
