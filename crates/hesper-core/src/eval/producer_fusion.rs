//! Producer fusion: a group of element-wise ops is computed inside of the op that reads its value. The value
//! is never written to memory.
//!
//! On the host, the op requests pieces that fit the CPU's cache, and the kernel of the group computes them
//! there. On a GPU, the group becomes functions that fill the slot of the op's kernel. Their index counts the
//! elements as they would be stored, so the kernel handles them in the same order as those of memory.

use std::sync::Arc;

use hesper_kernel::exec::Program;
use hesper_runtime::Stream;

use super::expression::{Fused, Inner, Layout, Target};
use super::fuse::{self, AxisOrder, Specialization, Value, Values};
use super::program::missing;
use crate::error::{Error, Result};
use crate::graph::{Data, KernelInput, Producer, Slot};
use crate::registry::{self, Fusion};
use crate::shape::Shape;

pub use crate::graph::{FusedRows, RowKernel};

/// The first input of an op as a group.
pub(super) struct RowInput {
    fused: Arc<Fused>,
    stream: Stream,
    shape: Shape,
    values: Values,
}

impl RowInput {
    /// The only output of an expression.
    pub(super) fn new(fused: &Arc<Fused>, stream: &Stream, shape: &Shape, values: Values) -> Self {
        RowInput { fused: fused.clone(), stream: stream.clone(), shape: shape.clone(), values }
    }

    /// The strides that the value would have in memory, without memory.
    pub(super) fn data(&self) -> Result<Data> {
        let order = fuse::storage_order(&self.fused, &self.shape, &self.values);
        let strides = fuse::stored_strides(&self.shape, &order);
        Ok(Data { buffer: self.stream.alloc(0)?, offset: 0, strides })
    }
}

/// Buffers that the kernels with slots bind besides those of the slots.
pub(super) const OTHER_BUFFERS: usize = 4;

impl Producer for RowInput {
    fn rows(&mut self, stream: &Stream) -> Result<Option<FusedRows>> {
        if self.fused.expression.is_indexed() {
            return Ok(None);
        }
        fuse::bring(&mut self.values, &stream.runtime())?;
        FusedRows::new(&self.fused, &self.shape, &self.values, Target::Rows).map(Some)
    }

    fn slot(&mut self, stream: &Stream, lanes: usize, row_major: bool) -> Result<Option<Slot>> {
        let fusion = registry::of_stream(stream)?.fusion();
        let room = Fusion { max_buffers: fusion.max_buffers.saturating_sub(OTHER_BUFFERS), ..fusion };
        if !self.fused.fits(room) || self.shape.contains(&0) {
            return Ok(None);
        }
        fuse::bring(&mut self.values, &stream.runtime())?;
        let order = match row_major {
            true => (0..self.shape.len()).collect(),
            false => fuse::storage_order(&self.fused, &self.shape, &self.values),
        };
        let kernel = Specialization::new(&self.fused, &self.shape, &order, &self.values, SCALAR);
        kernel.slot(lanes, fusion.double)
    }

    fn run(&mut self) -> Result<Data> {
        let computed = fuse::run(&self.fused, &self.stream, &self.shape, &mut self.values)?;
        computed.into_iter().next_back().ok_or_else(missing)
    }
}

/// One element per thread: the executor of the host vectorizes by itself.
pub(super) const SCALAR: Fusion =
    Fusion { vector_threads: None, in_place: false, double: true, max_buffers: usize::MAX, recompute: false };

impl FusedRows {
    pub(super) fn new(
        fused: &Arc<Fused>,
        shape: &[usize],
        values: &[Value],
        target: Target,
    ) -> Result<FusedRows> {
        let row_major: AxisOrder = (0..shape.len()).collect();
        let mut kernel = Specialization::new(fused, shape, &row_major, values, SCALAR);
        let lengths = kernel.lengths.clone();
        let mut memory = Vec::new();
        let inputs = kernel
            .inputs
            .iter()
            .map(|input| match (input.layout, input.data) {
                _ if input.is_result() => KernelInput::Result(input.dtype.size()),
                (Layout::Known, _) | (_, None) => KernelInput::Known(input.known.0, input.dtype.size()),
                (layout, Some(data)) => {
                    memory.push(data.clone());
                    let Layout::Strided(inner) = layout else {
                        return KernelInput::Plain(input.dtype.size());
                    };
                    let (offset, strides) = (data.offset, input.strides.clone());
                    KernelInput::Strided { offset, strides, any_inner: inner == Inner::Any }
                }
            })
            .collect();
        kernel.lengths = lengths[lengths.len().saturating_sub(2)..].into();
        let size = lengths.iter().product();
        let program = fused.find_or_build(kernel.form(target), || {
            Program::compile(&kernel.build()?).map_err(|error| Error::Kernel(error.to_string()))
        })?;
        Ok(FusedRows { memory, kernel: Arc::new(RowKernel { program, inputs, lengths, size }) })
    }
}
