//! Softmax, norms, log-sum-exp: a threadgroup for each row, which is read once if it fits into its registers.
//! Rows come from memory or from a slot, and results go to memory with an epilogue or without.

use hesper_backend_gpu::{Launch, RowOpKernel};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("norm.metal");
/// Elements that a thread holds.
const HELD: usize = 4;
/// Threads of the largest threadgroup.
const MAX_THREADS: usize = 1024;

/// The kernel of a row op.
pub(crate) fn row_op(stream: &Stream, rows: &RowOpKernel<'_>) -> Result<Option<Launch>> {
    let RowOpKernel { number, eps, dtype, length, source, sink, .. } = *rows;
    let threads = length.div_ceil(HELD).next_multiple_of(32);
    let (threads, held) = if threads <= MAX_THREADS { (threads, HELD) } else { (MAX_THREADS, 0) };
    if held == 0 && !source.is_cheap() {
        return Ok(None);
    }
    let constants = Constants::default().sizes(&[length]).float(eps as f32);
    let constants = constants.flag(rows.weight).flag(rows.bias);
    let kernel = Kernel::new(stream, TEXT, "row_op").of(number).of(dtype).of(held);
    let kernel = kernel.slot(source.slot()).epilogue(sink.slot());
    kernel.try_threads(constants, [rows.rows * threads, 1, 1], [threads, 1, 1])
}
