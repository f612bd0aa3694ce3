//! Cumulative sums, products and extremes. A few long rows are split into chunks: first their totals, then
//! each chunk from the total before it.

use hesper_runtime::{Buffer, Stream};

use hesper_backend_gpu::{Sink, Source, scan_instance};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::Scan;
use hesper_core::{Dtype, Error, Result, Shape};

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
        if !takes(dtype) {
            return Ok(None);
        }
        l.bring()?;
        let shape: Shape = l.shape().into();
        let outer: usize = shape[..scan.along].iter().product();
        let inner: usize = shape[scan.along + 1..].iter().product();
        let length = shape[scan.along];
        if outer * inner * length == 0 {
            let output = l.output()?;
            l.stream().command(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, &shape)));
        }
        let source = Source::row_major(l)?;
        let sink = Sink::of(l, source.reads())?;
        let stream = l.stream().clone();
        let op = scan_instance::<Cuda>(scan.kind, dtype);
        let output = if inner > 1 {
            let constants = Constants::default().sizes(&[outer, length, inner]);
            let constants = constants.flag(scan.reverse).flag(scan.inclusive);
            let kernel = Kernel::new(&stream, TEXT, "along_columns").of(&op);
            let kernel = kernel.slot(source.slot()).epilogue(sink.slot());
            let grid = [(outer * inner).div_ceil(256) * 256, 1, 1];
            match kernel.try_threads(constants, grid, [256, 1, 1])? {
                Some(launch) => {
                    let output = sink.output(l)?;
                    launch.encode(sink.bind(source.bind(stream.command(name)), &output))?;
                    Some(output)
                }
                None => None,
            }
        } else {
            let rows = ScanRows {
                stream: &stream,
                name,
                op,
                accumulator: dtype.size().max(if dtype.size() == 2 { 4 } else { 1 }),
                size: dtype.size(),
                rows: outer,
                length,
                reverse: scan.reverse,
                inclusive: scan.inclusive,
            };
            rows.encode(&source, &sink, || sink.output(l))?
        };
        match output {
            Some(output) => Ok(Some(Data::contiguous(output, &shape))),
            None => {
                l.materialize()?;
                l.without_epilogue();
                Self::lower(scan, l)
            }
        }
    }

    fn takes_rows(_: &Scan, _: &[usize], dtype: Dtype) -> bool {
        takes(dtype)
    }

    fn takes_epilogue(_: &Scan, _: &[usize], dtype: Dtype) -> bool {
        takes(dtype)
    }
}

/// Whether there are kernels for a type of elements.
fn takes(dtype: Dtype) -> bool {
    dtype != Dtype::Complex64 && dtype != Dtype::Bool
}

/// The exclusive prefix sums of counts, row by row.
pub(crate) fn running_counts(stream: &Stream, counts: &Buffer, rows: usize, length: usize) -> Result<Buffer> {
    let op = "Sum<u32>".to_string();
    let (reverse, inclusive) = (false, false);
    let name = "running counts";
    let scan = ScanRows { stream, name, op, accumulator: 4, size: 4, rows, length, reverse, inclusive };
    let source = Source::Memory(Data::contiguous(counts.clone(), &[rows, length]), 0..rows * length * 4);
    let output = || Ok(stream.alloc(rows * length * 4)?);
    scan.encode(&source, &Sink::memory(), output)?
        .ok_or_else(|| Error::value(name, "internal error: a kernel is not compiled"))
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

    /// Encodes the scan to the buffer that `output` gives; `None` if a kernel with its slots is not compiled.
    fn encode(
        &self,
        source: &Source,
        sink: &Sink,
        output: impl FnOnce() -> Result<Buffer>,
    ) -> Result<Option<Buffer>> {
        let (stream, name, op) = (self.stream, self.name, &self.op);
        let chunk =
            if self.rows < ROWS_PER_MULTIPROCESSOR * multiprocessors(stream) && self.length > 2 * CHUNK {
                CHUNK
            } else {
                self.length
            };
        let chunks = self.length.div_ceil(chunk);
        if chunks > 1 && !source.is_cheap() {
            return Ok(None);
        }
        let packed = !self.reverse && source.is_aligned() && (self.length * self.size).is_multiple_of(16);
        let along = |totals: bool| {
            let kernel = Kernel::new(stream, TEXT, "along_rows").of(op).of(totals).of(packed);
            let (grid, constants) =
                ([self.rows * chunks * 256, 1, 1], self.constants(chunk, !totals && chunks > 1));
            let epilogue = if totals { None } else { sink.slot() };
            kernel.slot(source.slot()).epilogue(epilogue).try_threads(constants, grid, [256, 1, 1])
        };
        let totals = if chunks > 1 { along(true)? } else { None };
        let (Some(launch), true) = (along(false)?, totals.is_some() || chunks == 1) else { return Ok(None) };
        let output = output()?;
        let mut carries = None;
        if let Some(launch) = totals {
            let totals = stream.alloc(self.rows * chunks * self.accumulator)?;
            let before = stream.alloc(self.rows * chunks * self.accumulator)?;
            let command = source.bind_unused(source.bind(stream.command(name)));
            launch.encode(command.write(&totals))?;
            let command = stream.command(name).read(&totals).write(&before);
            let kernel = Kernel::new(stream, TEXT, "carried").of(op);
            let sizes = Constants::default().sizes(&[self.rows, chunks]);
            kernel.groups(sizes, [self.rows.div_ceil(256), 1, 1], 256)?.encode(command)?;
            carries = Some(before);
        }
        let command = source.bind(stream.command(name));
        let command = match &carries {
            Some(before) => command.read(before),
            None => source.bind_unused(command),
        };
        launch.encode(sink.bind(command, &output))?;
        Ok(Some(output))
    }
}
