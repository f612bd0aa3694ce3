//! Random bits of a key, rows in random order, choices.

use std::sync::Mutex;

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::{Bits, Choose, PermuteRows};
use hesper_cpu::{Compute, Cores};
use hesper_runtime::NativeResult;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Bits>().with::<Choose>().with::<PermuteRows>()
}

impl Lower<Bits> for Cpu {
    fn lower(op: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let key = l.row_major(0)?;
        let output = l.output()?;
        let start = key.offset as usize * 4;
        l.stream().command(op.name()).read_range(&key.buffer, start..start + 8).write(&output).run(
            |native| -> NativeResult {
                let [key, words] = native.take()?;
                let [k0, k1] = *key.as_slice::<u32>()? else {
                    return Err("a random key must have two elements".into());
                };
                hesper_compute::random_words(&Cores, [k0, k1], words.as_mut_slice::<u32>()?);
                Ok(())
            },
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<PermuteRows> for Cpu {
    fn lower(op: &PermuteRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (rows, words) = (l.row_major(0)?, l.row_major(1)?);
        let output = l.output()?;
        let count = l.shape()[0];
        let bytes = l.shape().iter().product::<usize>() * l.dtype().size();
        let row = bytes / count.max(1);
        let (start, first) = (rows.offset as usize * l.dtype().size(), words.offset as usize * 4);
        l.stream()
            .command(op.name())
            .read_range(&rows.buffer, start..start + bytes)
            .read_range(&words.buffer, first..first + count * 4)
            .write(&output)
            .run(move |native| -> NativeResult {
                let [rows, words, out] = native.take()?;
                let (rows, words) = (rows.bytes()?, words.as_slice::<u32>()?);
                let mut order = vec![0u32; count];
                hesper_compute::argsort(&Cores, words, count, &mut order).map_err(|e| e.to_string())?;
                if row == 4 {
                    let (rows, out) = (bytemuck::cast_slice::<_, [u8; 4]>(rows), out.bytes_mut()?);
                    for (to, from) in out.chunks_exact_mut(4).zip(order) {
                        to.copy_from_slice(&rows[from as usize]);
                    }
                } else if row > 0 {
                    for (to, from) in out.bytes_mut()?.chunks_exact_mut(row).zip(order) {
                        to.copy_from_slice(&rows[from as usize * row..][..row]);
                    }
                }
                Ok(())
            })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<Choose> for Cpu {
    fn lower(op: &Choose, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let bytes = shape.iter().product::<usize>() * 4;
        let start = input.offset as usize * 4;
        l.stream().command(op.name()).read_range(&input.buffer, start..start + bytes).write(&output).run(
            move |native| -> NativeResult {
                let [from, to] = native.take()?;
                let from = from.as_slice::<f32>()?;
                let to = to.as_mut_slice::<u32>()?;
                let grain = (65536 / length.max(1)).max(1);
                let slots: Vec<Mutex<&mut [u32]>> = to.chunks_mut(grain).map(Mutex::new).collect();
                Compute::global().run(slots.len(), &|task| {
                    let mut slot = slots[task].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    for (at, out) in slot.iter_mut().enumerate() {
                        let row = task * grain + at;
                        *out = largest(&from[row * length..(row + 1) * length]);
                    }
                });
                Ok(())
            },
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// The index of the largest element, the first if there are several.
fn largest(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, value) in row.iter().enumerate() {
        if *value > best.1 {
            best = (at, *value);
        }
    }
    best.0 as u32
}
