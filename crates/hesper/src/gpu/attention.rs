//! Attention on GPUs: tensor cores for half precision, tiles for single precision, a plain kernel for widths
//! that neither has.
//!
//! Few rows (a step of generation) are bound by memory: their keys are spread evenly over all
//! multiprocessors, in one launch. Many rows are bound by arithmetic: Hopper has a kernel of its own,
//! other devices one of tiles. Which of two kernels is faster is estimated from the lengths.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_cuda::CudaShared;
use hesper_runtime::{Buffer, Encoder, Stream};
use smallvec::smallvec;

use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;
use crate::shape::Strides;

const TEXT: &str = include_str!("attention.cuh");
const FEW: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_parts.cuh"),
    include_str!("attention_few.cuh")
);
const EIGHT: &str = concat!(
    include_str!("attention.cuh"),
    include_str!("attention_parts.cuh"),
    include_str!("hopper.cuh"),
    include_str!("attention_eight.cuh")
);
const SINGLE: &str = concat!(include_str!("attention.cuh"), include_str!("attention_single.cuh"));
const HOPPER: &str =
    concat!(include_str!("attention.cuh"), include_str!("hopper.cuh"), include_str!("attention_hopper.cuh"));

/// What the op says beside its inputs: queries, keys, values, the mask and the sinks, if there are any.
pub(crate) struct Attention {
    pub(crate) scale: f32,
    pub(crate) causal: bool,
    pub(crate) mask: bool,
    pub(crate) sinks: bool,
}

/// The device that computes.
#[derive(Clone, Copy)]
struct Chip {
    capability: (u32, u32),
    multiprocessors: usize,
    /// Most bytes of shared memory of a block.
    shared: usize,
    /// Bytes of the cache that all multiprocessors have in common.
    cache: usize,
}

impl Chip {
    fn of(stream: &Stream) -> Option<Self> {
        let cuda = stream.runtime().extension()?.downcast::<CudaShared>().ok()?;
        let properties = cuda.properties();
        Some(Chip {
            capability: properties.capability,
            multiprocessors: properties.multiprocessors.max(1) as usize,
            shared: properties.max_shared as usize,
            cache: properties.l2_bytes as usize,
        })
    }
}

/// How long everything is. Query heads that share a key head are rows of one product.
#[derive(Clone, Copy)]
struct Lengths {
    batch: usize,
    kv_heads: usize,
    share: usize,
    queries: usize,
    keys: usize,
    /// Features of queries and keys, and of values.
    width: usize,
    values: usize,
}

/// The kernel that is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Plan {
    Plain,
    /// Keys spread over blocks: `used` rows of each tile of `tile`, rings of `stages` in `warps` warps.
    /// Every head is cut into `pieces`; 0 if all are cut together.
    Few {
        tile: usize,
        warps: usize,
        stages: usize,
        blocks: usize,
        pieces: usize,
        used: usize,
    },
    /// Tiles of so many keys, on Hopper.
    Warpgroups {
        keys: usize,
        blocks: usize,
    },
    /// Tiles of so many keys.
    Tiles {
        keys: usize,
    },
    /// Single precision: so many parts of the keys, and keys of each.
    Singles {
        splits: usize,
        per: usize,
    },
}

impl Lengths {
    fn rows(&self) -> usize {
        self.share * self.queries
    }

    fn groups(&self) -> usize {
        self.batch * self.kv_heads
    }

    /// Whether kernels can count in 32 bits.
    fn countable(&self) -> bool {
        const MOST: usize = 1 << 30;
        let all = [self.groups(), self.rows().div_ceil(16), self.keys.div_ceil(16)];
        let units = all.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        let rows = self.rows().checked_mul(self.kv_heads);
        units.is_some_and(|units| units < MOST) && rows.is_some_and(|rows| rows < MOST) && self.keys < MOST
    }

    fn plan(&self, dtype: Dtype, chip: Option<Chip>) -> Plan {
        let Some(chip) = chip.filter(|chip| chip.capability >= (8, 0)) else { return Plan::Plain };
        if self.width != self.values || self.width > 256 || !self.countable() {
            return Plan::Plain;
        }
        if dtype == Dtype::Float32 {
            return self.singles(&chip).unwrap_or(Plan::Plain);
        }
        if !self.width.is_multiple_of(16) || self.width < 32 {
            return Plan::Plain;
        }
        let hopper = chip.capability == (9, 0) && chip.shared >= 220 << 10;
        let few = self.few(&chip);
        let tiles = self.groups() * self.rows().div_ceil(128);
        if let Some(few) = few {
            // Microseconds, as on an H200: what goes through the cache, against waves of tiles.
            let bytes = self.groups() * self.rows().div_ceil(16) * self.keys * self.width * 4;
            let streamed = 3.0 + bytes as f64 / 4.5e6;
            let waves = tiles.div_ceil(chip.multiprocessors) * self.keys.div_ceil(128);
            let tiled = 4.0 + waves as f64 * 2.0 * self.width as f64 / 128.0;
            if (hopper && streamed < tiled) || (!hopper && self.rows() <= 32) {
                return few;
            }
        }
        let keys = if self.width <= 128 { 128 } else { 64 };
        match hopper {
            true => Plan::Warpgroups { keys, blocks: tiles.min(chip.multiprocessors) },
            false => Plan::Tiles { keys: keys / 2 },
        }
    }

    fn singles(&self, chip: &Chip) -> Option<Plan> {
        if !self.width.is_multiple_of(4) || singles_shared(self.width) > chip.shared {
            return None;
        }
        let blocks = self.groups() * self.rows().div_ceil(64);
        let splits = (2 * chip.multiprocessors / blocks).clamp(1, self.keys.div_ceil(64));
        let per = self.keys.div_ceil(splits).next_multiple_of(64);
        Some(Plan::Singles { splits: self.keys.div_ceil(per), per })
    }

    fn few(&self, chip: &Chip) -> Option<Plan> {
        // Large copies come with Hopper.
        let tile = match chip.capability >= (9, 0) && self.rows() <= 8 && self.width.is_multiple_of(64) {
            true => 8,
            false => 16,
        };
        let used = self.rows().min(tile);
        let wished: &[(usize, usize)] =
            if tile == 8 { &[(8, 3), (6, 2)] } else { &[(8, 3), (4, 3), (4, 2), (2, 2)] };
        wished.iter().find_map(|&(warps, least)| {
            let (blocks, pieces) = self.cut(chip.multiprocessors, warps);
            let left = chip.shared.checked_sub(few_sums(warps, used, self.width))?;
            let stages = (left / few_ring(tile, warps, self.width)).min(6);
            (stages >= least).then_some(Plan::Few { tile, warps, stages, blocks, pieces, used })
        })
    }

    /// How many blocks have the keys, and how many each head, if all have as many: parts of heads cost
    /// more than a few idle multiprocessors. One block adds all parts of a head up, so that there is a
    /// number of them beyond which a head takes longer.
    fn cut(&self, multiprocessors: usize, warps: usize) -> (usize, usize) {
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

/// Bytes of shared memory that a stage of the rings of `streams` or `eights` needs, for keys, values and a barrier.
fn few_ring(tile: usize, warps: usize, width: usize) -> usize {
    match tile {
        8 => warps * (2 * 16 * width * 2 + 8),
        _ => warps * 2 * 16 * (width + 8) * 2,
    }
}

/// Bytes of shared memory that they need beside: what warps, and then threads, have added up.
fn few_sums(warps: usize, used: usize, width: usize) -> usize {
    (warps * used * 2 + (warps * used * width).max(warps * 32 * 6)) * 4 + 8
}

/// Bytes of shared memory that `singles` needs: queries, keys, values and weights.
fn singles_shared(width: usize) -> usize {
    (2 * 64 * (width + 4) + 64 * width.next_multiple_of(32) + 64 * 68) * 4
}

/// How many heads are worked on at a time: so many that their keys and values stay in the cache, but
/// enough for several waves of tiles.
fn section(groups: usize, bytes: usize, tiles: usize, chip: &Chip) -> usize {
    let most = (chip.cache * 3 / 4 / bytes.max(1)).max((4 * chip.multiprocessors).div_ceil(tiles)).max(1);
    groups.div_ceil(groups.div_ceil(most))
}

/// A number that no other launch of the process has, and that memory hardly holds by accident.
pub(super) fn launch_number() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = *START.get_or_init(|| RandomState::new().hash_one("attention"));
    // Odd: what is cleared is zero.
    start.wrapping_add(2 * NEXT.fetch_add(1, Ordering::Relaxed)) | 1
}

/// An operand whose features lie side by side.
fn rows(l: &Lowering<'_>, stream: &Stream, at: usize) -> Result<Data> {
    let (data, shape) = (l.input(at), l.input_shape(at));
    let v = 16 / l.input_dtype(at).size() as isize;
    let whole = |number: isize| number % v == 0;
    let side_by_side = (data.strides[3] == 1 || shape[3] == 1)
        && data.strides[..3].iter().all(|stride| *stride >= 0 && whole(*stride))
        && whole(data.offset);
    if side_by_side {
        return Ok(data.clone());
    }
    let copied = super::copy::copy(stream, data, shape, l.input_dtype(at).size())?;
    Ok(Data::contiguous(copied, shape))
}

/// A call of a kernel, with all that is read.
struct Call<'a> {
    what: &'a Attention,
    stream: &'a Stream,
    lengths: Lengths,
    dtype: Dtype,
    inputs: [Data; 3],
    shapes: [&'a [usize]; 3],
    /// The mask, its shape and type.
    mask: Option<(Data, &'a [usize], Dtype)>,
    sinks: Option<Data>,
}

impl Attention {
    pub(crate) fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let (width, values) = (l.input_shape(0)[3], l.input_shape(2)[3]);
        if !matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32) || width.max(values) > 512 {
            return Ok(None);
        }
        l.bring()?;
        let l = &*l;
        let stream = l.stream();
        let (q, k) = (l.input_shape(0), l.input_shape(1));
        let (batch, heads, queries) = (q[0], q[1], q[2]);
        let (kv_heads, keys) = (k[1], k[2]);
        let share = heads / kv_heads;
        let lengths = Lengths { batch, kv_heads, share, queries, keys, width, values };
        let output = l.output()?;
        let call = Call {
            what: self,
            stream,
            lengths,
            dtype,
            inputs: [rows(l, stream, 0)?, rows(l, stream, 1)?, rows(l, stream, 2)?],
            shapes: [q, k, l.input_shape(2)],
            mask: self.mask.then(|| (l.input(3).clone(), l.input_shape(3), l.input_dtype(3))),
            sinks: self.sinks.then(|| l.row_major(3 + usize::from(self.mask))).transpose()?,
        };
        let chip = Chip::of(stream);
        match (lengths.plan(dtype, chip), chip) {
            (plan @ Plan::Few { .. }, _) => call.few(&output, plan)?,
            (Plan::Warpgroups { keys, blocks }, Some(chip)) => {
                call.warpgroups(&output, keys, blocks, &chip)?;
            }
            (Plan::Tiles { keys }, _) => call.tiles(&output, keys)?,
            (Plan::Singles { splits, per }, _) => call.singles(&output, splits, per)?,
            _ => call.plain(&output)?,
        }
        // The heads of a query lie together.
        let (row, across) = (values as isize, (values * heads) as isize);
        let strides: Strides = smallvec![across * queries as isize, row, across, 1];
        Ok(Some(Data { buffer: output, offset: 0, strides }))
    }
}

impl Call<'_> {
    /// A command that reads the inputs. What is not there is bound as the queries, and not read.
    fn encode(&self) -> Encoder<'_> {
        let size = self.dtype.size();
        let mut command = self.stream.command("attention");
        for (data, shape) in self.inputs.iter().zip(self.shapes) {
            command = command.read_range(&data.buffer, reach(data, shape, size).0);
        }
        let queries = reach(&self.inputs[0], self.shapes[0], size).0;
        command = match &self.mask {
            Some((mask, shape, dtype)) => {
                command.read_range(&mask.buffer, reach(mask, shape, dtype.size()).0)
            }
            None => command.read_range(&self.inputs[0].buffer, queries.clone()),
        };
        match &self.sinks {
            Some(sinks) => command.read_range(&sinks.buffer, self.sinks_range(sinks)),
            None => command.read_range(&self.inputs[0].buffer, queries),
        }
    }

    fn sinks_range(&self, sinks: &Data) -> Range<usize> {
        let (start, heads) = (sinks.offset as usize, self.lengths.kv_heads * self.lengths.share);
        start * self.dtype.size()..(start + heads) * self.dtype.size()
    }

    /// The kernels' `heads`.
    fn constants(&self, splits: usize, per: usize) -> Constants {
        let Lengths { batch, kv_heads, share, queries, keys, .. } = self.lengths;
        let mut constants = Constants::default();
        for length in [batch, kv_heads, share, queries, keys] {
            constants = constants.long(length as i64);
        }
        for data in &self.inputs {
            constants = constants.longs(data.strides[..3].iter().copied(), 3, 0);
        }
        let mask = self.mask.iter().flat_map(|(mask, shape, dtype)| {
            let start = reach(mask, shape, dtype.size()).1 as isize;
            mask.strides.iter().copied().chain([start])
        });
        constants
            .longs(mask, 5, 0)
            .long(splits as i64)
            .long(per as i64)
            .float(self.what.scale)
            .int(i32::from(self.what.causal))
            .int(i32::from(self.mask.is_some()))
            .int(i32::from(self.marked()))
            .int(i32::from(self.what.sinks))
            .int(0)
    }

    fn marked(&self) -> bool {
        self.mask.as_ref().is_some_and(|(_, _, dtype)| *dtype == Dtype::Bool)
    }

    fn few(&self, output: &Buffer, plan: Plan) -> Result<()> {
        let Plan::Few { tile, warps, stages, blocks, pieces, used } = plan else { return Ok(()) };
        let Lengths { width, keys, .. } = self.lengths;
        let of = type_name(self.dtype);
        let anything = self.mask.is_some();
        let shared = few_sums(warps, used, width) + stages * few_ring(tile, warps, width);
        let (text, name) = if tile == 8 { (EIGHT, "eights") } else { (FEW, "streams") };
        let entry = format!("{name}<{of}, {width}, {warps}, {stages}, {anything}>");
        let pipeline = kernel(self.stream, text, &entry, &format!("shared {shared}"))?;
        let part = (used * (width + 2)).next_multiple_of(4);
        let parts = self.stream.alloc(2 * blocks * part * 4)?;
        // A counter that is not of this launch, by its number, counts from zero: see `flags` in `step.rs`.
        let counters = self.stream.alloc(self.lengths.groups() * self.lengths.rows().div_ceil(tile) * 8)?;
        let constants = self.constants(keys.div_ceil(16), used);
        let constants = constants.long(launch_number() as i64).int(pieces as i32);
        let threads = (warps * 32) as u64;
        let command = self.encode().write(output).write(&parts).write(&counters);
        Ok(command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks as u64 * threads, 1, 1],
            [threads, 1, 1],
        )?)
    }

    fn warpgroups(&self, output: &Buffer, keys: usize, blocks: usize, chip: &Chip) -> Result<()> {
        let width = self.lengths.width;
        let (of, panels) = (type_name(self.dtype), width.div_ceil(64));
        // Queries, two tiles of keys and two of values, what goes out, barriers; from a multiple of 1024.
        let shared = 1024 + 128 * 128 * panels + 4 * keys * 128 * panels + 8 * 2048 + 128;
        let entry = format!("warpgroups<{of}, {width}, {keys}, {}>", self.mode());
        let options = format!("shared {shared}\noption --gpu-architecture=sm_90a");
        let pipeline = kernel(self.stream, HOPPER, &entry, &options)?;
        let (bytes, tiles) = (self.lengths.keys * width * 4, self.lengths.rows().div_ceil(128));
        let constants = self.constants(1, section(self.lengths.groups(), bytes, tiles, chip));
        let command = self.encode().write(output).constants(constants.bytes());
        Ok(command.dispatch(&pipeline, [blocks as u64 * 384, 1, 1], [384, 1, 1])?)
    }

    /// What a row sees, in the words of the kernel. All but `ANY` multiply by the scale last.
    fn mode(&self) -> &'static str {
        let Some((mask, ..)) = &self.mask else {
            let forward = self.what.scale.is_normal() && self.what.scale > 0.0;
            return match self.what.causal {
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

    fn tiles(&self, output: &Buffer, keys: usize) -> Result<()> {
        let width = self.lengths.width;
        let shared = 4 * keys * (width + 8) * 2;
        let entry = format!("tiles<{}, {width}, {keys}>", type_name(self.dtype));
        let pipeline = kernel(self.stream, TEXT, &entry, &format!("shared {shared}"))?;
        let blocks = (self.lengths.groups() * self.lengths.rows().div_ceil(64)) as u64;
        let constants = self.constants(1, 1);
        let command = self.encode().write(output).constants(constants.bytes());
        Ok(command.dispatch(&pipeline, [blocks * 128, 1, 1], [128, 1, 1])?)
    }

    fn singles(&self, output: &Buffer, splits: usize, per: usize) -> Result<()> {
        let Lengths { width, kv_heads, share, .. } = self.lengths;
        let options = format!("shared {}", singles_shared(width));
        let pipeline = kernel(self.stream, SINGLE, &format!("singles<{width}>"), &options)?;
        let rows = self.lengths.groups() * self.lengths.rows();
        let parts = match splits {
            1 => None,
            _ => Some((
                self.stream.alloc(rows * splits * (width + 2) * 4)?,
                kernel(self.stream, SINGLE, "joined<float>", "")?,
            )),
        };
        let blocks = (self.lengths.groups() * self.lengths.rows().div_ceil(64) * splits) as u64;
        let constants = self.constants(splits, per);
        let command = self.encode().write(parts.as_ref().map_or(output, |(parts, _)| parts));
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
        let Some((parts, pipeline)) = parts else { return Ok(()) };
        let mut constants = Constants::default();
        for length in [rows, splits, kv_heads * share] {
            constants = constants.long(length as i64);
        }
        let constants = constants.int(width as i32).int(i32::from(self.what.sinks));
        let command = self.stream.command("attention parts").read(&parts);
        let command = match &self.sinks {
            Some(sinks) => command.read_range(&sinks.buffer, self.sinks_range(sinks)),
            None => command.read(&parts),
        };
        let blocks = rows.div_ceil(8) as u64;
        let command = command.write(output).constants(constants.bytes());
        Ok(command.dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?)
    }

    fn plain(&self, output: &Buffer) -> Result<()> {
        let Lengths { width, values, .. } = self.lengths;
        let pipeline = kernel(self.stream, TEXT, &format!("plain<{}>", type_name(self.dtype)), "")?;
        let rows = self.lengths.groups() * self.lengths.rows();
        let constants = self.constants(1, 1).long(width as i64).long(values as i64);
        let command = self.encode().write(output).constants(constants.bytes());
        Ok(command.dispatch(&pipeline, [rows.div_ceil(8) as u64 * 256, 1, 1], [256, 1, 1])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Chip = Chip { capability: (9, 0), multiprocessors: 132, shared: 227 << 10, cache: 60 << 20 };
    const STEP: Lengths =
        Lengths { batch: 1, kv_heads: 8, share: 4, queries: 1, keys: 32768, width: 128, values: 128 };

    #[test]
    fn a_step_of_generation_is_spread_over_nearly_all_multiprocessors() {
        let plan = STEP.plan(Dtype::Bfloat16, Some(H200));
        assert_eq!(plan, Plan::Few { tile: 8, warps: 8, stages: 3, blocks: 128, pieces: 16, used: 4 });
        let before = STEP.plan(Dtype::Bfloat16, Some(Chip { capability: (8, 0), ..H200 }));
        assert_eq!(before, Plan::Few { tile: 16, warps: 8, stages: 3, blocks: 128, pieces: 16, used: 4 });
        // Values of their own for every query head, and more rows than eight.
        let wide = Lengths { share: 16, width: 256, values: 256, ..STEP }.few(&H200);
        assert_eq!(
            wide,
            Some(Plan::Few { tile: 16, warps: 4, stages: 2, blocks: 128, pieces: 16, used: 16 })
        );
        // Whole heads where they come out even, and a line of all where nothing does.
        let heads = |batch, keys| Lengths { batch, keys, ..STEP }.cut(132, 8);
        assert_eq!(heads(32, 4096), (128, 0));
        assert_eq!(heads(20, 4096), (132, 0));
        assert_eq!(heads(1, 512), (32, 4));
        assert_eq!(heads(1, 1), (8, 1));
        let one = Lengths { kv_heads: 1, share: 16, ..STEP };
        assert_eq!(one.cut(132, 4), (37, 37));
    }

    #[test]
    fn blocks_never_have_less_than_a_unit_of_keys() {
        for heads in 1..300 {
            for keys in [1, 15, 16, 17, 100, 129, 4096] {
                let lengths = Lengths { batch: heads, kv_heads: 1, keys, ..STEP };
                let (blocks, pieces) = lengths.cut(132, 8);
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
        assert_eq!(plan(prompt, Dtype::Float16, (9, 0)), Plan::Warpgroups { keys: 128, blocks: 132 });
        assert_eq!(plan(prompt, Dtype::Float16, (8, 0)), Plan::Tiles { keys: 64 });
        assert_eq!(plan(prompt, Dtype::Float16, (7, 5)), Plan::Plain);
        assert_eq!(plan(prompt, Dtype::Float32, (9, 0)), Plan::Singles { splits: 1, per: 4096 });
        assert_eq!(plan(STEP, Dtype::Float32, (9, 0)), Plan::Singles { splits: 32, per: 1024 });
        let odd = Lengths { width: 72, values: 72, ..prompt };
        assert_eq!(plan(odd, Dtype::Bfloat16, (9, 0)), Plan::Plain);
        assert_eq!(plan(Lengths { values: 64, ..prompt }, Dtype::Bfloat16, (9, 0)), Plan::Plain);
        assert_eq!(prompt.plan(Dtype::Bfloat16, None), Plan::Plain);
        let long = Lengths { keys: 1 << 40, ..STEP };
        assert_eq!(plan(long, Dtype::Bfloat16, (9, 0)), Plan::Plain);
    }

    #[test]
    fn sections_are_even_and_large_enough_for_several_waves() {
        assert_eq!(section(8, 4 << 20, 128, &H200), 8);
        assert_eq!(section(128, 2 << 20, 128, &H200), 22);
        assert_eq!(section(64, 1 << 30, 32, &H200), 16);
        assert_eq!(section(1, 1 << 40, 1, &H200), 1);
    }

    #[test]
    fn launches_have_numbers_of_their_own() {
        let (one, other) = (launch_number(), launch_number());
        assert!(one != other && one % 2 == 1 && other % 2 == 1);
    }
}
