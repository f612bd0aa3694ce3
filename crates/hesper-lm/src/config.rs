//! What a model is made of, as its `config.json` tells.
//!
//! All families become one [`Config`]; [`crate::gguf`] fills it from a GGUF file's metadata. Numbers are
//! checked here, so that nothing later has to trust them.

use std::collections::HashMap;

use hesper_nn::{Activation, Quantization, RopeScaling};
use serde_json::Value;

use crate::error::{Error, Result};

/// The families that are supported, for messages.
pub const FAMILIES: &str =
    "llama, qwen2, qwen3, gpt2 (also those that are built like them: SmolLM2, Mistral)";

/// A family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama 2 and 3, SmolLM2, Mistral.
    Llama,
    /// Qwen 2 and 2.5: biases on queries, keys and values.
    Qwen2,
    /// Qwen 3: queries and keys are normalised.
    Qwen3,
    /// GPT-2: layer norms, learned positions.
    Gpt2,
}

impl Family {
    /// By the name that configurations and GGUF files use.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "llama" | "mistral" | "smollm2" => Family::Llama,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "gpt2" => Family::Gpt2,
            _ => return Err(Error::Architecture { name: name.to_string(), known: FAMILIES }),
        })
    }
}

/// How the weights of a checkpoint were quantized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quantizations {
    /// Of layers that are not named.
    pub default: Option<Quantization>,
    /// Of layers by name.
    pub layers: HashMap<String, Quantization>,
}

impl Quantizations {
    /// Of a layer.
    pub fn of(&self, layer: &str) -> Option<Quantization> {
        self.layers.get(layer).copied().or(self.default)
    }
}

/// What a model is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Its family.
    pub family: Family,
    /// Tokens it knows.
    pub vocabulary: usize,
    /// Numbers for a token.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head_width: usize,
    /// Numbers between the layers of an MLP.
    pub mlp_width: usize,
    /// Keeps norms from dividing by zero.
    pub eps: f32,
    /// The activation of the MLPs.
    pub activation: Activation,
    /// Most tokens of a text.
    pub context: usize,
    /// How many of the last tokens are seen, if not all.
    pub window: Option<usize>,
    /// The base of rotary positions.
    pub rope_base: f32,
    /// How rotary positions are stretched.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether rotary pairs are neighbours.
    pub rope_traditional: bool,
    /// Whether the table of tokens is the last layer too.
    pub tied: bool,
    /// How weights are quantized.
    pub quantizations: Quantizations,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
}

/// No model has more layers, heads or tokens; a configuration that says so is wrong.
const MOST: u64 = 1 << 24;

/// A configuration's fields, with errors that name them.
struct Fields<'a>(&'a serde_json::Map<String, Value>);

impl Fields<'_> {
    fn find(&self, names: &[&str]) -> Option<(&str, &Value)> {
        names.iter().find_map(|name| match self.0.get_key_value(*name) {
            Some((key, value)) if !value.is_null() => Some((key.as_str(), value)),
            _ => None,
        })
    }

    fn size(&self, names: &[&str]) -> Result<Option<usize>> {
        let Some((name, value)) = self.find(names) else { return Ok(None) };
        match value.as_u64() {
            Some(size @ 1..=MOST) => Ok(Some(size as usize)),
            _ => Err(Error::config(
                name,
                format!("{value} where a positive number of reasonable size is needed"),
            )),
        }
    }

    fn need(&self, names: &[&str]) -> Result<usize> {
        self.size(names)?.ok_or_else(|| Error::config("config.json", format!("there is no {}", names[0])))
    }

    fn number(&self, names: &[&str]) -> Result<Option<f32>> {
        let Some((name, value)) = self.find(names) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number as f32)),
            _ => Err(Error::config(name, format!("{value} where a positive number is needed"))),
        }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    fn text(&self, names: &[&str]) -> Option<&str> {
        self.find(names).and_then(|(_, value)| value.as_str())
    }
}

impl Config {
    /// From the text of a `config.json`.
    ///
    /// ```
    /// let text = r#"{"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 2,
    ///     "num_attention_heads": 2, "intermediate_size": 16}"#;
    /// let config = hesper_lm::Config::from_json(text)?;
    /// assert_eq!((config.kv_heads, config.head_width), (2, 4));
    /// # Ok::<(), hesper_lm::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| Error::config("config.json", error.to_string()))?;
        let Value::Object(map) = &value else {
            return Err(Error::config("config.json", "is no object"));
        };
        let fields = Fields(map);
        let Some(name) = fields.text(&["model_type"]) else {
            return Err(Error::config("config.json", "there is no model_type"));
        };
        let family = Family::named(name)?;
        let gpt2 = family == Family::Gpt2;
        let width = fields.need(&["hidden_size", "n_embd"])?;
        let heads = fields.need(&["num_attention_heads", "n_head"])?;
        let activation = fields.text(&["hidden_act", "activation_function"]);
        let mut context = fields.size(&["max_position_embeddings", "n_positions", "n_ctx"])?;
        let mut window = fields.size(&["sliding_window"])?;
        if matches!(family, Family::Qwen2 | Family::Qwen3) {
            // Only some layers have the window, and only if it is asked for; up to its length there is none.
            if let (Some(window), Some(true)) = (window, fields.flag("use_sliding_window")) {
                context = Some(context.map_or(window, |context| context.min(window)));
            }
            window = None;
        }
        // Newer configurations hold all that is known of rotary positions in one object.
        let rope = ["rope_parameters", "rope_scaling"].iter().find_map(|name| map.get(*name)?.as_object());
        let base = match rope.and_then(|rope| Fields(rope).number(&["rope_theta"]).transpose()) {
            Some(base) => Some(base?),
            None => fields.number(&["rope_theta"])?,
        };
        if fields.number(&["partial_rotary_factor"])?.is_some_and(|part| part != 1.0) {
            return Err(Error::config(
                "partial_rotary_factor",
                "heads that are turned in part are not supported",
            ));
        }
        let config = Config {
            family,
            vocabulary: fields.need(&["vocab_size"])?,
            width,
            layers: fields.need(&["num_hidden_layers", "n_layer"])?,
            heads,
            kv_heads: fields.size(&["num_key_value_heads"])?.unwrap_or(heads),
            head_width: fields.size(&["head_dim"])?.unwrap_or(width / heads),
            mlp_width: match fields.size(&["intermediate_size", "n_inner"])? {
                Some(size) => size,
                None if gpt2 => 4 * width,
                None => fields.need(&["intermediate_size"])?,
            },
            eps: fields.number(&["rms_norm_eps", "layer_norm_epsilon"])?.unwrap_or(1e-5),
            activation: Activation::named(activation.unwrap_or(if gpt2 { "gelu_new" } else { "silu" }))?,
            context: context.unwrap_or(if gpt2 { 1024 } else { 2048 }),
            window,
            rope_base: base.unwrap_or(10_000.0),
            rope_scaling: rope.map_or(Ok(None), |rope| rope_scaling(rope, context.unwrap_or(2048)))?,
            rope_traditional: fields.flag("rope_traditional").unwrap_or(false),
            tied: fields.flag("tie_word_embeddings").unwrap_or(gpt2),
            quantizations: quantizations(map)?,
            ends: ends(map.get("eos_token_id")),
        };
        config.check()?;
        Ok(config)
    }

    /// Whether the numbers go together.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::config("configuration", what));
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad(format!("{} heads cannot share {} heads of keys", self.heads, self.kv_heads));
        }
        if self.family != Family::Gpt2 && !self.head_width.is_multiple_of(2) {
            return bad(format!("heads of {} numbers cannot have rotary positions", self.head_width));
        }
        if self.head_width == 0 || (self.family == Family::Gpt2 && self.head_width * self.heads != self.width)
        {
            return bad(format!(
                "{} numbers are not {} heads of {}",
                self.width, self.heads, self.head_width
            ));
        }
        Ok(())
    }
}

/// Tokens that end a text: a number or a list of them.
pub(crate) fn ends(value: Option<&Value>) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(list)) => list.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    }
}

fn rope_scaling(scaling: &serde_json::Map<String, Value>, context: usize) -> Result<Option<RopeScaling>> {
    let fields = Fields(scaling);
    let need = |name: &str| {
        fields.number(&[name])?.ok_or_else(|| Error::config("rope_scaling", format!("there is no {name}")))
    };
    let original = fields.number(&["original_max_position_embeddings"])?.unwrap_or(context as f32);
    match fields.text(&["rope_type", "type"]) {
        // Dynamic scaling changes nothing up to the context of training, which is as far as texts go.
        Some("default" | "dynamic") | None => Ok(None),
        Some("linear") => Ok(Some(RopeScaling::Linear(need("factor")?))),
        Some("llama3") => Ok(Some(RopeScaling::Llama3 {
            factor: need("factor")?,
            low: need("low_freq_factor")?,
            high: need("high_freq_factor")?,
            original,
        })),
        Some("yarn") => {
            let factor = match fields.number(&["factor"])? {
                Some(factor) => factor,
                None => context as f32 / original,
            };
            let weights = (fields.number(&["mscale"])?, fields.number(&["mscale_all_dim"])?);
            let gain = match (fields.number(&["attention_factor"])?, weights) {
                (Some(gain), _) => gain,
                (None, (Some(own), Some(all))) => {
                    RopeScaling::yarn_gain(factor, own) / RopeScaling::yarn_gain(factor, all)
                }
                (None, _) => RopeScaling::yarn_gain(factor, 1.0),
            };
            let fast = fields.number(&["beta_fast"])?.unwrap_or(32.0);
            let slow = fields.number(&["beta_slow"])?.unwrap_or(1.0);
            Ok(Some(RopeScaling::Yarn { factor, original, fast, slow, gain }))
        }
        Some(other) => Err(Error::config("rope_scaling", format!("the type {other:?} is not supported"))),
    }
}

fn quantizations(map: &serde_json::Map<String, Value>) -> Result<Quantizations> {
    if let Some(Value::Object(other)) = map.get("quantization_config")
        && let Some(method) = other.get("quant_method").and_then(Value::as_str)
    {
        let what =
            format!("weights quantized by {method:?} are not supported; affine ones in MLX's layout are");
        return Err(Error::config("quantization_config", what));
    }
    let Some(Value::Object(all)) = map.get("quantization") else { return Ok(Quantizations::default()) };
    let one = |fields: &serde_json::Map<String, Value>| -> Result<Quantization> {
        let fields = Fields(fields);
        let mode = fields.text(&["mode"]).unwrap_or("affine");
        let need = |name| {
            fields.size(&[name])?.ok_or_else(|| Error::config("quantization", format!("there is no {name}")))
        };
        Ok(Quantization::new(need("group_size")?, need("bits")?, mode)?)
    };
    let mut layers = HashMap::new();
    for (name, value) in all {
        if let Value::Object(own) = value {
            layers.insert(name.clone(), one(own)?);
        }
    }
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
    fn unknown_architectures_are_named_with_those_that_are_known() {
        let message = with(r#""model_type": "mamba""#).unwrap_err().to_string();
        assert!(message.contains("mamba") && message.contains("qwen3"), "{message}");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused_by_name() {
        for (extra, culprit) in [
            (r#""model_type": "llama", "head_dim": -4"#, "head_dim"),
            (r#""model_type": "llama", "num_key_value_heads": 0"#, "num_key_value_heads"),
            (r#""model_type": "llama", "num_key_value_heads": 3"#, "heads"),
            (r#""model_type": "llama", "rope_theta": "x""#, "rope_theta"),
            (r#""model_type": "llama", "head_dim": 5"#, "rotary"),
            (r#""model_type": "llama", "partial_rotary_factor": 0.5"#, "partial_rotary_factor"),
            (r#""model_type": "llama", "rope_scaling": {"rope_type": "new"}"#, "new"),
            (r#""model_type": "llama", "quantization_config": {"quant_method": "gptq"}"#, "gptq"),
        ] {
            let message = with(extra).unwrap_err().to_string();
            assert!(message.contains(culprit), "{extra}: {message}");
        }
    }

    #[test]
    fn scaling_quantization_and_ends_are_read() {
        let config = with(
            r#""model_type": "qwen3", "head_dim": 16, "eos_token_id": [1, 2],
               "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                "original_max_position_embeddings": 8192},
               "quantization": {"group_size": 64, "bits": 4, "lm_head": {"group_size": 32, "bits": 8}}"#,
        )
        .unwrap();
        assert_eq!(config.ends, [1, 2]);
        assert_eq!(config.context, 2048);
        let window = with(r#""model_type": "mistral", "sliding_window": 64, "max_position_embeddings": 512"#);
        let window = window.unwrap();
        assert_eq!((window.context, window.window), (512, Some(64)));
        let unused =
            with(r#""model_type": "qwen2", "sliding_window": 64, "max_position_embeddings": 512"#).unwrap();
        assert_eq!((unused.context, unused.window), (512, None));
        assert_eq!(config.head_width, 16);
        assert!(matches!(config.rope_scaling, Some(RopeScaling::Llama3 { factor: 8.0, .. })));
        let bits = |layer: &str| config.quantizations.of(layer).map(|one| one.bits());
        assert_eq!((bits("lm_head"), bits("model.embed_tokens")), (Some(8), Some(4)));
    }
}
