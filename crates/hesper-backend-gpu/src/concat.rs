//! Joining arrays: a strided copy of each.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::concat::Concatenate;
use hesper_core::shape::row_major;

use crate::{Gpu, Shared, Target, copy_to};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Concatenate>()
}

impl<G: Gpu> Lower<Concatenate> for Shared<G> {
    fn lower(op: &Concatenate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let output = l.output()?;
        let strides = row_major(l.shape());
        let size = l.dtype().size();
        let mut first = 0;
        // Nothing is copied to an empty array: offsets along its other axes lie outside of it.
        for at in 0..if output.is_empty() { 0 } else { l.input_count() } {
            let shape = l.input_shape(at);
            let to = Target { buffer: &output, offset: first, strides: &strides, partial: false };
            copy_to::<G>(l.stream(), l.input(at), shape, size, &to)?;
            first += shape[op.0] * strides[op.0] as usize;
        }
        if output.is_empty() {
            l.stream().command("concatenate").write(&output).run(|_| Ok(()))?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
