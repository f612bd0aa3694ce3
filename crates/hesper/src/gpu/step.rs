//! A step of a decoder on GPUs: what is kept of one new token of each sequence, its attention, and sums with their norms.

use hesper_cuda::CudaShared;
use hesper_runtime::Stream;

use super::attention::launch_number;
use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;

const TEXT: &str = include_str!("step.cuh");
/// Most sequences of different lengths that a launch is told of.
const SEQUENCES: usize = 256;
/// Most pairs that are turned.
const PAIRS: usize = 128;

/// How tokens lie, and where they are in their sequences.
pub(crate) struct Step<'a> {
    pub(crate) q_heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) width: usize,
    /// Rows before the token of each sequence.
    pub(crate) starts: &'a [usize],
    /// By how much the angle of each pair grows with the position.
    pub(crate) steps: &'a [f32],
    pub(crate) traditional: bool,
    pub(crate) scale: f32,
}

/// What kernels are told of the sequences.
struct Told {
    /// Numbers that the kernel has for them: one if all are alike, and for pairs.
    counts: [usize; 2],
    constants: Constants,
}

fn floats(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// An input row by row, the first number at a multiple of sixteen bytes.
fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let (data, shape, size) = (l.row_major(at)?, l.input_shape(at), l.input_dtype(at).size());
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, size)?, shape))
}

impl Step<'_> {
    /// Nothing if there are more sequences, or more pairs, than a launch is told of.
    fn told(&self) -> Option<Told> {
        let alike = self.starts.windows(2).all(|pair| pair[0] == pair[1]);
        let places = if alike { &self.starts[..1] } else { self.starts };
        let room = [1, 16, 64, SEQUENCES].into_iter().find(|room| places.len() <= *room)?;
        let pairs = [32, 64, PAIRS].into_iter().find(|room| self.steps.len() <= *room)?;
        let mut constants = Constants::default();
        for at in 0..room {
            constants = constants.int(i32::try_from(places.get(at).copied().unwrap_or(0)).ok()?);
        }
        for at in 0..pairs {
            constants = constants.float(self.steps.get(at).copied().unwrap_or(0.0));
        }
        let constants = constants.int(self.steps.len() as i32).int(i32::from(self.traditional));
        Some(Told { counts: [room, pairs], constants: constants.float(self.scale) })
    }

    fn fits(&self, dtype: Dtype) -> bool {
        floats(dtype)
            && self.width.is_multiple_of(2)
            && !self.starts.is_empty()
            && self.starts.len() < 1 << 16
            && 2 * self.kv_heads * self.width * self.starts.len() < 1 << 30
    }

    /// Keys and values of tokens, the second input, written into the block, the first.
    pub(crate) fn keep(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let Some(Told { counts: [room, pairs], constants }) = self.told().filter(|_| self.fits(dtype)) else {
            return Ok(None);
        };
        l.bring()?;
        let (size, shape) = (dtype.size(), l.shape());
        let tokens = l.row_major(1)?;
        let (read, _) = reach(&tokens, l.input_shape(1), size);
        let of = type_name(dtype);
        let pipeline = kernel(l.stream(), TEXT, &format!("keep<{of}, {room}, {pairs}>"), "")?;
        let block = match l.take_in_place() {
            Some(owned) => owned.into_data(),
            None => Data::contiguous(super::copy::copy(l.stream(), l.input(0), shape, size)?, shape),
        };
        let (written, _) = reach(&block, shape, size);
        let constants = constants
            .int(self.starts.len() as i32)
            .int(self.q_heads as i32)
            .int(self.kv_heads as i32)
            .int(self.width as i32)
            .long(shape[2] as i64);
        let threads = self.starts.len() * self.kv_heads * self.width;
        let command = l.stream().command("keep_token").read_range(&tokens.buffer, read);
        command.read_write_range(&block.buffer, written).constants(constants.bytes()).dispatch(
            &pipeline,
            [threads as u64, 1, 1],
            [128, 1, 1],
        )?;
        Ok(Some(block))
    }

    /// The attention of tokens, the first input, to the last `window` rows of a block, the second.
    pub(crate) fn attend(&self, l: &mut Lowering<'_>, scale: f32, window: usize) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let known = self.width.is_multiple_of(32) && self.width <= 256;
        let told = self.told().filter(|_| known && self.fits(dtype));
        let Some(Told { counts: [room, pairs], constants }) = told else { return Ok(None) };
        l.bring()?;
        let (tokens, block, output) = (aligned(l, 0)?, aligned(l, 1)?, l.output()?);
        let share = self.q_heads / self.kv_heads;
        let heads = share.min(512 / self.width).clamp(1, 4);
        let tiles = share.div_ceil(heads);
        let groups = self.starts.len() * self.kv_heads * tiles;
        let longest = self.starts.iter().max().map_or(1, |start| start + 1).min(window).max(1);
        // A block has a multiprocessor for itself, or half of one if there are many. Enough pieces to keep the device busy, of
        // several rows for each lane, and no more than are worked on at once: one waits for the others.
        let busy = multiprocessors(l.stream());
        let warps = if groups > busy { 4 } else { 8 };
        let pieces = (busy / groups).clamp(1, longest.div_ceil(64)).min(64);
        let stream = l.stream();
        let kept = if pieces > 1 { groups * pieces } else { 1 };
        let parts = stream.alloc(kept * heads * (self.width + 2) * 4)?;
        // A flag is up if it is the number of this launch, which memory holds with a chance of 2^-63: what the memory's
        // previous owner left is compared with it and goes nowhere else, so it is not cleared.
        let flags = stream.alloc(groups * pieces * 8)?;
        let size = dtype.size();
        let (read, _) = reach(&tokens, l.input_shape(0), size);
        let (rows, _) = reach(&block, l.input_shape(1), size);
        let of = type_name(dtype);
        let entry = format!("attend<{of}, {}, {heads}, {room}, {pairs}, {warps}>", self.width);
        let pipeline = kernel(stream, TEXT, &entry, "")?;
        let constants = constants
            .int(self.q_heads as i32)
            .int(self.kv_heads as i32)
            .long(l.input_shape(1)[2] as i64)
            .long(i64::try_from(window).unwrap_or(i64::MAX))
            .float(scale)
            .long(launch_number() as i64);
        let command = stream.command("attend_token").read_range(&tokens.buffer, read);
        let command = command.read_range(&block.buffer, rows).write(&parts).write(&flags).write(&output);
        let threads = 32 * warps as u64;
        let grid = [pieces as u64 * threads, (self.kv_heads * tiles) as u64, self.starts.len() as u64];
        command.constants(constants.bytes()).dispatch(&pipeline, grid, [threads, 1, 1])?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

fn multiprocessors(stream: &Stream) -> usize {
    let cuda = stream.runtime().extension().and_then(|shared| shared.downcast::<CudaShared>().ok());
    cuda.map_or(1, |cuda| cuda.properties().multiprocessors.max(1) as usize)
}

/// Sums of the first two inputs, and behind them their root mean square norms with the third as weight.
pub(crate) fn add_norm(l: &mut Lowering<'_>, eps: f32) -> Result<Option<Data>> {
    let dtype = l.dtype();
    let shape = l.input_shape(0);
    let length = shape[shape.len() - 1];
    let words = length * dtype.size() / 16;
    let threads = words.next_multiple_of(32).min(1024);
    let each = words.div_ceil(threads.max(1));
    if !floats(dtype) || !(length * dtype.size()).is_multiple_of(16) || !(1..=4).contains(&each) {
        return Ok(None);
    }
    l.bring()?;
    let rows = l.input_shape(0).iter().product::<usize>() / length;
    let inputs = [aligned(l, 0)?, aligned(l, 1)?, aligned(l, 2)?];
    let output = l.output()?;
    let mut command = l.stream().command("add_norm");
    for (at, input) in inputs.iter().enumerate() {
        let (bytes, _) = reach(input, l.input_shape(at), dtype.size());
        command = command.read_range(&input.buffer, bytes);
    }
    let each = each.next_power_of_two();
    let pipeline = kernel(l.stream(), TEXT, &format!("add_norm<{}, {each}>", type_name(dtype)), "")?;
    let constants = Constants::default().long(rows as i64).int(length as i32).float(eps);
    let grid = [(rows * threads) as u64, 1, 1];
    command.write(&output).constants(constants.bytes()).dispatch(&pipeline, grid, [threads as u64, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The first half of each row of the input, times its logistic function, times the second half.
pub(crate) fn silu_gate(l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let dtype = l.dtype();
    let length = l.shape().last().copied().unwrap_or(0);
    let per = 16 / dtype.size();
    if !floats(dtype) || length == 0 || !length.is_multiple_of(per) {
        return Ok(None);
    }
    l.bring()?;
    let (both, output) = (aligned(l, 0)?, l.output()?);
    let (bytes, _) = reach(&both, l.input_shape(0), dtype.size());
    let words = l.shape().iter().product::<usize>() / per;
    let pipeline = kernel(l.stream(), TEXT, &format!("silu_gate<{}>", type_name(dtype)), "")?;
    let constants = Constants::default().long(words as i64).long((length / per) as i64);
    let command = l.stream().command("silu_gate").read_range(&both.buffer, bytes).write(&output);
    let grid = [words.next_multiple_of(256) as u64, 1, 1];
    command.constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}
