//! Kernels of gathers, scatters and updates of slices.

use hesper_backend_gpu::{
    AlongAxis, CombinedSlices, GatheredSlices, IndexedAxis, Launch, SliceStarts, SortRows,
};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::launch::{Constants, Kernel, type_name, word};
use crate::sort::sort;
use crate::walk::walk;

const TEXT: &str = text!("index.metal");
/// Points up to which all pairs are compared; the keys of more are sorted.
const MAX_PAIRWISE: usize = 1024;

fn launch(stream: &Stream, entry: &str, constants: Constants, n: usize) -> Result<Launch> {
    Kernel { text: TEXT, entry }.for_elements(stream, constants, n)
}

pub(crate) fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch> {
    let word = word(slices.word);
    let entry = match slices.axis {
        Some(axis) => format!("gather<{word}, {}>", type_name(axis.index)),
        None => format!("gather_slices<{word}>"),
    };
    // The kernel of slices does not read the last three.
    let none = IndexedAxis { index: Dtype::Int32, length: 0, size: 0, stride: 0 };
    let axis = slices.axis.unwrap_or(none);
    let constants = walk(walk(Constants::default(), slices.outer), slices.inner)
        .sizes(&[slices.points, slices.row, slices.first, axis.length, axis.size])
        .int(axis.stride);
    launch(stream, &entry, constants, slices.count)
}

pub(crate) fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
    let SliceStarts { axes, points, first, length, size, stride, .. } = *starts;
    let constants = walk(Constants::default(), axes).sizes(&[first, length, size]).int(stride);
    let entry = format!("slice_starts<{}, {}>", type_name(starts.index), starts.adds);
    launch(stream, &entry, constants, points)
}

/// The constants of kernels that find elements along an axis.
fn along(along: &AlongAxis<'_>) -> Constants {
    walk(walk(Constants::default(), along.array), along.indices)
        .sizes(&[along.array_first, along.index_first, along.length])
        .int(along.stride)
}

pub(crate) fn take_along(stream: &Stream, size: usize, elements: &AlongAxis<'_>) -> Result<Launch> {
    let entry = format!("take_along_axis<{}, {}>", word(size), type_name(elements.index));
    launch(stream, &entry, along(elements), elements.count)
}

pub(crate) fn element_offsets(stream: &Stream, elements: &AlongAxis<'_>) -> Result<Launch> {
    let entry = format!("element_offsets<{}>", type_name(elements.index));
    launch(stream, &entry, along(elements), elements.count)
}

/// Links the points of each element, in the order of the points.
pub(crate) fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let constants = Constants::default().sizes(&[points]);
    if points <= MAX_PAIRWISE {
        let command = stream.command("links").read(keys).write(&output);
        launch(stream, "link_points", constants, points)?.encode(command)?;
        return Ok(output);
    }
    let order = stream.alloc(points * 4)?;
    let (dtype, bytes) = (Dtype::Uint32, 0..points * 4);
    sort(&SortRows { stream, dtype, rows: 1, length: points, buffer: keys, bytes }, &order, true)?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    launch(stream, "link_sorted", constants, points)?.encode(command)?;
    Ok(output)
}

pub(crate) fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
    let CombinedSlices { mode, dtype, points, to, from, row, first, base, .. } = *slices;
    let of = if mode == 0 { word(dtype.size()) } else { type_name(dtype) };
    let (has_starts, has_links) = (slices.has_starts, slices.has_links);
    let entry = format!("combine_slices<{of}, {mode}, {has_starts}, {has_links}>");
    let constants = walk(walk(walk(Constants::default(), points), to), from).sizes(&[row, first, base]);
    launch(stream, &entry, constants, slices.count)
}
