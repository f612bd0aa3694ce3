//! Attention of one token, whose queries are rotated by its position.

use super::Composite;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::identity::BitEq;
use crate::ops::Op;
use crate::ops::attention::AttentionMask;
use crate::ops::attention::scaled_dot_product_attention;
use crate::ops::rope::Rope;

/// Inputs: queries of one row each, keys, values, the periods of the rotation if it has no base.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct RopeAttention {
    /// The rotation of the queries.
    pub rope: Rope,
    /// The factor of the scores.
    pub scale: BitEq<f32>,
}

impl Op for RopeAttention {
    fn name(&self) -> &'static str {
        "rope_attention"
    }

    fn composite() -> CompositeSet {
        CompositeSet::ROPE_ATTENTION
    }
}

impl Composite for RopeAttention {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [q, k, v, periods @ ..] = inputs else {
            return Err(Error::value(self.name(), "three inputs expected"));
        };
        let q = self.rope.apply(q, periods.first())?;
        Ok(vec![scaled_dot_product_attention(&q, k, v, self.scale.0, AttentionMask::None, None)?])
    }
}
