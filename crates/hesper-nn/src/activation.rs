//! Activation functions.

use hesper_core::Array;

use crate::error::{Error, Result};

/// An element-wise activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x` times the normal distribution function of `x`.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

impl Activation {
    /// The activation with a name as in `config.json`.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "silu" | "swish" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            _ => {
                let known = "silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu";
                return Err(Error::InvalidArgument(format!(
                    "unknown activation {name:?}; known are {known}"
                )));
            }
        })
    }

    /// Applies it.
    pub fn forward(self, x: &Array) -> Result<Array> {
        Ok(match self {
            Activation::Silu => x.multiply(&x.sigmoid()?)?,
            Activation::Gelu => {
                x.multiply(std::f64::consts::FRAC_1_SQRT_2)?.erf()?.add(1.0)?.multiply(x)?.multiply(0.5)?
            }
            Activation::GeluTanh => {
                let inner = (x.multiply(x)?.multiply(x)?.multiply(0.044715)?.add(x)?)
                    .multiply((2.0 / std::f64::consts::PI).sqrt())?;
                inner.tanh()?.add(1.0)?.multiply(x)?.multiply(0.5)?
            }
            Activation::Relu => x.maximum(0.0)?,
        })
    }
}
