//! A norm, products with packed matrices and an epilogue, as one command.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::composite::packed_layer::PackedLayer;

use crate::Cuda;
use crate::inputs::is_aligned;
use crate::norm::held;
use crate::packed::{Products, Way};

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<PackedLayer>()
}

impl Lower<PackedLayer> for Cuda {
    /// The norm is a command of its own where the kernel would sum its squares in another order, or takes
    /// none.
    fn lower(op: &PackedLayer, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let mut products = Products { norm: None, matrices: &op.matrices, end: op.end };
        let Some(way) = products.way(l) else { return Ok(None) };
        if let Some(eps) = op.eps {
            let length = l.input_shape(0).last().copied().unwrap_or(0);
            let threads =
                held(length / 4).filter(|_| way == Way::Qmv && is_aligned(l, 0) && is_aligned(l, 1));
            let Some((threads, _)) = threads else {
                let shape = l.shape().to_vec();
                return compose(l, |inputs| op.after_norm(inputs, &shape));
            };
            products.norm = Some((eps.0, threads));
        }
        products.lower(l, way).map(Some)
    }
}
