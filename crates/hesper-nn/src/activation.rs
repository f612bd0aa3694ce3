//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use hesper_core::transform::stop_gradient;
use hesper_core::{Array, Dtype, Split, axes, select};

use crate::error::{Error, Result};
use crate::module::{Module, Parameter};

/// An activation function. Those that are not element-wise apply to the last axis.
///
/// ```
/// use hesper::Array;
/// use hesper_nn::Activation;
/// let x = Array::from_slice(&[-1.0f32, 2.0]);
/// assert_eq!(Activation::Relu.forward(&x)?.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)`.
    Celu(f32),
    /// `x` if positive, else `alpha * (exp(x) - 1)`.
    Elu(f32),
    /// `x` times the normal distribution function of `x`.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// `x * sigmoid(1.702 x)`.
    GeluFast,
    /// The first half times the sigmoid of the second half of the last axis.
    Glu,
    /// `x` where its magnitude is above the bound, else zero.
    HardShrink(f32),
    /// `x * min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `x` between -1 and 1.
    HardTanh,
    /// `max(x, slope * x)`.
    LeakyRelu(f32),
    /// `log(sigmoid(x))`.
    LogSigmoid,
    /// `log(softmax(x))`.
    LogSoftmax,
    /// `x * tanh(softplus(x))`.
    Mish,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    Relu2,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// ELU with fixed factors.
    Selu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x * sigmoid(x)`.
    Silu,
    /// Exponentials that sum to one.
    Softmax,
    /// Softmax of `-x`.
    Softmin,
    /// `log(1 + exp(x))`.
    Softplus,
    /// `x` moved towards zero by the bound.
    SoftShrink(f32),
    /// `x / (1 + |x|)`.
    Softsign,
    /// One from the threshold on, else zero.
    Step(f32),
    /// The hyperbolic tangent.
    Tanh,
}

crate::settings!(Activation);

impl Activation {
    /// The activation of a name in `config.json`.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::Activation;
    /// assert!(matches!(Activation::named("silu")?, Activation::Silu));
    /// assert!(Activation::named("unknown").is_err());
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "silu" | "swish" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
            "relu" => Activation::Relu,
            _ => {
                let known = "silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu";
                return Err(Error::argument(format!("unknown activation {name:?}; known are {known}")));
            }
        })
    }

    /// Applies it.
    pub fn forward(self, x: &Array) -> Result<Array> {
        let zero = || Array::scalar(0.0, x.dtype());
        Ok(match self {
            Activation::Celu(alpha) => {
                let below = x.minimum(0.0)?.divide(alpha)?.exp()?.subtract(1.0)?.multiply(alpha)?;
                x.maximum(0.0)?.add(&below)?
            }
            Activation::Elu(alpha) => elu(x, alpha)?,
            Activation::Gelu => x.multiply(FRAC_1_SQRT_2)?.erf()?.add(1.0)?.multiply(x)?.multiply(0.5)?,
            Activation::GeluTanh => {
                let inner =
                    (x.multiply(x)?.multiply(x)?.multiply(0.044715)?.add(x)?).multiply((2.0 / PI).sqrt())?;
                inner.tanh()?.add(1.0)?.multiply(x)?.multiply(0.5)?
            }
            Activation::GeluFast => x.multiply(x.multiply(1.702)?.sigmoid()?)?,
            Activation::Glu => {
                let halves = x.split(Split::Sections(2), -1)?;
                let [value, gate] = &halves[..] else {
                    return Err(Error::argument("cannot halve the last axis"));
                };
                value.multiply(gate.sigmoid()?)?
            }
            Activation::HardShrink(bound) => select(&x.abs()?.greater(bound)?, x, &zero()?)?,
            Activation::HardSwish => x.multiply(x.add(3.0)?.maximum(0.0)?.minimum(6.0)?)?.divide(6.0)?,
            Activation::HardTanh => x.maximum(-1.0)?.minimum(1.0)?,
            Activation::LeakyRelu(slope) => x.multiply(slope)?.maximum(x)?,
            Activation::LogSigmoid => x.negative()?.logaddexp(0.0)?.negative()?,
            Activation::LogSoftmax => {
                let x = below_maximum(x, -1)?;
                x.subtract(x.logsumexp(axes(-1).keepdims())?)?
            }
            Activation::Mish => x.multiply(x.logaddexp(0.0)?.tanh()?)?,
            Activation::Relu => x.maximum(0.0)?,
            Activation::Relu2 => x.maximum(0.0)?.square()?,
            Activation::Relu6 => x.maximum(0.0)?.minimum(6.0)?,
            Activation::Selu => elu(x, 1.67326)?.multiply(1.0507)?,
            Activation::Sigmoid => x.sigmoid()?,
            Activation::Silu => x.multiply(&x.sigmoid()?)?,
            Activation::Softmax => x.softmax(-1)?,
            Activation::Softmin => x.negative()?.softmax(-1)?,
            Activation::Softplus => x.logaddexp(0.0)?,
            Activation::SoftShrink(bound) => {
                let shrunk = x.subtract(x.sign()?.multiply(bound)?)?;
                select(&x.abs()?.greater(bound)?, &shrunk, &zero()?)?
            }
            Activation::Softsign => x.divide(x.abs()?.add(1.0)?)?,
            Activation::Step(threshold) => x.greater_equal(threshold)?.astype(Dtype::Int32)?,
            Activation::Tanh => x.tanh()?,
        })
    }
}

fn elu(x: &Array, alpha: f32) -> Result<Array> {
    Ok(select(&x.greater(0.0)?, x, &x.exp()?.subtract(1.0)?.multiply(alpha)?)?)
}

/// `x` minus its maximum along an axis. The maximum is a constant for derivatives.
pub(crate) fn below_maximum(x: &Array, axis: isize) -> Result<Array> {
    Ok(x.subtract(stop_gradient(&x.max(axes(axis).keepdims())?)?)?)
}

/// `max(x, 0) + weight * min(x, 0)` with a learned weight.
///
/// ```
/// use hesper::array;
/// use hesper_nn::PRelu;
/// assert_eq!(PRelu::new(1)?.forward(&array![-4.0, 2.0])?.to_vec::<f32>()?, [-1.0, 2.0]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct PRelu {
    weight: Parameter,
}

impl PRelu {
    /// One weight for all channels, or one for each; they start with 0.25.
    pub fn new(count: usize) -> Result<Self> {
        Ok(PRelu { weight: Array::full(&[count], 0.25, Some(Dtype::Float32))?.into() })
    }

    /// Applies it.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        Ok(x.maximum(0.0)?.add(x.minimum(0.0)?.multiply(&self.weight)?)?)
    }
}
