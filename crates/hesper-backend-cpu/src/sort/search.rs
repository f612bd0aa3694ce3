//! Binary search in sorted rows, and unique elements.

use crate::parallel::with_element;
use crate::parallel::{GRAIN, par_chunks_mut};
use hesper_core::Result;
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::search::{Search, Unique, Wanted};

use super::key::Key;
use crate::Cpu;

pub(super) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Search>().with::<Unique>()
}

impl Lower<Search> for Cpu {
    fn lower(op: &Search, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_element!(l.input_dtype(0), T => search::<T>(op, l)).map(Some)
    }
}

impl Lower<Unique> for Cpu {
    fn lower(op: &Unique, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_element!(l.input_dtype(0), T => unique::<T>(op, l)).map(Some)
    }
}

fn search<T: Key>(op: &Search, l: &Lowering<'_>) -> Result<Data> {
    let (row, values, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
    let (row_bytes, _) = reach(&row, l.input_shape(0), size_of::<T>());
    let (values_bytes, _) = reach(&values, l.input_shape(1), size_of::<T>());
    let right = op.right;
    let command = l.stream().command(op.name()).read_range(&row.buffer, row_bytes);
    command.read_range(&values.buffer, values_bytes).write(&output).run(move |native| {
        let [row, values, out] = native.take()?;
        let (row, values) = (row.as_slice::<T>()?, values.as_slice::<T>()?);
        par_chunks_mut(out.as_mut_slice::<u32>()?, GRAIN / 16, |task, out| {
            for (out, value) in out.iter_mut().zip(&values[task * (GRAIN / 16)..]) {
                let key = value.bits();
                let found = if right {
                    row.partition_point(|x| x.bits() <= key)
                } else {
                    row.partition_point(|x| x.bits() < key)
                };
                *out = found as u32;
            }
        });
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn unique<T: Key>(op: &Unique, l: &Lowering<'_>) -> Result<Data> {
    let (row, order, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
    let (row_bytes, _) = reach(&row, l.input_shape(0), size_of::<T>());
    let (order_bytes, _) = reach(&order, l.input_shape(1), 4);
    let filled = op.filled;
    let fill = if filled { Some(l.row_major(2)?) } else { None };
    let mut command = l.stream().command(op.name()).read_range(&row.buffer, row_bytes);
    command = command.read_range(&order.buffer, order_bytes);
    if let Some(fill) = &fill {
        let (bytes, _) = reach(fill, l.input_shape(2), size_of::<T>());
        command = command.read_range(&fill.buffer, bytes);
    }
    let (wanted, size) = (op.wanted, op.size);
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let (row, order) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<u32>()?);
        let fill = if filled { inputs[2].as_slice::<T>()?.first().copied() } else { None };
        let fill = fill.or_else(|| order.first().map(|at| row[*at as usize]));
        match wanted {
            Wanted::Values => {
                let out = out.as_mut_slice::<T>()?;
                out.fill(fill.unwrap_or(T::zeroed()));
                let firsts = firsts(row, order).map(|at| row[at as usize]);
                out.iter_mut().zip(firsts).for_each(|(out, x)| *out = x);
            }
            Wanted::Places => {
                let out = out.as_mut_slice::<u32>()?;
                out.fill(order.first().copied().unwrap_or(0));
                out.iter_mut().zip(firsts(row, order)).for_each(|(out, at)| *out = at);
            }
            Wanted::Inverse => {
                let out = out.as_mut_slice::<u32>()?;
                for (index, at) in unique_indices(row, order) {
                    out[at as usize] = index.min(size.saturating_sub(1)) as u32;
                }
            }
            Wanted::Counts => {
                let out = out.as_mut_slice::<i32>()?;
                out.fill(0);
                for (index, _) in unique_indices(row, order).take_while(|(index, _)| *index < size) {
                    out[index] += 1;
                }
            }
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Whether the element at `order[at]` differs from the previous one. NaN differs from NaN.
fn differs<T: Key>(row: &[T], order: &[u32], at: usize) -> bool {
    at == 0 || {
        let (before, this) = (row[order[at - 1] as usize], row[order[at] as usize]);
        this.nan() || before.bits() != this.bits()
    }
}

/// The positions of first occurrences, in sorted order.
fn firsts<T: Key>(row: &[T], order: &[u32]) -> impl Iterator<Item = u32> {
    (0..order.len()).filter(move |at| differs(row, order, *at)).map(|at| order[at])
}

/// For each element in sorted order, the index of its value among the unique ones, and its position.
fn unique_indices<T: Key>(row: &[T], order: &[u32]) -> impl Iterator<Item = (usize, u32)> {
    let mut unique = 0;
    (0..order.len()).map(move |at| {
        unique += usize::from(differs(row, order, at));
        (unique - 1, order[at])
    })
}
