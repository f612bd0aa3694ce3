//! Softmax, norms, log-sum-exp: a threadgroup for each row, which is read once if it fits into its registers.

use hesper_backend_gpu::{is_float, read, row_op_number};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::RowOp;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("norm.metal");
/// Elements that a thread holds.
const HELD: usize = 4;
/// Threads of the largest threadgroup.
const MAX_THREADS: usize = 1024;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<RowOp>()
}

impl Lower<RowOp> for MetalBackend {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (kind, eps) = row_op_number(op);
        let (weight, bias) = op.vectors();
        if !is_float(l.input_dtype(0)) || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let count = 1 + usize::from(weight) + usize::from(bias);
        let inputs = (0..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let output = l.output()?;
        let mut command = l.stream().command(op.name());
        // A missing vector is bound as the input, and not read.
        let vector = |there: bool, at: usize| if there { at } else { 0 };
        for at in [0, vector(weight, 1), vector(bias, 1 + usize::from(weight))] {
            command = read(command, l, at, &inputs[at]);
        }
        let command = command.write(&output);
        if rows == 0 || length == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let threads = length.div_ceil(HELD).next_multiple_of(32);
        let (threads, held) = if threads <= MAX_THREADS { (threads, HELD) } else { (MAX_THREADS, 0) };
        let kernel = Kernel::new(l.stream(), TEXT, "row_op").of(kind).of(l.input_dtype(0)).of(held);
        let constants = Constants::default().sizes(&[length]).float(eps as f32).flag(weight).flag(bias);
        kernel.groups(constants, [rows, 1, 1], threads)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
