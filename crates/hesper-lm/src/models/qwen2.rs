//! Qwen 2 and 2.5: Llama with biases on queries, keys and values.

use super::{Architecture, CausalLm, NameMap, llama};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::config_source::ConfigSource;
use crate::error::Result;

#[derive(Debug)]
struct Qwen2(Config);

pub(super) fn open(source: &ConfigSource<'_>) -> Result<Box<dyn Architecture>> {
    Ok(Box::new(Qwen2(config(source)?)))
}

/// The configuration of Qwen 2 and 3.
pub(super) fn config(source: &ConfigSource<'_>) -> Result<Config> {
    let mut config = llama::config(source)?;
    // `config.json` names a window that only some layers have, and only with `use_sliding_window`. It changes
    // nothing for sequences up to its length.
    if !source.is_gguf()
        && let Some(window) = config.window.take()
        && source.flag("use_sliding_window") == Some(true)
    {
        config.context_length = config.context_length.min(window);
    }
    Ok(config)
}

impl Architecture for Qwen2 {
    fn config(&self) -> &Config {
        &self.0
    }

    fn gguf_names(&self) -> NameMap {
        llama::GGUF_NAMES.to_vec()
    }

    fn build(&self, weights: &Checkpoint) -> Result<Box<dyn CausalLm>> {
        llama::decoder(&self.0, weights, |_, _| Ok(None))
    }
}
