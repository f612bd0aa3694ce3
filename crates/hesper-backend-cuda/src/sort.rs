//! Radix sort of rows: elements, or their indices.

use hesper_backend_gpu::{Launch, SortRows};
use hesper_core::Result;
use hesper_core::ops::command::Commands;
use hesper_runtime::{Buffer, Stream};

use crate::chip::Chip;
use crate::launch::{Constants, kernel, launch_blocks, type_name};
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
    let entry = format!("partitioned<{}, {places}>", type_name(dtype));
    let constants = Constants::default().long(length as i64).long(kth as i64);
    launch_blocks(stream, TEXT, &entry, &format!("shared {held}"), constants, rows as u64).map(Some)
}

/// Sorts rows; gives elements, or their indices.
pub(crate) fn sort(given: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()> {
    let SortRows { stream, dtype, rows, length, buffer, ref bytes } = *given;
    let size = dtype.size();
    let tiles = length.div_ceil(TILE);
    let scratch = |bytes: usize| -> Result<Buffer> { Ok(stream.alloc(bytes)?) };
    let keys = [scratch(rows * length * size)?, scratch(rows * length * size)?];
    let order = match places {
        true => [scratch(rows * length * 4)?, scratch(rows * length * 4)?],
        false => [scratch(0)?, scratch(0)?],
    };
    let pass = Pass { stream, of: type_name(dtype), size, places, rows, length, tiles };
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
    of: &'static str,
    /// Bytes of a key.
    size: usize,
    places: bool,
    rows: usize,
    length: usize,
    tiles: usize,
}

/// A buffer and the bytes of it that are read.
type Read<'a> = (&'a Buffer, std::ops::Range<usize>);

impl Pass<'_> {
    fn constants(&self, digit: usize) -> Constants {
        Constants::default().long(self.length as i64).long(self.tiles as i64).int(8 * digit as i32)
    }

    fn grid(&self) -> [u64; 3] {
        [(self.rows * self.tiles * 256) as u64, 1, 1]
    }

    fn count(&self, (from, range): Read<'_>, counts: &Buffer, digit: usize, first: bool) -> Result<()> {
        let entry = format!("counted<{}, {}, {first}>", self.of, self.places);
        let pipeline = kernel(self.stream, TEXT, &entry, "")?;
        let command = self.stream.command("sort counts").read_range(from, range).write(counts);
        Ok(command.constants(self.constants(digit).bytes()).dispatch(&pipeline, self.grid(), [256, 1, 1])?)
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
        let entry = format!("moved<{}, {}, {first}, {last}>", self.of, self.places);
        // A tile of keys, and of places.
        let shared = TILE * self.size + if self.places { TILE * 4 } else { 0 };
        let pipeline = kernel(self.stream, TEXT, &entry, &format!("shared {shared}"))?;
        let command = self.stream.command("sort").read_range(from, range);
        // Indices that do not exist yet are bound as the counts, and not read.
        let known = self.places && !first;
        let command = command.read(if known { order } else { starts }).read(starts).write(to);
        let command = command.write(placed);
        Ok(command.constants(self.constants(digit).bytes()).dispatch(&pipeline, self.grid(), [256, 1, 1])?)
    }
}
