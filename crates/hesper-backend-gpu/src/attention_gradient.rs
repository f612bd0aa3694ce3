//! The derivative of attention, as a graph of other ops.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::attention::AttentionGradient;

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, AttentionGradient>()
}

impl<G: Gpu> Lower<AttentionGradient> for Shared<G> {
    fn lower(op: &AttentionGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, |inputs| op.composed(inputs))
    }
}
