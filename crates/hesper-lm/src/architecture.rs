//! The interface of model types: what a file of [`models`](crate::models) implements.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use hesper_core::io::{Format, Loaded};
use hesper_core::{Activations, Array};
use hesper_nn::{KvCache, Module};

use crate::checkpoint::{Checkpoint, NameMap};
use crate::config::Config;
use crate::error::Result;

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

    /// Hidden states after the last norm.
    fn normed(&self, hidden: &Array) -> Result<Array>;

    /// The float32 logits of hidden states, which are not normed yet.
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

impl Checkpoint {
    /// The weights of a file or a folder of files.
    pub(crate) fn new(loaded: Loaded, architecture: &dyn Architecture, activations: Activations) -> Self {
        let gguf_names = (loaded.format() == Format::Gguf).then(|| architecture.gguf_names());
        let blocks = loaded.all_blocks().iter().cloned().collect();
        let arrays = loaded.into_arrays();
        Checkpoint { blocks, gguf_names, ..Checkpoint::from_arrays(arrays, architecture, activations) }
    }

    /// Weights with the names of safetensors.
    pub(crate) fn from_arrays(
        arrays: impl IntoIterator<Item = (String, Array)>,
        architecture: &dyn Architecture,
        activations: Activations,
    ) -> Self {
        let without_prefix = |name: String| match name.strip_prefix(architecture.name_prefix()) {
            Some(short) => short.to_string(),
            None => name,
        };
        Checkpoint {
            arrays: arrays.into_iter().map(|(name, array)| (without_prefix(name), array)).collect(),
            blocks: BTreeMap::new(),
            gguf_names: None,
            quantizations: architecture.config().quantizations.clone(),
            activations,
            ignored: architecture.ignored_tensors(),
            used: RefCell::default(),
        }
    }
}
