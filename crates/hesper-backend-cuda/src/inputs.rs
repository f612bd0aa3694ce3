//! Inputs of ops as kernels of this crate read them.

use hesper_backend_gpu::copy;
use hesper_core::Result;
use hesper_core::backend::{Data, Lowering};
use hesper_core::shape::is_row_major;

use crate::Cuda;

/// An input in row-major order, with its first element at a multiple of sixteen bytes.
pub(crate) fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let (data, shape, size) = (l.row_major(at)?, l.input_shape(at), l.input_dtype(at).size());
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    Ok(Data::contiguous(copy::<Cuda>(l.stream(), &data, shape, size)?, shape))
}

/// Whether an input in row-major order has its first element at a multiple of sixteen bytes.
pub(crate) fn is_aligned(l: &Lowering<'_>, at: usize) -> bool {
    let (data, size) = (l.input(at), l.input_dtype(at).size());
    !is_row_major(l.input_shape(at), &data.strides) || (data.offset as usize * size).is_multiple_of(16)
}
