//! Searches in sorted rows, and medians.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::search::Search;
use hesper_core::{Array, Category, Dtype, Result, select};

use crate::walk::fits;
use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Search>()
}

impl<G: Gpu> Lower<Search> for Shared<G> {
    fn lower(op: &Search, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if dtype == Dtype::Complex64 || !fits::<G>(l) {
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
pub fn median(l: &mut Lowering<'_>) -> Result<Option<Data>> {
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
