//! Model types, a file each.
//!
//! A file reads the configuration of its model type, maps the names of its tensors, and builds its layers
//! from [`crate::blocks`] and `hesper_nn`. [`REGISTRY`] is the only other place that knows a model type:
//! adding one is a file and a line (see CONTRIBUTING.md).

mod gpt2;
mod llama;
mod qwen2;
mod qwen3;

use std::fmt;

use hesper_core::Array;
use hesper_nn::{KvCache, Module};

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};

/// Names of layers in safetensors files and in GGUF files; `{}` stands for the index of a layer.
pub(crate) type NameMap = Vec<(&'static str, &'static str)>;

/// Reads a configuration.
type Constructor = fn(&ConfigSource<'_>) -> Result<Box<dyn Architecture>>;

/// Model types, as `config.json` (`model_type`) and GGUF files (`general.architecture`) name them.
const REGISTRY: &[(&str, Constructor)] = &[
    ("gpt2", gpt2::open),
    ("llama", llama::open),
    ("mistral", llama::open),
    ("qwen2", qwen2::open),
    ("qwen3", qwen3::open),
    ("smollm2", llama::open),
];

/// Reads the configuration of any registered model type.
pub(crate) fn open(source: &ConfigSource<'_>) -> Result<Box<dyn Architecture>> {
    let name = source.model_type()?;
    match REGISTRY.iter().find(|(known, _)| *known == name) {
        Some((_, constructor)) => constructor(source),
        None => {
            let known: Vec<&str> = REGISTRY.iter().map(|(known, _)| *known).collect();
            Err(Error::UnknownModelType { name: name.to_string(), known: known.join(", ") })
        }
    }
}

/// A model type with the configuration of one checkpoint.
pub(crate) trait Architecture: fmt::Debug {
    /// The configuration.
    fn config(&self) -> &Config;

    /// Builds the model. Weights are checked by shape now and read when they are used.
    fn build(&self, weights: &Checkpoint) -> Result<Box<dyn CausalLm>>;

    /// What GGUF files call the layers.
    fn gguf_names(&self) -> NameMap;

    /// A prefix that some safetensors files have in front of every name.
    fn name_prefix(&self) -> &'static str {
        ""
    }

    /// Endings of the names of tensors that are buffers of a framework, not weights.
    fn ignored_tensors(&self) -> &'static [&'static str] {
        &["rotary_emb.inv_freq"]
    }

    /// How a matrix of a safetensors file is quantized.
    fn quantize_rule(&self, layer: &str) -> QuantizeRule {
        let _ = layer;
        QuantizeRule::Rows
    }

    /// Tokens that end a turn of a conversation, beside the tokenizer's own. The default is those of ChatML
    /// and Llama 3, which models of any type are tuned for.
    fn turn_end_tokens(&self) -> &'static [&'static str] {
        &["<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"]
    }
}

/// How a matrix is quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuantizeRule {
    /// Stored as (outputs, inputs): by rows.
    Rows,
    /// Stored as (inputs, outputs): transposed first.
    Transposed,
    /// Not at all.
    Keep,
}

/// A decoder from tokens to logits. It holds no state: any number of threads may use it, each with its own
/// cache.
pub(crate) trait CausalLm: Module + CloneLm + fmt::Debug + Send + Sync {
    /// The hidden states of new tokens, as (tokens, hidden size). `ids` has them sequence by sequence;
    /// `cache` has an open step for them.
    fn hidden(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array>;

    /// The float32 logits of hidden states.
    fn logits(&self, hidden: &Array) -> Result<Array>;
}

/// Clones models in boxes; every model that is `Clone` has it.
pub(crate) trait CloneLm {
    /// The model in a new box.
    fn clone_lm(&self) -> Box<dyn CausalLm>;
}

impl<M: CausalLm + Clone + 'static> CloneLm for M {
    fn clone_lm(&self) -> Box<dyn CausalLm> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn CausalLm> {
    fn clone(&self) -> Self {
        (**self).clone_lm()
    }
}
