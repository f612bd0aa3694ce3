//! Decoder layers that normalize the input of each part and add its output.

use hesper_core::Array;
use hesper_nn::{Attention, KvCache, Mlp, Module, Norm};

use super::DecoderLayer;
use crate::error::Result;

/// `x += attention(norm(x)); x += mlp(norm(x))`.
#[derive(Module, Clone)]
pub(crate) struct PreNormLayer {
    pub(crate) attention_norm: Norm,
    pub(crate) attention: Attention,
    pub(crate) mlp_norm: Norm,
    pub(crate) mlp: Mlp,
}

impl DecoderLayer for PreNormLayer {
    fn forward(&self, x: &Array, layer: usize, cache: &mut dyn KvCache) -> Result<Array> {
        let attended = self.attention.forward(&self.attention_norm.forward(x)?, layer, cache)?;
        let x = x.add(&attended)?;
        Ok(x.add(&self.mlp.forward(&self.mlp_norm.forward(&x)?)?)?)
    }

    fn fuse_projections(&mut self) -> Result<()> {
        self.attention.fuse_projections()?;
        Ok(self.mlp.fuse_projections()?)
    }
}
