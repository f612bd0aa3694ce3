//! Inputs of ops as kernels read them.

use crate::copy::copy;
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lowering};
use hesper_core::shape::is_row_major;
use hesper_core::{Dtype, Result};
use hesper_runtime::Encoder;

/// Whether kernels that compute in single precision load the type.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// An input in row-major order, with its first element at a multiple of sixteen bytes.
pub(crate) fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let (data, shape, size) = (l.row_major(at)?, l.input_shape(at), l.input_dtype(at).size());
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    Ok(Data::contiguous(copy(l.stream(), &data, shape, size)?, shape))
}

/// Whether an input in row-major order has its first element at a multiple of sixteen bytes.
pub(crate) fn is_aligned(l: &Lowering<'_>, at: usize) -> bool {
    let (data, size) = (l.input(at), l.input_dtype(at).size());
    !is_row_major(l.input_shape(at), &data.strides) || (data.offset as usize * size).is_multiple_of(16)
}

/// Binds the elements of an input at `data`.
pub(crate) fn read<'a>(command: Encoder<'a>, l: &Lowering<'_>, at: usize, data: &'a Data) -> Encoder<'a> {
    let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
    command.read_range(&data.buffer, bytes)
}
