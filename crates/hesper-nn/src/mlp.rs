//! The layers between attentions.

use hesper::Array;

use crate::activation::Activation;
use crate::error::Result;
use crate::linear::Linear;
use crate::module;

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

    /// Applies it.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let up = self.up_proj.forward(x)?;
        let hidden = match &self.gate_proj {
            Some(gate) => self.activation.forward(&gate.forward(x)?)?.multiply(&up)?,
            None => self.activation.forward(&up)?,
        };
        self.down_proj.forward(&hidden)
    }
}
