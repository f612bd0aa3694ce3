//! The configuration of a model: what its layers, its caches and its generation need to know.
//!
//! Values are checked when they are read, so that later code can rely on them. What only one model type has
//! is read by its file in [`crate::models`].

use std::collections::HashMap;

use hesper_core::io::{MetaValue, Metadata};
use hesper_nn::{Activation, Heads, Quantization, RopeScaling};
use serde_json::{Map, Value};

use crate::config_source::ConfigSource;
use crate::error::{Error, Result};

/// How the weights of a checkpoint were quantized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quantizations {
    /// Of layers that are not named.
    pub default: Option<Quantization>,
    /// Of layers by name.
    pub layers: HashMap<String, Quantization>,
}

impl Quantizations {
    /// The quantization of a layer.
    pub fn of(&self, layer: &str) -> Option<Quantization> {
        self.layers.get(layer).copied().or(self.default)
    }
}

/// The configuration of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The model type, as `config.json` or the GGUF file names it.
    pub model_type: String,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Elements of the hidden state of a token.
    pub hidden_size: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements between the two projections of a feed-forward layer.
    pub intermediate_size: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// The activation of the feed-forward layers.
    pub activation: Activation,
    /// The largest number of tokens in a sequence.
    pub context_length: usize,
    /// The number of tokens that a token sees, itself included, if not all.
    pub window: Option<usize>,
    /// The base of rotary positions.
    pub rope_base: f32,
    /// How rotary positions are scaled.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the elements of a rotary pair are neighbours.
    pub rope_traditional: bool,
    /// Whether the token embedding is also the output projection, if the checkpoint has none of its own.
    pub tie_embeddings: bool,
    /// How weights are quantized.
    pub quantizations: Quantizations,
    /// Tokens that end a sequence.
    pub eos_tokens: Vec<u32>,
}

/// What a model type assumes where a configuration says nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) activation: &'static str,
    pub(crate) context_length: usize,
    /// The intermediate size as a multiple of the hidden size.
    pub(crate) intermediate_factor: Option<usize>,
    pub(crate) tie_embeddings: bool,
}

impl Config {
    /// Reads what all model types have in common.
    pub(crate) fn read(source: &ConfigSource<'_>, defaults: &Defaults) -> Result<Self> {
        let hidden_size = source.require_size(&["hidden_size", "n_embd"], "embedding_length")?;
        let heads = source.require_size(&["num_attention_heads", "n_head"], "attention.head_count")?;
        let intermediate_names = &["intermediate_size", "n_inner"];
        let intermediate_size = match (source.size(intermediate_names, "feed_forward_length")?, defaults) {
            (Some(size), _) => size,
            (None, Defaults { intermediate_factor: Some(factor), .. }) => factor * hidden_size,
            (None, _) => source.require_size(intermediate_names, "feed_forward_length")?,
        };
        let activation = source.text(&["hidden_act", "activation_function"], "");
        let context = source.size(&["max_position_embeddings", "n_positions", "n_ctx"], "context_length")?;
        let eps =
            source.number(&["rms_norm_eps", "layer_norm_epsilon"], "attention.layer_norm_rms_epsilon")?;
        let config = Config {
            model_type: source.model_type()?.to_string(),
            vocab_size: vocab_size(source)?,
            hidden_size,
            layers: source.require_size(&["num_hidden_layers", "n_layer"], "block_count")?,
            heads,
            kv_heads: source.size(&["num_key_value_heads"], "attention.head_count_kv")?.unwrap_or(heads),
            head_dim: source.size(&["head_dim"], "attention.key_length")?.unwrap_or(hidden_size / heads),
            intermediate_size,
            norm_eps: eps.unwrap_or(1e-5),
            activation: Activation::named(activation.unwrap_or(defaults.activation))?,
            context_length: context.unwrap_or(defaults.context_length),
            window: source.size(&["sliding_window"], "attention.sliding_window")?,
            rope_base: rope_base(source)?.unwrap_or(10_000.0),
            rope_scaling: rope_scaling(source, context.unwrap_or(2048))?,
            rope_traditional: source.flag("rope_traditional").unwrap_or(false),
            // GGUF files do not say: the output projection is tied if it is missing.
            tie_embeddings: source
                .flag("tie_word_embeddings")
                .unwrap_or(source.is_gguf() || defaults.tie_embeddings),
            quantizations: quantizations(source)?,
            eos_tokens: token_ids(source.json("eos_token_id")),
        };
        if config.head_dim == 0 {
            let what = format!("{heads} heads do not fit a hidden size of {hidden_size}");
            return Err(Error::config("configuration", what));
        }
        if !config.heads.is_multiple_of(config.kv_heads) {
            let what = format!("{heads} heads of queries cannot share {} heads of keys", config.kv_heads);
            return Err(Error::config("configuration", what));
        }
        Ok(config)
    }

    /// Heads and their dimension.
    pub(crate) fn attention_heads(&self) -> Heads {
        Heads { queries: self.heads, kv: self.kv_heads, dim: self.head_dim }
    }
}

/// The object in the text of a `config.json`.
pub(crate) fn parse_json(text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::config("config.json", "expected an object")),
        Err(error) => Err(Error::config("config.json", error.to_string())),
    }
}

/// The source of a GGUF file's metadata.
pub(crate) fn gguf_source(metadata: &Metadata) -> Result<ConfigSource<'_>> {
    let architecture = metadata.get("general.architecture").and_then(MetaValue::as_str);
    let missing = || Error::config("GGUF metadata", "general.architecture is missing");
    Ok(ConfigSource::Gguf { architecture: architecture.ok_or_else(missing)?, metadata })
}

/// Token ids: one, or a list of them.
pub(crate) fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// The size of the vocabulary; GGUF files may give only the list of tokens.
fn vocab_size(source: &ConfigSource<'_>) -> Result<usize> {
    if let ConfigSource::Gguf { metadata, .. } = source
        && let Some(tokens) = metadata.get("tokenizer.ggml.tokens").and_then(MetaValue::as_array)
        && !tokens.is_empty()
    {
        return Ok(tokens.len());
    }
    source.require_size(&["vocab_size"], "vocab_size")
}

/// The object in which a `config.json` describes rotary positions.
fn rope_object<'a>(source: &ConfigSource<'a>) -> Option<ConfigSource<'a>> {
    source.object(&["rope_parameters", "rope_scaling"]).map(ConfigSource::Json)
}

fn rope_base(source: &ConfigSource<'_>) -> Result<Option<f32>> {
    match rope_object(source).map_or(Ok(None), |rope| rope.number(&["rope_theta"], ""))? {
        Some(base) => Ok(Some(base)),
        None => source.number(&["rope_theta"], "rope.freq_base"),
    }
}

/// Scaling of rotary positions; `context` is the context length of the model.
fn rope_scaling(source: &ConfigSource<'_>, context: usize) -> Result<Option<RopeScaling>> {
    match rope_object(source) {
        Some(rope) => json_rope_scaling(&rope, context as f32),
        None if source.is_gguf() => gguf_rope_scaling(source, context as f32),
        None => Ok(None),
    }
}

fn json_rope_scaling(rope: &ConfigSource<'_>, context: f32) -> Result<Option<RopeScaling>> {
    let number = |key: &str| rope.number(&[key], "");
    let require =
        |key: &str| number(key)?.ok_or_else(|| Error::config("rope_scaling", format!("{key} is missing")));
    let original_context = number("original_max_position_embeddings")?.unwrap_or(context);
    Ok(match rope.text(&["rope_type", "type"], "") {
        // Dynamic scaling changes nothing up to the context length of training, which is the limit here.
        Some("default" | "dynamic") | None => None,
        Some("linear") => Some(RopeScaling::Linear(require("factor")?)),
        Some("llama3") => Some(RopeScaling::Llama3 {
            factor: require("factor")?,
            low_freq_factor: require("low_freq_factor")?,
            high_freq_factor: require("high_freq_factor")?,
            original_context,
        }),
        Some("yarn") => {
            let factor = number("factor")?.unwrap_or(context / original_context);
            let by_mscale = |mscale: f32| RopeScaling::yarn_attention_factor(factor, mscale);
            let mscales = (number("mscale")?, number("mscale_all_dim")?);
            let attention_factor = match (number("attention_factor")?, mscales) {
                (Some(given), _) => given,
                (None, (Some(mscale), Some(all_dim))) => by_mscale(mscale) / by_mscale(all_dim),
                (None, _) => by_mscale(1.0),
            };
            Some(RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast: number("beta_fast")?.unwrap_or(32.0),
                beta_slow: number("beta_slow")?.unwrap_or(1.0),
                attention_factor,
            })
        }
        Some(other) => return Err(unsupported_scaling("rope_scaling", other)),
    })
}

fn gguf_rope_scaling(source: &ConfigSource<'_>, context: f32) -> Result<Option<RopeScaling>> {
    let number = |key: &str| source.number(&[], &format!("rope.scaling.{key}"));
    Ok(match source.text(&[], "rope.scaling.type") {
        None | Some("none") => None,
        Some("linear") => number("factor")?.map(RopeScaling::Linear),
        Some("yarn") => {
            let factor = number("factor")?.unwrap_or(1.0);
            let attention_factor = number("attn_factor")?.unwrap_or(1.0);
            Some(RopeScaling::Yarn {
                factor,
                original_context: number("original_context_length")?.unwrap_or(context),
                beta_fast: number("yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: number("yarn_beta_slow")?.unwrap_or(1.0),
                attention_factor: attention_factor * RopeScaling::yarn_attention_factor(factor, 1.0),
            })
        }
        Some(other) => return Err(unsupported_scaling("rope.scaling.type", other)),
    })
}

fn unsupported_scaling(key: &str, kind: &str) -> Error {
    Error::config(key, format!("scaling of type {kind:?} is not supported"))
}

fn quantizations(source: &ConfigSource<'_>) -> Result<Quantizations> {
    if let Some(method) = source.object(&["quantization_config"]).and_then(|other| other.get("quant_method"))
    {
        let what = format!("quantization by {method} is not supported; MLX's layout is");
        return Err(Error::config("quantization_config", what));
    }
    let Some(all) = source.object(&["quantization"]) else { return Ok(Quantizations::default()) };
    let one = |fields: &Map<String, Value>| -> Result<Quantization> {
        let fields = ConfigSource::Json(fields);
        let size = |key: &str| {
            fields.size(&[key], "")?.ok_or_else(|| Error::config("quantization", format!("{key} is missing")))
        };
        let mode = fields.text(&["mode"], "").unwrap_or("affine");
        Ok(Quantization::new(size("group_size")?, size("bits")?, mode)?)
    };
    let layers = all.iter().filter_map(|(name, value)| Some((name, value.as_object()?)));
    let layers = layers.map(|(name, fields)| Ok((name.clone(), one(fields)?))).collect::<Result<_>>()?;
    Ok(Quantizations { default: Some(one(all)?), layers })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn with(extra: &str) -> Result<Config> {
        let base = r#""vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 16"#;
        Config::from_json(&format!("{{{base}, {extra}}}"))
    }

    #[test]
    fn an_unknown_model_type_is_named_with_the_known_ones() {
        let message = with(r#""model_type": "mamba""#).unwrap_err().to_string();
        assert!(message.contains("mamba") && message.contains("qwen3"), "{message}");
    }

    #[test]
    fn invalid_values_are_refused_by_key() {
        for (extra, culprit) in [
            (r#""model_type": 3"#, "model_type"),
            (r#""model_type": "llama", "head_dim": -4"#, "head_dim"),
            (r#""model_type": "llama", "num_key_value_heads": 0"#, "num_key_value_heads"),
            (r#""model_type": "llama", "num_key_value_heads": 3"#, "heads"),
            (r#""model_type": "llama", "rope_theta": "x""#, "rope_theta"),
            (r#""model_type": "llama", "head_dim": 5"#, "rotary"),
            (r#""model_type": "llama", "partial_rotary_factor": 0.5"#, "partial_rotary_factor"),
            (r#""model_type": "llama", "rope_scaling": {"rope_type": "new"}"#, "new"),
            (r#""model_type": "llama", "quantization_config": {"quant_method": "gptq"}"#, "gptq"),
            (r#""model_type": "llama", "quantization": {"bits": 4}"#, "group_size"),
            (r#""model_type": "llama", "hidden_act": "cube""#, "cube"),
            (r#""model_type": "gpt2", "head_dim": 5"#, "heads"),
        ] {
            let message = with(extra).unwrap_err().to_string();
            assert!(message.contains(culprit), "{extra}: {message}");
        }
        let message =
            Config::from_json(r#"{"model_type": "llama", "hidden_size": 8}"#).unwrap_err().to_string();
        assert!(message.contains("num_attention_heads"), "{message}");
    }

    #[test]
    fn scaling_quantization_and_eos_tokens_are_read() {
        let config = with(
            r#""model_type": "qwen3", "head_dim": 16, "eos_token_id": [1, 2],
               "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                "original_max_position_embeddings": 8192},
               "quantization": {"group_size": 64, "bits": 4, "lm_head": {"group_size": 32, "bits": 8}}"#,
        )
        .unwrap();
        assert_eq!(config.eos_tokens, [1, 2]);
        assert_eq!(config.context_length, 2048);
        let window = with(r#""model_type": "mistral", "sliding_window": 64, "max_position_embeddings": 512"#);
        let window = window.unwrap();
        assert_eq!((window.context_length, window.window), (512, Some(64)));
        let unused =
            with(r#""model_type": "qwen2", "sliding_window": 64, "max_position_embeddings": 512"#).unwrap();
        assert_eq!((unused.context_length, unused.window), (512, None));
        let used = with(
            r#""model_type": "qwen2", "sliding_window": 64, "use_sliding_window": true,
               "max_position_embeddings": 512"#,
        );
        let used = used.unwrap();
        assert_eq!((used.context_length, used.window), (64, None));
        assert_eq!(config.head_dim, 16);
        assert!(matches!(config.rope_scaling, Some(RopeScaling::Llama3 { factor: 8.0, .. })));
        let bits = |layer: &str| config.quantizations.of(layer).map(|one| one.bits());
        assert_eq!((bits("lm_head"), bits("model.embed_tokens")), (Some(8), Some(4)));
    }
}
