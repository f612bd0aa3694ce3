//! Layers of neural networks.
//!
//! A layer is a plain struct that holds its parameters and has a `forward`. Structs of layers are trees that
//! [`Module`] walks: the path of a parameter is that of its field (`layers.3.mlp.up_proj.weight`). Parameters are
//! loaded, saved, counted, frozen and replaced by path.
//!
//! Weights of [`Linear`] and [`Embedding`] are dense, quantized in groups, or the packed blocks of a GGUF file, and are
//! used as stored ([`Weight`]). [`Attention`] reads the keys and values of earlier tokens through a [`KvCache`].
#![forbid(unsafe_code)]

// Links the backends for the unit tests.
#[cfg(test)]
use hesper as _;

mod activation;
mod attention;
mod embedding;
mod error;
mod kv_cache;
mod linear;
mod mlp;
mod module;
mod norm;
mod rope;
mod weight;

pub use activation::Activation;
pub use attention::{Attention, Heads, Projections};
pub use embedding::Embedding;
pub use error::{Error, Result};
#[doc(hidden)]
pub use kv_cache::TokenView;
pub use kv_cache::{KvCache, KvMask, KvRows, KvView, NoCache, Positions, Step};
pub use linear::Linear;
pub use mlp::Mlp;
pub use module::{Leaf, LeafMut, Module, ModuleExt, Parameter, join};
pub use norm::{LayerNorm, Norm, RmsNorm};
pub use rope::{Rope, RopeScaling};
pub use weight::{Quantization, Weight};
