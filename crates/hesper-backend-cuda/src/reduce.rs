//! Reductions.
//!
//! A result is computed by a few threads, by a block, or by several blocks whose parts a second kernel
//! combines: as many as occupy the device. Parts and their order depend on the shapes and the device only.

use std::ops::Range;

use hesper_runtime::Buffer;

use crate::launch::{Constants, kernel, type_name};
use hesper_compute::{ReduceLayout, ReduceOrder};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::reduce::{Reduce, ReduceKind};
use hesper_core::{Category, Dtype, Result};

use crate::Cuda;
use crate::chip::multiprocessors;

const TEXT: &str = include_str!("reduce.cuh");
/// Most axes of each kind after joining.
const MAX_AXES: usize = 6;
/// Blocks per multiprocessor, each with many words in flight. With more blocks, starting and ending them
/// dominates.
const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Reduce>()
}

/// A reduction: its traversal of memory, and its operation.
struct Reduction<'a> {
    /// The instance of the operation in the text, as in `Sum<float>`.
    op: String,
    /// Bytes of an element, of an accumulator.
    size: usize,
    accumulator: usize,
    /// Lengths and strides of kept and of reduced axes, outermost first.
    kept: &'a [(usize, usize)],
    reduced: &'a [(usize, usize)],
    /// Constants of the op: two floats, a mask, and the length of an axis that is traversed backwards.
    op_constants: (f64, f64, u64, usize),
    /// The bytes of the input that are reached.
    bytes: Range<usize>,
}

impl Reduction<'_> {
    fn constants(&self, kept: &[(usize, usize)]) -> Constants {
        let mut constants = Constants::default();
        for dims in [kept, self.reduced] {
            constants = constants.longs(dims.iter().map(|dim| dim.0 as isize), MAX_AXES, 1).longs(
                dims.iter().map(|dim| dim.1 as isize),
                MAX_AXES,
                0,
            );
        }
        constants.long(kept.len() as i64).long(self.reduced.len() as i64)
    }

    fn with_op_constants(&self, constants: Constants) -> Constants {
        let (a, b, mask, reversed_length) = self.op_constants;
        constants
            .long(a.to_bits() as i64)
            .long(b.to_bits() as i64)
            .long(mask as i64)
            .long(reversed_length as i64)
    }

    /// Encodes the reduction of an input to `output`; false if there are too many axes.
    fn encode(&self, l: &Lowering<'_>, output: &Buffer) -> Result<bool> {
        if self.kept.len() > MAX_AXES || self.reduced.len() > MAX_AXES {
            return Ok(false);
        }
        let length: usize = self.reduced.iter().map(|dim| dim.0).product();
        let outputs: usize = self.kept.iter().map(|dim| dim.0).product();
        let input = &l.input(0).buffer;
        if outputs == 0 {
            l.stream().command("reduce").write(output).run(|_| Ok(()))?;
            return Ok(true);
        }
        let busy = BLOCKS_PER_MULTIPROCESSOR * multiprocessors(l.stream());
        let inner = self.reduced[self.reduced.len() - 1].1;
        let side = self.kept.last().filter(|dim| dim.1 == 1 && dim.0 >= 16 && inner > 1);
        let v = 16 / self.size;
        let whole = |step: usize| step.is_multiple_of(v);
        let aligned = self.bytes.start.is_multiple_of(16);
        // Kernel, blocks, chunks per result, neighbouring results, constants.
        let (entry, blocks, chunks, width, constants) = if let Some((width, _)) = side.copied() {
            let rest = &self.kept[..self.kept.len() - 1];
            let wide = aligned
                && whole(width)
                && rest.iter().chain(self.reduced).all(|dim| whole(dim.1))
                && width >= 8 * v;
            let v = if wide { v } else { 1 };
            let across = width.div_ceil(32 * v) * (outputs / width);
            let chunks = (busy / across).min(length.div_ceil(64)).max(1);
            let chunk = length.div_ceil(chunks).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self
                .constants(rest)
                .long((outputs / width) as i64)
                .long(width as i64)
                .long(length as i64)
                .long(chunk as i64)
                .long(chunks as i64);
            (format!("columns<{}, {v}, 8>", self.op), across * chunks, chunks, width, constants)
        } else {
            let packed = self.reduced.len() == 1
                && inner == 1
                && aligned
                && self.kept.iter().all(|dim| whole(dim.1))
                && length >= 4 * v
                && self.op_constants.3 == 0;
            // One warp per result, if that occupies the device.
            let (threads, ahead) = match length {
                0..32 => (4, 4),
                32..1024 => (32, 16),
                _ if outputs >= 8 * busy => (32, 16),
                _ => (256, 8),
            };
            let most = if length < 16384 { 1 } else { length.div_ceil(16384) };
            let chunks = (busy / outputs).min(most).max(1);
            let chunk = length.div_ceil(chunks).next_multiple_of(1024).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self
                .constants(self.kept)
                .long(outputs as i64)
                .long(length as i64)
                .long(chunk as i64)
                .long(chunks as i64);
            let blocks = (outputs * chunks).div_ceil(256 / threads);
            (format!("rows<{}, {threads}, {packed}, {ahead}>", self.op), blocks, chunks, 1, constants)
        };
        let constants = self.with_op_constants(constants);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let parts = match chunks {
            1 => None,
            _ => Some(l.stream().alloc(outputs * chunks * self.accumulator)?),
        };
        l.stream()
            .command("reduce")
            .read_range(input, self.bytes.clone())
            .write(parts.as_ref().unwrap_or(output))
            .constants(constants.bytes())
            .dispatch(&pipeline, [blocks as u64 * 256, 1, 1], [256, 1, 1])?;
        if let Some(parts) = &parts {
            let side = if width < 32 { 1 } else { 32 };
            let pipeline = kernel(l.stream(), TEXT, &format!("chunks_of<{}, {side}>", self.op), "")?;
            let constants = Constants::default().long(outputs as i64).long(width as i64).long(chunks as i64);
            l.stream()
                .command("reduce chunks")
                .read(parts)
                .write(output)
                .constants(self.with_op_constants(constants).bytes())
                .dispatch(&pipeline, [outputs.div_ceil(side) as u64 * 256, 1, 1], [256, 1, 1])?;
        }
        Ok(true)
    }
}

/// Bytes of the type that elements are compared in, and of the one that they are summed in.
fn widths(dtype: Dtype) -> (usize, usize) {
    let size = dtype.size();
    match dtype {
        Dtype::Float16 | Dtype::Bfloat16 => (4, 4),
        _ => (size, size.max(4)),
    }
}

impl Lower<Reduce> for Cuda {
    fn lower(op: &Reduce, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let floats = matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
        if matches!(op.kind, ReduceKind::Variance { .. }) && !floats {
            return Ok(None);
        }
        let layout = ReduceLayout::new(l.input_shape(0), &l.input(0).strides, &op.over, ReduceOrder::Any);
        if layout.kept.len() > MAX_AXES || layout.reduced.len() > MAX_AXES {
            return Ok(None);
        }
        l.bring()?;
        let size = dtype.size();
        let (wide, total) = widths(dtype);
        let name = type_name(dtype);
        let word = ["u8", "u16", "u32", "u64"][size.trailing_zeros() as usize];
        // All bits of an integer, all but the sign of a float.
        let mask = match (dtype, size) {
            (Dtype::Complex64, _) => 0x7fff_ffff_7fff_ffff,
            _ if !dtype.is(Category::Inexact) => u64::MAX,
            (_, size) => u64::MAX >> (65 - 8 * size),
        };
        let reversed_length = if layout.reversed { layout.length() } else { 0 };
        let (instance, accumulator, op_constants) = match op.kind {
            ReduceKind::Sum(scale) => (format!("Sum<{name}>"), total, (scale.0, 0.0, 0, 0)),
            ReduceKind::Product => (format!("Product<{name}>"), total, (0.0, 0.0, 0, 0)),
            ReduceKind::Max => (format!("Extreme<{name}, true>"), wide, (0.0, 0.0, 0, 0)),
            ReduceKind::Min => (format!("Extreme<{name}, false>"), wide, (0.0, 0.0, 0, 0)),
            // A widened value and an index: twice the larger of both.
            ReduceKind::ArgMax => {
                (format!("Arg<{name}, true>"), wide.max(4) * 2, (0.0, 0.0, 0, reversed_length))
            }
            ReduceKind::ArgMin => {
                (format!("Arg<{name}, false>"), wide.max(4) * 2, (0.0, 0.0, 0, reversed_length))
            }
            ReduceKind::All => (format!("Truth<{word}, true>"), 4, (0.0, 0.0, mask, 0)),
            ReduceKind::Any => (format!("Truth<{word}, false>"), 4, (0.0, 0.0, mask, 0)),
            ReduceKind::Count => (format!("Count<{word}>"), 4, (0.0, 0.0, mask, 0)),
            ReduceKind::Variance { count, ddof, root } => {
                (format!("Moments<{name}>"), 16, (count.0, ddof.0, u64::from(root), 0))
            }
        };
        let buffer = l.stream().alloc(layout.outputs() * l.dtype().size())?;
        let keep = l.shape().len() == l.input_shape(0).len();
        let data =
            Data { buffer, offset: layout.offset, strides: layout.result_strides(&op.over, keep).into() };
        let (bytes, _) = reach(l.input(0), l.input_shape(0), size);
        let [kept, reduced] = [&layout.kept, &layout.reduced]
            .map(|dims| dims.iter().map(|dim| (dim.len, dim.stride as usize)).collect::<Vec<_>>());
        let (kept, reduced) = (&kept[..], &reduced[..]);
        let reduction = Reduction { op: instance, size, accumulator, kept, reduced, op_constants, bytes };
        Ok(reduction.encode(l, &data.buffer)?.then_some(data))
    }
}
