//! The layers between attentions.

use hesper::{Array, PackedArray, PackedEnd, packed_layer};

use crate::activation::Activation;
use crate::attention::joins;
use crate::error::Result;
use crate::linear::Linear;
use crate::module;
use crate::norm::Norm;

/// Wide, activated, narrow again; with a gate, the activated gate is multiplied by the wide vector.
#[derive(Debug, Clone)]
pub struct Mlp {
    gate_proj: Option<Linear>,
    up_proj: Linear,
    down_proj: Linear,
    activation: Activation,
}

module!(Mlp { gate_proj, up_proj, down_proj });

impl Mlp {
    /// From its layers.
    pub fn new(gate: Option<Linear>, up: Linear, down: Linear, activation: Activation) -> Self {
        Mlp { gate_proj: gate, up_proj: up, down_proj: down, activation }
    }

    /// Gate, wide and narrow layer as packed matrices, if all are and the gate is activated as they need it.
    pub(crate) fn packed(&self) -> Option<[&PackedArray; 3]> {
        let gate = self.gate_proj.as_ref().filter(|_| self.activation == Activation::Silu)?;
        Some([gate.packed()?, self.up_proj.packed()?, self.down_proj.packed()?])
    }

    /// Applies it.
    pub fn forward(&self, x: &Array) -> Result<Array> {
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
