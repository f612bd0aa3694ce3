//! Reductions.
//!
//! A result is computed by a thread, by a SIMD group, by a threadgroup, or by several threadgroups whose
//! parts a second kernel combines. Parts and their order depend on the shapes only. Elements come from memory
//! or from a slot.

use hesper_backend_gpu::{KernelText, Source, is_float, nonzero_mask, reduce_instance};
use hesper_compute::{ReduceLayout, ReduceOrder};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
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
        if !fits(l) || !takes(op, dtype) {
            return Ok(None);
        }
        let layout = ReduceLayout::new(l.input_shape(0), &l.input(0).strides, &op.over, ReduceOrder::Any);
        if layout.kept.len().max(layout.reduced.len()) > MetalBackend::MAX_AXES {
            return Ok(None);
        }
        l.bring()?;
        let source = Source::strided(l)?;
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
        let keep = l.shape().len() == l.input_shape(0).len();
        let strides = layout.result_strides(&op.over, keep).into();
        let stream = l.stream();
        if outputs == 0 {
            let buffer = stream.alloc(0)?;
            stream.command("reduce").write(&buffer).run(|_| Ok(()))?;
            return Ok(Some(Data { buffer, offset: layout.offset, strides }));
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
        // Neighbouring threads read neighbouring elements.
        let columns = length <= 16 || inner(&layout.kept) < inner(&layout.reduced) && outputs >= MANY_RESULTS;
        let (name, (grid, threadgroup)) = match chunks {
            1 if columns => ("reduce_columns", MetalBackend::element_grid(outputs)),
            1 => {
                let threads = if length <= 1024 || outputs >= 1 << 20 { 32 } else { 256 };
                ("reduce_rows", ([outputs * threads, 1, 1], [threads, 1, 1]))
            }
            _ => ("reduce_chunks", ([outputs * chunks * 256, 1, 1], [256, 1, 1])),
        };
        let first = kernel(name).slot(source.slot());
        let Some(launch) = first.try_threads(constants.clone(), grid, threadgroup)? else {
            l.materialize()?;
            return Self::lower(op, l);
        };
        let buffer = stream.alloc(outputs * l.dtype().size())?;
        let command = source.bind(stream.command("reduce"));
        if chunks > 1 {
            let parts = stream.alloc(outputs * chunks * accumulator(op.kind, dtype))?;
            launch.encode(command.write(&parts))?;
            let command = stream.command("reduce chunks").read(&parts).write(&buffer);
            kernel("join_chunks").elements(constants, outputs)?.encode(command)?;
        } else {
            launch.encode(command.write(&buffer))?;
        }
        Ok(Some(Data { buffer, offset: layout.offset, strides }))
    }

    fn takes_rows(op: &Reduce, _: &[usize], dtype: Dtype) -> bool {
        takes(op, dtype)
    }
}

/// Whether there are kernels for an op and a type of elements.
fn takes(op: &Reduce, dtype: Dtype) -> bool {
    !matches!(op.kind, ReduceKind::Variance { .. }) || is_float(dtype)
}
