//! GPT-2: layer norms, learned positions, one projection for queries, keys and values.

use hesper_nn::{Attention, Mlp, Projections};

use super::{Architecture, CausalLm, NameMap, QuantizeRule};
use crate::blocks::{Decoder, DecoderLayer, PreNormLayer, TokenEmbedding};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, Defaults};
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};

#[derive(Debug)]
struct Gpt2(Config);

/// Checkpoints with a language-model head have this in front of every name, those without do not.
const PREFIX: &str = "transformer.";

pub(super) fn open(source: &ConfigSource<'_>) -> Result<Box<dyn Architecture>> {
    let defaults = Defaults {
        activation: "gelu_new",
        context_length: 1024,
        intermediate_factor: Some(4),
        tie_embeddings: true,
    };
    let mut config = Config::read(source, &defaults)?;
    if let Some(eps) = source.number(&["layer_norm_epsilon"], "attention.layer_norm_epsilon")? {
        config.norm_eps = eps;
    }
    if config.head_dim * config.heads != config.hidden_size {
        let what = format!(
            "{} heads of {} elements do not fit a hidden size of {}",
            config.heads, config.head_dim, config.hidden_size
        );
        return Err(Error::config("configuration", what));
    }
    Ok(Box::new(Gpt2(config)))
}

impl Architecture for Gpt2 {
    fn config(&self) -> &Config {
        &self.0
    }

    fn gguf_names(&self) -> NameMap {
        vec![
            ("wte", "token_embd"),
            ("wpe", "position_embd"),
            ("h.{}.ln_1", "blk.{}.attn_norm"),
            ("h.{}.attn.c_attn", "blk.{}.attn_qkv"),
            ("h.{}.attn.c_proj", "blk.{}.attn_output"),
            ("h.{}.ln_2", "blk.{}.ffn_norm"),
            ("h.{}.mlp.c_fc", "blk.{}.ffn_up"),
            ("h.{}.mlp.c_proj", "blk.{}.ffn_down"),
            ("ln_f", "output_norm"),
            ("lm_head", "output"),
        ]
    }

    fn name_prefix(&self) -> &'static str {
        PREFIX
    }

    fn ignored_tensors(&self) -> &'static [&'static str] {
        &["attn.bias", "attn.masked_bias"]
    }

    fn quantize_rule(&self, layer: &str) -> QuantizeRule {
        match layer.strip_prefix(PREFIX).unwrap_or(layer) {
            "wpe" => QuantizeRule::Keep,
            name if name.starts_with("h.") => QuantizeRule::Transposed,
            _ => QuantizeRule::Rows,
        }
    }

    fn build(&self, weights: &Checkpoint) -> Result<Box<dyn CausalLm>> {
        let config = &self.0;
        let &Config { hidden_size: hidden, intermediate_size: intermediate, norm_eps: eps, .. } = config;
        let heads = config.attention_heads();
        let tokens = weights.embedding("wte", [config.vocab_size, hidden])?;
        let positions = weights.embedding("wpe", [config.context_length, hidden])?;
        let dtype = tokens.weight().dtype();
        let layer = |at: usize| -> Result<Box<dyn DecoderLayer>> {
            let path = |name: &str| format!("h.{at}.{name}");
            let linear = |name: &str, outputs, inputs| weights.conv1d(&path(name), [outputs, inputs]);
            let norm = |name: &str| weights.layer_norm(&path(name), hidden, eps, dtype);
            let projections = Projections::Fused(linear("attn.c_attn", 3 * hidden, hidden)?);
            let output = linear("attn.c_proj", hidden, hidden)?;
            let up = linear("mlp.c_fc", intermediate, hidden)?;
            let down = linear("mlp.c_proj", hidden, intermediate)?;
            Ok(Box::new(PreNormLayer {
                attention_norm: norm("ln_1")?.into(),
                attention: Attention::new(heads, projections, output, None, None)?.with_window(config.window),
                mlp_norm: norm("ln_2")?.into(),
                mlp: Mlp::new(None, up, down, config.activation),
            }))
        };
        let layers = (0..config.layers).map(layer).collect::<Result<_>>()?;
        let norm = weights.layer_norm("ln_f", hidden, eps, dtype)?;
        let head = weights.output_projection("lm_head", config)?;
        let embedding = TokenEmbedding::new(tokens).with_positions(positions);
        Ok(Box::new(Decoder::new(embedding, layers, norm.into(), head)?))
    }
}
