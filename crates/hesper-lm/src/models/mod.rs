//! Model types, a file each.
//!
//! A file reads the configuration of its model type, maps the names of its tensors, and builds its layers
//! from [`crate::blocks`] and `hesper_nn`. [`REGISTRY`] is the only other place that knows a model type:
//! adding one is a file and a line (see CONTRIBUTING.md).

mod gpt2;
mod llama;
mod qwen2;
mod qwen3;

use hesper_core::io::Metadata;

use crate::architecture::{Architecture, CausalLm, QuantizeRule};
use crate::checkpoint::NameMap;
use crate::config::{Config, gguf_source, parse_json};
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};

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

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// ```
    /// let text = r#"{"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 2,
    ///     "num_attention_heads": 2, "intermediate_size": 16}"#;
    /// let config = hesper_lm::Config::from_json(text)?;
    /// assert_eq!((config.kv_heads, config.head_dim), (2, 4));
    /// # Ok::<(), hesper_lm::Error>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let map = parse_json(text)?;
        Ok(open(&ConfigSource::Json(&map))?.config().clone())
    }

    /// Reads the metadata of a GGUF file.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        Ok(open(&gguf_source(metadata)?)?.config().clone())
    }
}
