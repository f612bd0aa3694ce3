//! Qwen 3: Llama with norms of queries and keys.

use super::{Architecture, CausalLm, NameMap, llama, qwen2};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::config_source::ConfigSource;
use crate::error::Result;

#[derive(Debug)]
struct Qwen3(Config);

pub(super) fn open(source: &ConfigSource<'_>) -> Result<Box<dyn Architecture>> {
    Ok(Box::new(Qwen3(qwen2::config(source)?)))
}

impl Architecture for Qwen3 {
    fn config(&self) -> &Config {
        &self.0
    }

    fn gguf_names(&self) -> NameMap {
        let mut names = llama::GGUF_NAMES.to_vec();
        names.push(("model.layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"));
        names.push(("model.layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"));
        names
    }

    fn build(&self, weights: &Checkpoint) -> Result<Box<dyn CausalLm>> {
        let Config { head_dim, norm_eps, .. } = self.0;
        llama::decoder(&self.0, weights, |at, dtype| {
            let norm = |name: &str| {
                weights.rms_norm(&format!("model.layers.{at}.self_attn.{name}"), head_dim, norm_eps, dtype)
            };
            Ok(Some((norm("q_norm")?, norm("k_norm")?)))
        })
    }
}
