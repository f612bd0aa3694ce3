//! The layers between attentions.

use hesper::{Array, PackedArray, PackedEnd, Split, fast, packed_layer};

use crate::activation::Activation;
use crate::attention::joins;
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::module::{Module, join};
use crate::norm::Norm;
use crate::{Leaf, LeafMut};

/// Wide, activated, narrow again; with a gate, the activated gate is multiplied by the wide vector.
#[derive(Debug, Clone)]
pub struct Mlp {
    gate_proj: Option<Linear>,
    up_proj: Linear,
    down_proj: Linear,
    activation: Activation,
    /// Gate and wide layer as one.
    joined: Option<Linear>,
}

impl Module for Mlp {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        self.gate_proj.visit(&join(prefix, "gate_proj"), f);
        self.up_proj.visit(&join(prefix, "up_proj"), f);
        self.down_proj.visit(&join(prefix, "down_proj"), f);
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.joined = None;
        self.gate_proj.visit_mut(&join(prefix, "gate_proj"), f)?;
        self.up_proj.visit_mut(&join(prefix, "up_proj"), f)?;
        self.down_proj.visit_mut(&join(prefix, "down_proj"), f)
    }
}

impl Mlp {
    /// From its layers.
    pub fn new(gate: Option<Linear>, up: Linear, down: Linear, activation: Activation) -> Self {
        Mlp { gate_proj: gate, up_proj: up, down_proj: down, activation, joined: None }
    }

    /// Makes gate and wide layer one product, where their weights are stored alike: fewer, larger commands, as GPUs want
    /// them.
    pub fn join(&mut self) -> Result<()> {
        if let Some(gate) = &mut self.gate_proj {
            self.joined = Linear::join(&mut [gate, &mut self.up_proj])?;
        }
        Ok(())
    }

    /// Gate, wide and narrow layer as packed matrices, if all are and the gate is activated as they need it.
    pub(crate) fn packed(&self) -> Option<[&PackedArray; 3]> {
        let gate = self.gate_proj.as_ref().filter(|_| self.activation == Activation::Silu)?;
        Some([gate.packed()?, self.up_proj.packed()?, self.down_proj.packed()?])
    }

    /// Applies it.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        if let Some(joined) = &self.joined {
            let both = joined.forward(x)?;
            if self.activation == Activation::Silu {
                return self.down_proj.forward(&fast::silu_gate(&both)?);
            }
            let both = both.split(Split::Sections(2), -1)?;
            let [gate, up] = &both[..] else { return Err(Error::Setting("a product in two parts".into())) };
            return self.down_proj.forward(&self.activation.forward(gate)?.multiply(up)?);
        }
        let up = self.up_proj.forward(x)?;
        let hidden = match &self.gate_proj {
            Some(gate) => self.activation.forward(&gate.forward(x)?)?.multiply(&up)?,
            None => self.activation.forward(&up)?,
        };
        self.down_proj.forward(&hidden)
    }

    /// `x + forward(norm(x))`, in a few commands where the weights are packed.
    pub fn residual(&self, norm: &Norm, x: &Array) -> Result<Array> {
        if let (Norm::Rms(norm), Some([gate, up, down])) = (norm, self.packed())
            && joins(norm, x)
        {
            let hidden = packed_layer(x, Some(norm.parts()), &[gate, up], PackedEnd::SiluGate)?;
            return Ok(packed_layer(&hidden, None, &[down], PackedEnd::Plus(x))?);
        }
        Ok(x.add(&self.forward(&norm.forward(x)?)?)?)
    }
}
