//! Kernels of scatters and of updates of slices.

use hesper_backend_gpu::{CombinedRuns, CombinedSlices, Launch, SortRows};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::copy::word;
use crate::launch::{Constants, lanes_shift, launch, type_name};
use crate::sort::sort;
use crate::walk::walk;

const TEXT: &str = include_str!("scatter.cuh");
/// Up to this many points are linked by comparing all pairs; more are sorted.
const MAX_PAIRWISE: usize = 2048;

/// Links the points of each element, in the order of the points.
pub(crate) fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let constants = Constants::default().sizes(&[points]);
    if points <= MAX_PAIRWISE {
        let command = stream.command("links").read(keys).write(&output);
        launch(stream, TEXT, "link_pairwise<u32>", "", constants, points)?.encode(command)?;
        return Ok(output);
    }
    let order = order(stream, keys, points)?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    launch(stream, TEXT, "link_sorted<u32>", "", constants, points)?.encode(command)?;
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
    let constants = Constants::default().sizes(&[points]);
    launch(stream, TEXT, "order_pairwise<u32>", "", constants, points)?.encode(command)?;
    Ok(output)
}

pub(crate) fn combine_runs(
    stream: &Stream,
    runs: &CombinedRuns,
    starts: &Buffer,
) -> Result<Option<(Launch, Buffer)>> {
    let CombinedRuns { mode, dtype, together, points, row, stride, first, base } = *runs;
    let of = if mode == 0 { word(dtype.size()) } else { type_name(dtype) };
    let entry = format!("combine_runs<{of}, {mode}, {together}>");
    let row = row / together;
    let shift = lanes_shift(row);
    let constants = Constants::default().sizes(&[points, row, first, base]);
    let constants = constants.long(stride as i64).long(i64::from(shift));
    let launch = launch(stream, TEXT, &entry, "", constants, points << shift)?;
    Ok(Some((launch, order(stream, starts, points)?)))
}

pub(crate) fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
    let CombinedSlices { mode, dtype, points, to, from, row, count, first, base, .. } = *slices;
    let of = if mode == 0 { word(dtype.size()) } else { type_name(dtype) };
    let (has_starts, has_links) = (slices.has_starts, slices.has_links);
    let entry = format!("combine_slices<{of}, {mode}, {has_starts}, {has_links}>");
    let constants = walk(walk(walk(Constants::default(), points), to), from).sizes(&[
        points.len(),
        to.len(),
        row,
        count,
        first,
        base,
    ]);
    launch(stream, TEXT, &entry, "", constants, count)
}
