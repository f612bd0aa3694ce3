//! Inputs of ops as kernels bind them.

use hesper_core::Dtype;
use hesper_core::backend::{Data, Lowering, reach};
use hesper_runtime::Encoder;

/// Whether kernels that compute in single precision load the type.
pub fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// Binds the elements of an input at `data`.
pub fn read<'a>(command: Encoder<'a>, l: &Lowering<'_>, at: usize, data: &'a Data) -> Encoder<'a> {
    let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
    command.read_range(&data.buffer, bytes)
}

/// Binds the elements of the inputs from `first` on at `all`.
pub fn read_all<'a>(command: Encoder<'a>, l: &Lowering<'_>, first: usize, all: &'a [Data]) -> Encoder<'a> {
    all.iter().enumerate().fold(command, |command, (at, data)| read(command, l, first + at, data))
}
