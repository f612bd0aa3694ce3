//! Functions between layers.

use hesper::Array;

use crate::error::{Error, Result};

/// A function applied to every element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x` times the logistic function of `x`.
    Silu,
    /// `x` times the probability that a normal variable is below `x`.
    Gelu,
    /// GELU by way of the hyperbolic tangent.
    GeluTanh,
    /// `x` where it is positive.
    Relu,
}

impl Activation {
    /// By the name that configurations use.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "silu" | "swish" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            _ => return Err(Error::Setting(format!("there is no activation {name:?}"))),
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
