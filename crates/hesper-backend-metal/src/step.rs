//! A decode step: one new token of each sequence is appended to the KV cache, in place, and attends to it.

use hesper_backend_gpu::{copy, is_float, read};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::step::{Attend, Keep, PageRows, Pages, RotaryFrequencies, StepHeads};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("step.metal");
/// Most sequences of a launch.
const MAX_SEQUENCES: usize = 256;
/// Most rotated pairs.
const MAX_PAIRS: usize = 128;
/// The widest head that attends.
const MAX_WIDTH: usize = 256;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Attend>().with::<Keep>()
}

/// The tokens of a step.
struct Step<'a> {
    heads: StepHeads,
    starts: &'a [usize],
    pages: Option<&'a Pages>,
    turns: Option<&'a RotaryFrequencies>,
}

impl Step<'_> {
    /// The constants of a launch over a block; `None` if no kernel takes the step.
    fn constants(&self, l: &Lowering<'_>, block: usize, window: usize, scale: f32) -> Option<Constants> {
        let exact = self.pages.is_none_or(|pages| pages.rows == PageRows::Exact);
        let steps: &[f32] = self.turns.map_or(&[], |turns| &turns.steps.0);
        let room = l.input_shape(block)[2];
        let counts =
            self.starts.len() <= MAX_SEQUENCES && steps.len() <= MAX_PAIRS && !self.starts.is_empty();
        if !exact || !counts || !is_float(l.dtype()) || !fits(l) {
            return None;
        }
        let StepHeads { queries, keys, width } = self.heads;
        let constants =
            Constants::default().offsets(self.starts.iter().map(|start| *start as isize), MAX_SEQUENCES, 0);
        let angles = steps.iter().copied().chain(std::iter::repeat(0.0)).take(MAX_PAIRS);
        let constants = angles.fold(constants, Constants::float).sizes(&[steps.len()]);
        let constants = constants.flag(self.turns.is_some_and(|turns| turns.traditional));
        let constants = constants.float(self.turns.map_or(1.0, |turns| turns.scale.0));
        let pitch = if self.pages.is_some() { l.input_shape(2)[1] } else { 0 };
        let constants = constants.sizes(&[queries, keys, width, room, pitch, window.min(i32::MAX as usize)]);
        Some(constants.float(scale))
    }

    /// The page tables, and their input. Without pages the tokens stand for tables that are not read.
    fn tables(&self, l: &Lowering<'_>, tokens: (usize, &Data)) -> Result<(usize, Data)> {
        match self.pages {
            Some(_) => Ok((2, l.row_major(2)?)),
            None => Ok((tokens.0, tokens.1.clone())),
        }
    }
}

impl Lower<Keep> for MetalBackend {
    fn lower(op: &Keep, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let Keep { heads, starts, pages, turns } = op;
        let step = Step { heads: *heads, starts, pages: pages.as_ref(), turns: turns.as_ref() };
        let Some(constants) = step.constants(l, 0, 0, 0.0) else {
            return compose(l, |inputs| op.composed(inputs));
        };
        l.bring()?;
        let (size, shape) = (l.dtype().size(), l.shape());
        let tokens = l.row_major(1)?;
        let (tables_at, tables) = step.tables(l, (1, &tokens))?;
        let block = match l.take_in_place() {
            Some(owned) => owned.into_data(),
            None => Data::contiguous(copy::<MetalBackend>(l.stream(), l.input(0), shape, size)?, shape),
        };
        let (written, _) = reach(&block, shape, size);
        let command = read(l.stream().command("keep_token"), l, 1, &tokens);
        let command = read(command, l, tables_at, &tables).read_write_range(&block.buffer, written);
        let kernel = Kernel::new(l.stream(), TEXT, "keep_token").of(l.dtype()).of(pages.is_some());
        let grid = [heads.width, 2 * heads.keys, starts.len()];
        kernel.threads(constants, grid, [heads.width.min(128), 1, 1])?.encode(command)?;
        Ok(Some(block))
    }
}

impl Lower<Attend> for MetalBackend {
    fn lower(op: &Attend, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let Attend { heads, starts, pages, turns, scale, window } = op;
        let step = Step { heads: *heads, starts, pages: pages.as_ref(), turns: turns.as_ref() };
        let constants =
            step.constants(l, 1, *window, scale.0).filter(|_| heads.width <= MAX_WIDTH && *window > 0);
        let Some(constants) = constants else {
            return compose(l, |inputs| op.composed(inputs));
        };
        l.bring()?;
        let (tokens, block, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let (tables_at, tables) = step.tables(l, (0, &tokens))?;
        let command = read(read(l.stream().command("attend_token"), l, 0, &tokens), l, 1, &block);
        let command = read(command, l, tables_at, &tables).write(&output);
        let kernel = Kernel::new(l.stream(), TEXT, "attend_token").of(l.dtype()).of(pages.is_some());
        kernel.groups(constants, [heads.queries, starts.len(), 1], 256)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
