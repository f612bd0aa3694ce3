//! Sorts, medians, and searches in sorted rows.

use std::ops::Range;

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::search::Search;
use hesper_core::ops::sort::{Order, Sort};
use hesper_core::{Array, Category, Dtype, Result, select};
use hesper_runtime::{Buffer, Stream};

use crate::walk::fits;
use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Search>().with_shared::<Shared<G>, Sort>()
}

/// Contiguous rows to sort, in a range of bytes of a buffer.
pub struct SortRows<'a> {
    /// The stream.
    pub stream: &'a Stream,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The number of rows.
    pub rows: usize,
    /// The elements of a row.
    pub length: usize,
    /// The buffer.
    pub buffer: &'a Buffer,
    /// The bytes of the rows.
    pub bytes: Range<usize>,
}

impl<G: Gpu> Lower<Sort> for Shared<G> {
    fn lower(op: &Sort, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let length = l.input_shape(0).last().copied().unwrap_or(1);
        let complex = dtype == Dtype::Complex64;
        let taken = !complex || (G::SORTS_COMPLEX && op.order != Order::Middle);
        if !taken || !fits::<G>(l) || length >= 1 << 31 {
            return Ok(None);
        }
        let around = match op.order {
            Order::Sorted => None,
            Order::Around(kth) => Some(kth),
            Order::Middle => return median(l),
        };
        l.bring()?;
        let (stream, shape) = (l.stream(), l.input_shape(0));
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let (input, output) = (l.row_major(0)?, l.output()?);
        if rows * length == 0 {
            stream.command("sort").write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let (bytes, _) = reach(&input, shape, dtype.size());
        let given = SortRows { stream, dtype, rows, length, buffer: &input.buffer, bytes };
        let partition = around.map(|kth| G::partition(&given, kth, op.places)).transpose()?;
        match partition.flatten() {
            Some(launch) => {
                let command = stream.command("partition").read_range(given.buffer, given.bytes);
                launch.encode(command.write(&output))?;
            }
            // A sorted row is partitioned around any element.
            None => G::sort(&given, &output, op.places)?,
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl<G: Gpu> Lower<Search> for Shared<G> {
    fn lower(op: &Search, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if (dtype == Dtype::Complex64 && !G::SORTS_COMPLEX) || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let (row, values, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let (row_bytes, _) = reach(&row, l.input_shape(0), dtype.size());
        let (value_bytes, _) = reach(&values, l.input_shape(1), dtype.size());
        let command = l.stream().command("searchsorted").read_range(&row.buffer, row_bytes);
        let command = command.read_range(&values.buffer, value_bytes).write(&output);
        let count: usize = l.shape().iter().product();
        if count == 0 {
            command.run(|_| Ok(()))?;
        } else {
            G::search(l.stream(), dtype, op.right, l.input_shape(0)[0], count)?.encode(command)?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// Lowers the median of each row: the middle element, or the mean of the two in the middle; NaN if the row
/// has one.
fn median(l: &mut Lowering<'_>) -> Result<Option<Data>> {
    compose(l, |inputs: &[Array]| {
        let x = &inputs[0];
        let (last, length) = (x.ndim() - 1, x.shape()[x.ndim() - 1] as isize);
        // NaN is last.
        let sorted = x.sort(Some(-1))?;
        let middle = sorted.slice_axis(last, (length - 1) / 2, length / 2 + 1, 1)?.mean(-1)?;
        if !x.dtype().is(Category::Inexact) {
            return Ok(middle);
        }
        let end = sorted.slice_axis(last, length - 1, length, 1)?.squeeze(-1)?;
        select(&end.isnan()?, &end, &middle)
    })
}
