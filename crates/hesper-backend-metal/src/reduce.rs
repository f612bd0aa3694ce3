//! Reductions.
//!
//! A result is computed by a thread, by a SIMD group, by a threadgroup, or by several threadgroups whose
//! parts a second kernel combines. Parts and their order depend on the shapes only.

use hesper_backend_gpu::{KernelText as _, is_float, nonzero_mask, reduce_instance};
use hesper_compute::{ReduceLayout, ReduceOrder};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::reduce::{Reduce, ReduceKind};
use hesper_core::{Dtype, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("reduce.metal");
/// Elements of a part of a long result.
const CHUNK: usize = 16384;
/// Results from which on each has one threadgroup.
const MANY_RESULTS: usize = 64;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Reduce>()
}

/// Bytes of an accumulator of sums and of extremes.
fn accumulator(kind: ReduceKind, dtype: Dtype) -> usize {
    let wide = if is_float(dtype) { 4 } else { dtype.size() };
    match kind {
        ReduceKind::Sum(_) | ReduceKind::Product => wide.max(4),
        ReduceKind::Max | ReduceKind::Min => wide,
        // An element and an index, aligned to the larger of both.
        ReduceKind::ArgMax | ReduceKind::ArgMin if dtype == Dtype::Complex64 => 12,
        ReduceKind::ArgMax | ReduceKind::ArgMin => wide.max(4) * 2,
        ReduceKind::All | ReduceKind::Any | ReduceKind::Count => 4,
        ReduceKind::Variance { .. } => 12,
    }
}

impl Lower<Reduce> for MetalBackend {
    fn lower(op: &Reduce, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if !fits(l) || matches!(op.kind, ReduceKind::Variance { .. }) && !is_float(dtype) {
            return Ok(None);
        }
        let layout = ReduceLayout::new(l.input_shape(0), &l.input(0).strides, &op.over, ReduceOrder::Any);
        if layout.kept.len().max(layout.reduced.len()) > MetalBackend::MAX_AXES {
            return Ok(None);
        }
        l.bring()?;
        let size = dtype.size();
        let common = || reduce_instance::<MetalBackend>(op.kind, dtype, MetalBackend::word_name(size));
        let (instance, scale, ddof) = match op.kind {
            ReduceKind::Sum(scale) => (common(), scale.0, 0.0),
            ReduceKind::Variance { count, ddof, root } => {
                (format!("Variance<{}, {root}>", MetalBackend::type_name(dtype)), count.0, ddof.0)
            }
            _ => (common(), 0.0, 0.0),
        };
        let (outputs, length) = (layout.outputs(), layout.length());
        let buffer = l.stream().alloc(outputs * l.dtype().size())?;
        let keep = l.shape().len() == l.input_shape(0).len();
        let data =
            Data { buffer, offset: layout.offset, strides: layout.result_strides(&op.over, keep).into() };
        let (stream, parts);
        stream = l.stream();
        let (bytes, _) = reach(l.input(0), l.input_shape(0), size);
        let command = stream.command("reduce").read_range(&l.input(0).buffer, bytes);
        if outputs == 0 {
            command.write(&data.buffer).run(|_| Ok(()))?;
            return Ok(Some(data));
        }
        let inner = |dims: &[hesper_compute::Dim]| dims.last().map_or(1, |dim| dim.stride);
        let chunks = if outputs < MANY_RESULTS { length.div_ceil(CHUNK).max(1) } else { 1 };
        let mut constants = Constants::default();
        for dims in [&layout.kept, &layout.reduced] {
            let axes: Vec<_> = dims.iter().map(|dim| (dim.len, dim.stride)).collect();
            constants = constants.axes(if axes.is_empty() { &[(1, 0)] } else { &axes });
        }
        let constants = constants.sizes(&[outputs, length, length.div_ceil(chunks).max(1), chunks]);
        let constants = constants.float(scale as f32).float(ddof as f32);
        let constants = constants.bits(nonzero_mask(dtype));
        let constants = constants.sizes(&[if layout.reversed { length } else { 0 }]);
        let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(&instance);
        if chunks > 1 {
            parts = stream.alloc(outputs * chunks * accumulator(op.kind, dtype))?;
            let launch = kernel("reduce_chunks").groups(constants.clone(), [outputs * chunks, 1, 1], 256)?;
            launch.encode(command.write(&parts))?;
            let command = stream.command("reduce chunks").read(&parts).write(&data.buffer);
            kernel("join_chunks").elements(constants, outputs)?.encode(command)?;
            return Ok(Some(data));
        }
        let command = command.write(&data.buffer);
        // Neighbouring threads read neighbouring elements.
        if length <= 16 || inner(&layout.kept) < inner(&layout.reduced) && outputs >= MANY_RESULTS {
            kernel("reduce_columns").elements(constants, outputs)?.encode(command)?;
        } else {
            let threads = if length <= 1024 || outputs >= 1 << 20 { 32 } else { 256 };
            kernel("reduce_rows").groups(constants, [outputs, 1, 1], threads)?.encode(command)?;
        }
        Ok(Some(data))
    }
}
