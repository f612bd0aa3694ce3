//! Softmax, norms, log-sum-exp. Rows come from memory or from a slot, and go to memory, with an epilogue or
//! without.

use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::norm::RowOp;
use hesper_core::{Dtype, Result};

use crate::inputs::read;
use crate::walk::fits;
use crate::{Gpu, Shared, Sink, Source};

/// Parameters of a kernel of a row op.
pub struct RowOpKernel<'a> {
    /// The number of the op in the texts.
    pub number: u32,
    /// What the op adds to a variance or a mean of squares.
    pub eps: f64,
    /// Whether results are multiplied by a weight, and whether a bias is added.
    pub weight: bool,
    /// See `weight`.
    pub bias: bool,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The number of rows, and of elements of one.
    pub rows: usize,
    /// See `rows`.
    pub length: usize,
    /// Whether rows, weight and bias begin at multiples of sixteen bytes.
    pub aligned: bool,
    /// Where rows are read and results are stored.
    pub source: &'a Source,
    /// See `source`.
    pub sink: &'a Sink,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, RowOp>()
}

/// The number of an op in the texts, and its epsilon.
fn number(op: &RowOp) -> (u32, f64) {
    match *op {
        RowOp::Softmax => (0, 0.0),
        RowOp::LogSumExp => (1, 0.0),
        RowOp::RmsNorm { eps, .. } => (2, eps.0),
        RowOp::LayerNorm { eps, .. } => (3, eps.0),
    }
}

impl<G: Gpu> Lower<RowOp> for Shared<G> {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if !G::takes_row_op(dtype) || !fits::<G>(l) {
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
        let sink = Sink::of(l, source.reads())?;
        let ((number, eps), (weight, bias)) = (number(op), op.vectors());
        let count = 1 + usize::from(weight) + usize::from(bias);
        let vectors = (1..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let mut starts = vectors.iter().map(|vector| vector.offset as usize * dtype.size());
        let aligned = (length * dtype.size()).is_multiple_of(16)
            && source.is_aligned()
            && starts.all(|start| start.is_multiple_of(16));
        let (source, sink) = (&source, &sink);
        let kernel = RowOpKernel { number, eps, weight, bias, dtype, rows, length, aligned, source, sink };
        let Some(launch) = G::row_op(l.stream(), &kernel)? else {
            l.materialize()?;
            l.without_epilogue();
            return Self::lower(op, l);
        };
        let output = sink.output(l)?;
        let mut command = source.bind(l.stream().command(op.name()));
        for (there, at) in [(weight, 1), (bias, 1 + usize::from(weight))] {
            command = match there {
                true => read(command, l, at, &vectors[at - 1]),
                false => source.bind_unused(command),
            };
        }
        launch.encode(sink.bind(command, &output))?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }

    fn takes_rows(_: &RowOp, _: &[usize], dtype: Dtype) -> bool {
        G::takes_row_op(dtype)
    }

    /// The result of log-sum-exp is small.
    fn takes_epilogue(op: &RowOp, _: &[usize], dtype: Dtype) -> bool {
        *op != RowOp::LogSumExp && G::takes_row_op(dtype)
    }
}
