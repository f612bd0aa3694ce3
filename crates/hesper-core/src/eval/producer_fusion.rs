//! Producer fusion: a group of element-wise ops is computed inside of the op that reads its value row by row.
//! The consumer requests pieces that fit the CPU's cache, and the kernel of the group computes them there.
//! The value is never written to memory.

use std::sync::Arc;

use hesper_kernel::exec::Program;
use hesper_runtime::Stream;

use super::expression::{Fused, Inner, Layout, Target};
use super::fuse::{self, AxisOrder, Specialization, Value};
use super::program::missing;
use crate::error::{Error, Result};
use crate::graph::{Data, KernelInput};
use crate::registry::Fusion;

pub use crate::graph::{FusedRows, RowKernel};

/// The first input of an op that reads rows.
pub(super) struct RowInput {
    /// Its memory; none if it is computed as it is read.
    pub(super) data: Data,
    pub(super) fused: Option<FusedRows>,
}

impl RowInput {
    /// The only output of an expression: computed as it is read if possible, else now.
    pub(super) fn of(
        fused: &Arc<Fused>,
        stream: &Stream,
        shape: &[usize],
        values: &mut [Value],
    ) -> Result<RowInput> {
        fuse::bring(values, &stream.runtime())?;
        if !fused.expression.is_indexed() {
            let rows = FusedRows::new(fused, shape, values)?;
            return Ok(RowInput { data: Data::contiguous(stream.alloc(0)?, &[0]), fused: Some(rows) });
        }
        let data = fuse::run(fused, stream, shape, values)?.pop().ok_or_else(missing)?;
        Ok(RowInput { data, fused: None })
    }
}

/// One element per thread: the executor of the host vectorizes by itself.
const SCALAR: Fusion = Fusion {
    vector_threads: None,
    in_place: false,
    row_sources: false,
    double: true,
    max_buffers: usize::MAX,
};

impl FusedRows {
    fn new(fused: &Arc<Fused>, shape: &[usize], values: &[Value]) -> Result<FusedRows> {
        let row_major: AxisOrder = (0..shape.len()).collect();
        let mut kernel = Specialization::new(fused, shape, &row_major, values, SCALAR);
        let lengths = kernel.lengths.clone();
        let mut memory = Vec::new();
        let inputs = kernel
            .inputs
            .iter()
            .map(|input| match (input.layout, input.data) {
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
        let program = fused.row_kernel(kernel.form(Target::Rows), || {
            Program::compile(&kernel.build()?).map_err(|error| Error::Kernel(error.to_string()))
        })?;
        Ok(FusedRows { memory, kernel: Arc::new(RowKernel { program, inputs, lengths, size }) })
    }
}
