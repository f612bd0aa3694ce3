//! Softmax, norms, log-sum-exp: a threadgroup for each row, which is read once if it fits into its registers.
//! Rows come from memory or from a slot.

use hesper_backend_gpu::{Source, is_float, read, row_op_number};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::RowOp;
use hesper_core::{Dtype, Result};

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
        if rows == 0 || length == 0 {
            let output = l.output()?;
            l.stream().command(op.name()).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let source = Source::row_major(l)?;
        let count = 1 + usize::from(weight) + usize::from(bias);
        let vectors = (1..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let threads = length.div_ceil(HELD).next_multiple_of(32);
        let (threads, held) = if threads <= MAX_THREADS { (threads, HELD) } else { (MAX_THREADS, 0) };
        let kernel = Kernel::new(l.stream(), TEXT, "row_op").of(kind).of(l.input_dtype(0)).of(held);
        let constants = Constants::default().sizes(&[length]).float(eps as f32).flag(weight).flag(bias);
        let launch = match held > 0 || source.is_cheap() {
            true => {
                kernel.slot(source.slot()).try_threads(constants, [rows * threads, 1, 1], [threads, 1, 1])?
            }
            false => None,
        };
        let Some(launch) = launch else {
            l.materialize()?;
            return Self::lower(op, l);
        };
        let output = l.output()?;
        let mut command = source.bind(l.stream().command(op.name()));
        for (there, at) in [(weight, 1), (bias, 1 + usize::from(weight))] {
            command = match there {
                true => read(command, l, at, &vectors[at - 1]),
                false => source.bind_unused(command),
            };
        }
        launch.encode(command.write(&output))?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }

    fn takes_rows(_: &RowOp, _: &[usize], dtype: Dtype) -> bool {
        is_float(dtype)
    }
}
