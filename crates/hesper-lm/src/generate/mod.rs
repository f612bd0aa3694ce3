//! Generation: one sequence ([`Generation`]), or a batch of sequences in common steps ([`Batch`]).
//!
//! Both run the prompt through the model in chunks (prefill), then one token after the other (decode), and
//! return text as soon as its characters are complete. A sequence does not depend on the others in its batch.
//!
//! An evaluation that fails loses nothing: its step stays pending, and the next call evaluates it again.

mod batch;
mod sequence;
mod single;
mod step;

pub use batch::{Batch, Event, batch_generate};
pub use sequence::{Piece, Sequence};
pub use single::{Generation, generate};

use crate::cache::CacheKind;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::sample::Sampling;

/// Tokens of a prompt that go through the model at once.
pub const PREFILL_CHUNK: usize = 512;

/// How a sequence is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// The largest number of tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the generation. They are not part of the result.
    pub stops: Vec<String>,
    /// Tokens that end the generation beside those of the model.
    pub stop_tokens: Vec<u32>,
    /// How the cache stores keys and values.
    pub cache: CacheKind,
    /// Whether to continue after a token that ends a sequence.
    pub ignore_eos: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 256,
            sampling: Sampling::default(),
            stops: Vec::new(),
            stop_tokens: Vec::new(),
            cache: CacheKind::default(),
            ignore_eos: false,
        }
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model chose a token that ends a sequence.
    End,
    /// A stop text was found.
    Stop,
    /// The requested number of tokens was generated.
    Length,
    /// The sequence has reached the context length of the model.
    Context,
}

impl Finish {
    /// Its name in JSON and Python.
    pub fn name(self) -> &'static str {
        match self {
            Finish::End => "end",
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Context => "context",
        }
    }
}

/// A generated sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The text, without the prompt.
    pub text: String,
    /// The tokens, including the one that ended the sequence.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Counts and times.
    pub stats: Stats,
}

/// Counts and times of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Seconds until the first token.
    pub prompt_seconds: f64,
    /// Generated tokens.
    pub tokens: usize,
    /// Seconds for all tokens but the first.
    pub seconds: f64,
}

impl Stats {
    /// Tokens of the prompt per second.
    pub fn prompt_speed(&self) -> f64 {
        speed(self.prompt_tokens, self.prompt_seconds)
    }

    /// Generated tokens per second. The first one counts as part of the prompt.
    pub fn speed(&self) -> f64 {
        speed(self.tokens.saturating_sub(1), self.seconds)
    }
}

fn speed(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// Checks a prompt that follows `cached` tokens: it has tokens of the vocabulary, and room for one more.
pub fn check_prompt(prompt: &[u32], cached: usize, config: &Config) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    if let Some(id) = prompt.iter().find(|id| **id as usize >= config.vocab_size) {
        let what = format!("token {id} is not in the model's vocabulary of {} tokens", config.vocab_size);
        return Err(Error::Tokenizer(what));
    }
    let tokens = prompt.len() + cached;
    if tokens >= config.context_length {
        return Err(Error::ContextLength { tokens, limit: config.context_length });
    }
    Ok(())
}
