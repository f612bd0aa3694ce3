//! What the commands that use a language model share: its options, loading it, sampling.

use std::time::Instant;

use clap::Args;
use hesper::place::{self, Device};
use hesper_lm::{CacheKind, GenerateOptions, LanguageModel, LoadOptions, Sampling, fetch};

use crate::progress::Progress;

/// Which model, and how it computes.
#[derive(Args)]
pub struct ModelArgs {
    /// A name (smollm2, demo), a GGUF file, or a folder with config.json, tokenizer.json and safetensors
    #[arg(long, short, value_name = "NAME|PATH", default_value = "smollm2")]
    pub model: String,
    /// Round activations that meet 4- and 8-bit weights to 8 bits where that is faster
    #[arg(long)]
    pub round_activations: bool,
    /// Where to compute: cpu, gpu or gpu:N (NVIDIA) [default: as HESPER_DEVICE says, else cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
}

impl ModelArgs {
    /// Loads the model, telling on a terminal what takes time.
    pub fn load(&self, quiet: bool) -> Result<(LanguageModel, f64), String> {
        choose(self.device)?;
        let start = Instant::now();
        let options = LoadOptions { round_activations: self.round_activations };
        let mut progress = Progress::new(quiet);
        let model = fetch::load(&self.model, &options, &mut |what| progress.say(what))
            .map_err(|error| error.to_string())?;
        progress.clear();
        Ok((model, start.elapsed().as_secs_f64()))
    }
}

/// Makes a device that all ops run on; one that is asked for and cannot be used is an error.
fn choose(device: Option<Device>) -> Result<(), String> {
    let (device, who) = match (device, std::env::var("HESPER_DEVICE")) {
        (Some(device), _) => (device, "--device"),
        (None, Ok(name)) if !name.is_empty() => {
            (name.parse().map_err(|error| format!("HESPER_DEVICE: {error}"))?, "HESPER_DEVICE")
        }
        _ => return Ok(()),
    };
    place::set_default_device(device).map_err(|error| format!("{who} {device}: {error}"))
}

/// How tokens are chosen and how many.
#[derive(Args)]
pub struct SamplingArgs {
    /// Most tokens to generate
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 256)]
    pub max_tokens: usize,
    /// Divides scores; 0 always takes the best token
    #[arg(long, short, value_name = "NUMBER")]
    pub temperature: Option<f32>,
    /// Choose among so many of the best tokens; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub top_k: usize,
    /// Choose among the best tokens that together have this probability
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub top_p: f32,
    /// Choose among tokens at least this likely compared to the best
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    pub min_p: f32,
    /// Makes tokens that have been there less likely; 1 for none
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    pub repetition_penalty: f32,
    /// How many of the last tokens the penalty looks at
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub repetition_context: usize,
    /// Where chance begins
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// End before this text; may be given several times
    #[arg(long = "stop", value_name = "TEXT")]
    pub stops: Vec<String>,
    /// Remember only so many tokens: the first four and the last ones
    #[arg(long, value_name = "COUNT")]
    pub window: Option<usize>,
    /// Keep keys and values in 8 or 4 bits
    #[arg(long, value_name = "BITS", conflicts_with = "window")]
    pub kv_bits: Option<usize>,
}

impl SamplingArgs {
    /// The options; `temperature` is that of the command where none is given.
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
            },
            stops: self.stops.clone(),
            cache: CacheKind::of(self.window, self.kv_bits),
            ignore_end: false,
        }
    }
}
