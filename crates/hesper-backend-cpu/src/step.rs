//! A decode step: the keys and values of one token of each sequence are appended to the KV cache, and the token
//! attends to it.

use crate::walk::Strided;
use hesper_compute::{PageTables, Rotary, StepShape, attend_step, keep_step};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::step::{Attend, Keep, Pages, StepHeads, Turns};
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Attend>().with::<Keep>()
}

fn shape(heads: StepHeads, room: usize) -> StepShape {
    StepShape { q_heads: heads.queries, kv_heads: heads.keys, width: heads.width, room }
}

fn turn(turns: &Turns) -> Rotary<'_> {
    Rotary { steps: &turns.steps.0, traditional: turns.traditional, scale: turns.scale.0 }
}

fn tables(pages: Option<&Pages>, rows: usize) -> Option<PageTables<'_>> {
    pages.map(|pages| PageTables { tables: pages, rows })
}

impl Lower<Keep> for Cpu {
    fn lower(op: &Keep, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.dtype() != Dtype::Float32 {
            return compose(l, |inputs| op.composed(inputs));
        }
        let tokens = Strided::row_major(l, 1)?;
        let (starts, pages, turns) = (op.starts.clone(), op.pages.clone(), op.turns.clone());
        let shape = shape(op.heads, l.shape()[2]);
        let command = || l.stream().command(op.name()).read_range(&tokens.data.buffer, tokens.bytes.clone());
        if let Some(owned) = l.take_in_place() {
            let old = owned.into_data();
            // Bind only the range from the first to the last written row.
            let row = |(at, row): (usize, usize), head: usize| {
                ((at * 2 * shape.kv_heads + head) * shape.room + row) * shape.width
            };
            let places = || {
                let tables = tables(pages.as_ref(), shape.room);
                starts.iter().enumerate().map(move |(at, start)| match tables {
                    None => (at, *start),
                    Some(tables) => tables.find(at, *start),
                })
            };
            let first = places().map(|place| row(place, 0)).min().unwrap_or(0);
            let last = places().map(|place| row(place, 2 * shape.kv_heads - 1) + shape.width).max();
            let last = last.unwrap_or(0);
            let base = old.offset as usize;
            command().read_write_range(&old.buffer, (base + first) * 4..(base + last) * 4).run(
                move |native| {
                    let [from, block] = native.take()?;
                    let (from, block) = (from.as_slice::<f32>()?, block.as_mut_slice::<f32>()?);
                    keep_step(
                        shape,
                        from,
                        &starts,
                        tables(pages.as_ref(), shape.room),
                        turns.as_ref().map(turn),
                        block,
                        first,
                    )
                    .map_err(|error| error.to_string().into())
                },
            )?;
            return Ok(Some(old));
        }
        let before = Strided::row_major(l, 0)?;
        let output = l.output()?;
        command().read_range(&before.data.buffer, before.bytes).write(&output).run(move |native| {
            let [from, before, block] = native.take()?;
            let (from, block) = (from.as_slice::<f32>()?, block.as_mut_slice::<f32>()?);
            block.copy_from_slice(before.as_slice::<f32>()?);
            keep_step(
                shape,
                from,
                &starts,
                tables(pages.as_ref(), shape.room),
                turns.as_ref().map(turn),
                block,
                0,
            )
            .map_err(|error| error.to_string().into())
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<Attend> for Cpu {
    fn lower(op: &Attend, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.dtype() != Dtype::Float32 {
            return compose(l, |inputs| op.composed(inputs));
        }
        let (tokens, block, output) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, l.output()?);
        let (starts, pages, turns) = (op.starts.clone(), op.pages.clone(), op.turns.clone());
        let (scale, window) = (op.scale, op.window);
        let shape = shape(op.heads, l.input_shape(1)[2]);
        let buffers = [tokens.data.buffer.clone(), block.data.buffer.clone()];
        let command = l.stream().command(op.name()).read_range(&buffers[0], tokens.bytes);
        command.read_range(&buffers[1], block.bytes).write(&output).run(move |native| {
            let [tokens, block, out] = native.take()?;
            let (tokens, block) = (tokens.as_slice::<f32>()?, block.as_slice::<f32>()?);
            let (turn, out) = (turns.as_ref().map(turn), out.as_mut_slice::<f32>()?);
            attend_step(
                &Cores,
                shape,
                tokens,
                &starts,
                tables(pages.as_ref(), shape.room),
                turn,
                block,
                scale.0,
                window,
                out,
            )
            .map_err(|error| error.to_string().into())
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
