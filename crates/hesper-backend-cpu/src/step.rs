//! A decode step: the keys and values of one token of each sequence are appended to the KV cache, and the
//! token attends to it.

use crate::walk::Strided;
use half::{bf16, f16};
use hesper_compute::{Float, PageTables, Rotary, RowFormat, StepShape, append_step, attend_step};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::step::{Attend, Keep, PageRows, Pages, RotaryFrequencies, StepHeads};
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Attend>().with::<Keep>()
}

fn shape(heads: StepHeads, room: usize, pages: Option<&Pages>, tokens: Dtype) -> StepShape {
    let rows = match pages.map_or(PageRows::Exact, |pages| pages.rows) {
        PageRows::Affine { bits, group } => RowFormat::Affine { bits, group },
        rows => match rows.dtype(tokens) {
            Dtype::Float16 => RowFormat::F16,
            Dtype::Bfloat16 => RowFormat::Bf16,
            _ => RowFormat::F32,
        },
    };
    StepShape { q_heads: heads.queries, kv_heads: heads.keys, width: heads.width, room, rows }
}

fn turn(turns: &RotaryFrequencies) -> Rotary<'_> {
    Rotary { steps: &turns.steps.0, traditional: turns.traditional, scale: turns.scale.0 }
}

fn tables(pages: Option<&Pages>, rows: usize) -> Option<PageTables<'_>> {
    pages.map(|pages| PageTables { tables: &pages.tables, rows })
}

impl Lower<Keep> for Cpu {
    fn lower(op: &Keep, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.input_dtype(1) {
            Dtype::Float32 => keep::<f32>(op, l),
            Dtype::Float16 => keep::<f16>(op, l),
            Dtype::Bfloat16 => keep::<bf16>(op, l),
            _ => compose(l, |inputs| op.composed(inputs)),
        }
    }
}

fn keep<T: Float + bytemuck::Pod>(op: &Keep, l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let tokens = Strided::row_major(l, 1)?;
    let (starts, pages, turns) = (op.starts.clone(), op.pages.clone(), op.turns.clone());
    let shape = shape(op.heads, l.shape()[2], op.pages.as_ref(), l.input_dtype(1));
    let command = || l.stream().command(op.name()).read_range(&tokens.data.buffer, tokens.bytes.clone());
    if let Some(owned) = l.take_in_place() {
        let old = owned.into_data();
        // Bind only the range from the first to the last written row.
        let places = || {
            let tables = tables(pages.as_ref(), shape.room);
            starts.iter().enumerate().map(move |(at, start)| match tables {
                None => (at, *start),
                Some(tables) => tables.find(at, *start),
            })
        };
        let first = places().map(|(at, row)| shape.row(at, 0, row)).min().unwrap_or(0);
        let last = places().map(|(at, row)| shape.row(at, 2 * shape.kv_heads - 1, row) + shape.row_bytes());
        let last = last.max().unwrap_or(0);
        let base = old.offset as usize * l.dtype().size();
        command().read_write_range(&old.buffer, base + first..base + last).run(move |native| {
            let [from, block] = native.take()?;
            let (from, block) = (from.as_slice::<T>()?, block.as_mut_slice::<u8>()?);
            let pages = tables(pages.as_ref(), shape.room);
            append_step(shape, from, &starts, pages, turns.as_ref().map(turn), block, first)
                .map_err(crate::refused)
        })?;
        return Ok(Some(old));
    }
    let before = Strided::row_major(l, 0)?;
    let output = l.output()?;
    command().read_range(&before.data.buffer, before.bytes).write(&output).run(move |native| {
        let [from, before, block] = native.take()?;
        let (from, block) = (from.as_slice::<T>()?, block.as_mut_slice::<u8>()?);
        block.copy_from_slice(before.as_slice::<u8>()?);
        let pages = tables(pages.as_ref(), shape.room);
        append_step(shape, from, &starts, pages, turns.as_ref().map(turn), block, 0).map_err(crate::refused)
    })?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

impl Lower<Attend> for Cpu {
    fn lower(op: &Attend, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.dtype() {
            Dtype::Float32 => attend::<f32>(op, l),
            Dtype::Float16 => attend::<f16>(op, l),
            Dtype::Bfloat16 => attend::<bf16>(op, l),
            _ => compose(l, |inputs| op.composed(inputs)),
        }
    }
}

fn attend<T: Float + bytemuck::Pod>(op: &Attend, l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let (tokens, block, output) = (Strided::row_major(l, 0)?, Strided::row_major(l, 1)?, l.output()?);
    let (starts, pages, turns) = (op.starts.clone(), op.pages.clone(), op.turns.clone());
    let (scale, window) = (op.scale, op.window);
    let shape = shape(op.heads, l.input_shape(1)[2], op.pages.as_ref(), l.dtype());
    let command = l.stream().command(op.name()).read_range(&tokens.data.buffer, tokens.bytes);
    command.read_range(&block.data.buffer, block.bytes).write(&output).run(move |native| {
        let [tokens, block, out] = native.take()?;
        let (tokens, block) = (tokens.as_slice::<T>()?, block.as_slice::<u8>()?);
        let (turn, out) = (turns.as_ref().map(turn), out.as_mut_slice::<T>()?);
        let pages = tables(pages.as_ref(), shape.room);
        attend_step(&Cores, shape, tokens, &starts, pages, turn, block, scale.0, window, out)
            .map_err(crate::refused)
    })?;
    Ok(Some(Data::contiguous(output, l.shape())))
}
