//! Reductions.
//!
//! A result is computed by a few threads, by a block, or by several blocks whose parts a second kernel
//! combines: as many as occupy the device. Parts and their order depend on the shapes and the device only.
//! Elements come from memory or from a slot.

use hesper_backend_gpu::{KernelText as _, Source, is_float, nonzero_mask, reduce_instance};
use hesper_compute::{ReduceLayout, ReduceOrder};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::reduce::{Reduce, ReduceKind};
use hesper_core::{Dtype, Result};
use hesper_runtime::Buffer;

use crate::Cuda;
use crate::chip::multiprocessors;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("reduce.cuh");
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
    kept: &'a [(usize, isize)],
    reduced: &'a [(usize, isize)],
    /// Constants of the op: two floats, a mask, and the length of an axis that is traversed backwards.
    op_constants: (f64, f64, u64, usize),
    source: &'a Source,
}

impl Reduction<'_> {
    fn constants(&self, kept: &[(usize, isize)]) -> Constants {
        Constants::default().axes(kept).axes(self.reduced).sizes(&[kept.len(), self.reduced.len()])
    }

    fn with_op_constants(&self, constants: Constants) -> Constants {
        let (a, b, mask, reversed_length) = self.op_constants;
        constants.double(a).double(b).bits(mask).sizes(&[reversed_length])
    }

    /// Encodes the reduction to a new buffer with elements of `size` bytes; `None` if the kernel with its
    /// slot is not compiled.
    fn encode(&self, l: &Lowering<'_>, size: usize) -> Result<Option<Buffer>> {
        let length: usize = self.reduced.iter().map(|dim| dim.0).product();
        let outputs: usize = self.kept.iter().map(|dim| dim.0).product();
        if outputs == 0 {
            let output = l.stream().alloc(0)?;
            l.stream().command("reduce").write(&output).run(|_| Ok(()))?;
            return Ok(Some(output));
        }
        let busy = BLOCKS_PER_MULTIPROCESSOR * multiprocessors(l.stream());
        let inner = self.reduced[self.reduced.len() - 1].1;
        let side = self.kept.last().filter(|dim| dim.1 == 1 && dim.0 >= 16 && inner > 1);
        let v = 16 / self.size;
        let whole = |step: isize| step % v as isize == 0;
        let aligned = self.source.is_aligned();
        let kernel = |name: &str| Kernel::new(l.stream(), TEXT, name).of(&self.op);
        // Kernel, blocks, chunks per result, neighbouring results, constants.
        let (first, blocks, chunks, width, constants) = if let Some((width, _)) = side.copied() {
            let rest = &self.kept[..self.kept.len() - 1];
            let wide = aligned
                && whole(width as isize)
                && rest.iter().chain(self.reduced).all(|dim| whole(dim.1))
                && width >= 8 * v;
            let v = if wide { v } else { 1 };
            let across = width.div_ceil(32 * v) * (outputs / width);
            let chunks = (busy / across).min(length.div_ceil(64)).max(1);
            let chunk = length.div_ceil(chunks).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self.constants(rest).sizes(&[outputs / width, width, length, chunk, chunks]);
            let ahead = if self.source.reads() > 1 { 4 } else { 8usize };
            (kernel("columns").of(v).of(ahead), across * chunks, chunks, width, constants)
        } else {
            let packed = self.reduced.len() == 1
                && inner == 1
                && aligned
                && self.kept.iter().all(|dim| whole(dim.1))
                && length >= 4 * v
                && self.op_constants.3 == 0;
            // One warp per result, if that occupies the device.
            let (threads, ahead): (usize, usize) = match length {
                0..32 => (4, 4),
                32..1024 => (32, 16),
                _ if outputs >= 8 * busy => (32, 16),
                _ => (256, 8),
            };
            // Words of several arrays take the registers of as many in flight.
            let ahead = if self.source.reads() > 1 { 4 } else { ahead };
            let most = if length < 16384 { 1 } else { length.div_ceil(16384) };
            let chunks = (busy / outputs).min(most).max(1);
            let chunk = length.div_ceil(chunks).next_multiple_of(1024).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self.constants(self.kept).sizes(&[outputs, length, chunk, chunks]);
            let blocks = (outputs * chunks).div_ceil(256 / threads);
            (kernel("rows").of(threads).of(packed).of(ahead), blocks, chunks, 1, constants)
        };
        let (first, constants) = (first.slot(self.source.slot()), self.with_op_constants(constants));
        let Some(launch) = first.try_threads(constants, [blocks * 256, 1, 1], [256, 1, 1])? else {
            return Ok(None);
        };
        let output = l.stream().alloc(outputs * size)?;
        let parts = match chunks {
            1 => None,
            _ => Some(l.stream().alloc(outputs * chunks * self.accumulator)?),
        };
        let command = self.source.bind(l.stream().command("reduce"));
        launch.encode(command.write(parts.as_ref().unwrap_or(&output)))?;
        if let Some(parts) = &parts {
            let side: usize = if width < 32 { 1 } else { 32 };
            let constants = self.with_op_constants(Constants::default().sizes(&[outputs, width, chunks]));
            let command = l.stream().command("reduce chunks").read(parts).write(&output);
            let groups = [outputs.div_ceil(side), 1, 1];
            kernel("chunks_of").of(side).groups(constants, groups, 256)?.encode(command)?;
        }
        Ok(Some(output))
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

/// Whether there are kernels for an op and a type of elements.
fn takes(op: &Reduce, dtype: Dtype) -> bool {
    !matches!(op.kind, ReduceKind::Variance { .. }) || is_float(dtype)
}

impl Lower<Reduce> for Cuda {
    fn lower(op: &Reduce, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if !takes(op, dtype) {
            return Ok(None);
        }
        let layout = ReduceLayout::new(l.input_shape(0), &l.input(0).strides, &op.over, ReduceOrder::Any);
        if layout.kept.len().max(layout.reduced.len()) > Cuda::MAX_AXES {
            return Ok(None);
        }
        l.bring()?;
        let source = Source::strided(l)?;
        let size = dtype.size();
        let (wide, total) = widths(dtype);
        let word = ["u8", "u16", "u32", "u64"][size.trailing_zeros() as usize];
        let reversed_length = if layout.reversed { layout.length() } else { 0 };
        let (accumulator, op_constants) = match op.kind {
            ReduceKind::Sum(scale) => (total, (scale.0, 0.0, 0, 0)),
            ReduceKind::Product => (total, (0.0, 0.0, 0, 0)),
            ReduceKind::Max | ReduceKind::Min => (wide, (0.0, 0.0, 0, 0)),
            // A widened value and an index: twice the larger of both.
            ReduceKind::ArgMax | ReduceKind::ArgMin => (wide.max(4) * 2, (0.0, 0.0, 0, reversed_length)),
            ReduceKind::All | ReduceKind::Any | ReduceKind::Count => (4, (0.0, 0.0, nonzero_mask(dtype), 0)),
            ReduceKind::Variance { count, ddof, root } => (16, (count.0, ddof.0, u64::from(root), 0)),
        };
        let [kept, reduced] = [&layout.kept, &layout.reduced]
            .map(|dims| dims.iter().map(|dim| (dim.len, dim.stride)).collect::<Vec<_>>());
        let (kept, reduced) = (&kept[..], &reduced[..]);
        let instance = reduce_instance::<Cuda>(op.kind, dtype, word);
        let reduction =
            Reduction { op: instance, size, accumulator, kept, reduced, op_constants, source: &source };
        let Some(buffer) = reduction.encode(l, l.dtype().size())? else {
            l.materialize()?;
            return Self::lower(op, l);
        };
        let keep = l.shape().len() == l.input_shape(0).len();
        let strides = layout.result_strides(&op.over, keep).into();
        Ok(Some(Data { buffer, offset: layout.offset, strides }))
    }

    /// Products of complex numbers are contracted, which a slot does not allow.
    fn takes_rows(op: &Reduce, _: &[usize], dtype: Dtype) -> bool {
        takes(op, dtype) && dtype != Dtype::Complex64
    }
}
