//! Joining arrays: a strided copy of each.

use crate::copy::{Target, copy_to};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::concat::Concatenate;
use hesper_core::shape::row_major;

use crate::Cuda;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Concatenate>()
}

impl Lower<Concatenate> for Cuda {
    fn lower(op: &Concatenate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let output = l.output()?;
        let strides = row_major(l.shape());
        let size = l.dtype().size();
        let mut first = 0;
        for at in 0..l.input_count() {
            let shape = l.input_shape(at);
            let to = Target { buffer: &output, offset: first, strides: &strides, partial: false };
            copy_to(l.stream(), l.input(at), shape, size, &to)?;
            first += shape[op.0] * strides[op.0] as usize;
        }
        if l.input_count() == 0 || output.is_empty() {
            l.stream().command("concatenate").write(&output).run(|_| Ok(()))?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
