//! Composite ops: several ops as one command.
//!
//! No function makes them. The planner puts one in the place of the ops that it stands for
//! (`eval/patterns.rs`), on streams whose backend has an implementation, and only where the result has the
//! same bits. So an implementation rounds wherever the ops round. One that declines its inputs is replaced by
//! the graph of these ops, [`Composite::composed`].

pub mod add_norm;
pub mod packed_layer;
pub mod rope_attention;
pub mod rope_update;
pub mod row_products;
pub mod silu_gate;

use std::any::TypeId;

use super::Op;
use crate::array::Array;
use crate::error::Result;

use add_norm::AddNorm;
use packed_layer::PackedLayer;
use rope_attention::RopeAttention;
use rope_update::RopeUpdate;
use row_products::RowProducts;
use silu_gate::SiluGate;

/// An op that stands for several.
pub trait Composite: Op {
    /// The results of the ops that it stands for.
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>>;
}

/// Composite ops, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompositeSet(u8);

impl CompositeSet {
    /// [`AddNorm`].
    pub const ADD_NORM: Self = CompositeSet(1);
    /// [`SiluGate`].
    pub const SILU_GATE: Self = CompositeSet(2);
    /// [`PackedLayer`].
    pub const PACKED_LAYER: Self = CompositeSet(4);
    /// [`RowProducts`].
    pub const ROW_PRODUCTS: Self = CompositeSet(8);
    /// [`RopeAttention`].
    pub const ROPE_ATTENTION: Self = CompositeSet(16);
    /// [`RopeUpdate`].
    pub const ROPE_UPDATE: Self = CompositeSet(32);

    /// Those among the ops of some types.
    pub(crate) fn among(has: impl Fn(TypeId) -> bool) -> Self {
        let all = [
            (TypeId::of::<AddNorm>(), Self::ADD_NORM),
            (TypeId::of::<SiluGate>(), Self::SILU_GATE),
            (TypeId::of::<PackedLayer>(), Self::PACKED_LAYER),
            (TypeId::of::<RowProducts>(), Self::ROW_PRODUCTS),
            (TypeId::of::<RopeAttention>(), Self::ROPE_ATTENTION),
            (TypeId::of::<RopeUpdate>(), Self::ROPE_UPDATE),
        ];
        let found = all.into_iter().filter(|(id, _)| has(*id));
        found.fold(CompositeSet::default(), |set, (_, bit)| CompositeSet(set.0 | bit.0))
    }

    /// Whether all of `other` are in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The bits.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }
}
