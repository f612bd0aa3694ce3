//! Feed-forward layers.

use hesper_core::{Array, Split};

use crate::activation::Activation;
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::module::Module;

/// `down(activation(up(x)))`; with a gate, `down(activation(gate(x)) * up(x))`.
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Activation, Linear, Mlp};
/// let (gate, up, down) = (Linear::new(4, 8)?, Linear::new(4, 8)?, Linear::new(8, 4)?);
/// let mut layer = Mlp::new(Some(gate), up, down, Activation::Silu);
/// let x = Array::ones(&[3, 4], Dtype::Float32)?;
/// let apart = layer.forward(&x)?.to_vec::<f32>()?;
/// layer.fuse_projections()?; // one product instead of two
/// let fused = layer.forward(&x)?.to_vec::<f32>()?;
/// assert!(apart.iter().zip(fused).all(|(a, b)| (a - b).abs() < 1e-5));
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Mlp {
    gate_proj: Option<Linear>,
    up_proj: Linear,
    down_proj: Linear,
    activation: Activation,
    /// Gate and up projection as one product. Stale when a projection changes.
    #[module(cache)]
    fused: Option<Linear>,
}

impl Mlp {
    /// A feed-forward layer.
    pub fn new(gate: Option<Linear>, up: Linear, down: Linear, activation: Activation) -> Self {
        Mlp { gate_proj: gate, up_proj: up, down_proj: down, activation, fused: None }
    }

    /// Fuses gate and up projection into one product if their weights are stored in the same format: GPUs
    /// prefer few large kernels.
    pub fn fuse_projections(&mut self) -> Result<()> {
        if let Some(gate) = &mut self.gate_proj {
            self.fused = Linear::fuse(&mut [gate, &mut self.up_proj])?;
        }
        Ok(())
    }

    /// Applies the layer.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        if let Some(fused) = &self.fused {
            let both = fused.forward(x)?;
            let both = both.split(Split::Sections(2), -1)?;
            let [gate, up] = &both[..] else {
                let what = format!("the fused projection has {} parts instead of 2", both.len());
                return Err(Error::InvalidArgument(what));
            };
            return self.down_proj.forward(&self.activation.forward(gate)?.multiply(up)?);
        }
        let up = self.up_proj.forward(x)?;
        let hidden = match &self.gate_proj {
            Some(gate) => self.activation.forward(&gate.forward(x)?)?.multiply(&up)?,
            None => self.activation.forward(&up)?,
        };
        self.down_proj.forward(&hidden)
    }
}
