//! A norm, products with packed matrices and an epilogue, as one command.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::packed_layer::PackedLayer;

use crate::Cuda;
use crate::chip::has_bf16_mma;
use crate::packed::Products;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<PackedLayer>()
}

impl Lower<PackedLayer> for Cuda {
    fn lower(op: &PackedLayer, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let products = Products { eps: op.eps.map(|eps| eps.0), matrices: &op.matrices, end: op.end };
        if let Some(data) = products.lower(l)? {
            return Ok(Some(data));
        }
        if op.eps.is_some() && has_bf16_mma(l.stream()) {
            return compose(l, |inputs| op.after_norm(inputs));
        }
        compose(l, |inputs| op.composed(inputs))
    }
}
