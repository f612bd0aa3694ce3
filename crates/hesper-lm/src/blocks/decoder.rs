//! The decoder: embedding, layers, final norm, output projection.

use std::fmt;

use hesper_core::{Array, Dtype, placement};
use hesper_nn::{KvCache, Linear, Module, Norm};

use super::TokenEmbedding;
use crate::architecture::CausalLm;
use crate::error::Result;

/// A layer of a decoder.
pub(crate) trait DecoderLayer: Module + CloneLayer + fmt::Debug + Send + Sync {
    /// The residual stream after the layer. `layer` is its index in the cache.
    fn forward(&self, x: &Array, layer: usize, cache: &mut dyn KvCache) -> Result<Array>;

    /// Fuses products that have the same input.
    fn fuse_projections(&mut self) -> Result<()>;
}

/// Clones layers in boxes; every layer that is `Clone` has it.
pub(crate) trait CloneLayer {
    /// The layer in a new box.
    fn clone_layer(&self) -> Box<dyn DecoderLayer>;
}

impl<L: DecoderLayer + Clone + 'static> CloneLayer for L {
    fn clone_layer(&self) -> Box<dyn DecoderLayer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn DecoderLayer> {
    fn clone(&self) -> Self {
        (**self).clone_layer()
    }
}

/// A decoder of any layers.
#[derive(Module, Clone)]
pub(crate) struct Decoder {
    embedding: TokenEmbedding,
    layers: Vec<Box<dyn DecoderLayer>>,
    norm: Norm,
    head: Option<Linear>,
}

impl Decoder {
    /// A decoder. Without a `head`, the token embedding is the output projection.
    pub(crate) fn new(
        embedding: TokenEmbedding,
        mut layers: Vec<Box<dyn DecoderLayer>>,
        norm: Norm,
        head: Option<Linear>,
    ) -> Result<Self> {
        if placement::current_device() != placement::Device::Cpu {
            layers.iter_mut().try_for_each(|layer| layer.fuse_projections())?;
        }
        Ok(Decoder { embedding, layers, norm, head })
    }
}

impl CausalLm for Decoder {
    fn hidden(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array> {
        let mut x = self.embedding.forward(ids, cache)?;
        for (at, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x, at, cache)?;
        }
        Ok(x)
    }

    fn normed(&self, hidden: &Array) -> Result<Array> {
        Ok(self.norm.forward(hidden)?)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        let normed = self.normed(hidden)?;
        let logits = match &self.head {
            Some(head) => head.forward(&normed)?,
            None => self.embedding.tokens().weight().apply(&normed)?,
        };
        Ok(logits.astype(Dtype::Float32)?)
    }
}
