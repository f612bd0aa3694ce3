//! Running sums, products and extremes on GPUs. A few long rows are cut into chunks: their totals first,
//! then each chunk behind what comes before it.

use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::native::reach;

const TEXT: &str = include_str!("scan.cuh");
/// Elements of a chunk.
const CHUNK: usize = 16384;
/// Rows that keep a large device busy.
const BUSY: usize = 264;

/// What elements are combined by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    Sum,
    Product,
    Max,
    Min,
}

/// A scan along an axis.
pub(crate) struct Scan {
    pub(crate) combine: Combine,
    pub(crate) along: usize,
    pub(crate) reverse: bool,
    pub(crate) inclusive: bool,
}

impl Scan {
    pub(crate) fn lower(&self, name: &'static str, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        if dtype == Dtype::Complex64 || dtype == Dtype::Bool {
            return Ok(None);
        }
        l.bring()?;
        let (stream, shape) = (l.stream(), l.shape());
        let x = l.row_major(0)?;
        let output = l.output()?;
        let outer: usize = shape[..self.along].iter().product();
        let inner: usize = shape[self.along + 1..].iter().product();
        let length = shape[self.along];
        let (bytes, _) = reach(&x, shape, dtype.size());
        if outer * inner * length == 0 {
            stream.encode(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let of = type_name(dtype);
        let op = match self.combine {
            Combine::Sum => format!("Sum<{of}>"),
            Combine::Product => format!("Product<{of}>"),
            Combine::Max => format!("Extreme<{of}, true>"),
            Combine::Min => format!("Extreme<{of}, false>"),
        };
        let flags =
            |constants: Constants| constants.int(i32::from(self.reverse)).int(i32::from(self.inclusive));
        if inner > 1 {
            let pipeline = kernel(stream, TEXT, &format!("along_columns<{op}>"), "")?;
            let constants = Constants::default().long(outer as i64).long(length as i64).long(inner as i64);
            let blocks = (outer * inner).div_ceil(256) as u64;
            stream
                .encode(name)
                .read_range(&x.buffer, bytes)
                .write(&output)
                .constants(flags(constants).bytes())
                .dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let accumulator = dtype.size().max(if dtype.size() == 2 { 4 } else { 1 });
        let chunk = if outer < BUSY && length > 2 * CHUNK { CHUNK } else { length };
        let chunks = length.div_ceil(chunk);
        let constants = || {
            let sizes = Constants::default().long(length as i64).long(chunk as i64).long(chunks as i64);
            flags(sizes)
        };
        let blocks = (outer * chunks) as u64;
        let mut carries = None;
        if chunks > 1 {
            let totals = stream.alloc(outer * chunks * accumulator)?;
            let before = stream.alloc(outer * chunks * accumulator)?;
            let pipeline = kernel(stream, TEXT, &format!("along_rows<{op}, true>"), "")?;
            stream
                .encode(name)
                .read_range(&x.buffer, bytes.clone())
                .read_range(&x.buffer, bytes.clone())
                .write(&totals)
                .constants(constants().int(0).bytes())
                .dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
            let pipeline = kernel(stream, TEXT, &format!("carried<{op}>"), "")?;
            let sizes = Constants::default().long(outer as i64).long(chunks as i64);
            stream.encode(name).read(&totals).write(&before).constants(sizes.bytes()).dispatch(
                &pipeline,
                [outer.div_ceil(256) as u64 * 256, 1, 1],
                [256, 1, 1],
            )?;
            carries = Some(before);
        }
        let pipeline = kernel(stream, TEXT, &format!("along_rows<{op}, false>"), "")?;
        let command = stream.encode(name).read_range(&x.buffer, bytes.clone());
        let command = match &carries {
            Some(before) => command.read(before),
            // Bound in its place, and not read.
            None => command.read_range(&x.buffer, bytes),
        };
        command.write(&output).constants(constants().int(i32::from(carries.is_some())).bytes()).dispatch(
            &pipeline,
            [blocks * 256, 1, 1],
            [256, 1, 1],
        )?;
        Ok(Some(Data::contiguous(output, shape)))
    }
}
