//! Kernels of gathers, scatters and updates of slices.

use hesper_backend_gpu::{
    AlongAxis, CombinedSlices, GatheredSlices, IndexedAxis, KernelText as _, Launch, SliceStarts, SortRows,
};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel};
use crate::sort::sort;

const TEXT: &str = text!("index.metal");
/// Points up to which all pairs are compared; the keys of more are sorted.
const MAX_PAIRWISE: usize = 1024;

pub(crate) fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch> {
    let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(MetalBackend::word_name(slices.word));
    let kernel = match slices.axis {
        Some(axis) => kernel("gather").of(axis.index),
        None => kernel("gather_slices"),
    };
    // The kernel of slices does not read the last three.
    let none = IndexedAxis { index: Dtype::Int32, length: 0, size: 0, stride: 0 };
    let axis = slices.axis.unwrap_or(none);
    let constants = Constants::default()
        .axes(slices.outer)
        .axes(slices.inner)
        .sizes(&[slices.points, slices.row, slices.first, axis.length, axis.size])
        .offset(axis.stride);
    kernel.elements(constants, slices.count)
}

pub(crate) fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
    let SliceStarts { axes, points, first, length, size, stride, .. } = *starts;
    let constants = Constants::default().axes(axes).sizes(&[first, length, size]).offset(stride);
    let kernel = Kernel::new(stream, TEXT, "slice_starts").of(starts.index).of(starts.adds);
    kernel.elements(constants, points)
}

/// The constants of kernels that find elements along an axis.
fn along(along: &AlongAxis<'_>) -> Constants {
    Constants::default()
        .axes(along.array)
        .axes(along.indices)
        .sizes(&[along.array_first, along.index_first, along.length])
        .offset(along.stride)
}

pub(crate) fn take_along(stream: &Stream, size: usize, elements: &AlongAxis<'_>) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, "take_along_axis").of(MetalBackend::word_name(size));
    kernel.of(elements.index).elements(along(elements), elements.count)
}

pub(crate) fn element_offsets(stream: &Stream, elements: &AlongAxis<'_>) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, "element_offsets").of(elements.index);
    kernel.elements(along(elements), elements.count)
}

/// Links the points of each element, in the order of the points.
pub(crate) fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let constants = Constants::default().sizes(&[points]);
    if points <= MAX_PAIRWISE {
        let command = stream.command("links").read(keys).write(&output);
        Kernel::new(stream, TEXT, "link_points").elements(constants, points)?.encode(command)?;
        return Ok(output);
    }
    let order = stream.alloc(points * 4)?;
    let (dtype, bytes) = (Dtype::Uint32, 0..points * 4);
    sort(&SortRows { stream, dtype, rows: 1, length: points, buffer: keys, bytes }, &order, true)?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    Kernel::new(stream, TEXT, "link_sorted").elements(constants, points)?.encode(command)?;
    Ok(output)
}

pub(crate) fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
    let CombinedSlices { mode, dtype, points, to, from, row, first, base, .. } = *slices;
    let of = if mode == 0 { MetalBackend::word_name(dtype.size()) } else { MetalBackend::type_name(dtype) };
    let kernel = Kernel::new(stream, TEXT, "combine_slices").of(of).of(mode);
    let constants = Constants::default().axes(points).axes(to).axes(from).sizes(&[row, first, base]);
    kernel.of(slices.has_starts).of(slices.has_links).elements(constants, slices.count)
}
