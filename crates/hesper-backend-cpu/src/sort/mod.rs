//! Sorting and selecting along rows. Sorts are stable; NaN comes last.

mod key;
mod search;

use crate::parallel::with_element;
use crate::parallel::{GRAIN, par_chunks_mut};
use hesper_compute::Mismatch;
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::{Order, Sort};
use hesper_cpu::Cores;

use crate::Cpu;
pub use key::Key;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    search::register(table.with::<Sort>())
}

impl Lower<Sort> for Cpu {
    fn lower(op: &Sort, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_element!(l.input_dtype(0), T => run::<T>(op, l)).map(Some)
    }
}

fn run<T: Key>(op: &Sort, l: &Lowering<'_>) -> Result<Data> {
    let shape = l.input_shape(0);
    let length = shape[shape.len() - 1];
    let (input, output) = (l.row_major(0)?, l.output()?);
    let start = input.offset as usize * size_of::<T>();
    let bytes = start..start + shape.iter().product::<usize>() * size_of::<T>();
    let (order, places) = (op.order, op.places);
    let command = l.stream().command(op.name()).read_range(&input.buffer, bytes);
    command.write(&output).run(move |native| {
        let [from, to] = native.take()?;
        let from = from.as_slice::<T>()?;
        if from.is_empty() {
            return Ok(());
        }
        let done = match (order, places) {
            (Order::Middle, _) => {
                let grain = (GRAIN / length).max(1);
                par_chunks_mut(to.as_mut_slice::<T>()?, grain, |task, out| {
                    let from = from[task * grain * length..].chunks(length);
                    out.iter_mut().zip(from).for_each(|(out, row)| *out = middle(row));
                });
                Ok(())
            }
            (Order::Sorted, true) => hesper_compute::argsort(&Cores, from, length, to.as_mut_slice()?),
            (Order::Around(kth), true) => {
                hesper_compute::argpartition(&Cores, from, length, kth, to.as_mut_slice()?)
            }
            (Order::Sorted, false) => sort(from, length, to.as_mut_slice()?),
            (Order::Around(kth), false) => {
                hesper_compute::partition(&Cores, from, length, kth, to.as_mut_slice()?)
            }
        };
        done.map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Sorts rows; the bits of elements stay the same.
fn sort<T: Key>(from: &[T], length: usize, to: &mut [T]) -> std::result::Result<(), Mismatch> {
    if T::BY_PLACE {
        let mut places = vec![0u32; from.len()];
        hesper_compute::argsort(&Cores, from, length, &mut places)?;
        for ((to, places), row) in to.chunks_mut(length).zip(places.chunks(length)).zip(from.chunks(length)) {
            to.iter_mut().zip(places).for_each(|(to, at)| *to = row[*at as usize]);
        }
        return Ok(());
    }
    hesper_compute::sort(&Cores, from, length, to)?;
    if T::SHARED {
        let grain = (GRAIN / length).max(1) * length;
        par_chunks_mut(to, grain, |task, to| {
            let from = from[task * grain..].chunks(length);
            to.chunks_mut(length).zip(from).for_each(|(to, row)| put_back(row, to));
        });
    }
    Ok(())
}

/// Restores the original order of zeros and NaNs in the sorted copy of a row.
fn put_back<T: Key>(row: &[T], sorted: &mut [T]) {
    let of_zero = T::zeroed().bits();
    let mut zero = sorted.partition_point(|x| x.bits() < of_zero);
    let zeros = zero..zero + sorted[zero..].partition_point(|x| x.bits() == of_zero);
    // Zeros are sorted by sign. If all have the same sign, they are already in order.
    let mixed = !zeros.is_empty() && sorted[zeros.start].key() != sorted[zeros.end - 1].key();
    let mut nan = sorted.len() - sorted.iter().rev().take_while(|x| x.nan()).count();
    if mixed || nan < sorted.len() {
        for x in row.iter().filter(|x| x.shares()) {
            let place = if x.nan() { &mut nan } else { &mut zero };
            sorted[*place] = *x;
            *place += 1;
        }
    }
}

fn middle<T: Key>(row: &[T]) -> T {
    if let Some(nan) = row.iter().find(|x| x.nan()) {
        return *nan;
    }
    let mut keys: Vec<T::Bits> = row.iter().map(|x| x.bits()).collect();
    let (below, at, _) = keys.select_nth_unstable(row.len() / 2);
    let at = T::of(*at);
    match below.iter().max() {
        Some(before) if row.len().is_multiple_of(2) => T::of(*before).halfway(at),
        _ => at,
    }
}
