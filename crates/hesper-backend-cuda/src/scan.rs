//! Cumulative sums, products and extremes. A few long rows are split into chunks: first their totals, then
//! each chunk from the total before it.

use std::ops::Range;

use hesper_runtime::{Buffer, Stream};

use crate::launch::{Constants, kernel, type_name};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::{Scan, ScanKind};
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::chip::multiprocessors;

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
        let of = type_name(dtype);
        let op = match scan.kind {
            ScanKind::Sum => format!("Sum<{of}>"),
            ScanKind::Product => format!("Product<{of}>"),
            ScanKind::LogSum => format!("LogSum<{of}>"),
            ScanKind::Max => format!("Extreme<{of}, true>"),
            ScanKind::Min => format!("Extreme<{of}, false>"),
        };
        let flags =
            |constants: Constants| constants.int(i32::from(scan.reverse)).int(i32::from(scan.inclusive));
        if inner > 1 {
            let pipeline = kernel(stream, TEXT, &format!("along_columns<{op}>"), "")?;
            let constants = Constants::default().long(outer as i64).long(length as i64).long(inner as i64);
            let blocks = (outer * inner).div_ceil(256) as u64;
            stream
                .command(name)
                .read_range(&x.buffer, bytes)
                .write(&output)
                .constants(flags(constants).bytes())
                .dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
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
            .long(self.length as i64)
            .long(chunk as i64)
            .long(self.length.div_ceil(chunk) as i64)
            .int(i32::from(self.reverse))
            .int(i32::from(self.inclusive))
            .int(i32::from(carried))
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
        let blocks = (self.rows * chunks) as u64;
        let packed =
            !self.reverse && bytes.start.is_multiple_of(16) && (self.length * self.size).is_multiple_of(16);
        let mut carries = None;
        if chunks > 1 {
            let totals = stream.alloc(self.rows * chunks * self.accumulator)?;
            let before = stream.alloc(self.rows * chunks * self.accumulator)?;
            let pipeline = kernel(stream, TEXT, &format!("along_rows<{op}, true, {packed}>"), "")?;
            stream
                .command(name)
                .read_range(x, bytes.clone())
                .read_range(x, bytes.clone())
                .write(&totals)
                .constants(self.constants(chunk, false).bytes())
                .dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
            let pipeline = kernel(stream, TEXT, &format!("carried<{op}>"), "")?;
            let sizes = Constants::default().long(self.rows as i64).long(chunks as i64);
            stream.command(name).read(&totals).write(&before).constants(sizes.bytes()).dispatch(
                &pipeline,
                [self.rows.div_ceil(256) as u64 * 256, 1, 1],
                [256, 1, 1],
            )?;
            carries = Some(before);
        }
        let pipeline = kernel(stream, TEXT, &format!("along_rows<{op}, false, {packed}>"), "")?;
        let command = stream.command(name).read_range(x, bytes.clone());
        let command = match &carries {
            Some(before) => command.read(before),
            // Bound in its place, and not read.
            None => command.read_range(x, bytes),
        };
        Ok(command.write(output).constants(self.constants(chunk, carries.is_some()).bytes()).dispatch(
            &pipeline,
            [blocks * 256, 1, 1],
            [256, 1, 1],
        )?)
    }
}
