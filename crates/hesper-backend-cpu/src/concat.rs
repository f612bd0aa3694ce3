//! Concatenation.

use crate::walk::Strided;
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::concat::Concatenate;
use hesper_core::shape::row_major;

use crate::Cpu;
use crate::copy::{Carrier, copy_to, with_carrier};

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Concatenate>()
}

impl Lower<Concatenate> for Cpu {
    fn lower(op: &Concatenate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), run::<_>(op.0, l)).map(Some)
    }
}

fn run<T: Carrier>(along: usize, l: &Lowering<'_>) -> Result<Data> {
    let parts: Vec<Strided> = (0..l.input_count()).map(|at| Strided::input(l, at)).collect();
    let output = l.output()?;
    let mut encoder = l.stream().command("concatenate");
    for part in &parts {
        encoder = encoder.read_range(&part.data.buffer, part.bytes.clone());
    }
    let strides = row_major(l.shape());
    let layouts: Vec<_> = parts.iter().map(Strided::layout).collect();
    encoder.write(&output).run(move |native| {
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        let mut first = 0;
        for (view, part) in views.iter().zip(&layouts) {
            copy_to(to, first, &strides, view.as_slice::<T>()?, part)?;
            first += part.shape[along] * strides[along] as usize;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}
