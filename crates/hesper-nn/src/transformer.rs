//! Multi-head attention and the layers of transformers, without a KV cache: for training and for encoders.
//!
//! [`Attention`](crate::Attention) is the layer that decodes with a cache.

use hesper_core::fast::{self, AttentionMask};
use hesper_core::{Array, Dtype, select};

use crate::activation::Activation;
use crate::dropout::Dropout;
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::module::{Module, Tree};
use crate::norm::LayerNorm;
use crate::transforms::checkpoint;

/// Attention of queries to keys and values in several heads.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::MultiHeadAttention;
/// let x = random::normal(&[2, 5, 16], Dtype::Float32, 0.0, 1.0, None)?;
/// let y = MultiHeadAttention::new(16, 4)?.forward(&x, &x, &x, AttentionMask::Causal)?;
/// assert_eq!(y.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct MultiHeadAttention {
    num_heads: usize,
    query_proj: Linear,
    key_proj: Linear,
    value_proj: Linear,
    out_proj: Linear,
}

impl MultiHeadAttention {
    /// Attention of `dims` features in `heads` heads, with projections without biases.
    pub fn new(dims: usize, heads: usize) -> Result<Self> {
        if heads == 0 || !dims.is_multiple_of(heads) {
            let what = format!("cannot divide {dims} features among {heads} heads; use a divisor of {dims}");
            return Err(Error::argument(what));
        }
        let linear = || Linear::new(dims, dims).map(Linear::without_bias);
        let (query_proj, key_proj) = (linear()?, linear()?);
        Self::from_layers(heads, query_proj, key_proj, linear()?, linear()?)
    }

    /// Attention with given projections of queries, keys, values and outputs.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::{Linear, MultiHeadAttention};
    /// let layer = || Linear::new(16, 16); // with biases
    /// assert!(MultiHeadAttention::from_layers(4, layer()?, layer()?, layer()?, layer()?).is_ok());
    /// assert!(MultiHeadAttention::from_layers(3, layer()?, layer()?, layer()?, layer()?).is_err());
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn from_layers(heads: usize, query: Linear, key: Linear, value: Linear, out: Linear) -> Result<Self> {
        let [[q, _], [k, _], [v, _]] = [&query, &key, &value].map(|layer| layer.weight().shape());
        if heads == 0 || q != k || !q.is_multiple_of(heads) || !v.is_multiple_of(heads) {
            return Err(Error::argument(format!(
                "cannot divide queries of {q}, keys of {k} and values of {v} features among {heads} heads"
            )));
        }
        Ok(MultiHeadAttention {
            num_heads: heads,
            query_proj: query,
            key_proj: key,
            value_proj: value,
            out_proj: out,
        })
    }

    /// Applies the layer to arrays of shape (batch, length, features).
    pub fn forward<'a>(
        &self,
        queries: &Array,
        keys: &Array,
        values: &Array,
        mask: impl Into<AttentionMask<'a>>,
    ) -> Result<Array> {
        let heads = |x: Array| -> Result<Array> {
            Ok(x.unflatten(-1, &[self.num_heads as isize, -1])?.transpose(&[0, 2, 1, 3])?)
        };
        let q = heads(self.query_proj.forward(queries)?)?;
        let k = heads(self.key_proj.forward(keys)?)?;
        let v = heads(self.value_proj.forward(values)?)?;
        let scale = (1.0 / q.shape()[3] as f32).sqrt();
        let y = fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, None)?;
        self.out_proj.forward(&y.transpose(&[0, 2, 1, 3])?.flatten(-2, -1)?)
    }

    /// A mask to add to scores: the lowest number of the dtype for keys after a query.
    ///
    /// ```
    /// use hesper::Dtype;
    /// use hesper_nn::MultiHeadAttention;
    /// let mask = MultiHeadAttention::causal_mask(2, Dtype::Float32)?;
    /// assert_eq!(mask.to_vec::<f32>()?, [0.0, f32::MIN, 0.0, 0.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn causal_mask(length: usize, dtype: Dtype) -> Result<Array> {
        let positions = Array::arange(length as i64, None)?;
        let later = positions.greater(positions.expand_dims(1)?)?;
        let lowest = match dtype {
            Dtype::Float16 => -65504.0,
            Dtype::Bfloat16 => -3.3895e38,
            Dtype::Float64 => f64::MIN,
            _ => f64::from(f32::MIN),
        };
        Ok(select(&later, &Array::scalar(lowest, dtype)?, &Array::scalar(0.0, dtype)?)?)
    }
}

/// The sizes of a transformer's layers.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::{Activation, TransformerConfig};
/// let config = TransformerConfig { dropout: 0.1, activation: Activation::Gelu, ..TransformerConfig::new(64, 4) };
/// assert_eq!((config.dims, config.heads), (64, 4));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TransformerConfig {
    /// Features.
    pub dims: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Hidden features of the feed-forward networks; `4 * dims` if absent.
    pub mlp_dims: Option<usize>,
    /// The probability of dropout.
    pub dropout: f32,
    /// The activation of the feed-forward networks.
    pub activation: Activation,
    /// Whether each part normalizes its input. Otherwise the sum with its output is normalized.
    pub norm_first: bool,
    /// Whether the gradient recomputes the layers instead of keeping their intermediate results.
    pub checkpoint: bool,
}

impl TransformerConfig {
    /// Sizes with the defaults: no dropout, ReLU, norms first, no checkpoints.
    pub fn new(dims: usize, heads: usize) -> Self {
        TransformerConfig {
            dims,
            heads,
            mlp_dims: None,
            dropout: 0.0,
            activation: Activation::Relu,
            norm_first: true,
            checkpoint: false,
        }
    }
}

/// `x + part(norm(x))`, or `norm(x + part(x))`.
fn residual(
    norm_first: bool,
    x: &Array,
    norm: &LayerNorm,
    part: impl FnOnce(&Array) -> Result<Array>,
) -> Result<Array> {
    match norm_first {
        true => Ok(x.add(part(&norm.forward(x)?)?)?),
        false => norm.forward(&x.add(part(x)?)?),
    }
}

/// A network of two linear layers.
#[derive(Module, Clone)]
struct FeedForward {
    linear1: Linear,
    linear2: Linear,
    activation: Activation,
    dropout: Dropout,
}

impl FeedForward {
    fn new(config: &TransformerConfig) -> Result<Self> {
        let hidden = config.mlp_dims.unwrap_or(4 * config.dims);
        Ok(FeedForward {
            linear1: Linear::new(config.dims, hidden)?,
            linear2: Linear::new(hidden, config.dims)?,
            activation: config.activation,
            dropout: Dropout::new(config.dropout)?,
        })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let hidden = self.activation.forward(&self.linear1.forward(x)?)?;
        self.linear2.forward(&self.dropout.forward(&hidden)?)
    }
}

/// Self-attention and a network of two linear layers.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::{TransformerConfig, TransformerEncoderLayer};
/// let layer = TransformerEncoderLayer::new(&TransformerConfig::new(16, 4))?;
/// let x = random::normal(&[2, 5, 16], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(layer.forward(&x, AttentionMask::None)?.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct TransformerEncoderLayer {
    attention: MultiHeadAttention,
    ln1: LayerNorm,
    ln2: LayerNorm,
    dropout1: Dropout,
    #[module(flatten)]
    feed_forward: FeedForward,
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// A layer with the sizes of `config`.
    pub fn new(config: &TransformerConfig) -> Result<Self> {
        let feed_forward = FeedForward::new(config)?;
        Ok(TransformerEncoderLayer {
            attention: MultiHeadAttention::new(config.dims, config.heads)?,
            ln1: LayerNorm::new(config.dims)?,
            ln2: LayerNorm::new(config.dims)?,
            dropout1: Dropout::new(config.dropout)?,
            feed_forward,
            norm_first: config.norm_first,
        })
    }

    /// Applies the layer to an array of shape (batch, length, features).
    pub fn forward<'a>(&self, x: &Array, mask: impl Into<AttentionMask<'a>>) -> Result<Array> {
        let x = residual(self.norm_first, x, &self.ln1, |y| {
            self.dropout1.forward(&self.attention.forward(y, y, y, mask)?)
        })?;
        residual(self.norm_first, &x, &self.ln2, |y| self.feed_forward.forward(y))
    }
}

/// Self-attention, cross-attention to a memory and a network of two linear layers.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::{TransformerConfig, TransformerDecoderLayer};
/// let layer = TransformerDecoderLayer::new(&TransformerConfig::new(16, 4))?;
/// let x = |length| random::normal(&[2, length, 16], Dtype::Float32, 0.0, 1.0, None);
/// let y = layer.forward(&x(5)?, &x(9)?, AttentionMask::Causal, AttentionMask::None)?;
/// assert_eq!(y.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct TransformerDecoderLayer {
    self_attention: MultiHeadAttention,
    cross_attention: MultiHeadAttention,
    ln1: LayerNorm,
    ln2: LayerNorm,
    ln3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(flatten)]
    feed_forward: FeedForward,
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// A layer with the sizes of `config`.
    pub fn new(config: &TransformerConfig) -> Result<Self> {
        let feed_forward = FeedForward::new(config)?;
        Ok(TransformerDecoderLayer {
            self_attention: MultiHeadAttention::new(config.dims, config.heads)?,
            cross_attention: MultiHeadAttention::new(config.dims, config.heads)?,
            ln1: LayerNorm::new(config.dims)?,
            ln2: LayerNorm::new(config.dims)?,
            ln3: LayerNorm::new(config.dims)?,
            dropout1: Dropout::new(config.dropout)?,
            dropout2: Dropout::new(config.dropout)?,
            feed_forward,
            norm_first: config.norm_first,
        })
    }

    /// Applies the layer to `x` and an encoded `memory`, both of shape (batch, length, features).
    pub fn forward<'a>(
        &self,
        x: &Array,
        memory: &Array,
        mask: impl Into<AttentionMask<'a>>,
        memory_mask: impl Into<AttentionMask<'a>>,
    ) -> Result<Array> {
        let x = residual(self.norm_first, x, &self.ln1, |y| {
            self.dropout1.forward(&self.self_attention.forward(y, y, y, mask)?)
        })?;
        let x = residual(self.norm_first, &x, &self.ln2, |y| {
            self.dropout2.forward(&self.cross_attention.forward(y, memory, memory, memory_mask)?)
        })?;
        residual(self.norm_first, &x, &self.ln3, |y| self.feed_forward.forward(y))
    }
}

/// The kind of a mask. Its array, if it has one, is among the inputs of the layers.
#[derive(Clone, Copy)]
enum MaskKind {
    None,
    Causal,
    Given,
}

impl MaskKind {
    /// The kind of a mask; appends its array to the inputs.
    fn of(mask: AttentionMask<'_>, inputs: &mut Vec<Array>) -> Self {
        match mask {
            AttentionMask::None => MaskKind::None,
            AttentionMask::Causal => MaskKind::Causal,
            AttentionMask::Array(mask) => {
                inputs.push(mask.clone());
                MaskKind::Given
            }
        }
    }

    fn mask<'a>(self, inputs: &mut std::slice::Iter<'a, Array>) -> AttentionMask<'a> {
        match self {
            MaskKind::None => AttentionMask::None,
            MaskKind::Causal => AttentionMask::Causal,
            MaskKind::Given => inputs.next().map_or(AttentionMask::None, AttentionMask::Array),
        }
    }
}

/// Applies layers to the first of `inputs`, then a norm. Every layer gets the other inputs unchanged. With
/// `recompute` the gradient recomputes the layers.
fn apply_layers<L: Module + Tree + Clone + Send + Sync + 'static>(
    layers: &[L],
    norm: &LayerNorm,
    recompute: bool,
    mut inputs: Vec<Array>,
    forward: impl Fn(&L, &[Array]) -> Result<Array> + Copy + Send + Sync + 'static,
) -> Result<Array> {
    for layer in layers {
        inputs[0] = match recompute {
            false => forward(layer, &inputs)?,
            true => checkpoint(layer, &inputs, forward)?,
        };
    }
    norm.forward(&inputs[0])
}

/// The layers of an encoder, followed by a norm.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::{TransformerConfig, TransformerEncoder};
/// let config = TransformerConfig { dropout: 0.1, ..TransformerConfig::new(16, 4) };
/// let x = random::normal(&[2, 5, 16], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(TransformerEncoder::new(2, &config)?.forward(&x, AttentionMask::Causal)?.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct TransformerEncoder {
    layers: Vec<TransformerEncoderLayer>,
    ln: LayerNorm,
    checkpoint: bool,
}

impl TransformerEncoder {
    /// An encoder.
    pub fn new(layers: usize, config: &TransformerConfig) -> Result<Self> {
        Ok(TransformerEncoder {
            layers: (0..layers).map(|_| TransformerEncoderLayer::new(config)).collect::<Result<_>>()?,
            ln: LayerNorm::new(config.dims)?,
            checkpoint: config.checkpoint,
        })
    }

    /// Applies all layers to an array of shape (batch, length, features).
    pub fn forward<'a>(&self, x: &Array, mask: impl Into<AttentionMask<'a>>) -> Result<Array> {
        let mut inputs = vec![x.clone()];
        let mask = MaskKind::of(mask.into(), &mut inputs);
        apply_layers(&self.layers, &self.ln, self.checkpoint, inputs, move |layer, inputs| {
            layer.forward(&inputs[0], mask.mask(&mut inputs[1..].iter()))
        })
    }
}

/// The layers of a decoder, followed by a norm.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::{TransformerConfig, TransformerDecoder};
/// let decoder = TransformerDecoder::new(2, &TransformerConfig::new(16, 4))?;
/// let x = |length| random::normal(&[2, length, 16], Dtype::Float32, 0.0, 1.0, None);
/// let y = decoder.forward(&x(5)?, &x(9)?, AttentionMask::Causal, AttentionMask::None)?;
/// assert_eq!(y.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct TransformerDecoder {
    layers: Vec<TransformerDecoderLayer>,
    ln: LayerNorm,
    checkpoint: bool,
}

impl TransformerDecoder {
    /// A decoder.
    pub fn new(layers: usize, config: &TransformerConfig) -> Result<Self> {
        Ok(TransformerDecoder {
            layers: (0..layers).map(|_| TransformerDecoderLayer::new(config)).collect::<Result<_>>()?,
            ln: LayerNorm::new(config.dims)?,
            checkpoint: config.checkpoint,
        })
    }

    /// Applies all layers to `x` and an encoded `memory`.
    pub fn forward<'a>(
        &self,
        x: &Array,
        memory: &Array,
        mask: impl Into<AttentionMask<'a>>,
        memory_mask: impl Into<AttentionMask<'a>>,
    ) -> Result<Array> {
        let mut inputs = vec![x.clone(), memory.clone()];
        let own = MaskKind::of(mask.into(), &mut inputs);
        let other = MaskKind::of(memory_mask.into(), &mut inputs);
        apply_layers(&self.layers, &self.ln, self.checkpoint, inputs, move |layer, inputs| {
            let mut masks = inputs[2..].iter();
            let (own, other) = (own.mask(&mut masks), other.mask(&mut masks));
            layer.forward(&inputs[0], &inputs[1], own, other)
        })
    }
}

/// An encoder and a decoder.
///
/// ```
/// use hesper::fast::AttentionMask;
/// use hesper::{Dtype, random};
/// use hesper_nn::{Transformer, TransformerConfig};
/// let x = |length| random::normal(&[2, length, 16], Dtype::Float32, 0.0, 1.0, None);
/// let model = Transformer::new(1, 1, &TransformerConfig::new(16, 4))?;
/// let y = model.forward(&x(7)?, &x(5)?, AttentionMask::None, AttentionMask::Causal, AttentionMask::None)?;
/// assert_eq!(y.shape(), [2, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Transformer {
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
}

impl Transformer {
    /// A transformer.
    pub fn new(encoder_layers: usize, decoder_layers: usize, config: &TransformerConfig) -> Result<Self> {
        Ok(Transformer {
            encoder: TransformerEncoder::new(encoder_layers, config)?,
            decoder: TransformerDecoder::new(decoder_layers, config)?,
        })
    }

    /// Encodes a source and decodes a target.
    pub fn forward<'a>(
        &self,
        source: &Array,
        target: &Array,
        source_mask: impl Into<AttentionMask<'a>>,
        target_mask: impl Into<AttentionMask<'a>>,
        memory_mask: impl Into<AttentionMask<'a>>,
    ) -> Result<Array> {
        let memory = self.encoder.forward(source, source_mask)?;
        self.decoder.forward(target, &memory, target_mask, memory_mask)
    }
}
