//! Normalization over the last axis.

use hesper_core::{Array, fast};

use crate::error::Result;
use crate::module;
use crate::module::{Module, Parameter};
use crate::{Leaf, LeafMut};

/// Divides by the root mean square and multiplies by a weight.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    weight: Parameter,
    eps: f32,
}

module!(RmsNorm { weight });

impl RmsNorm {
    /// A norm with a weight; `eps` is added to the mean square.
    pub fn new(weight: Array, eps: f32) -> Self {
        RmsNorm { weight: weight.into(), eps }
    }

    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(fast::rms_norm(x, Some(self.weight.get()), self.eps)?)
    }
}

/// Subtracts the mean, divides by the standard deviation, multiplies by a weight and adds a bias.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Parameter,
    bias: Option<Parameter>,
    eps: f32,
}

module!(LayerNorm { weight, bias });

impl LayerNorm {
    /// A norm with weight and bias; `eps` is added to the variance.
    pub fn new(weight: Array, bias: Option<Array>, eps: f32) -> Self {
        LayerNorm { weight: weight.into(), bias: bias.map(Parameter::new), eps }
    }

    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let bias = self.bias.as_ref().map(Parameter::get);
        Ok(fast::layer_norm(x, Some(self.weight.get()), bias, self.eps)?)
    }
}

/// Either norm.
#[derive(Debug, Clone)]
pub enum Norm {
    /// Root mean square.
    Rms(RmsNorm),
    /// Mean and variance.
    Layer(LayerNorm),
}

impl From<RmsNorm> for Norm {
    fn from(norm: RmsNorm) -> Self {
        Norm::Rms(norm)
    }
}

impl From<LayerNorm> for Norm {
    fn from(norm: LayerNorm) -> Self {
        Norm::Layer(norm)
    }
}

impl Norm {
    /// Applies the norm.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            Norm::Rms(norm) => norm.forward(x),
            Norm::Layer(norm) => norm.forward(x),
        }
    }
}

impl Module for Norm {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        match self {
            Norm::Rms(norm) => norm.visit(prefix, f),
            Norm::Layer(norm) => norm.visit(prefix, f),
        }
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Norm::Rms(norm) => norm.visit_mut(prefix, f),
            Norm::Layer(norm) => norm.visit_mut(prefix, f),
        }
    }
}
