//! Cumulative sums, products and extremes. A few long rows are split into chunks: first their totals, then
//! each chunk from the total before it.

use std::ops::Range;

use hesper_runtime::{Buffer, Stream};

use hesper_backend_gpu::scan_instance;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::Scan;
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::chip::multiprocessors;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("scan.cuh");
/// Elements of a chunk.
const CHUNK: usize = 16384;
/// Rows per multiprocessor that occupy the device.
const ROWS_PER_MULTIPROCESSOR: usize = 2;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Scan>()
}

impl Lower<Scan> for Cuda {
    fn lower(scan: &Scan, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (name, dtype) = (scan.name(), l.dtype());
        if dtype == Dtype::Complex64 || dtype == Dtype::Bool {
            return Ok(None);
        }
        l.bring()?;
        let (stream, shape) = (l.stream(), l.shape());
        let x = l.row_major(0)?;
        let output = l.output()?;
        let outer: usize = shape[..scan.along].iter().product();
        let inner: usize = shape[scan.along + 1..].iter().product();
        let length = shape[scan.along];
        let (bytes, _) = reach(&x, shape, dtype.size());
        if outer * inner * length == 0 {
            stream.command(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let op = scan_instance::<Cuda>(scan.kind, dtype);
        if inner > 1 {
            let constants = Constants::default().sizes(&[outer, length, inner]);
            let constants = constants.flag(scan.reverse).flag(scan.inclusive);
            let kernel = Kernel::new(stream, TEXT, "along_columns").of(&op);
            let command = stream.command(name).read_range(&x.buffer, bytes).write(&output);
            kernel.groups(constants, [(outer * inner).div_ceil(256), 1, 1], 256)?.encode(command)?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let rows = ScanRows {
            stream,
            name,
            op,
            accumulator: dtype.size().max(if dtype.size() == 2 { 4 } else { 1 }),
            size: dtype.size(),
            rows: outer,
            length,
            reverse: scan.reverse,
            inclusive: scan.inclusive,
        };
        rows.encode(&x.buffer, bytes, &output)?;
        Ok(Some(Data::contiguous(output, shape)))
    }
}

/// The exclusive prefix sums of counts, row by row.
pub(crate) fn running_counts(stream: &Stream, counts: &Buffer, rows: usize, length: usize) -> Result<Buffer> {
    let output = stream.alloc(rows * length * 4)?;
    let op = "Sum<u32>".to_string();
    let (reverse, inclusive) = (false, false);
    let name = "running counts";
    let scan = ScanRows { stream, name, op, accumulator: 4, size: 4, rows, length, reverse, inclusive };
    scan.encode(counts, 0..rows * length * 4, &output)?;
    Ok(output)
}

/// A scan of rows that lie one after the other.
struct ScanRows<'a> {
    stream: &'a Stream,
    name: &'static str,
    op: String,
    /// Bytes of an accumulator.
    accumulator: usize,
    /// Bytes of an element.
    size: usize,
    rows: usize,
    length: usize,
    reverse: bool,
    inclusive: bool,
}

impl ScanRows<'_> {
    fn constants(&self, chunk: usize, carried: bool) -> Constants {
        Constants::default()
            .sizes(&[self.length, chunk, self.length.div_ceil(chunk)])
            .flag(self.reverse)
            .flag(self.inclusive)
            .flag(carried)
    }

    fn encode(&self, x: &Buffer, bytes: Range<usize>, output: &Buffer) -> Result<()> {
        let (stream, name, op) = (self.stream, self.name, &self.op);
        let chunk =
            if self.rows < ROWS_PER_MULTIPROCESSOR * multiprocessors(stream) && self.length > 2 * CHUNK {
                CHUNK
            } else {
                self.length
            };
        let chunks = self.length.div_ceil(chunk);
        let groups = [self.rows * chunks, 1, 1];
        let packed =
            !self.reverse && bytes.start.is_multiple_of(16) && (self.length * self.size).is_multiple_of(16);
        let along = |totals: bool| Kernel::new(stream, TEXT, "along_rows").of(op).of(totals).of(packed);
        let mut carries = None;
        if chunks > 1 {
            let totals = stream.alloc(self.rows * chunks * self.accumulator)?;
            let before = stream.alloc(self.rows * chunks * self.accumulator)?;
            let command = stream.command(name).read_range(x, bytes.clone()).read_range(x, bytes.clone());
            along(true).groups(self.constants(chunk, false), groups, 256)?.encode(command.write(&totals))?;
            let command = stream.command(name).read(&totals).write(&before);
            let kernel = Kernel::new(stream, TEXT, "carried").of(op);
            let sizes = Constants::default().sizes(&[self.rows, chunks]);
            kernel.groups(sizes, [self.rows.div_ceil(256), 1, 1], 256)?.encode(command)?;
            carries = Some(before);
        }
        let command = stream.command(name).read_range(x, bytes.clone());
        let command = match &carries {
            Some(before) => command.read(before),
            // Bound in its place, and not read.
            None => command.read_range(x, bytes),
        };
        let constants = self.constants(chunk, carries.is_some());
        along(false).groups(constants, groups, 256)?.encode(command.write(output))
    }
}
