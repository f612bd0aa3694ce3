//! The Walsh-Hadamard transform.

use crate::walk::{GRAIN, Strided, par_chunks};
use hesper_compute::Float;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::hadamard::Hadamard;
use hesper_core::{Element, Result};

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Hadamard>()
}

impl Lower<Hadamard> for Cpu {
    fn lower(op: &Hadamard, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(op, l))
    }
}

fn run<T: Float + Element>(op: &Hadamard, l: &Lowering<'_>) -> Result<Data> {
    let (op, input, output) = (op.clone(), Strided::row_major(l, 0)?, l.output()?);
    let length = l.shape()[l.shape().len() - 1];
    l.stream().command("hadamard").read_range(&input.data.buffer, input.bytes.clone()).write(&output).run(
        move |native| {
            let [from, to] = native.take()?;
            let from = from.as_slice::<T>()?;
            let signs = op.signs();
            let part = length / op.order;
            par_chunks(to.as_mut_slice::<T>()?, (GRAIN / length).max(1) * length, |first, rows| {
                let (mut line, mut mixed) = (vec![0.0f32; length], vec![0.0f32; length]);
                for (at, row) in rows.chunks_mut(length).enumerate() {
                    let from = &from[first + at * length..][..length];
                    line.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_f32());
                    line.chunks_mut(part).for_each(butterflies);
                    if op.order > 1 {
                        mix(&signs, op.order, &line, &mut mixed);
                        std::mem::swap(&mut line, &mut mixed);
                    }
                    row.iter_mut().zip(&line).for_each(|(to, x)| *to = T::from_f32(x * op.scale.0));
                }
            });
            Ok(())
        },
    )?;
    Ok(Data::contiguous(output, l.shape()))
}

/// The transform of a line whose length is a power of two, in place.
fn butterflies(line: &mut [f32]) {
    let mut half = 1;
    while half < line.len() {
        for pair in line.chunks_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// A matrix of signs times the parts of a line.
fn mix(signs: &[f32], order: usize, line: &[f32], mixed: &mut [f32]) {
    let part = line.len() / order;
    for (target, signs) in mixed.chunks_mut(part).zip(signs.chunks(order)) {
        target.fill(0.0);
        for (from, sign) in line.chunks(part).zip(signs) {
            target.iter_mut().zip(from).for_each(|(to, x)| *to += sign * x);
        }
    }
}
