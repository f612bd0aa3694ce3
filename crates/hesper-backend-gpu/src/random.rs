//! Random bits; rows in random order, and choices, as graphs of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::{Bits, Choose, PermuteRows};
use hesper_core::{Array, Error, Result, select};

use crate::walk::fits;
use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    let table = table.with_shared::<Shared<G>, Bits>();
    table.with_shared::<Shared<G>, Choose>().with_shared::<Shared<G>, PermuteRows>()
}

impl<G: Gpu> Lower<Bits> for Shared<G> {
    fn lower(_: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let words = l.shape().iter().product::<usize>() * l.dtype().size() / 4;
        if !fits::<G>(l) || words >= G::MAX_ELEMENTS {
            return Ok(None);
        }
        l.bring()?;
        let (key, output) = (l.row_major(0)?, l.output()?);
        let words = output.len() / 4;
        let start = key.offset as usize * 4;
        let command =
            l.stream().command("random bits").read_range(&key.buffer, start..start + 8).write(&output);
        if words == 0 {
            command.run(|_| Ok(()))?;
        } else {
            G::random_bits(l.stream(), words)?.encode(command)?;
        }
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl<G: Gpu> Lower<Choose> for Shared<G> {
    fn lower(_: &Choose, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, choose)
    }
}

impl<G: Gpu> Lower<PermuteRows> for Shared<G> {
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
