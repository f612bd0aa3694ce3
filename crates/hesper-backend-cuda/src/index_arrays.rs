//! The kernel of index arrays: the offsets of the slices that they point at.

use hesper_backend_gpu::{Launch, SliceStarts};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("index_arrays.cuh");

pub(crate) fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
    let SliceStarts { axes, points, first, length, size, stride, .. } = *starts;
    let constants = Constants::default().axes(axes).sizes(&[axes.len(), points, first, length, size]);
    let of = if starts.offset_size == 4 { Dtype::Uint32 } else { Dtype::Int64 };
    let kernel = Kernel::new(stream, TEXT, "slice_starts").of(starts.index).of(of).of(starts.adds);
    kernel.elements(constants.offset(stride), points)
}
