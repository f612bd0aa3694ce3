//! Radix sort of rows: elements, or their indices.

use hesper_backend_gpu::{Launch, SortRows};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Encoder, Stream};

use crate::chip::Chip;
use crate::launch::{Constants, Kernel, shared};
use crate::scan::running_counts;

const TEXT: &str = include_str!("sort.cuh");
/// Keys of a block.
const TILE: usize = 4096;
/// Shared memory of a block that partitions a row, in bytes, besides the row.
const OTHER_SHARED: usize = 12 << 10;

/// A block partitions a row that its shared memory holds.
pub(crate) fn partition(given: &SortRows<'_>, kth: usize, places: bool) -> Result<Option<Launch>> {
    let SortRows { stream, dtype, rows, length, .. } = *given;
    let held = length * dtype.size();
    let most = Chip::of(stream).map_or(0, |chip| chip.shared.saturating_sub(OTHER_SHARED));
    if held > most {
        return Ok(None);
    }
    let kernel = Kernel::new(stream, TEXT, "partitioned").of(dtype).of(places).option(shared(held));
    kernel.groups(Constants::default().sizes(&[length, kth]), [rows, 1, 1], 256).map(Some)
}

/// Warps of a block that sorts a row in shared memory, and keys of a thread; `None` for longer rows.
fn row_block(length: usize) -> Option<(usize, usize)> {
    /// The most keys of a thread: more do not fit into registers.
    const MAX_KEYS: usize = 16;
    /// The most warps: their counts of digits take a KiB each.
    const MAX_WARPS: usize = 16;
    let keys = length.div_ceil(32).next_power_of_two().min(MAX_KEYS);
    let warps = length.div_ceil(32 * keys).next_power_of_two();
    (warps <= MAX_WARPS).then_some((warps, keys))
}

/// A block sorts a row that its shared memory holds.
fn sort_in_blocks(given: &SortRows<'_>, places: bool) -> Result<Option<Launch>> {
    let SortRows { stream, dtype, rows, length, .. } = *given;
    let Some((warps, keys)) = row_block(length) else { return Ok(None) };
    let held = 32 * warps * keys * (dtype.size() + if places { 4 } else { 0 });
    // Counts of digits come besides.
    if Chip::of(stream).is_none_or(|chip| held + (warps + 1) * 1024 > chip.shared) {
        return Ok(None);
    }
    let kernel = Kernel::new(stream, TEXT, "sorted").of(dtype).of(places).of(warps).of(keys);
    let kernel = kernel.option(shared(held));
    kernel.groups(Constants::default().sizes(&[length]), [rows, 1, 1], 32 * warps).map(Some)
}

/// Sorts rows; gives elements, or their indices.
pub(crate) fn sort(given: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()> {
    let SortRows { stream, dtype, rows, length, buffer, ref bytes } = *given;
    if let Some(launch) = sort_in_blocks(given, places)? {
        let command = stream.command("sort").read_range(buffer, bytes.clone()).write(output);
        return launch.encode(command);
    }
    let size = dtype.size();
    let tiles = length.div_ceil(TILE);
    let scratch = |bytes: usize| -> Result<Buffer> { Ok(stream.alloc(bytes)?) };
    let keys = [scratch(rows * length * size)?, scratch(rows * length * size)?];
    let order = match places {
        true => [scratch(rows * length * 4)?, scratch(rows * length * 4)?],
        false => [scratch(0)?, scratch(0)?],
    };
    let pass = Pass { stream, dtype, places, rows, length, tiles };
    for digit in 0..size {
        let (first, last) = (digit == 0, digit + 1 == size);
        let counts = scratch(rows * 256 * tiles * 4)?;
        let (from, range) = match first {
            true => (buffer, bytes.clone()),
            false => (&keys[digit % 2], 0..rows * length * size),
        };
        pass.count((from, range.clone()), &counts, digit, first)?;
        let starts = running_counts(stream, &counts, rows, 256 * tiles)?;
        let to = if last && !places { output } else { &keys[(digit + 1) % 2] };
        let placed = if last && places { output } else { &order[(digit + 1) % 2] };
        pass.move_keys((from, range), &order[digit % 2], &starts, to, placed, digit, [first, last])?;
    }
    Ok(())
}

struct Pass<'a> {
    stream: &'a Stream,
    dtype: Dtype,
    places: bool,
    rows: usize,
    length: usize,
    tiles: usize,
}

/// A buffer and the bytes of it that are read.
type Read<'a> = (&'a Buffer, std::ops::Range<usize>);

impl Pass<'_> {
    fn kernel(&self, name: &str, first: bool) -> Kernel<'_> {
        Kernel::new(self.stream, TEXT, name).of(self.dtype).of(self.places).of(first)
    }

    fn encode(&self, kernel: Kernel<'_>, digit: usize, command: Encoder<'_>) -> Result<()> {
        let constants = Constants::default().sizes(&[self.length, self.tiles]).int(8 * digit as i32);
        kernel.groups(constants, [self.rows * self.tiles, 1, 1], 256)?.encode(command)
    }

    fn count(&self, (from, range): Read<'_>, counts: &Buffer, digit: usize, first: bool) -> Result<()> {
        let command = self.stream.command("sort counts").read_range(from, range).write(counts);
        self.encode(self.kernel("counted", first), digit, command)
    }

    #[allow(clippy::too_many_arguments, reason = "what one pass reads and writes")]
    fn move_keys(
        &self,
        (from, range): Read<'_>,
        order: &Buffer,
        starts: &Buffer,
        to: &Buffer,
        placed: &Buffer,
        digit: usize,
        [first, last]: [bool; 2],
    ) -> Result<()> {
        // A tile of keys, and of places.
        let tile = TILE * self.dtype.size() + if self.places { TILE * 4 } else { 0 };
        let command = self.stream.command("sort").read_range(from, range);
        // Indices that do not exist yet are bound as the counts, and not read.
        let known = self.places && !first;
        let command = command.read(if known { order } else { starts }).read(starts).write(to);
        let command = command.write(placed);
        self.encode(self.kernel("moved", first).of(last).option(shared(tile)), digit, command)
    }
}

#[cfg(test)]
mod tests {
    use super::row_block;

    #[test]
    fn a_block_has_room_for_its_row() {
        for length in 1..=8192 {
            let (warps, keys) = row_block(length).unwrap();
            assert!((length..2 * length + 32).contains(&(32 * warps * keys)), "{length}: {warps}, {keys}");
        }
        assert_eq!(
            (row_block(30), row_block(600), row_block(8192)),
            (Some((1, 1)), Some((2, 16)), Some((16, 16)))
        );
        assert_eq!(row_block(8193), None);
    }
}
