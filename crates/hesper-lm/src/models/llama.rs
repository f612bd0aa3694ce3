//! Llama 2 and 3, and models with the same layers: Mistral, SmolLM2.
//!
//! RMS norms, rotary positions, grouped heads, a gated feed-forward layer.

use hesper_core::Dtype;
use hesper_nn::{Attention, Mlp, Projections, RmsNorm, Rope, RopeScaling};

use super::{Architecture, CausalLm, NameMap};
use crate::blocks::{Decoder, DecoderLayer, PreNormLayer, TokenEmbedding};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, Defaults};
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};

#[derive(Debug)]
struct Llama(Config);

pub(super) fn open(source: &ConfigSource<'_>) -> Result<Box<dyn Architecture>> {
    let mut config = config(source)?;
    // GGUF files store the rows of queries and keys so that the elements of a rotary pair are neighbours.
    config.rope_traditional |= source.is_gguf();
    Ok(Box::new(Llama(config)))
}

/// The configuration of a model with rotary positions.
pub(super) fn config(source: &ConfigSource<'_>) -> Result<Config> {
    let defaults = Defaults {
        activation: "silu",
        context_length: 2048,
        intermediate_factor: None,
        tie_embeddings: false,
    };
    let config = Config::read(source, &defaults)?;
    if source.number(&["partial_rotary_factor"], "")?.is_some_and(|factor| factor != 1.0) {
        return Err(Error::config("partial_rotary_factor", "only 1 is supported"));
    }
    if !config.head_dim.is_multiple_of(2) {
        let what = format!("rotary positions need an even number, not {}", config.head_dim);
        return Err(Error::config("head_dim", what));
    }
    Ok(config)
}

pub(super) const GGUF_NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.layers.{}.input_layernorm", "blk.{}.attn_norm"),
    ("model.layers.{}.self_attn.q_proj", "blk.{}.attn_q"),
    ("model.layers.{}.self_attn.k_proj", "blk.{}.attn_k"),
    ("model.layers.{}.self_attn.v_proj", "blk.{}.attn_v"),
    ("model.layers.{}.self_attn.o_proj", "blk.{}.attn_output"),
    ("model.layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"),
    ("model.layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"),
    ("model.layers.{}.mlp.up_proj", "blk.{}.ffn_up"),
    ("model.layers.{}.mlp.down_proj", "blk.{}.ffn_down"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
];

impl Architecture for Llama {
    fn config(&self) -> &Config {
        &self.0
    }

    fn gguf_names(&self) -> NameMap {
        GGUF_NAMES.to_vec()
    }

    fn build(&self, weights: &Checkpoint) -> Result<Box<dyn CausalLm>> {
        decoder(&self.0, weights, |_, _| Ok(None))
    }
}

/// A decoder of Llama's layers. `qk_norms` returns the norms of queries and keys of a layer, if it has any.
pub(super) fn decoder(
    config: &Config,
    weights: &Checkpoint,
    qk_norms: impl Fn(usize, Dtype) -> Result<Option<(RmsNorm, RmsNorm)>>,
) -> Result<Box<dyn CausalLm>> {
    let &Config { hidden_size: hidden, intermediate_size: intermediate, norm_eps: eps, .. } = config;
    let heads = config.attention_heads();
    let (q, kv) = (heads.queries * heads.dim, heads.kv * heads.dim);
    let rope = rope(config, weights)?;
    let tokens = weights.embedding("model.embed_tokens", [config.vocab_size, hidden])?;
    let dtype = tokens.weight().dtype();
    let layer = |at: usize| -> Result<Box<dyn DecoderLayer>> {
        let path = |name: &str| format!("model.layers.{at}.{name}");
        let linear = |name: &str, outputs, inputs| weights.linear(&path(name), [outputs, inputs]);
        let norm = |name: &str| weights.rms_norm(&path(name), hidden, eps, dtype);
        let projections = Projections::Separate {
            queries: linear("self_attn.q_proj", q, hidden)?,
            keys: linear("self_attn.k_proj", kv, hidden)?,
            values: linear("self_attn.v_proj", kv, hidden)?,
        };
        let output = linear("self_attn.o_proj", hidden, q)?;
        let rope = Some(rope.clone());
        let attention = Attention::new(heads, projections, output, qk_norms(at, dtype)?, rope)?;
        let gate = linear("mlp.gate_proj", intermediate, hidden)?;
        let up = linear("mlp.up_proj", intermediate, hidden)?;
        let down = linear("mlp.down_proj", hidden, intermediate)?;
        Ok(Box::new(PreNormLayer {
            attention_norm: norm("input_layernorm")?.into(),
            attention: attention.with_window(config.window),
            mlp_norm: norm("post_attention_layernorm")?.into(),
            mlp: Mlp::new(Some(gate), up, down, config.activation),
        }))
    };
    let layers = (0..config.layers).map(layer).collect::<Result<_>>()?;
    let norm = weights.rms_norm("model.norm", hidden, eps, dtype)?;
    let head = weights.output_projection("lm_head", config)?;
    Ok(Box::new(Decoder::new(TokenEmbedding::new(tokens), layers, norm.into(), head)?))
}

/// Rotary positions; GGUF files may hold a factor for every pair.
fn rope(config: &Config, weights: &Checkpoint) -> Result<Rope> {
    let factors = match weights.find("rope_freqs.weight") {
        Some(factors) => Some(RopeScaling::Factors(factors.astype(Dtype::Float32)?.to_vec::<f32>()?)),
        None => None,
    };
    let scaling = factors.as_ref().or(config.rope_scaling.as_ref());
    Ok(Rope::new(config.head_dim, config.rope_traditional, config.rope_base, scaling)?)
}
