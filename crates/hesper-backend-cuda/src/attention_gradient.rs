//! The derivative of attention by queries, keys and values.
//!
//! Two launches: one for tiles of rows, one for tiles of keys, which compute the scores again. Head widths
//! without a kernel and older devices take the graph of other ops.

use hesper_backend_gpu::{Shared, is_float};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, reach};
use hesper_core::ops::attention::{Attention, AttentionGradient};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::Cuda;
use crate::attention::{Call, Lengths, rows};
use crate::chip::Chip;
use crate::launch::{Kernel, shared};

const TEXT: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_f32.cuh"),
    include_str!("attention_gradient.cuh")
);

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<AttentionGradient>()
}

/// Rows of the right side that are multiplied at a time.
const RIGHT_TILE: usize = 32;
/// Bytes of the statistics of a row.
const STATS: usize = 16;

/// The tiling of both kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tiling {
    /// Sixteen-row tiles of a warp; in single precision there are none.
    warp_tiles: usize,
    threads: usize,
    /// Rows of the left side of a block.
    left: usize,
    /// Bytes of shared memory.
    shared: usize,
}

impl Tiling {
    fn of(lengths: &Lengths, dtype: Dtype, chip: Option<Chip>) -> Option<Self> {
        let chip = chip.filter(|chip| chip.capability >= (8, 0))?;
        let width = lengths.width;
        let known = width == lengths.values && width.is_multiple_of(16) && (16..=128).contains(&width);
        if !known || !is_float(dtype) || !lengths.fits_32_bits() {
            return None;
        }
        let single = dtype == Dtype::Float32;
        // Two tiles of a warp read each operand of the right side once; wide heads lack the registers.
        let warp_tiles = if single || width > 64 { 1 } else { 2 };
        let left = 64 * warp_tiles;
        // Both operands of the left side, two stages of both of the right one; then the weights of a tile,
        // or the statistics of the rows.
        let operands = (2 * left + 4 * RIGHT_TILE) * (width + 16 / dtype.size()) * dtype.size();
        let others = if single { 2 * left * (RIGHT_TILE + 4) * 4 } else { 2 * RIGHT_TILE * STATS };
        let shared = operands + others;
        let threads = if single { 256 } else { 128 };
        (shared <= chip.shared).then_some(Tiling { warp_tiles, threads, left, shared })
    }

    /// The instance of a kernel.
    fn kernel<'a>(
        &self,
        stream: &'a Stream,
        name: &str,
        dtype: Dtype,
        width: usize,
        mask: bool,
    ) -> Kernel<'a> {
        let kernel = match dtype {
            Dtype::Float32 => Kernel::new(stream, TEXT, &format!("{name}_f32")).of(width),
            _ => Kernel::new(stream, TEXT, name).of(dtype).of(width).of(self.warp_tiles).of(RIGHT_TILE),
        };
        kernel.of(mask).option(shared(self.shared))
    }
}

impl Lower<AttentionGradient> for Cuda {
    fn lower(op: &AttentionGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (lengths, dtype) = (Lengths::of(l), l.input_dtype(0));
        let Some(tiling) = Tiling::of(&lengths, dtype, Chip::of(l.stream())) else {
            return <Shared<Cuda> as Lower<AttentionGradient>>::lower(op, l);
        };
        l.bring()?;
        let output = op.parts.memory(l)?;
        let attention = Attention { scale: op.scale, causal: op.causal, mask: op.mask, sinks: false };
        let (call, last) = (Call::new(&attention, l, None)?, l.input_count() - 1);
        let cotangent = rows(l, call.stream, last)?;
        let (bytes, _) = reach(&cotangent, l.input_shape(last), dtype.size());
        let stats = call.stream.alloc(lengths.groups() * lengths.rows() * STATS)?;
        let constants = call.constants(1, 1).offsets(cotangent.strides[..3].iter().copied(), 3, 0);
        for (name, lefts) in
            [("attention_gradient_rows", lengths.rows()), ("attention_gradient_keys", lengths.keys)]
        {
            let command = call.command(op.name()).read_range(&cotangent.buffer, bytes.clone());
            let command = match name {
                "attention_gradient_rows" => command.write(&stats).write_range(&output, op.parts.range(0)),
                _ => {
                    let command = command.read(&stats).write_range(&output, op.parts.range(1));
                    command.write_range(&output, op.parts.range(2))
                }
            };
            let blocks = lengths.groups() * lefts.div_ceil(tiling.left);
            let kernel = tiling.kernel(call.stream, name, dtype, lengths.width, op.mask);
            kernel.groups(constants.clone(), [blocks, 1, 1], tiling.threads)?.encode(command)?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Chip = Chip { capability: (9, 0), multiprocessors: 132, shared: 227 << 10, cache: 60 << 20 };
    const GPT2: Lengths =
        Lengths { batch: 8, kv_heads: 12, share: 1, queries: 1024, keys: 1024, width: 64, values: 64 };

    #[test]
    fn tiles_fit_shared_memory_and_other_widths_are_composed() {
        let half = Tiling::of(&GPT2, Dtype::Bfloat16, Some(H200));
        assert_eq!(half, Some(Tiling { warp_tiles: 2, threads: 128, left: 128, shared: 384 * 144 + 1024 }));
        let wide = Lengths { width: 128, values: 128, ..GPT2 };
        let single = Tiling::of(&wide, Dtype::Float32, Some(H200));
        assert_eq!(single, Some(Tiling { warp_tiles: 1, threads: 256, left: 64, shared: 256 * 528 + 18432 }));
        let small = Chip { shared: 99 << 10, ..H200 };
        assert_eq!(Tiling::of(&wide, Dtype::Float32, Some(small)), None);
        let before = Chip { capability: (7, 5), ..H200 };
        for (lengths, dtype, chip) in [
            (Lengths { width: 72, values: 72, ..GPT2 }, Dtype::Bfloat16, Some(H200)),
            (Lengths { width: 256, values: 256, ..GPT2 }, Dtype::Bfloat16, Some(H200)),
            (Lengths { values: 32, ..GPT2 }, Dtype::Bfloat16, Some(H200)),
            (Lengths { keys: 1 << 40, ..GPT2 }, Dtype::Bfloat16, Some(H200)),
            (GPT2, Dtype::Bfloat16, Some(before)),
            (GPT2, Dtype::Bfloat16, None),
        ] {
            assert_eq!(Tiling::of(&lengths, dtype, chip), None);
        }
    }
}
