//! Layers of neural networks.
//!
//! A layer is a plain struct that holds its parameters and has a `forward`. Structs of layers are trees, and
//! [`Module`] walks them: parameters have the paths of the fields that hold them
//! (`layers.3.mlp.up_proj.weight`), by which they are loaded, saved, counted, frozen and replaced.
//!
//! Weights of [`Linear`] and [`Embedding`] come dense, quantized in groups, or as the packed blocks of a
//! GGUF file; they are used as they are stored ([`Weight`]).
#![forbid(unsafe_code)]

mod activation;
mod attention;
mod embedding;
mod error;
mod linear;
mod mlp;
mod module;
mod norm;
mod residual;
mod rope;
mod weight;

pub use activation::Activation;
pub use attention::{Attention, Causal, Heads, KeyValues, Projections};
pub use embedding::Embedding;
pub use error::{Error, Result};
pub use linear::Linear;
pub use mlp::Mlp;
pub use module::{Leaf, LeafMut, Module, ModuleExt, Parameter, join};
pub use norm::{LayerNorm, Norm, RmsNorm};
pub use residual::Residual;
pub use rope::{Rope, RopeScaling};
pub use weight::{Quantization, Weight};
