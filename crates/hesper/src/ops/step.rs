//! One new token of each of some sequences: what a decoder keeps of it, and its attention to what was kept.
//!
//! Queries, keys and values of a token come as one product gives them, side by side; they are turned by their
//! position on the way, so a layer takes two commands for what would be five.

use std::sync::Arc;

use hesper_compute::{StepShape, Turn, attend_step, keep_step};
use hesper_cpu::Cores;
use smallvec::smallvec;

use super::append::append;
use super::attention::{AttentionMask, scaled_dot_product_attention};
use super::concat::concatenate;
use super::walk::Strided;
use super::{Op, OpRef, rope};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::gpu::compose::compose;
use crate::gpu::step as gpu;
use crate::ops::command::Commands;

/// How the heads of a token are turned by its position, as [`rope`](crate::fast::rope) does it.
#[derive(Debug, Clone)]
pub struct Turns {
    steps: Arc<[f32]>,
    traditional: bool,
    scale: f32,
}

impl Turns {
    /// The first `dims` numbers of a head, by powers of a base. Positions are multiplied by `scale`.
    pub fn new(dims: usize, traditional: bool, base: f32, scale: f32) -> Self {
        Turns { steps: rope::steps(dims / 2, Some(base), &[]).into(), traditional, scale }
    }

    /// By periods: the positions for one radian of each pair.
    pub fn with_periods(periods: &[f32], traditional: bool, scale: f32) -> Self {
        Turns { steps: rope::steps(periods.len(), None, periods).into(), traditional, scale }
    }

    fn of(&self) -> Turn<'_> {
        Turn { steps: &self.steps, traditional: self.traditional, scale: self.scale }
    }
}

/// How many heads a token has, and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepHeads {
    /// Of queries.
    pub queries: usize,
    /// Of keys, and of values.
    pub keys: usize,
    /// Numbers of one.
    pub width: usize,
}

impl StepHeads {
    fn shape(self, room: usize) -> StepShape {
        StepShape { q_heads: self.queries, kv_heads: self.keys, width: self.width, room }
    }

    /// Refuses tokens and blocks that do not fit.
    fn check(self, op: &str, tokens: &Array, block: &Array, starts: &[usize]) -> Result<()> {
        let StepHeads { queries, keys, width } = self;
        let fits = keys > 0
            && width > 0
            && queries.is_multiple_of(keys)
            && tokens.shape() == [starts.len(), (queries + 2 * keys) * width]
            && matches!(*block.shape(), [n, heads, room, own]
                if n == starts.len() && heads == 2 * keys && own == width
                    && starts.iter().all(|start| *start < room));
        if !fits {
            let what = format!(
                "tokens of shape {:?} at {starts:?} for {self:?} and a block of shape {:?}",
                tokens.shape(),
                block.shape()
            );
            return Err(Error::shape(op, what));
        }
        let dtype = tokens.dtype();
        if !matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16) || block.dtype() != dtype {
            let what = format!("is for floats of one type, not for blocks of {} and an array", block.dtype());
            return Err(Error::Type { op: op.into(), what, dtype });
        }
        Ok(())
    }

    /// Heads of tokens, so many behind as many others, as sequences of one row.
    fn part(self, tokens: &Array, before: usize, count: usize) -> Result<Array> {
        let (from, to) = ((before * self.width) as isize, ((before + count) * self.width) as isize);
        let heads = tokens.slice_axis(1, from, to, 1)?;
        heads.reshape(&[tokens.shape()[0] as isize, count as isize, 1, self.width as isize])
    }
}

/// Heads of one row, turned by the positions of their sequences.
fn turned(heads: &Array, starts: &[usize], turns: Option<&Turns>) -> Result<Array> {
    let Some(turns) = turns else { return Ok(heads.clone()) };
    let positions: Vec<i32> = starts.iter().map(|start| *start as i32).collect();
    let periods: Vec<f32> = turns.steps.iter().map(|step| 1.0 / step).collect();
    let (offset, periods) = (Array::from_slice(&positions), Array::from_slice(&periods));
    let dims = 2 * turns.steps.len();
    rope::rope(heads, dims, turns.traditional, None, turns.scale, offset, Some(&periods))
}

impl Keep {
    /// The same from other ops.
    fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (block, tokens) = (&inputs[0], &inputs[1]);
        let StepHeads { queries, keys, .. } = self.heads;
        let new = self.heads.part(tokens, queries, keys)?;
        let new = turned(&new, &self.starts, self.turns.as_ref())?;
        let new = concatenate(&[new, self.heads.part(tokens, queries + keys, keys)?], 1)?;
        append(block, &new, &self.starts, block.shape()[2])
    }

    fn on_gpu(&self) -> gpu::Step<'_> {
        self.heads.on_gpu(&self.starts, self.turns.as_ref())
    }
}

impl StepHeads {
    fn on_gpu<'a>(self, starts: &'a [usize], turns: Option<&'a Turns>) -> gpu::Step<'a> {
        gpu::Step {
            q_heads: self.queries,
            kv_heads: self.keys,
            width: self.width,
            starts,
            steps: turns.map_or(&[], |turns| &turns.steps),
            traditional: turns.is_some_and(|turns| turns.traditional),
            scale: turns.map_or(1.0, |turns| turns.scale),
        }
    }
}

impl Attend {
    /// The same from other ops.
    fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (tokens, block) = (&inputs[0], &inputs[1]);
        let StepHeads { queries, keys, width } = self.heads;
        let q = turned(&self.heads.part(tokens, 0, queries)?, &self.starts, self.turns.as_ref())?;
        let rows = self.starts.iter().max().map_or(0, |start| start + 1);
        let known = block.slice_axis(2, 0, rows as isize, 1)?;
        let (k, v) = (
            known.slice_axis(1, 0, keys as isize, 1)?,
            known.slice_axis(1, keys as isize, 2 * keys as isize, 1)?,
        );
        let seen = self.starts.iter().flat_map(|start| {
            let oldest = (start + 1).saturating_sub(self.window);
            (0..rows).map(move |row| u8::from(row <= *start && row >= oldest))
        });
        let seen: Vec<u8> = seen.collect();
        let marks = Array::from_bytes(&seen, Dtype::Bool, &[self.starts.len(), 1, 1, rows])?;
        let mask = match seen.contains(&0) {
            true => AttentionMask::Array(&marks),
            false => AttentionMask::None,
        };
        let y = scaled_dot_product_attention(&q, &k, &v, self.scale, mask, None)?;
        y.reshape(&[self.starts.len() as isize, (queries * width) as isize])
    }
}

const KEEP: &str = "keep_token";
const ATTEND: &str = "attend_token";

/// An op of the host that is put together from others.
fn composed(op: &str, l: &mut Lowering<'_>, build: impl FnOnce(&[Array]) -> Result<Array>) -> Result<Data> {
    compose(l, build)?.ok_or_else(|| Error::value(op, "could not be put together"))
}

/// Inputs: the block, the tokens.
#[derive(Debug)]
struct Keep {
    heads: StepHeads,
    starts: Vec<usize>,
    turns: Option<Turns>,
}

impl Op for Keep {
    fn name(&self) -> &'static str {
        KEEP
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match self.on_gpu().keep(l)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, |inputs| self.composed(inputs)),
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        if l.dtype() != Dtype::Float32 {
            return composed(KEEP, l, |inputs| self.composed(inputs));
        }
        let tokens = Strided::row_major(l, 1)?;
        let (starts, turns) = (self.starts.clone(), self.turns.clone());
        let shape = self.heads.shape(l.shape()[2]);
        let command = || l.stream().command(KEEP).read_range(&tokens.data.buffer, tokens.bytes.clone());
        if let Some(owned) = l.take_in_place() {
            let old = owned.into_data();
            // Only what lies between the first and the last row that is written.
            let row = |sequence: usize, head: usize, row: usize| {
                ((sequence * 2 * shape.kv_heads + head) * shape.room + row) * shape.width
            };
            let first = starts.iter().enumerate().map(|(at, start)| row(at, 0, *start)).min();
            let last =
                starts.iter().enumerate().map(|(at, start)| row(at, 2 * shape.kv_heads - 1, start + 1));
            let (first, last) = (first.unwrap_or(0), last.max().unwrap_or(0));
            let base = old.offset as usize;
            command().read_write_range(&old.buffer, (base + first) * 4..(base + last) * 4).run(
                move |native| {
                    let [from, block] = native.take()?;
                    let (from, block) = (from.as_slice::<f32>()?, block.as_mut_slice::<f32>()?);
                    keep_step(shape, from, &starts, turns.as_ref().map(Turns::of), block, first)
                        .map_err(|error| error.to_string().into())
                },
            )?;
            return Ok(old);
        }
        let before = Strided::row_major(l, 0)?;
        let output = l.output()?;
        command().read_range(&before.data.buffer, before.bytes).write(&output).run(move |native| {
            let [from, before, block] = native.take()?;
            let (from, block) = (from.as_slice::<f32>()?, block.as_mut_slice::<f32>()?);
            block.copy_from_slice(before.as_slice::<f32>()?);
            keep_step(shape, from, &starts, turns.as_ref().map(Turns::of), block, 0)
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// Inputs: the tokens, the block.
#[derive(Debug)]
struct Attend {
    heads: StepHeads,
    starts: Vec<usize>,
    turns: Option<Turns>,
    scale: f32,
    window: usize,
}

impl Op for Attend {
    fn name(&self) -> &'static str {
        ATTEND
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let step = self.heads.on_gpu(&self.starts, self.turns.as_ref());
        match step.attend(l, self.scale, self.window)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, |inputs| self.composed(inputs)),
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        if l.dtype() != Dtype::Float32 {
            return composed(ATTEND, l, |inputs| self.composed(inputs));
        }
        let (tokens, block, output) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, l.output()?);
        let (starts, turns) = (self.starts.clone(), self.turns.clone());
        let (scale, window) = (self.scale, self.window);
        let shape = self.heads.shape(l.input_shape(1)[2]);
        let buffers = [tokens.data.buffer.clone(), block.data.buffer.clone()];
        let command = l.stream().command(ATTEND).read_range(&buffers[0], tokens.bytes);
        command.read_range(&buffers[1], block.bytes).write(&output).run(move |native| {
            let [tokens, block, out] = native.take()?;
            let (tokens, block) = (tokens.as_slice::<f32>()?, block.as_slice::<f32>()?);
            let (turn, out) = (turns.as_ref().map(Turns::of), out.as_mut_slice::<f32>()?);
            attend_step(&Cores, shape, tokens, &starts, turn, block, scale, window, out)
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// A block of kept keys and values with those of one more token of each sequence: the token of sequence `n` behind the
/// `starts[n]` rows that are there.
///
/// Tokens have the shape (sequences, numbers) and hold queries, keys and values side by side; blocks have the shape
/// (sequences, heads, room, width), with the heads of keys first and those of values behind. As with
/// [`append`](crate::fast::append), a block that nobody else uses is written in place.
pub fn keep_token(
    block: &Array,
    tokens: &Array,
    starts: &[usize],
    heads: StepHeads,
    turns: Option<&Turns>,
) -> Result<Array> {
    heads.check(KEEP, tokens, block, starts)?;
    let op = Keep { heads, starts: starts.to_vec(), turns: turns.cloned() };
    let inputs = smallvec![block.clone(), tokens.clone()];
    Array::lazy(block.shape().into(), block.dtype(), OpRef::new(op), inputs)
}

/// The attention of one token of each sequence to the rows of its block, its own included: the last `window` of them.
/// Gives the heads of queries side by side, in the shape (sequences, numbers). A sequence gives the same result alone
/// and among others.
pub fn attend_token(
    tokens: &Array,
    block: &Array,
    starts: &[usize],
    heads: StepHeads,
    turns: Option<&Turns>,
    scale: f32,
    window: Option<usize>,
) -> Result<Array> {
    heads.check(ATTEND, tokens, block, starts)?;
    let window = window.unwrap_or(usize::MAX);
    let op = Attend { heads, starts: starts.to_vec(), turns: turns.cloned(), scale, window };
    let shape = smallvec![starts.len(), heads.queries * heads.width];
    Array::lazy(shape, tokens.dtype(), OpRef::new(op), smallvec![tokens.clone(), block.clone()])
}
