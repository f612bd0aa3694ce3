//! Matrices with a vector on a diagonal.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::diagonal::Diag;
use hesper_runtime::NativeResult;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Diag>()
}

impl Lower<Diag> for Cpu {
    fn lower(op: &Diag, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let size = l.dtype().size();
        let (count, side) = (l.input_shape(0)[0], l.shape()[0]);
        let (row, column) = ((-op.0).max(0) as usize, op.0.max(0) as usize);
        let start = input.offset as usize * size;
        let bytes = start..start + count * size;
        l.stream().command(op.name()).read_range(&input.buffer, bytes).write(&output).run(
            move |native| -> NativeResult {
                let [from, to] = native.take()?;
                let from = from.bytes()?;
                let to = to.bytes_mut()?;
                to.fill(0);
                for at in 0..count {
                    let place = ((row + at) * side + column + at) * size;
                    to[place..place + size].copy_from_slice(&from[at * size..(at + 1) * size]);
                }
                Ok(())
            },
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
