//! Sorts and searches.

use hesper_backend_gpu::{Launch, SortRows};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("sort.metal");
/// Most elements of a tile.
const TILE: usize = 1024;
/// Fewest: two for each lane of a SIMD group.
const MIN_TILE: usize = 64;

/// Sorts rows: their elements, or the order of these (`places`), in which equal elements keep theirs.
pub(crate) fn sort(given: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()> {
    let SortRows { stream, dtype, rows, length, buffer: input, ref bytes } = *given;
    let constants = |run: usize| Constants::default().sizes(&[length, run]);
    let passes = length.div_ceil(TILE).next_power_of_two().trailing_zeros() as usize;
    let scratch = [stream.alloc(rows * length * 4)?, stream.alloc(rows * length * 4)?];
    // The last order of an argsort is the output.
    let order = |pass: usize| if places && pass == passes { output } else { &scratch[pass % 2] };
    let tile = length.next_power_of_two().clamp(MIN_TILE, TILE);
    let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(dtype);
    let command = stream.command("sort").read_range(input, bytes.clone()).write(order(0));
    let groups = [length.div_ceil(tile), rows, 1];
    let threads = (tile / 2).min(256);
    kernel("sort_tiles").of(places).of(tile).groups(constants(0), groups, threads)?.encode(command)?;
    let (grid, threads) = ([length, rows, 1], [length.min(256), 1, 1]);
    for pass in 0..passes {
        let command = stream.command("merge").read_range(input, bytes.clone());
        let command = command.read(order(pass)).write(order(pass + 1));
        let launch = kernel("merge_runs").of(places).threads(constants(TILE << pass), grid, threads)?;
        launch.encode(command)?;
    }
    if !places {
        let command = stream.command("sorted").read_range(input, bytes.clone());
        let command = command.read(order(passes)).write(output);
        kernel("sorted_elements").threads(constants(0), grid, threads)?.encode(command)?;
    }
    Ok(())
}

/// The kernel of binary search in a sorted row.
pub(crate) fn search(
    stream: &Stream,
    dtype: Dtype,
    right: bool,
    length: usize,
    count: usize,
) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, "search_sorted").of(dtype).of(right);
    kernel.elements(Constants::default().sizes(&[length]), count)
}
