//! The sum of two arrays and its root mean square norm, in one kernel.

use hesper_backend_gpu::{is_float, read_all};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::add_norm::AddNorm;

use crate::Cuda;
use crate::inputs::{aligned, is_aligned};
use crate::launch::{Constants, Kernel};
use crate::norm::held;
use crate::step::TEXT;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<AddNorm>()
}

impl Lower<AddNorm> for Cuda {
    /// The threads of a row are those of `rms_norm`, so the sum of squares has its order. `None` for rows
    /// that `rms_norm` reads in another way.
    fn lower(op: &AddNorm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (dtype, shape) = (l.dtype(), l.input_shape(0));
        let length = shape[shape.len() - 1];
        let bytes = length * dtype.size();
        let Some((threads, words)) = held(bytes / 16).filter(|_| bytes > 0 && bytes.is_multiple_of(16))
        else {
            return Ok(None);
        };
        if !is_float(dtype) || !is_aligned(l, 2) {
            return Ok(None);
        }
        l.bring()?;
        let rows = l.input_shape(0).iter().product::<usize>() / length;
        let inputs = [aligned(l, 0)?, aligned(l, 1)?, aligned(l, 2)?];
        let output = l.output()?;
        let command = read_all(l.stream().command("add_norm"), l, 0, &inputs).write(&output);
        let constants = Constants::default().sizes(&[rows]).int(length as i32).float(op.eps.0);
        let kernel = Kernel::new(l.stream(), TEXT, "add_norm").of(dtype).of(words);
        kernel.groups(constants, [rows, 1, 1], threads)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
