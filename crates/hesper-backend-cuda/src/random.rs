//! Random bits of a key, rows in random order, and choices.

use crate::launch::{Constants, blocks, kernel};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::{Bits, Choose, PermuteRows};
use hesper_core::{Array, Error, Result, select};

use crate::Cuda;

const TEXT: &str = include_str!("random.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Bits>().with::<Choose>().with::<PermuteRows>()
}

impl Lower<Bits> for Cuda {
    fn lower(_: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let (key, output) = (l.row_major(0)?, l.output()?);
        let n = output.len() / 4;
        let start = key.offset as usize * 4;
        let command =
            l.stream().command("random bits").read_range(&key.buffer, start..start + 8).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let pipeline = kernel(l.stream(), TEXT, "random_bits<u32>", "")?;
        let constants = Constants::default().long(n as i64);
        command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks(n.div_ceil(2)) * 256, 1, 1],
            [256, 1, 1],
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<Choose> for Cuda {
    fn lower(_: &Choose, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, choose)
    }
}

impl Lower<PermuteRows> for Cuda {
    fn lower(_: &PermuteRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, permuted)
    }
}

/// The index of the largest element of each row that is not NaN.
fn choose(inputs: &[Array]) -> Result<Array> {
    let logits = &inputs[0];
    let low = Array::scalar(f64::NEG_INFINITY, logits.dtype())?;
    select(&logits.isnan()?, &low, logits)?.argmax(-1)
}

/// Rows in the order that sorts random words.
fn permuted(inputs: &[Array]) -> Result<Array> {
    let [rows, words] = inputs else { return Err(Error::value("permutation", "two inputs expected")) };
    rows.take(words.argsort(Some(0))?, Some(0))
}
