//! The cross entropy of rows of logits with target indices, as a graph of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::norm::{CrossEntropy, CrossEntropyGradient};
use hesper_core::{Array, Dtype, Error, Result, select};

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, CrossEntropy>().with_shared::<Shared<G>, CrossEntropyGradient>()
}

impl<G: Gpu> Lower<CrossEntropy> for Shared<G> {
    fn lower(_: &CrossEntropy, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, cross_entropy)
    }
}

impl<G: Gpu> Lower<CrossEntropyGradient> for Shared<G> {
    fn lower(_: &CrossEntropyGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, CrossEntropyGradient::composed)
    }
}

fn cross_entropy(inputs: &[Array]) -> Result<Array> {
    let [logits, targets] = inputs else { return Err(Error::value("cross_entropy", "two inputs expected")) };
    let wide = if logits.dtype().size() < 4 { Dtype::Float32 } else { logits.dtype() };
    let classes = logits.shape()[logits.ndim() - 1] as f64;
    // Convert after the gather: then only the reduction reads converted logits, and they are not stored.
    let chosen = logits.take_along_axis(&targets.expand_dims(-1)?, Some(-1))?.squeeze(-1)?.astype(wide)?;
    let losses = logits.astype(wide)?.logsumexp(-1)?.subtract(chosen)?;
    let known = targets.less(classes as i64)?.logical_and(targets.greater_equal(-(classes as i64))?)?;
    let none = Array::scalar(f64::NAN, losses.dtype())?;
    select(&known, &losses, &none)?.astype(Dtype::Float32)
}
