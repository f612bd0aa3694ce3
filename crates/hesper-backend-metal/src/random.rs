//! Random bits.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::Bits;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("random.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Bits>()
}

impl Lower<Bits> for MetalBackend {
    fn lower(_: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let words = |l: &Lowering<'_>| l.shape().iter().product::<usize>() * l.dtype().size() / 4;
        if !fits(l) || words(l) >= 1 << 31 {
            return Ok(None);
        }
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
        let constants = Constants::default().sizes(&[n]);
        Kernel { text: TEXT, entry: "random_bits" }.elements(
            l.stream(),
            command,
            &constants,
            n.div_ceil(2),
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
