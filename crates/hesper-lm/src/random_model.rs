//! Models of known shapes with random weights, for measurements: speed does not depend on what the weights
//! are, and a large model needs no download.
//!
//! Weights are lazy arrays: they are drawn on the default device when they are first used, the same numbers
//! in every process.

use std::collections::BTreeMap;
use std::path::Path;

use hesper_core::{Array, Dtype, QuantMode, random};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::language_model::{LanguageModel, LoadOptions};

/// What the names of these models begin with.
pub(crate) const PREFIX: &str = "random:";
/// What the names of models with 4-bit weights end with.
const FOUR_BIT: &str = "-4bit";
/// The group of 4-bit weights.
const GROUP: usize = 64;
/// The standard deviation of the weights.
const DEVIATION: f32 = 0.02;

/// The sizes of a model of the Llama family.
struct Sizes {
    name: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    feed_forward: usize,
    vocabulary: usize,
    context: usize,
}

const SIZES: [Sizes; 3] = [
    Sizes {
        name: "llama-8b",
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        feed_forward: 14336,
        vocabulary: 128_256,
        context: 131_072,
    },
    Sizes {
        name: "llama-1b",
        layers: 16,
        hidden: 2048,
        heads: 32,
        kv_heads: 8,
        feed_forward: 8192,
        vocabulary: 128_256,
        context: 131_072,
    },
    Sizes {
        name: "llama-tiny",
        layers: 2,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        feed_forward: 128,
        vocabulary: 512,
        context: 4096,
    },
];

impl Sizes {
    fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    fn config(&self, four_bit: bool) -> Value {
        let mut config = json!({
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim(),
            "intermediate_size": self.feed_forward,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": false,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16"
        });
        if four_bit {
            config["quantization"] = json!({ "group_size": GROUP, "bits": 4 });
        }
        config
    }

    /// A tokenizer with a word for each token: `t0`, `t1`, and so on. Other words become `t0`.
    fn tokenizer(&self) -> Value {
        let vocabulary: Map<String, Value> =
            (0..self.vocabulary).map(|id| (format!("t{id}"), json!(id))).collect();
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": { "type": "WhitespaceSplit" },
            "post_processor": null,
            "decoder": null,
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "t0" }
        })
    }

    fn weights(&self, four_bit: bool) -> Result<BTreeMap<String, Array>> {
        let mut weights = Weights { arrays: BTreeMap::new(), drawn: 0, four_bit };
        let (hidden, feed_forward) = (self.hidden, self.feed_forward);
        let (queries, keys) = (self.heads * self.head_dim(), self.kv_heads * self.head_dim());
        weights.matrix("model.embed_tokens", [self.vocabulary, hidden])?;
        weights.matrix("lm_head", [self.vocabulary, hidden])?;
        weights.ones("model.norm", hidden)?;
        for layer in 0..self.layers {
            let of_layer = |name: &str| format!("model.layers.{layer}.{name}");
            weights.ones(&of_layer("input_layernorm"), hidden)?;
            weights.ones(&of_layer("post_attention_layernorm"), hidden)?;
            weights.matrix(&of_layer("self_attn.q_proj"), [queries, hidden])?;
            weights.matrix(&of_layer("self_attn.k_proj"), [keys, hidden])?;
            weights.matrix(&of_layer("self_attn.v_proj"), [keys, hidden])?;
            weights.matrix(&of_layer("self_attn.o_proj"), [hidden, queries])?;
            weights.matrix(&of_layer("mlp.gate_proj"), [feed_forward, hidden])?;
            weights.matrix(&of_layer("mlp.up_proj"), [feed_forward, hidden])?;
            weights.matrix(&of_layer("mlp.down_proj"), [hidden, feed_forward])?;
        }
        Ok(weights.arrays)
    }
}

struct Weights {
    arrays: BTreeMap<String, Array>,
    /// The number of matrices drawn; the seed of the next one.
    drawn: u64,
    four_bit: bool,
}

impl Weights {
    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<()> {
        let key = random::key(self.drawn)?;
        self.drawn += 1;
        let matrix = random::normal(&shape, Dtype::Bfloat16, 0.0, DEVIATION, Some(&key))?;
        if !self.four_bit {
            self.arrays.insert(format!("{name}.weight"), matrix);
            return Ok(());
        }
        let (codes, scales, biases) = matrix.quantize(Some(GROUP), Some(4), QuantMode::Affine)?;
        self.arrays.insert(format!("{name}.weight"), codes);
        self.arrays.insert(format!("{name}.scales"), scales);
        self.arrays.extend(biases.map(|biases| (format!("{name}.biases"), biases)));
        Ok(())
    }

    fn ones(&mut self, name: &str, size: usize) -> Result<()> {
        self.arrays.insert(format!("{name}.weight"), Array::ones(&[size], Dtype::Bfloat16)?);
        Ok(())
    }
}

/// Builds the model of a name with [`PREFIX`].
pub(crate) fn model(name: &str, options: &LoadOptions) -> Result<LanguageModel> {
    let shape = name.strip_prefix(PREFIX).unwrap_or(name);
    let (shape, four_bit) = shape.strip_suffix(FOUR_BIT).map_or((shape, false), |dense| (dense, true));
    let Some(sizes) = SIZES.iter().find(|sizes| sizes.name == shape) else {
        let known: Vec<String> = SIZES.iter().map(|sizes| format!("{PREFIX}{}", sizes.name)).collect();
        return Err(Error::NoModel {
            path: Path::new(name).to_path_buf(),
            what: format!("no such shape; known are {}, each also with {FOUR_BIT}", known.join(", ")),
        });
    };
    let files = [&sizes.config(four_bit), &sizes.tokenizer(), &json!({})];
    LanguageModel::from_parts(files, sizes.weights(four_bit)?, options.activations(), Path::new(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::{GenerateOptions, fetch, generate};

    #[test]
    fn a_random_model_gives_the_same_tokens_each_time() {
        for name in ["random:llama-tiny", "random:llama-tiny-4bit"] {
            let text = || {
                let model = fetch::load(name, &LoadOptions::default(), &mut |_| ()).unwrap();
                let prompt = model.prompt_tokens("t3 t5 unknown").unwrap();
                assert_eq!(prompt, [3, 5, 0]);
                let options = GenerateOptions { max_tokens: 12, ignore_eos: true, ..Default::default() };
                generate(&model, &prompt, &options).unwrap()
            };
            let (first, again) = (text(), text());
            assert_eq!(first.text, again.text, "{name}");
            assert_eq!(first.text.matches('t').count(), 12, "{name}: {}", first.text);
        }
    }

    #[test]
    fn an_unknown_shape_names_the_known_ones() {
        let error = fetch::load("random:llama-9b", &LoadOptions::default(), &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("random:llama-8b"), "{error}");
    }
}
