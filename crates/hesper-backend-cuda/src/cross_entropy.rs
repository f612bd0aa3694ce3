//! The derivative of the cross entropy: a row is read from memory once.

use hesper_backend_gpu::{Shared, is_float, read};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::CrossEntropyGradient;

use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = concat!(include_str!("norm.cuh"), include_str!("cross_entropy.cuh"));

/// Threads of a row.
const THREADS: usize = 512;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<CrossEntropyGradient>()
}

impl Lower<CrossEntropyGradient> for Cuda {
    fn lower(op: &CrossEntropyGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (dtype, shape) = (l.input_dtype(0), l.input_shape(0));
        let length = shape[shape.len() - 1];
        let rows = shape.iter().product::<usize>() / length.max(1);
        if !is_float(dtype) || rows == 0 {
            return <Shared<Cuda> as Lower<CrossEntropyGradient>>::lower(op, l);
        }
        l.bring()?;
        let inputs = (0..3).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let is_whole = |elements: usize| (elements * dtype.size()).is_multiple_of(16);
        let aligned = is_whole(length) && is_whole(inputs[0].offset as usize);
        let kernel =
            Kernel::new(l.stream(), TEXT, "cross_entropy_gradient").of(dtype).of(THREADS).of(aligned);
        let launch = kernel.groups(Constants::default().sizes(&[length]), [rows, 1, 1], THREADS)?;
        let output = l.output()?;
        let mut command = l.stream().command(op.name());
        for (at, data) in inputs.iter().enumerate() {
            command = read(command, l, at, data);
        }
        launch.encode(command.write(&output))?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
