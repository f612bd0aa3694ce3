//! Epilogue fusion: a group of element-wise ops is applied to the result of an op before that is stored. The
//! result itself is never written to memory.
//!
//! On the host, the op hands over pieces of its result that fit the CPU's cache. On a GPU, the group becomes
//! functions of an element and its index, which fill the second slot of the op's kernel. An implementation
//! that takes neither stores the result, and the group runs as a kernel of its own: the same bits.

use std::sync::Arc;

use hesper_runtime::Stream;

use super::expression::{Fused, Target};
use super::fuse::{self, Specialization, Value, Values};
use super::producer_fusion::{OTHER_BUFFERS, SCALAR};
use super::program::missing;
use crate::Dtype;
use crate::error::Result;
use crate::graph::{Consumer, Data, FusedRows, Operand, Slot};
use crate::registry::{self, Fusion};
use crate::shape::Shape;

/// A group that is applied to the result of an op.
pub(super) struct Epilogue {
    fused: Arc<Fused>,
    stream: Stream,
    shape: Shape,
    /// The first one is the op's result.
    values: Values,
    /// Whether the op's implementation computes the group.
    taken: bool,
}

impl Epilogue {
    pub(super) fn new(fused: &Arc<Fused>, stream: &Stream, shape: Shape, values: Values) -> Self {
        Epilogue { fused: fused.clone(), stream: stream.clone(), shape, values, taken: false }
    }

    /// What the step stores, from what the op's implementation stored.
    pub(super) fn complete(mut self, data: Data) -> Result<Data> {
        if self.taken {
            return Ok(data);
        }
        self.values[0] = Value::Memory(Operand::of(data), self.shape.clone());
        let computed = fuse::run(&self.fused, &self.stream, &self.shape, &mut self.values)?;
        computed.into_iter().next_back().ok_or_else(missing)
    }

    /// Whether the op can hand over pieces: one element is never one, and an op that uses the index of its
    /// element needs all of them.
    fn is_piecewise(&self) -> bool {
        self.shape.iter().product::<usize>() > 1 && !self.fused.expression.is_indexed()
    }
}

impl Consumer for Epilogue {
    fn rows(&mut self, stream: &Stream) -> Result<Option<FusedRows>> {
        if !self.is_piecewise() {
            return Ok(None);
        }
        fuse::bring(&mut self.values, &stream.runtime())?;
        FusedRows::new(&self.fused, &self.shape, &self.values, Target::EpilogueRows).map(Some)
    }

    fn slot(&mut self, stream: &Stream, lanes: usize, bound: usize) -> Result<Option<Slot>> {
        let fusion = registry::of_stream(stream)?.fusion();
        let max_buffers = fusion.max_buffers.saturating_sub(OTHER_BUFFERS + bound);
        // Functions take and give scalars.
        let scalars = [self.fused.expression.inputs[0].dtype, self.dtype()].map(Dtype::scalar);
        if !self.fused.fits(Fusion { max_buffers, ..fusion }) || scalars.contains(&None) {
            return Ok(None);
        }
        fuse::bring(&mut self.values, &stream.runtime())?;
        let order: fuse::AxisOrder = (0..self.shape.len()).collect();
        let kernel = Specialization::new(&self.fused, &self.shape, &order, &self.values, SCALAR);
        kernel.slot(lanes, fusion.double)
    }

    fn dtype(&self) -> Dtype {
        self.fused.expression.output_dtypes().last().unwrap_or(Dtype::Float32)
    }

    fn take(&mut self) {
        self.taken = true;
    }
}
