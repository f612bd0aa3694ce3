//! The kernel of index arrays: the offsets of the slices that they point at.

use hesper_backend_gpu::{Launch, SliceStarts};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, launch, type_name};
use crate::walk::walk;

const TEXT: &str = include_str!("index_arrays.cuh");

pub(crate) fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
    let SliceStarts { axes, points, first, length, size, stride, .. } = *starts;
    let constants = walk(Constants::default(), axes).sizes(&[axes.len(), points, first, length, size]);
    let of = if starts.offset_size == 4 { "u32" } else { "i64" };
    let entry = format!("slice_starts<{}, {of}, {}>", type_name(starts.index), starts.adds);
    launch(stream, TEXT, &entry, "", constants.long(stride as i64), points)
}
