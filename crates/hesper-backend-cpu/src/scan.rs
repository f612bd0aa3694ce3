//! Running sums, products, extremes and sums of exponentials along an axis.

use crate::parallel::with_element;
use bytemuck::Pod;
use half::{bf16, f16};
use hesper_compute::{Axis, LogSum, Mismatch, Scannable, scan_logsumexp};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::{Scan, ScanKind, no_log};
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Scan>()
}

impl Lower<Scan> for Cpu {
    fn lower(op: &Scan, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        use hesper_compute::Scan as Combine;
        let by = match (op.kind, l.dtype()) {
            (ScanKind::LogSum, Dtype::Float16) => return log_sum::<f16>(*op, l).map(Some),
            (ScanKind::LogSum, Dtype::Bfloat16) => return log_sum::<bf16>(*op, l).map(Some),
            (ScanKind::LogSum, Dtype::Float32) => return log_sum::<f32>(*op, l).map(Some),
            (ScanKind::LogSum, Dtype::Float64) => return log_sum::<f64>(*op, l).map(Some),
            (ScanKind::LogSum, dtype) => return Err(no_log(dtype)),
            // The minimum of no bools is `true` (1), not the largest byte.
            (ScanKind::Min, Dtype::Bool) | (ScanKind::Product, _) => Combine::Prod,
            (ScanKind::Sum, _) => Combine::Sum,
            (ScanKind::Max, _) => Combine::Max,
            (ScanKind::Min, _) => Combine::Min,
        };
        with_element!(l.dtype(), T => combine::<T>(*op, l, by)).map(Some)
    }
}

/// Runs a kernel along an axis of a contiguous array.
fn run<T: Pod + Send + Sync>(
    op: Scan,
    l: &Lowering<'_>,
    kernel: impl FnOnce(&[T], Axis, &mut [T]) -> std::result::Result<(), Mismatch> + Send + 'static,
) -> Result<Data> {
    let (input, output) = (l.row_major(0)?, l.output()?);
    let shape = l.shape();
    let axis = Axis {
        outer: shape[..op.along].iter().product(),
        len: shape[op.along],
        inner: shape[op.along + 1..].iter().product(),
    };
    let (bytes, _) = reach(&input, shape, size_of::<T>());
    let command = l.stream().command(op.name()).read_range(&input.buffer, bytes);
    command.write(&output).run(move |native| {
        let [x, out] = native.take()?;
        let (x, out) = (x.as_slice::<T>()?, out.as_mut_slice::<T>()?);
        kernel(x, axis, out).map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, shape))
}

fn combine<T: Scannable + Pod>(op: Scan, l: &Lowering<'_>, by: hesper_compute::Scan) -> Result<Data> {
    run(op, l, move |x: &[T], axis, out| {
        hesper_compute::scan(&Cores, by, x, axis, op.reverse, op.inclusive, out)
    })
}

fn log_sum<T: Pod + Send + Sync>(op: Scan, l: &Lowering<'_>) -> Result<Data>
where
    LogSum<T>: Scannable,
{
    run(op, l, move |x: &[T], axis, out| scan_logsumexp(&Cores, x, axis, op.reverse, op.inclusive, out))
}
