//! Binary search in sorted rows.

use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::sort::search::Search;
use hesper_core::{Dtype, Result};

use crate::Cuda;

const TEXT: &str = concat!(include_str!("sort.cuh"), include_str!("search.cuh"));

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Search>()
}

impl Lower<Search> for Cuda {
    fn lower(op: &Search, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        if dtype == Dtype::Complex64 {
            return Ok(None);
        }
        l.bring()?;
        let (row, values, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let (row_bytes, _) = reach(&row, l.input_shape(0), dtype.size());
        let (value_bytes, _) = reach(&values, l.input_shape(1), dtype.size());
        let n: usize = l.shape().iter().product();
        let command = l.stream().command("searchsorted").read_range(&row.buffer, row_bytes);
        let command = command.read_range(&values.buffer, value_bytes).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let pipeline =
            kernel(l.stream(), TEXT, &format!("searched<{}, {}>", type_name(dtype), op.right), "")?;
        let constants = Constants::default().long(l.input_shape(0)[0] as i64).long(n as i64);
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
