//! Decoder layers that normalize the input of each part and add its output.

use hesper_nn::{Attention, KvCache, Mlp, Norm, Residual, module};

use super::DecoderLayer;
use crate::error::Result;

/// `x += attention(norm(x)); x += mlp(norm(x))`.
#[derive(Debug)]
pub(crate) struct PreNormLayer {
    pub(crate) attention_norm: Norm,
    pub(crate) attention: Attention,
    pub(crate) mlp_norm: Norm,
    pub(crate) mlp: Mlp,
}

module!(PreNormLayer { attention_norm, attention, mlp_norm, mlp });

impl DecoderLayer for PreNormLayer {
    fn forward(&self, x: &mut Residual, layer: usize, cache: &mut dyn KvCache) -> Result<()> {
        if self.attention.is_packed(&self.attention_norm, x.sum()?) {
            let attended = self.attention.residual(&self.attention_norm, x.sum()?, layer, cache)?;
            *x = Residual::new(self.mlp.residual(&self.mlp_norm, &attended)?);
            return Ok(());
        }
        let normed = x.normed(&self.attention_norm)?;
        x.add(self.attention.forward(&normed, layer, cache)?)?;
        let normed = x.normed(&self.mlp_norm)?;
        x.add(self.mlp.forward(&normed)?)?;
        Ok(())
    }

    fn fuse_projections(&mut self) -> Result<()> {
        self.attention.fuse_projections()?;
        Ok(self.mlp.fuse_projections()?)
    }
}
