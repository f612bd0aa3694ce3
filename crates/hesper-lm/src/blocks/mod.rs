//! The parts that models are composed of, above the layers of `hesper_nn`: token embeddings, decoder layers,
//! and the decoder around them.

mod decoder;
mod embedding;
mod pre_norm;

pub(crate) use decoder::{Decoder, DecoderLayer};
pub(crate) use embedding::TokenEmbedding;
pub(crate) use pre_norm::PreNormLayer;
