//! Kernels of scatters and of updates of slices.

use hesper_backend_gpu::{CombinedRuns, CombinedSlices, KernelText as _, Launch, SortRows};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::Cuda;
use crate::launch::{Constants, Kernel, lanes_shift};
use crate::sort::sort;

const TEXT: &str = include_str!("scatter.cuh");
/// Up to this many points are linked by comparing all pairs; more are sorted.
const MAX_PAIRWISE: usize = 2048;

/// A kernel over points.
fn over_points(stream: &Stream, name: &str, points: usize) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, name).of(Dtype::Uint32);
    kernel.elements(Constants::default().sizes(&[points]), points)
}

/// The name of the elements that a mode combines: it sets words, and computes with elements.
fn element_name(mode: u32, dtype: Dtype) -> &'static str {
    if mode == 0 { Cuda::word_name(dtype.size()) } else { Cuda::type_name(dtype) }
}

/// Links the points of each element, in the order of the points.
pub(crate) fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    if points <= MAX_PAIRWISE {
        let command = stream.command("links").read(keys).write(&output);
        over_points(stream, "link_pairwise", points)?.encode(command)?;
        return Ok(output);
    }
    let order = order(stream, keys, points)?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    over_points(stream, "link_sorted", points)?.encode(command)?;
    Ok(output)
}

/// The order of the points that sorts them by element; points of one element keep their order.
fn order(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 4)?;
    if points > MAX_PAIRWISE {
        let (dtype, bytes) = (Dtype::Uint32, 0..points * 4);
        sort(&SortRows { stream, dtype, rows: 1, length: points, buffer: keys, bytes }, &output, true)?;
        return Ok(output);
    }
    let command = stream.command("order").read(keys).write(&output);
    over_points(stream, "order_pairwise", points)?.encode(command)?;
    Ok(output)
}

pub(crate) fn combine_runs(
    stream: &Stream,
    runs: &CombinedRuns,
    starts: &Buffer,
) -> Result<Option<(Launch, Buffer)>> {
    let CombinedRuns { mode, dtype, together, points, row, stride, first, base } = *runs;
    let kernel =
        Kernel::new(stream, TEXT, "combine_runs").of(element_name(mode, dtype)).of(mode).of(together);
    let row = row / together;
    let shift = lanes_shift(row);
    let constants = Constants::default().sizes(&[points, row, first, base]).offset(stride).sizes(&[shift]);
    let launch = kernel.elements(constants, points << shift)?;
    Ok(Some((launch, order(stream, starts, points)?)))
}

pub(crate) fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
    let CombinedSlices { mode, dtype, points, to, from, row, count, first, base, .. } = *slices;
    let kernel = Kernel::new(stream, TEXT, "combine_slices").of(element_name(mode, dtype)).of(mode);
    let constants = Constants::default().axes(points).axes(to).axes(from);
    let constants = constants.sizes(&[points.len(), to.len(), row, count, first, base]);
    kernel.of(slices.has_starts).of(slices.has_links).elements(constants, count)
}
