//! `silu(gate) * up` of a row that holds both, in one kernel.

use hesper_backend_gpu::{is_float, read};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::silu_gate::SiluGate;

use crate::Cuda;
use crate::inputs::aligned;
use crate::launch::{Constants, Kernel};
use crate::step::TEXT;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<SiluGate>()
}

impl Lower<SiluGate> for Cuda {
    fn lower(_: &SiluGate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let length = l.shape().last().copied().unwrap_or(0);
        let per = 16 / dtype.size();
        if !is_float(dtype) || length == 0 || !length.is_multiple_of(per) {
            return Ok(None);
        }
        l.bring()?;
        let (both, output) = (aligned(l, 0)?, l.output()?);
        let words = l.shape().iter().product::<usize>() / per;
        let command = read(l.stream().command("silu_gate"), l, 0, &both).write(&output);
        let constants = Constants::default().sizes(&[words, length / per]);
        let kernel = Kernel::new(l.stream(), TEXT, "silu_gate").of(dtype);
        kernel.groups(constants, [words.div_ceil(256), 1, 1], 256)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
