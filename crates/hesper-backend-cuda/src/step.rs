//! A decode step on GPUs: one new token of each sequence is appended to the KV cache and attends to it.

use hesper_backend_gpu::{copy, is_float, read};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::step::{Attend, Keep, PageRows, Pages, RotaryFrequencies, StepHeads};
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::attention::launch_number;
use crate::chip::multiprocessors;
use crate::inputs::aligned;
use crate::launch::{Constants, Kernel};

pub(crate) const TEXT: &str = include_str!("step.cuh");
/// The largest number of sequences of different lengths in one launch.
const MAX_SEQUENCES: usize = 256;
/// The largest number of rotated pairs.
const MAX_PAIRS: usize = 128;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Attend>().with::<Keep>()
}

impl Lower<Keep> for Cuda {
    fn lower(op: &Keep, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !is_exact(op.pages.as_ref()) {
            return compose(l, |inputs| op.composed(inputs));
        }
        match Step::of(op.heads, &op.starts, op.turns.as_ref(), op.pages.is_some()).keep(l)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, |inputs| op.composed(inputs)),
        }
    }
}

impl Lower<Attend> for Cuda {
    fn lower(op: &Attend, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !is_exact(op.pages.as_ref()) {
            return compose(l, |inputs| op.composed(inputs));
        }
        let step = Step::of(op.heads, &op.starts, op.turns.as_ref(), op.pages.is_some());
        match step.attend(l, op.scale.0, op.window)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, |inputs| op.composed(inputs)),
        }
    }
}

/// Whether rows are in the dtype of the tokens.
fn is_exact(pages: Option<&Pages>) -> bool {
    pages.is_none_or(|pages| pages.rows == PageRows::Exact)
}

/// The heads of tokens and their positions in their sequences.
struct Step<'a> {
    q_heads: usize,
    kv_heads: usize,
    width: usize,
    /// Rows before the token of each sequence.
    starts: &'a [usize],
    /// The angle of each pair, in radians per position.
    steps: &'a [f32],
    traditional: bool,
    scale: f32,
    /// Whether the KV cache is a pool of pages; then the third input has their tables.
    paged: bool,
}

/// Positions and angles as kernel parameters.
struct Positions {
    /// Capacity for positions, which is one if all are equal, and for pairs.
    counts: [usize; 2],
    constants: Constants,
}

impl<'a> Step<'a> {
    fn of(heads: StepHeads, starts: &'a [usize], turns: Option<&'a RotaryFrequencies>, paged: bool) -> Self {
        Step {
            q_heads: heads.queries,
            kv_heads: heads.keys,
            width: heads.width,
            starts,
            steps: turns.map_or(&[], |turns| &turns.steps.0),
            traditional: turns.is_some_and(|turns| turns.traditional),
            scale: turns.map_or(1.0, |turns| turns.scale.0),
            paged,
        }
    }

    /// The page tables and the entries of each sequence. Without pages the tokens stand for tables that are
    /// not read.
    fn tables(&self, l: &Lowering<'_>, tokens: &Data) -> Result<(Data, usize)> {
        match self.paged {
            true => Ok((l.row_major(2)?, l.input_shape(2)[1])),
            false => Ok((tokens.clone(), 0)),
        }
    }

    /// `None` if there are more sequences or pairs than a launch takes.
    fn positions(&self) -> Option<Positions> {
        let equal = self.starts.windows(2).all(|pair| pair[0] == pair[1]);
        let places = if equal { &self.starts[..1] } else { self.starts };
        let room = [1, 16, 64, MAX_SEQUENCES].into_iter().find(|room| places.len() <= *room)?;
        let pairs = [32, 64, MAX_PAIRS].into_iter().find(|room| self.steps.len() <= *room)?;
        let mut constants = Constants::default();
        for at in 0..room {
            constants = constants.int(i32::try_from(places.get(at).copied().unwrap_or(0)).ok()?);
        }
        for at in 0..pairs {
            constants = constants.float(self.steps.get(at).copied().unwrap_or(0.0));
        }
        let constants = constants.int(self.steps.len() as i32).flag(self.traditional);
        Some(Positions { counts: [room, pairs], constants: constants.float(self.scale) })
    }

    fn fits(&self, dtype: Dtype, room: usize) -> bool {
        is_float(dtype)
            && (!self.paged || room.is_power_of_two())
            && self.width.is_multiple_of(2)
            && !self.starts.is_empty()
            && self.starts.len() < 1 << 16
            && 2 * self.kv_heads * self.width * self.starts.len() < 1 << 30
    }

    /// Appends the keys and values of the tokens, the second input, to the KV cache, the first.
    fn keep(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let Some(Positions { counts: [room, pairs], constants }) =
            self.positions().filter(|_| self.fits(dtype, l.shape()[2]))
        else {
            return Ok(None);
        };
        l.bring()?;
        let (size, shape) = (dtype.size(), l.shape());
        let tokens = l.row_major(1)?;
        let (tables, pitch) = self.tables(l, &tokens)?;
        let constants = [self.starts.len(), self.q_heads, self.kv_heads, self.width]
            .into_iter()
            .fold(constants, |constants, count| constants.int(count as i32));
        let kernel = Kernel::new(l.stream(), TEXT, "keep").of(dtype).of(room).of(pairs).of(self.paged);
        let threads = self.starts.len() * self.kv_heads * self.width;
        let launch = kernel.threads(constants.sizes(&[shape[2], pitch]), [threads, 1, 1], [128, 1, 1])?;
        let block = match l.take_in_place() {
            Some(owned) => owned.into_data(),
            None => Data::contiguous(copy::<Cuda>(l.stream(), l.input(0), shape, size)?, shape),
        };
        let (written, _) = reach(&block, shape, size);
        let command = read(l.stream().command("keep_token"), l, 1, &tokens);
        let command = read(command, l, if self.paged { 2 } else { 1 }, &tables);
        launch.encode(command.read_write_range(&block.buffer, written))?;
        Ok(Some(block))
    }

    /// The attention of the tokens, the first input, to the last `window` rows of the KV cache, the second.
    fn attend(&self, l: &mut Lowering<'_>, scale: f32, window: usize) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let known = self.width.is_multiple_of(32) && self.width <= 256;
        let positions = self.positions().filter(|_| known && self.fits(dtype, l.input_shape(1)[2]));
        let Some(Positions { counts: [room, pairs], constants }) = positions else { return Ok(None) };
        l.bring()?;
        let (tokens, block, output) = (aligned(l, 0)?, aligned(l, 1)?, l.output()?);
        let (tables, pitch) = self.tables(l, &tokens)?;
        let share = self.q_heads / self.kv_heads;
        let heads = share.min(512 / self.width).clamp(1, 4);
        let tiles = share.div_ceil(heads);
        let groups = self.starts.len() * self.kv_heads * tiles;
        let longest = self.starts.iter().max().map_or(1, |start| start + 1).min(window).max(1);
        // A block has a multiprocessor for itself, or half of one if there are many. There are enough pieces
        // to occupy the device, with several rows for each lane, and no more than run at once: the last one
        // waits for the others.
        let busy = multiprocessors(l.stream());
        let warps: usize = if groups > busy { 4 } else { 8 };
        let pieces = (busy / groups).clamp(1, longest.div_ceil(64)).min(64);
        let stream = l.stream();
        let kept = if pieces > 1 { groups * pieces } else { 1 };
        let parts = stream.alloc(kept * heads * (self.width + 2) * 4)?;
        // A flag is set if it holds the number of this launch, which stale memory holds with a chance of
        // 2^-63. Stale contents are only compared with it, so the flags are not cleared.
        let flags = stream.alloc(groups * pieces * 8)?;
        let kernel = Kernel::new(stream, TEXT, "attend").of(dtype).of(self.width).of(heads);
        let kernel = kernel.of(room).of(pairs).of(warps).of(self.paged);
        let constants = constants
            .int(self.q_heads as i32)
            .int(self.kv_heads as i32)
            .sizes(&[l.input_shape(1)[2], pitch, window.min(isize::MAX as usize)])
            .float(scale)
            .bits(launch_number());
        let command = read(stream.command("attend_token"), l, 0, &tokens);
        let command = read(command, l, 1, &block);
        let command = read(command, l, if self.paged { 2 } else { 0 }, &tables)
            .write(&parts)
            .write(&flags)
            .write(&output);
        let groups = [pieces, self.kv_heads * tiles, self.starts.len()];
        kernel.groups(constants, groups, 32 * warps)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
