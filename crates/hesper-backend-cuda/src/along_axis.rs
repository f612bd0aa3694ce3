//! Kernels of elements along one axis, found by an index array with the same axes.

use hesper_backend_gpu::{AlongAxis, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::copy::word;
use crate::launch::{Constants, launch, type_name};
use crate::walk::walk;

const TEXT: &str = include_str!("along_axis.cuh");

pub(crate) fn take_along(stream: &Stream, size: usize, along: &AlongAxis<'_>) -> Result<Launch> {
    let AlongAxis { array, indices, count, .. } = *along;
    let constants = walk(walk(Constants::default(), array), indices)
        .sizes(&[array.len(), count, along.array_first, along.index_first, along.length])
        .long(along.stride as i64);
    let entry = format!("take_along_axis<{}, {}>", word(size), type_name(along.index));
    launch(stream, TEXT, &entry, "", constants, count)
}

pub(crate) fn element_offsets(stream: &Stream, along: &AlongAxis<'_>) -> Result<Launch> {
    let AlongAxis { array, indices, count, .. } = *along;
    let constants = walk(walk(Constants::default(), indices), array)
        .sizes(&[array.len(), count, along.index_first, along.length])
        .long(along.stride as i64);
    launch(stream, TEXT, &format!("element_offsets<{}>", type_name(along.index)), "", constants, count)
}
