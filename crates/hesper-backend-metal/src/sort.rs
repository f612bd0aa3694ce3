//! Sorts and searches.

use std::ops::Range;

use hesper_backend_gpu::{Launch, median};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::{Order, Sort};
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits, type_name};

const TEXT: &str = text!("sort.metal");
/// Most elements of a tile.
const TILE: usize = 1024;
/// Fewest: two for each lane of a SIMD group.
const MIN_TILE: usize = 64;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Sort>()
}

impl Lower<Sort> for MetalBackend {
    fn lower(op: &Sort, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if dtype == Dtype::Complex64 || !fits(l) {
            return Ok(None);
        }
        if matches!(op.order, Order::Middle) {
            return median(l);
        }
        // A sorted row is partitioned around any element.
        l.bring()?;
        let (stream, shape) = (l.stream(), l.input_shape(0));
        let length = shape[shape.len() - 1];
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let (input, output) = (l.row_major(0)?, l.output()?);
        if rows * length == 0 {
            stream.command("sort").write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let (bytes, _) = reach(&input, shape, dtype.size());
        SortRows { stream, dtype, rows, length }.encode((&input.buffer, bytes), &output, op.places)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// Rows to sort.
pub(crate) struct SortRows<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) dtype: Dtype,
    pub(crate) rows: usize,
    pub(crate) length: usize,
}

impl SortRows<'_> {
    /// Sorts contiguous rows, or gives the order of their elements (`places`), in which equal elements keep
    /// theirs.
    pub(crate) fn encode(
        &self,
        (input, bytes): (&Buffer, Range<usize>),
        output: &Buffer,
        places: bool,
    ) -> Result<()> {
        let SortRows { stream, dtype, rows, length } = *self;
        let of = type_name(dtype);
        let constants = |run: usize| Constants::default().sizes(&[length, run]);
        let passes = length.div_ceil(TILE).next_power_of_two().trailing_zeros() as usize;
        let scratch = [stream.alloc(rows * length * 4)?, stream.alloc(rows * length * 4)?];
        // The last order of an argsort is the output.
        let order = |pass: usize| if places && pass == passes { output } else { &scratch[pass % 2] };
        let tile = length.next_power_of_two().clamp(MIN_TILE, TILE);
        let entry = format!("sort_tiles<{of}, {places}, {tile}>");
        let command = stream.command("sort").read_range(input, bytes.clone()).write(order(0));
        let groups = [length.div_ceil(tile), rows, 1];
        let threads = (tile / 2).min(256);
        Kernel { text: TEXT, entry: &entry }.groups(stream, command, &constants(0), groups, threads)?;
        let entry = format!("merge_runs<{of}, {places}>");
        let (grid, threads) = ([length, rows, 1], [length.min(256) as u64, 1, 1]);
        for pass in 0..passes {
            let command = stream.command("merge").read_range(input, bytes.clone());
            let command = command.read(order(pass)).write(order(pass + 1));
            let kernel = Kernel { text: TEXT, entry: &entry };
            kernel.dispatch(stream, command, &constants(TILE << pass), grid, threads)?;
        }
        if !places {
            let entry = format!("sorted_elements<{of}>");
            let command = stream.command("sorted").read_range(input, bytes);
            let command = command.read(order(passes)).write(output);
            Kernel { text: TEXT, entry: &entry }.dispatch(stream, command, &constants(0), grid, threads)?;
        }
        Ok(())
    }
}

/// The kernel of binary search in a sorted row.
pub(crate) fn search(
    stream: &Stream,
    dtype: Dtype,
    right: bool,
    length: usize,
    count: usize,
) -> Result<Launch> {
    let entry = format!("search_sorted<{}, {right}>", type_name(dtype));
    Kernel { text: TEXT, entry: &entry }.for_elements(stream, Constants::default().sizes(&[length]), count)
}
