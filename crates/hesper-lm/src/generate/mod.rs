//! Generation: one text at a time ([`Generation`]), or many in one step ([`Batch`]).
//!
//! Both run the prompt through the model in pieces, then one token after the other, and give text as it becomes
//! whole. A text does not depend on what is generated beside it.

mod batch;
mod text;

pub use batch::{Batch, Event, batch_generate};
pub use text::{Generation, Piece, generate};

use crate::cache::CacheKind;
use crate::error::{Error, Result};
use crate::sample::Sampling;

/// Tokens of a prompt that go through the model at once.
pub const PREFILL: usize = 512;

/// How a text is generated.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens that are generated.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the generation; they are not part of it.
    pub stops: Vec<String>,
    /// How keys and values are kept.
    pub cache: CacheKind,
    /// Whether to go on behind tokens that end a text.
    pub ignore_end: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 256,
            sampling: Sampling::default(),
            stops: Vec::new(),
            cache: CacheKind::default(),
            ignore_end: false,
        }
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended the text.
    End,
    /// A stop text was found.
    Stop,
    /// As many tokens as were asked for.
    Length,
    /// The model's context is full.
    Context,
}

impl Finish {
    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Finish::End => "end",
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Context => "context",
        }
    }
}

/// A text that was generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The text, without the prompt.
    pub text: String,
    /// Its tokens, the one that ended it included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// What it took.
    pub stats: Stats,
}

/// What a generation took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Seconds until the first token.
    pub prompt_seconds: f64,
    /// Tokens generated.
    pub tokens: usize,
    /// Seconds for all tokens but the first.
    pub seconds: f64,
}

impl Stats {
    /// Tokens of the prompt in a second.
    pub fn prompt_speed(&self) -> f64 {
        speed(self.prompt_tokens, self.prompt_seconds)
    }

    /// Generated tokens in a second; the first one counts for the prompt.
    pub fn speed(&self) -> f64 {
        speed(self.tokens.saturating_sub(1), self.seconds)
    }
}

fn speed(tokens: usize, seconds: f64) -> f64 {
    if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 }
}

/// Refuses prompts that cannot be continued.
fn check_prompt(prompt: &[u32], already: usize, context: usize, vocabulary: usize) -> Result<()> {
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    if let Some(id) = prompt.iter().find(|id| **id as usize >= vocabulary) {
        return Err(Error::Tokenizer(format!("token {id} is none of the model's {vocabulary}")));
    }
    let tokens = prompt.len() + already;
    if tokens >= context {
        return Err(Error::Context { tokens, limit: context });
    }
    Ok(())
}
