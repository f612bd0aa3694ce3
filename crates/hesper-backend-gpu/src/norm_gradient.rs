//! The derivative of norms, as a graph of other ops.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::norm_gradient::NormGradient;

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, NormGradient>()
}

impl<G: Gpu> Lower<NormGradient> for Shared<G> {
    fn lower(op: &NormGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, |inputs| op.composed(inputs))
    }
}
