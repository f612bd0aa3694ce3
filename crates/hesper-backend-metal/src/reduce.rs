//! Reductions.
//!
//! A result is computed by a thread, by a SIMD group, by a threadgroup, or by several threadgroups whose
//! parts a second kernel combines. Parts and their order depend on the shapes only.

use hesper_compute::{ReduceLayout, ReduceOrder};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::reduce::{Reduce, ReduceKind};
use hesper_core::{Category, Dtype, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits, is_float, type_name, word};
use crate::walk::{MAX_AXES, walk};

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
        if layout.kept.len() > MAX_AXES || layout.reduced.len() > MAX_AXES {
            return Ok(None);
        }
        l.bring()?;
        let size = dtype.size();
        let (name, word) = (type_name(dtype), word(size));
        // All bits of an integer, all but the signs of floats.
        let mask = match (dtype, size) {
            (Dtype::Complex64, _) => 0x7fff_ffff_7fff_ffff,
            _ if !dtype.is(Category::Inexact) => u64::MAX,
            (_, size) => u64::MAX >> (65 - 8 * size),
        };
        let (instance, scale, ddof) = match op.kind {
            ReduceKind::Sum(scale) => (format!("Sum<{name}>"), scale.0, 0.0),
            ReduceKind::Product => (format!("Product<{name}>"), 0.0, 0.0),
            ReduceKind::Max => (format!("Extreme<{name}, true>"), 0.0, 0.0),
            ReduceKind::Min => (format!("Extreme<{name}, false>"), 0.0, 0.0),
            ReduceKind::ArgMax => (format!("Arg<{name}, true>"), 0.0, 0.0),
            ReduceKind::ArgMin => (format!("Arg<{name}, false>"), 0.0, 0.0),
            ReduceKind::All => (format!("Truth<{word}, true>"), 0.0, 0.0),
            ReduceKind::Any => (format!("Truth<{word}, false>"), 0.0, 0.0),
            ReduceKind::Count => (format!("Count<{word}>"), 0.0, 0.0),
            ReduceKind::Variance { count, ddof, root } => {
                (format!("Variance<{name}, {root}>"), count.0, ddof.0)
            }
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
            constants = walk(constants, if axes.is_empty() { &[(1, 0)] } else { &axes });
        }
        let constants = constants.sizes(&[outputs, length, length.div_ceil(chunks).max(1), chunks]);
        let constants = constants.float(scale as f32).float(ddof as f32);
        let constants = constants.word(mask as u32).word((mask >> 32) as u32);
        let constants = constants.sizes(&[if layout.reversed { length } else { 0 }]);
        let run = |kernel: &str| format!("{kernel}<{instance}>");
        if chunks > 1 {
            parts = stream.alloc(outputs * chunks * accumulator(op.kind, dtype))?;
            let (reduce, join) = (run("reduce_chunks"), run("join_chunks"));
            let groups = [outputs * chunks, 1, 1];
            let command = command.write(&parts);
            Kernel { text: TEXT, entry: &reduce }.groups(stream, command, &constants, groups, 256)?;
            let command = stream.command("reduce chunks").read(&parts).write(&data.buffer);
            Kernel { text: TEXT, entry: &join }.elements(stream, command, &constants, outputs)?;
            return Ok(Some(data));
        }
        let command = command.write(&data.buffer);
        // Neighbouring threads read neighbouring elements.
        if length <= 16 || inner(&layout.kept) < inner(&layout.reduced) && outputs >= MANY_RESULTS {
            let entry = run("reduce_columns");
            Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, outputs)?;
        } else {
            let threads = if length <= 1024 || outputs >= 1 << 20 { 32 } else { 256 };
            let entry = run("reduce_rows");
            Kernel { text: TEXT, entry: &entry }.groups(
                stream,
                command,
                &constants,
                [outputs, 1, 1],
                threads,
            )?;
        }
        Ok(Some(data))
    }
}
