//! Random bits of a key.

use crate::launch::{Constants, blocks, kernel};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::Bits;

use crate::Cuda;

const TEXT: &str = include_str!("random.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Bits>()
}

impl Lower<Bits> for Cuda {
    fn lower(_: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let (key, output) = (l.row_major(0)?, l.output()?);
        let n = output.len() / 4;
        let start = key.offset as usize * 4;
        let command =
            l.stream().command("random bits").read_range(&key.buffer, start..start + 8).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let pipeline = kernel(l.stream(), TEXT, "random_bits<u32>", "")?;
        let constants = Constants::default().long(n as i64);
        command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks(n.div_ceil(2)) * 256, 1, 1],
            [256, 1, 1],
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
