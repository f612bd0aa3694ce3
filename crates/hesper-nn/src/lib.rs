//! Layers of neural networks, losses and optimizers.
//!
//! A layer is a plain struct that holds its parameters and has a `forward`. Structs of layers derive
//! [`Module`]: the path of a parameter is that of its field (`layers.3.mlp.up_proj.weight`). Parameters are
//! loaded, saved, counted, frozen and replaced by path ([`ModuleExt`]). The transforms [`value_and_grad`],
//! `vmap` and `compile` take modules as arguments.
//!
//! A [`Weight`] of [`Linear`] or [`Embedding`] is dense, quantized in groups, the packed blocks of a GGUF
//! file, or a weight with a LoRA. It is used as stored. [`Attention`] reads the keys and values of earlier
//! tokens through a [`KvCache`]; [`MultiHeadAttention`] has no cache.
#![forbid(unsafe_code)]

// The derive macro refers to this crate by name.
extern crate self as hesper_nn;

// Links the backends for the unit tests.
#[cfg(test)]
use hesper as _;

mod activation;
mod attention;
mod conv;
mod dropout;
mod embedding;
mod error;
mod heads;
pub mod init;
mod kv_cache;
mod layer;
mod linear;
pub mod loss;
mod mlp;
#[doc(hidden)]
pub mod module;
mod norm;
pub mod optim;
mod pool;
mod positions;
mod recurrent;
mod rope;
pub mod train;
mod transformer;
mod transforms;
mod upsample;

pub use activation::{Activation, PRelu};
pub use attention::{Attention, Projections};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Sizes};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use error::{Error, Result};
pub use heads::Heads;
pub use kv_cache::{KvCache, KvMask, KvRows, KvView, NoCache, Positions, Step};
#[doc(hidden)]
pub use kv_cache::{RowView, Segment, SegmentView};
pub use layer::{CloneLayer, Layer, Sequential};
pub use linear::{Bilinear, Identity, Linear};
pub use mlp::Mlp;
pub use module::weight::{Quantization, Weight, add_lora, merge_lora, quantize};
pub use module::{Buffer, Leaf, LeafMut, LoadReport, Module, ModuleExt, Parameter, Path, Training};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Norm, RmsNorm};
pub use pool::Pool;
pub use positions::{Alibi, SinusoidalPositions};
pub use recurrent::{Gru, Lstm, Rnn};
pub use rope::{Rope, RopeScaling};
pub use transformer::{
    MultiHeadAttention, Transformer, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer,
};
pub use transforms::{cast, checkpoint, value_and_grad};
pub use upsample::{Interpolation, Upsample};
