//! Configurations from the metadata of GGUF files.

use hesper::io::{MetaValue, Metadata};
use hesper_nn::{Activation, RopeScaling};

use crate::config::{Config, Family, Quantizations};
use crate::error::{Error, Result};

impl Config {
    /// From the metadata of a GGUF file. Some of what a configuration says is not in it: whether the table
    /// of tokens is tied is told by the tensors.
    pub fn from_gguf(metadata: &Metadata, tied: bool) -> Result<Self> {
        let Some(name) = metadata.get("general.architecture").and_then(MetaValue::as_str) else {
            return Err(Error::config("general.architecture", "is not in the file"));
        };
        let family = Family::named(name)?;
        let find = |key: &str| metadata.get(&format!("{name}.{key}"));
        let size = |key: &str| match find(key).map(|value| (value, value.as_u64())) {
            None => Ok(None),
            Some((_, Some(size @ 1..=0x100_0000))) => Ok(Some(size as usize)),
            Some((value, _)) => {
                Err(Error::config(format!("{name}.{key}"), format!("{value:?} is no reasonable size")))
            }
        };
        let need = |key: &str| {
            size(key)?.ok_or_else(|| Error::config(format!("{name}.{key}"), "is not in the file"))
        };
        let number = |key: &str| match find(key).map(|value| (value, value.as_f64())) {
            None => Ok(None),
            Some((_, Some(number))) if number.is_finite() && number > 0.0 => Ok(Some(number as f32)),
            Some((value, _)) => Err(Error::config(
                format!("{name}.{key}"),
                format!("{value:?} where a positive number is needed"),
            )),
        };
        let (width, heads) = (need("embedding_length")?, need("attention.head_count")?);
        let tokens =
            metadata.get("tokenizer.ggml.tokens").and_then(MetaValue::as_array).map(|list| list.len());
        let scaling = match metadata.get(&format!("{name}.rope.scaling.type")).and_then(MetaValue::as_str) {
            None | Some("none") => None,
            Some("linear") => number("rope.scaling.factor")?.map(RopeScaling::Linear),
            Some("yarn") => {
                let context = size("context_length")?.unwrap_or(2048) as f32;
                let factor = number("rope.scaling.factor")?.unwrap_or(1.0);
                let gain = number("rope.scaling.attn_factor")?.unwrap_or(1.0);
                Some(RopeScaling::Yarn {
                    factor,
                    original: number("rope.scaling.original_context_length")?.unwrap_or(context),
                    fast: number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    slow: number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    gain: gain * RopeScaling::yarn_gain(factor, 1.0),
                })
            }
            Some(other) => {
                let what = format!("the type {other:?} is not supported");
                return Err(Error::config(format!("{name}.rope.scaling.type"), what));
            }
        };
        let gpt2 = family == Family::Gpt2;
        let eps = match gpt2 {
            true => number("attention.layer_norm_epsilon")?,
            false => number("attention.layer_norm_rms_epsilon")?,
        };
        let config = Config {
            family,
            vocabulary: match tokens {
                Some(count) if count > 0 => count,
                _ => need("vocab_size")?,
            },
            width,
            layers: need("block_count")?,
            heads,
            kv_heads: size("attention.head_count_kv")?.unwrap_or(heads),
            head_width: size("attention.key_length")?.unwrap_or(width / heads),
            mlp_width: need("feed_forward_length")?,
            eps: eps.unwrap_or(1e-5),
            activation: if gpt2 { Activation::GeluTanh } else { Activation::Silu },
            context: size("context_length")?.unwrap_or(2048),
            window: size("attention.sliding_window")?,
            rope_base: number("rope.freq_base")?.unwrap_or(10_000.0),
            rope_scaling: scaling,
            // Queries and keys of Llama are stored so that pairs are neighbours.
            rope_traditional: family == Family::Llama,
            tied,
            quantizations: Quantizations::default(),
            ends: Vec::new(),
        };
        config.check()?;
        Ok(config)
    }
}
