//! The derivative of attention by queries, keys and values.
//!
//! Two launches: one for tiles of rows, one for tiles of keys, which compute the scores again. Hopper has
//! kernels of its own for half precision. Head widths without a kernel and older devices take the graph of
//! other ops.

use hesper_backend_gpu::{Shared, is_float};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, reach};
use hesper_core::ops::attention::{Attention, AttentionGradient};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::Cuda;
use crate::attention::{Call, Lengths, rows, section};
use crate::chip::Chip;
use crate::launch::{self, Kernel, shared};

const TEXT: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_f32.cuh"),
    include_str!("attention_gradient.cuh")
);
const SM90: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_f32.cuh"),
    include_str!("attention_gradient.cuh"),
    include_str!("sm90.cuh"),
    include_str!("attention_sm90.cuh"),
    include_str!("attention_gradient_sm90.cuh")
);

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<AttentionGradient>()
}

/// Bytes of the statistics of a row.
const STATS: usize = 16;

/// The kernels of a type and a device.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kernels {
    /// Single precision, without tensor cores.
    Single,
    /// Half precision, with the number of sixteen-row tiles of a warp.
    Half { warp_tiles: usize },
    /// Half precision on Hopper, by blocks that take tiles until none is left.
    Sm90,
}

/// The tiling of the right side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Right {
    /// Rows that are multiplied at a time.
    tile: usize,
    /// Tiles in shared memory.
    stages: usize,
    /// Bytes of shared memory, with the left side.
    shared: usize,
}

/// The tiling of both kernels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tiling {
    kernels: Kernels,
    threads: usize,
    /// Rows of the left side of a block.
    left: usize,
    rows: Right,
    keys: Right,
}

impl Tiling {
    fn of(lengths: &Lengths, dtype: Dtype, chip: Option<Chip>) -> Option<Self> {
        let chip = chip.filter(|chip| chip.capability >= (8, 0))?;
        let width = lengths.width;
        let known = width == lengths.values && width.is_multiple_of(16) && (16..=128).contains(&width);
        if !known || !is_float(dtype) || !lengths.fits_32_bits() {
            return None;
        }
        let tiling = match dtype {
            Dtype::Float32 => Tiling::single(width),
            _ if chip.capability == (9, 0) && width >= 32 => Tiling::sm90(width),
            _ => Tiling::half(width),
        };
        (tiling.rows.shared.max(tiling.keys.shared) <= chip.shared).then_some(tiling)
    }

    fn single(width: usize) -> Self {
        // Both operands of the left side, two stages of both of the right one, the weights of a tile.
        let shared = (2 * 64 + 4 * 32) * (width + 4) * 4 + 2 * 64 * (32 + 4) * 4;
        let right = Right { tile: 32, stages: 2, shared };
        Tiling { kernels: Kernels::Single, threads: 256, left: 64, rows: right, keys: right }
    }

    fn half(width: usize) -> Self {
        // Two tiles of a warp read each operand of the right side once; wide heads lack the registers.
        let warp_tiles = if width > 64 { 1 } else { 2 };
        let left = 64 * warp_tiles;
        // As above, with the statistics of the rows instead of weights.
        let shared = (2 * left + 4 * 32) * (width + 8) * 2 + 2 * 32 * STATS;
        let right = Right { tile: 32, stages: 2, shared };
        Tiling { kernels: Kernels::Half { warp_tiles }, threads: 128, left, rows: right, keys: right }
    }

    fn sm90(width: usize) -> Self {
        let right = |tile: usize, stages: usize| {
            let row = 128 * width.div_ceil(64);
            // Both operands of the left side, the stages with statistics, barriers; aligned to 1024.
            let shared = 1024 + 2 * 128 * row + stages * tile * (2 * row + STATS) + 16 + 16 * stages;
            Right { tile, stages, shared }
        };
        // The widest tiles whose accumulators fit into registers.
        let (rows, keys) =
            if width <= 64 { (right(128, 2), right(64, 3)) } else { (right(64, 3), right(48, 3)) };
        Tiling { kernels: Kernels::Sm90, threads: 384, left: 128, rows, keys }
    }

    /// The instance of a kernel.
    fn kernel<'a>(
        &self,
        stream: &'a Stream,
        name: &str,
        right: &Right,
        dtype: Dtype,
        width: usize,
        mask: bool,
    ) -> Kernel<'a> {
        let kernel = match self.kernels {
            Kernels::Single => Kernel::new(stream, TEXT, &format!("{name}_f32")).of(width),
            Kernels::Half { warp_tiles } => {
                Kernel::new(stream, TEXT, name).of(dtype).of(width).of(warp_tiles).of(right.tile)
            }
            Kernels::Sm90 => {
                let kernel = Kernel::new(stream, SM90, &format!("{name}_sm90")).of(dtype).of(width);
                kernel.of(right.tile).of(right.stages).option(launch::SM90)
            }
        };
        kernel.of(mask).option(shared(right.shared))
    }

    /// The number of blocks for so many tiles of the left side.
    fn blocks(&self, tiles: usize, chip: &Chip) -> usize {
        match self.kernels {
            Kernels::Sm90 => tiles.min(chip.multiprocessors),
            _ => tiles,
        }
    }
}

impl Lower<AttentionGradient> for Cuda {
    fn lower(op: &AttentionGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (lengths, dtype) = (Lengths::of(l), l.input_dtype(0));
        let chip = Chip::of(l.stream());
        let (Some(tiling), Some(chip)) = (Tiling::of(&lengths, dtype, chip), chip) else {
            return <Shared<Cuda> as Lower<AttentionGradient>>::lower(op, l);
        };
        l.bring()?;
        let output = op.parts.memory(l)?;
        let attention = Attention { scale: op.scale, causal: op.causal, mask: op.mask, sinks: false };
        let (call, last) = (Call::new(&attention, l, None)?, l.input_count() - 1);
        let cotangent = rows(l, call.stream, last)?;
        let (bytes, _) = reach(&cotangent, l.input_shape(last), dtype.size());
        let stats = call.stream.alloc(lengths.groups() * lengths.rows() * STATS)?;
        for (name, lefts, right) in [
            ("attention_gradient_rows", lengths.rows(), &tiling.rows),
            ("attention_gradient_keys", lengths.keys, &tiling.keys),
        ] {
            let command = call.command(op.name()).read_range(&cotangent.buffer, bytes.clone());
            let command = match name {
                "attention_gradient_rows" => command.write(&stats).write_range(&output, op.parts.range(0)),
                _ => {
                    let command = command.read(&stats).write_range(&output, op.parts.range(1));
                    command.write_range(&output, op.parts.range(2))
                }
            };
            let tiles = lefts.div_ceil(tiling.left);
            // The right side of a head, which the blocks of its tiles read.
            let rights = lengths.rows() + lengths.keys - lefts;
            let section = section(lengths.groups(), rights * lengths.width * 2 * dtype.size(), tiles, &chip);
            let constants = call.constants(1, section).offsets(cotangent.strides[..3].iter().copied(), 3, 0);
            let blocks = tiling.blocks(lengths.groups() * tiles, &chip);
            let kernel = tiling.kernel(call.stream, name, right, dtype, lengths.width, op.mask);
            kernel.groups(constants, [blocks, 1, 1], tiling.threads)?.encode(command)?;
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
        let ampere = Chip { capability: (8, 0), multiprocessors: 108, shared: 163 << 10, cache: 40 << 20 };
        let half = Tiling::of(&GPT2, Dtype::Bfloat16, Some(ampere)).unwrap();
        assert_eq!((half.kernels, half.left), (Kernels::Half { warp_tiles: 2 }, 128));
        assert_eq!(half.rows, Right { tile: 32, stages: 2, shared: 384 * 144 + 1024 });
        let wide = Lengths { width: 128, values: 128, ..GPT2 };
        let single = Tiling::of(&wide, Dtype::Float32, Some(H200)).unwrap();
        assert_eq!((single.kernels, single.left, single.threads), (Kernels::Single, 64, 256));
        assert_eq!(single.keys, Right { tile: 32, stages: 2, shared: 256 * 528 + 18432 });
        for width in (32..=128).step_by(16) {
            let lengths = Lengths { width, values: width, ..GPT2 };
            let hopper = Tiling::of(&lengths, Dtype::Float16, Some(H200)).unwrap();
            assert_eq!((hopper.kernels, hopper.blocks(768, &H200)), (Kernels::Sm90, 132));
            assert!(hopper.rows.shared.max(hopper.keys.shared) <= H200.shared);
        }
        let narrow =
            Tiling::of(&Lengths { width: 16, values: 16, ..GPT2 }, Dtype::Bfloat16, Some(H200)).unwrap();
        assert_eq!(narrow.kernels, Kernels::Half { warp_tiles: 2 });
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
