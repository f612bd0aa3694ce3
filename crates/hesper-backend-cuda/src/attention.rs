//! Attention on GPUs: tensor cores for half precision, tiles for single precision, a naive kernel for head
//! widths that neither supports.
//!
//! Few rows (a decode step) are bound by memory: their keys are split evenly over all multiprocessors, in one
//! launch. Many rows (prefill) are bound by arithmetic: there is a kernel for Hopper and a tiled one for
//! other devices. The faster of two kernels is estimated from the lengths.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_backend_gpu::{copy, is_float};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::attention::Attention;
use hesper_core::ops::command::Commands;
use hesper_core::shape::Strides;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Encoder, Stream};
use smallvec::smallvec;

use crate::Cuda;
use crate::chip::Chip;
use crate::launch::{self, Constants, Kernel, shared};

const TEXT: &str = include_str!("attention.cuh");
const SPLIT_KV: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_parts.cuh"),
    include_str!("attention_split_kv.cuh")
);
const DECODE: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_parts.cuh"),
    include_str!("sm90.cuh"),
    include_str!("attention_decode_sm90.cuh")
);
const F32: &str = concat!(include_str!("attention.cuh"), include_str!("attention_f32.cuh"));
const SM90: &str =
    concat!(include_str!("attention.cuh"), include_str!("sm90.cuh"), include_str!("attention_sm90.cuh"));

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Attention>()
}

/// The lengths of the axes. Query heads that share a key head are rows of one product.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) batch: usize,
    pub(crate) kv_heads: usize,
    pub(crate) share: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    /// Features of queries and keys, and of values.
    pub(crate) width: usize,
    pub(crate) values: usize,
}

/// A kernel and its tiling.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plan {
    Naive,
    /// Keys split over blocks: `used` rows of each tile of `tile`, a ring buffer of `stages` for each of
    /// `warps` warps. Each head is split into `pieces`; 0 if the keys of all heads are split as one sequence.
    SplitKv {
        tile: usize,
        warps: usize,
        stages: usize,
        blocks: usize,
        pieces: usize,
        used: usize,
    },
    /// Tiles of `keys` keys, on Hopper.
    Sm90 {
        keys: usize,
        blocks: usize,
    },
    /// Tiles of `keys` keys.
    Tiled {
        keys: usize,
    },
    /// Single precision: the keys in `splits` parts of `per`.
    F32 {
        splits: usize,
        per: usize,
    },
}

impl Lengths {
    /// Those of an op whose first inputs are queries, keys and values.
    pub(crate) fn of(l: &Lowering<'_>) -> Self {
        let (q, k, v) = (l.input_shape(0), l.input_shape(1), l.input_shape(2));
        let (batch, kv_heads, share, queries) = (q[0], k[1], q[1] / k[1], q[2]);
        Lengths { batch, kv_heads, share, queries, keys: k[2], width: q[3], values: v[3] }
    }

    pub(crate) fn rows(&self) -> usize {
        self.share * self.queries
    }

    pub(crate) fn groups(&self) -> usize {
        self.batch * self.kv_heads
    }

    /// Whether 32-bit indices suffice.
    pub(crate) fn fits_32_bits(&self) -> bool {
        const LIMIT: usize = 1 << 30;
        let all = [self.groups(), self.rows().div_ceil(16), self.keys.div_ceil(16)];
        let units = all.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        let rows = self.rows().checked_mul(self.kv_heads);
        units.is_some_and(|units| units < LIMIT) && rows.is_some_and(|rows| rows < LIMIT) && self.keys < LIMIT
    }

    fn plan(&self, dtype: Dtype, chip: Option<Chip>) -> Plan {
        let Some(chip) = chip.filter(|chip| chip.capability >= (8, 0)) else { return Plan::Naive };
        if self.width != self.values || self.width > 256 || !self.fits_32_bits() {
            return Plan::Naive;
        }
        if dtype == Dtype::Float32 {
            return self.f32_plan(&chip).unwrap_or(Plan::Naive);
        }
        if !self.width.is_multiple_of(16) || self.width < 32 {
            return Plan::Naive;
        }
        let hopper = chip.capability == (9, 0) && chip.shared >= 220 << 10;
        let split = self.split_kv(&chip);
        let tiles = self.groups() * self.rows().div_ceil(128);
        if let Some(split) = split {
            // Microseconds on an H200: bytes through the cache against waves of tiles.
            let bytes = self.groups() * self.rows().div_ceil(16) * self.keys * self.width * 4;
            let streamed = 3.0 + bytes as f64 / 4.5e6;
            let waves = tiles.div_ceil(chip.multiprocessors) * self.keys.div_ceil(128);
            let tiled = 4.0 + waves as f64 * 2.0 * self.width as f64 / 128.0;
            if (hopper && streamed < tiled) || (!hopper && self.rows() <= 32) {
                return split;
            }
        }
        let keys = if self.width <= 128 { 128 } else { 64 };
        match hopper {
            true => Plan::Sm90 { keys, blocks: tiles.min(chip.multiprocessors) },
            false => Plan::Tiled { keys: keys / 2 },
        }
    }

    fn f32_plan(&self, chip: &Chip) -> Option<Plan> {
        if !self.width.is_multiple_of(4) || f32_shared(self.width) > chip.shared {
            return None;
        }
        let blocks = self.groups() * self.rows().div_ceil(64);
        let splits = (2 * chip.multiprocessors / blocks).clamp(1, self.keys.div_ceil(64));
        let per = self.keys.div_ceil(splits).next_multiple_of(64);
        Some(Plan::F32 { splits: self.keys.div_ceil(per), per })
    }

    fn split_kv(&self, chip: &Chip) -> Option<Plan> {
        // Bulk copies need Hopper.
        let tile = match chip.capability >= (9, 0) && self.rows() <= 8 && self.width.is_multiple_of(64) {
            true => 8,
            false => 16,
        };
        let used = self.rows().min(tile);
        let preferred: &[(usize, usize)] =
            if tile == 8 { &[(8, 3), (6, 2)] } else { &[(8, 3), (4, 3), (4, 2), (2, 2)] };
        preferred.iter().find_map(|&(warps, least)| {
            let (blocks, pieces) = self.split(chip.multiprocessors, warps);
            let left = chip.shared.checked_sub(split_kv_sums(warps, used, self.width))?;
            let stages = (left / split_kv_ring(tile, warps, self.width)).min(6);
            (stages >= least).then_some(Plan::SplitKv { tile, warps, stages, blocks, pieces, used })
        })
    }

    /// The number of blocks, and of pieces of each head if all heads have as many. Splitting heads unevenly
    /// costs more than a few idle multiprocessors. One block combines the parts of a head, which bounds the
    /// useful number of pieces.
    fn split(&self, multiprocessors: usize, warps: usize) -> (usize, usize) {
        let heads = self.groups() * self.rows().div_ceil(16);
        let units = self.keys.div_ceil(16);
        let enough = multiprocessors - multiprocessors / 8;
        if heads <= multiprocessors {
            let worth = (self.keys as f64 / self.rows().min(16) as f64 / 1.5).sqrt().ceil() as usize;
            let most = units.div_ceil(warps).min(worth.max(1));
            let pieces = (multiprocessors / heads).min(most);
            if heads * pieces >= enough || pieces == most {
                return (heads * pieces, pieces);
            }
        }
        let even = (enough..=multiprocessors).rev().find(|blocks| heads.is_multiple_of(*blocks));
        (even.unwrap_or(multiprocessors).min(heads * units), 0)
    }
}

/// Shared memory of a stage of the ring buffers of `attention_split_kv` or `attention_decode`, in bytes:
/// keys, values and a barrier.
fn split_kv_ring(tile: usize, warps: usize, width: usize) -> usize {
    match tile {
        8 => warps * (2 * 16 * width * 2 + 8),
        _ => warps * 2 * 16 * (width + 8) * 2,
    }
}

/// Their other shared memory, in bytes: the partial results of warps, and then of threads.
fn split_kv_sums(warps: usize, used: usize, width: usize) -> usize {
    (warps * used * 2 + (warps * used * width).max(warps * 32 * 6)) * 4 + 8
}

/// Shared memory of `attention_f32`, in bytes: queries, keys, values and weights.
fn f32_shared(width: usize) -> usize {
    (2 * 64 * (width + 4) + 64 * width.next_multiple_of(32) + 64 * 68) * 4
}

/// The number of heads that blocks work on at a time: as many as keep their keys and values in the cache, but
/// enough for several waves of tiles.
pub(crate) fn section(groups: usize, bytes: usize, tiles: usize, chip: &Chip) -> usize {
    let most = (chip.cache * 3 / 4 / bytes.max(1)).max((4 * chip.multiprocessors).div_ceil(tiles)).max(1);
    groups.div_ceil(groups.div_ceil(most))
}

/// A number that is unique among the launches of the process, and that stale memory holds with a chance of
/// 2^-63.
pub(crate) fn launch_number() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = *START.get_or_init(|| RandomState::new().hash_one("attention"));
    // Odd, as cleared memory is zero.
    start.wrapping_add(2 * NEXT.fetch_add(1, Ordering::Relaxed)) | 1
}

/// An operand whose features are contiguous and aligned.
pub(crate) fn rows(l: &Lowering<'_>, stream: &Stream, at: usize) -> Result<Data> {
    let (data, shape) = (l.input(at), l.input_shape(at));
    let v = 16 / l.input_dtype(at).size() as isize;
    let whole = |number: isize| number % v == 0;
    let contiguous = (data.strides[3] == 1 || shape[3] == 1)
        && data.strides[..3].iter().all(|stride| *stride >= 0 && whole(*stride))
        && whole(data.offset);
    if contiguous {
        return Ok(data.clone());
    }
    let copied = copy::<Cuda>(stream, data, shape, l.input_dtype(at).size())?;
    Ok(Data::contiguous(copied, shape))
}

/// A launch and its inputs.
pub(crate) struct Call<'a> {
    op: &'a Attention,
    pub(crate) stream: &'a Stream,
    pub(crate) lengths: Lengths,
    pub(crate) dtype: Dtype,
    inputs: [Data; 3],
    shapes: [&'a [usize]; 3],
    /// The mask, its shape and type.
    mask: Option<(Data, &'a [usize], Dtype)>,
    sinks: Option<Data>,
}

impl Lower<Attention> for Cuda {
    fn lower(op: &Attention, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (dtype, lengths) = (l.dtype(), Lengths::of(l));
        let Lengths { queries, values, .. } = lengths;
        if !is_float(dtype) || lengths.width.max(values) > 512 {
            return Ok(None);
        }
        l.bring()?;
        let output = l.output()?;
        let sinks = op.sinks.then(|| l.row_major(3 + usize::from(op.mask))).transpose()?;
        let call = Call::new(op, l, sinks)?;
        let heads = lengths.kv_heads * lengths.share;
        let chip = Chip::of(call.stream);
        match (lengths.plan(dtype, chip), chip) {
            (plan @ Plan::SplitKv { .. }, _) => call.split_kv(&output, plan)?,
            (Plan::Sm90 { keys, blocks }, Some(chip)) => {
                call.sm90(&output, keys, blocks, &chip)?;
            }
            (Plan::Tiled { keys }, _) => call.tiled(&output, keys)?,
            (Plan::F32 { splits, per }, _) => call.f32(&output, splits, per)?,
            _ => call.naive(&output)?,
        }
        // The output is laid out by batch, query, head.
        let (row, across) = (values as isize, (values * heads) as isize);
        let strides: Strides = smallvec![across * queries as isize, row, across, 1];
        Ok(Some(Data { buffer: output, offset: 0, strides }))
    }
}

impl<'a> Call<'a> {
    pub(crate) fn new(op: &'a Attention, l: &'a Lowering<'_>, sinks: Option<Data>) -> Result<Self> {
        let stream = l.stream();
        Ok(Call {
            op,
            stream,
            lengths: Lengths::of(l),
            dtype: l.input_dtype(0),
            inputs: [rows(l, stream, 0)?, rows(l, stream, 1)?, rows(l, stream, 2)?],
            shapes: [l.input_shape(0), l.input_shape(1), l.input_shape(2)],
            mask: op.mask.then(|| (l.input(3).clone(), l.input_shape(3), l.input_dtype(3))),
            sinks,
        })
    }

    /// A command that reads the inputs but the sinks. A missing mask is bound as the queries, and not read.
    pub(crate) fn command(&self, name: &'static str) -> Encoder<'_> {
        let size = self.dtype.size();
        let mut command = self.stream.command(name);
        for (data, shape) in self.inputs.iter().zip(self.shapes) {
            command = command.read_range(&data.buffer, reach(data, shape, size).0);
        }
        match &self.mask {
            Some((mask, shape, dtype)) => {
                command.read_range(&mask.buffer, reach(mask, shape, dtype.size()).0)
            }
            None => command.read_range(&self.inputs[0].buffer, self.queries_range()),
        }
    }

    /// A command that reads the inputs. Missing ones are bound as the queries, and not read.
    fn encode(&self) -> Encoder<'_> {
        let command = self.command("attention");
        match &self.sinks {
            Some(sinks) => command.read_range(&sinks.buffer, self.sinks_range(sinks)),
            None => command.read_range(&self.inputs[0].buffer, self.queries_range()),
        }
    }

    fn queries_range(&self) -> Range<usize> {
        reach(&self.inputs[0], self.shapes[0], self.dtype.size()).0
    }

    fn sinks_range(&self, sinks: &Data) -> Range<usize> {
        let (start, heads) = (sinks.offset as usize, self.lengths.kv_heads * self.lengths.share);
        start * self.dtype.size()..(start + heads) * self.dtype.size()
    }

    /// The kernels' parameter `heads`.
    pub(crate) fn constants(&self, splits: usize, per: usize) -> Constants {
        let Lengths { batch, kv_heads, share, queries, keys, .. } = self.lengths;
        let mut constants = Constants::default().sizes(&[batch, kv_heads, share, queries, keys]);
        for data in &self.inputs {
            constants = constants.offsets(data.strides[..3].iter().copied(), 3, 0);
        }
        let mask = self.mask.iter().flat_map(|(mask, shape, dtype)| {
            let start = reach(mask, shape, dtype.size()).1 as isize;
            mask.strides.iter().copied().chain([start])
        });
        constants
            .offsets(mask, 5, 0)
            .sizes(&[splits, per])
            .float(self.op.scale.0)
            .flag(self.op.causal)
            .flag(self.mask.is_some())
            .flag(self.marked())
            .flag(self.op.sinks)
            .int(0)
    }

    fn marked(&self) -> bool {
        self.mask.as_ref().is_some_and(|(_, _, dtype)| *dtype == Dtype::Bool)
    }

    fn split_kv(&self, output: &Buffer, plan: Plan) -> Result<()> {
        let Plan::SplitKv { tile, warps, stages, blocks, pieces, used } = plan else { return Ok(()) };
        let Lengths { width, keys, .. } = self.lengths;
        let bytes = split_kv_sums(warps, used, width) + stages * split_kv_ring(tile, warps, width);
        let (text, name) =
            if tile == 8 { (DECODE, "attention_decode") } else { (SPLIT_KV, "attention_split_kv") };
        let kernel = Kernel::new(self.stream, text, name).of(self.dtype).of(width).of(warps).of(stages);
        let kernel = kernel.of(self.mask.is_some()).option(shared(bytes));
        let part = (used * (width + 2)).next_multiple_of(4);
        let parts = self.stream.alloc(2 * blocks * part * 4)?;
        // A counter without the number of this launch counts from zero, so it is not cleared: see `flags` in
        // `step.rs`.
        let counters = self.stream.alloc(self.lengths.groups() * self.lengths.rows().div_ceil(tile) * 8)?;
        let constants = self.constants(keys.div_ceil(16), used);
        let constants = constants.bits(launch_number()).int(pieces as i32);
        let command = self.encode().write(output).write(&parts).write(&counters);
        kernel.groups(constants, [blocks, 1, 1], warps * 32)?.encode(command)
    }

    fn sm90(&self, output: &Buffer, keys: usize, blocks: usize, chip: &Chip) -> Result<()> {
        let width = self.lengths.width;
        let panels = width.div_ceil(64);
        // Queries, two tiles of keys and two of values, the output, barriers; aligned to 1024.
        let held = 1024 + 128 * 128 * panels + 4 * keys * 128 * panels + 8 * 2048 + 128;
        let kernel = Kernel::new(self.stream, SM90, "attention_sm90").of(self.dtype).of(width).of(keys);
        let kernel = kernel.of(self.mode()).option(shared(held)).option(launch::SM90);
        let (bytes, tiles) = (self.lengths.keys * width * 4, self.lengths.rows().div_ceil(128));
        let constants = self.constants(1, section(self.lengths.groups(), bytes, tiles, chip));
        kernel.groups(constants, [blocks, 1, 1], 384)?.encode(self.encode().write(output))
    }

    /// Which keys a row sees, as the kernel names it. All but `ANY` multiply by the scale last.
    fn mode(&self) -> &'static str {
        let Some((mask, ..)) = &self.mask else {
            let forward = self.op.scale.0.is_normal() && self.op.scale.0 > 0.0;
            return match self.op.causal {
                false if forward => "ALL",
                true if forward && self.lengths.keys >= self.lengths.queries => "CAUSAL",
                _ => "ANY",
            };
        };
        let even = |number: &isize| number % 2 == 0;
        let pairs = mask.strides[3] == 1
            && self.lengths.keys.is_multiple_of(2)
            && mask.strides[..3].iter().all(even)
            && even(&mask.offset);
        match pairs {
            true if self.marked() => "MARKED",
            true => "ADDED",
            false => "ANY",
        }
    }

    fn tiled(&self, output: &Buffer, keys: usize) -> Result<()> {
        let width = self.lengths.width;
        let kernel = Kernel::new(self.stream, TEXT, "attention_tiled").of(self.dtype).of(width).of(keys);
        let blocks = self.lengths.groups() * self.lengths.rows().div_ceil(64);
        let kernel = kernel.option(shared(4 * keys * (width + 8) * 2));
        kernel.groups(self.constants(1, 1), [blocks, 1, 1], 128)?.encode(self.encode().write(output))
    }

    fn f32(&self, output: &Buffer, splits: usize, per: usize) -> Result<()> {
        let Lengths { width, kv_heads, share, .. } = self.lengths;
        let kernel = Kernel::new(self.stream, F32, "attention_f32").of(width);
        let blocks = self.lengths.groups() * self.lengths.rows().div_ceil(64) * splits;
        let kernel = kernel.option(shared(f32_shared(width)));
        let launch = kernel.groups(self.constants(splits, per), [blocks, 1, 1], 256)?;
        if splits == 1 {
            return launch.encode(self.encode().write(output));
        }
        let rows = self.lengths.groups() * self.lengths.rows();
        let constants = Constants::default().sizes(&[rows, splits, kv_heads * share]);
        let constants = constants.int(width as i32).flag(self.op.sinks);
        let combine = Kernel::new(self.stream, F32, "attention_f32_combine").of(Dtype::Float32);
        let combine = combine.groups(constants, [rows.div_ceil(8), 1, 1], 256)?;
        let parts = self.stream.alloc(rows * splits * (width + 2) * 4)?;
        launch.encode(self.encode().write(&parts))?;
        let command = self.stream.command("attention parts").read(&parts);
        let command = match &self.sinks {
            Some(sinks) => command.read_range(&sinks.buffer, self.sinks_range(sinks)),
            None => command.read(&parts),
        };
        combine.encode(command.write(output))
    }

    fn naive(&self, output: &Buffer) -> Result<()> {
        let Lengths { width, values, .. } = self.lengths;
        let rows = self.lengths.groups() * self.lengths.rows();
        let constants = self.constants(1, 1).sizes(&[width, values]);
        let kernel = Kernel::new(self.stream, TEXT, "attention_naive").of(self.dtype);
        kernel.groups(constants, [rows.div_ceil(8), 1, 1], 256)?.encode(self.encode().write(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Chip = Chip { capability: (9, 0), multiprocessors: 132, shared: 227 << 10, cache: 60 << 20 };
    const STEP: Lengths =
        Lengths { batch: 1, kv_heads: 8, share: 4, queries: 1, keys: 32768, width: 128, values: 128 };

    #[test]
    fn a_decode_step_is_split_over_nearly_all_multiprocessors() {
        let plan = STEP.plan(Dtype::Bfloat16, Some(H200));
        assert_eq!(plan, Plan::SplitKv { tile: 8, warps: 8, stages: 3, blocks: 128, pieces: 16, used: 4 });
        let before = STEP.plan(Dtype::Bfloat16, Some(Chip { capability: (8, 0), ..H200 }));
        assert_eq!(before, Plan::SplitKv { tile: 16, warps: 8, stages: 3, blocks: 128, pieces: 16, used: 4 });
        // More than eight rows.
        let wide = Lengths { share: 16, width: 256, values: 256, ..STEP }.split_kv(&H200);
        assert_eq!(
            wide,
            Some(Plan::SplitKv { tile: 16, warps: 4, stages: 2, blocks: 128, pieces: 16, used: 16 })
        );
        // Whole heads where they divide evenly, else one sequence of all heads.
        let heads = |batch, keys| Lengths { batch, keys, ..STEP }.split(132, 8);
        assert_eq!(heads(32, 4096), (128, 0));
        assert_eq!(heads(20, 4096), (132, 0));
        assert_eq!(heads(1, 512), (32, 4));
        assert_eq!(heads(1, 1), (8, 1));
        let one = Lengths { kv_heads: 1, share: 16, ..STEP };
        assert_eq!(one.split(132, 4), (37, 37));
    }

    #[test]
    fn blocks_never_have_less_than_a_unit_of_keys() {
        for heads in 1..300 {
            for keys in [1, 15, 16, 17, 100, 129, 4096] {
                let lengths = Lengths { batch: heads, kv_heads: 1, keys, ..STEP };
                let (blocks, pieces) = lengths.split(132, 8);
                let units = keys.div_ceil(16);
                assert!((1..=132).contains(&blocks) && blocks <= heads * units, "{heads} {keys}");
                assert!(pieces <= units && (pieces == 0 || blocks == heads * pieces), "{heads} {keys}");
            }
        }
    }

    #[test]
    fn kernels_are_chosen_by_device_type_and_lengths() {
        let prompt = Lengths { queries: 4096, keys: 4096, ..STEP };
        let plan =
            |lengths: Lengths, dtype, capability| lengths.plan(dtype, Some(Chip { capability, ..H200 }));
        assert_eq!(plan(prompt, Dtype::Float16, (9, 0)), Plan::Sm90 { keys: 128, blocks: 132 });
        assert_eq!(plan(prompt, Dtype::Float16, (8, 0)), Plan::Tiled { keys: 64 });
        assert_eq!(plan(prompt, Dtype::Float16, (7, 5)), Plan::Naive);
        assert_eq!(plan(prompt, Dtype::Float32, (9, 0)), Plan::F32 { splits: 1, per: 4096 });
        assert_eq!(plan(STEP, Dtype::Float32, (9, 0)), Plan::F32 { splits: 32, per: 1024 });
        let odd = Lengths { width: 72, values: 72, ..prompt };
        assert_eq!(plan(odd, Dtype::Bfloat16, (9, 0)), Plan::Naive);
        assert_eq!(plan(Lengths { values: 64, ..prompt }, Dtype::Bfloat16, (9, 0)), Plan::Naive);
        assert_eq!(prompt.plan(Dtype::Bfloat16, None), Plan::Naive);
        let long = Lengths { keys: 1 << 40, ..STEP };
        assert_eq!(plan(long, Dtype::Bfloat16, (9, 0)), Plan::Naive);
    }

    #[test]
    fn sections_are_even_and_large_enough_for_several_waves() {
        assert_eq!(section(8, 4 << 20, 128, &H200), 8);
        assert_eq!(section(128, 2 << 20, 128, &H200), 22);
        assert_eq!(section(64, 1 << 30, 32, &H200), 16);
        assert_eq!(section(1, 1 << 40, 1, &H200), 1);
    }

    #[test]
    fn launch_numbers_are_unique_and_odd() {
        let (one, other) = (launch_number(), launch_number());
        assert!(one != other && one % 2 == 1 && other % 2 == 1);
    }
}
