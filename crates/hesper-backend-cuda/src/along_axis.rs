//! Kernels of elements along one axis, found by an index array with the same axes.

use hesper_backend_gpu::{AlongAxis, KernelText as _, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("along_axis.cuh");

pub(crate) fn take_along(stream: &Stream, size: usize, along: &AlongAxis<'_>) -> Result<Launch> {
    let AlongAxis { array, indices, count, .. } = *along;
    let constants = Constants::default()
        .axes(array)
        .axes(indices)
        .sizes(&[array.len(), count, along.array_first, along.index_first, along.length])
        .offset(along.stride);
    let kernel = Kernel::new(stream, TEXT, "take_along_axis").of(Cuda::word_name(size)).of(along.index);
    kernel.elements(constants, count)
}

pub(crate) fn element_offsets(stream: &Stream, along: &AlongAxis<'_>) -> Result<Launch> {
    let AlongAxis { array, indices, count, .. } = *along;
    let constants = Constants::default()
        .axes(indices)
        .axes(array)
        .sizes(&[array.len(), count, along.index_first, along.length])
        .offset(along.stride);
    Kernel::new(stream, TEXT, "element_offsets").of(along.index).elements(constants, count)
}
