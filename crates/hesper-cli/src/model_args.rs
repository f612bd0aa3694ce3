//! Options of the commands that use a language model: the model, the device, sampling.

use std::time::Instant;

use clap::Args;
use hesper::placement::{self, Device};
use hesper_lm::{CacheKind, GenerateOptions, LanguageModel, LoadOptions, Sampling, fetch};

use crate::progress::Progress;

/// The model and its device.
#[derive(Args)]
pub struct ModelArgs {
    /// A name (smollm2, demo), a GGUF file, or a folder with config.json, tokenizer.json and safetensors
    #[arg(long, short, value_name = "NAME|PATH", default_value = "smollm2")]
    pub model: String,
    /// Round activations to 8 bits for products with 4- and 8-bit weights where that is faster
    #[arg(long)]
    pub round_activations: bool,
    /// The device: cpu, gpu or gpu:N (NVIDIA) [default: HESPER_DEVICE, else cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
}

impl ModelArgs {
    /// Loads the model and shows progress on a terminal. Returns the model and the seconds that this took.
    pub fn load(&self, quiet: bool) -> Result<(LanguageModel, f64), String> {
        if let Some((device, origin)) = self.chosen_device()? {
            placement::set_default_device(device).map_err(|error| format!("{origin} {device}: {error}"))?;
        }
        let start = Instant::now();
        let model = self.fetch(quiet)?;
        Ok((model, start.elapsed().as_secs_f64()))
    }

    /// Loads the model without selecting its device.
    pub fn load_on_host(&self) -> Result<LanguageModel, String> {
        self.fetch(false)
    }

    fn fetch(&self, quiet: bool) -> Result<LanguageModel, String> {
        let options = LoadOptions { round_activations: self.round_activations };
        let mut progress = Progress::new(quiet);
        let model = fetch::load(&self.model, &options, &mut |what| progress.set(what))
            .map_err(|error| error.to_string())?;
        progress.clear();
        Ok(model)
    }

    /// The device that the user has chosen, and the option or environment variable that names it.
    pub fn chosen_device(&self) -> Result<Option<(Device, &'static str)>, String> {
        match (self.device, std::env::var("HESPER_DEVICE")) {
            (Some(device), _) => Ok(Some((device, "--device"))),
            (None, Ok(name)) if !name.is_empty() => {
                let device = name.parse().map_err(|error| format!("HESPER_DEVICE: {error}"))?;
                Ok(Some((device, "HESPER_DEVICE")))
            }
            _ => Ok(None),
        }
    }
}

/// Sampling, stop sequences and the cache.
#[derive(Args)]
pub struct SamplingArgs {
    /// Maximum number of tokens to generate
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 256)]
    pub max_tokens: usize,
    /// Divide logits by this number; 0 always chooses the most likely token
    #[arg(long, short, value_name = "NUMBER")]
    pub temperature: Option<f32>,
    /// Choose among this many of the most likely tokens; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub top_k: usize,
    /// Choose among the most likely tokens that together have this probability
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub top_p: f32,
    /// Choose among tokens of at least this probability relative to the most likely one
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    pub min_p: f32,
    /// Reduce the logits of repeated tokens by this factor; 1 for no penalty
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub repetition_penalty: f32,
    /// Number of recent tokens that the penalty applies to
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub repetition_context: usize,
    /// Seed of the sampler
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Stop before this text; may be repeated
    #[arg(long = "stop", value_name = "TEXT")]
    pub stops: Vec<String>,
    /// Keep this many tokens in the cache: the first four and the most recent ones
    #[arg(long, value_name = "COUNT")]
    pub window: Option<usize>,
    /// Quantize keys and values to 8 or 4 bits
    #[arg(long, value_name = "BITS", conflicts_with = "window")]
    pub kv_bits: Option<usize>,
}

impl SamplingArgs {
    /// The options of a generation, with the command's default temperature.
    pub fn options(&self, temperature: f32) -> GenerateOptions {
        GenerateOptions {
            max_tokens: self.max_tokens,
            sampling: Sampling {
                temperature: self.temperature.unwrap_or(temperature),
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                repetition_context: self.repetition_context,
                seed: self.seed,
                ..Sampling::default()
            },
            stops: self.stops.clone(),
            cache: CacheKind::of(self.window, self.kv_bits),
            ..GenerateOptions::default()
        }
    }
}
