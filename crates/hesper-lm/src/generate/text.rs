//! One text.

use std::borrow::{Borrow, BorrowMut};
use std::time::Instant;

use hesper::Array;

use super::{Finish, GenerateOptions, Generated, PREFILL, Stats, check_prompt};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::language::LanguageModel;
use crate::model::Model;
use crate::sample::Sampler;
use crate::tokenizer::{Detokenizer, Stops};

/// A step of a generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The token that was chosen.
    pub token: u32,
    /// Text that is now certain; may be empty.
    pub text: String,
    /// Why the generation ends with this piece, if it does.
    pub finish: Option<Finish>,
}

/// What of a text is known besides its cache: shared by single and batched generation.
#[derive(Debug)]
pub(super) struct State {
    sampler: Sampler,
    detokenizer: Detokenizer,
    stops: Stops,
    /// Prompt and generated tokens, for penalties.
    seen: Vec<u32>,
    made: usize,
    max_tokens: usize,
    ignore_end: bool,
}

impl State {
    pub(super) fn new(prompt: &[u32], options: &GenerateOptions) -> Result<Self> {
        Ok(State {
            sampler: Sampler::new(&options.sampling)?,
            detokenizer: Detokenizer::new(prompt),
            stops: Stops::new(&options.stops),
            seen: prompt.to_vec(),
            made: 0,
            max_tokens: options.max_tokens,
            ignore_end: options.ignore_end,
        })
    }

    /// Chooses the next token by its scores. `length` is that of the text without it.
    pub(super) fn next(&mut self, language: &LanguageModel, scores: &[f32], length: usize) -> Result<Piece> {
        let token = self.sampler.choose(scores, &self.seen).ok_or_else(|| {
            Error::Setting("the model's scores are no numbers; its weights may be damaged".into())
        })?;
        self.seen.push(token);
        self.made += 1;
        let ended = !self.ignore_end && language.ends().contains(&token);
        let mut text = String::new();
        let mut finish = None;
        if ended {
            finish = Some(Finish::End);
        } else {
            let (sure, stopped) = self.stops.push(&self.detokenizer.push(language.tokenizer(), token)?);
            text = sure;
            finish = match () {
                () if stopped => Some(Finish::Stop),
                () if self.made >= self.max_tokens => Some(Finish::Length),
                () if length + 1 >= language.model().config().context => Some(Finish::Context),
                () => finish,
            };
        }
        if finish.is_some_and(|finish| finish != Finish::Stop) {
            let (sure, stopped) = self.stops.push(&self.detokenizer.finish(language.tokenizer())?);
            text.push_str(&sure);
            match stopped {
                true => finish = Some(Finish::Stop),
                false => text.push_str(&self.stops.finish()),
            }
        }
        Ok(Piece { token, text, finish })
    }
}

/// The scores after a prompt, which goes through the model in pieces.
pub(super) fn prefill(model: &Model, prompt: &[u32], cache: &mut Cache) -> Result<Array> {
    let mut scores = None;
    let pieces = prompt.len().div_ceil(PREFILL);
    for (at, piece) in prompt.chunks(PREFILL).enumerate() {
        let ids = Array::try_from_slice(piece, &[1, piece.len()])?;
        let result = model.step(&ids, cache)?;
        if at + 1 < pieces {
            // Only what is remembered matters; the scores of this piece are never computed.
            hesper::eval(cache.arrays())?;
        }
        scores = Some(result);
    }
    scores.ok_or(Error::EmptyPrompt)
}

/// A text being generated: an iterator over its pieces. It borrows or holds the model (`&LanguageModel`,
/// `Arc<LanguageModel>`) and the cache (`&mut Cache`, `Cache`).
#[derive(Debug)]
pub struct Generation<L, C> {
    language: L,
    cache: C,
    state: State,
    /// What goes through the model next: the prompt, or the last token.
    next: Vec<u32>,
    finish: Option<Finish>,
    failed: bool,
    stats: Stats,
    begun: Option<Instant>,
}

impl<L: Borrow<LanguageModel>, C: BorrowMut<Cache>> Generation<L, C> {
    /// Continues the text in `cache` with `prompt`. Afterwards the cache holds all but the last token.
    pub fn new(language: L, prompt: &[u32], cache: C, options: &GenerateOptions) -> Result<Self> {
        let &[length] = cache.borrow().lengths() else {
            return Err(Error::Setting("a batch of texts cannot be continued as one".into()));
        };
        let config = language.borrow().model().config();
        check_prompt(prompt, length, config.context, config.vocabulary)?;
        let finish = if options.max_tokens == 0 { Some(Finish::Length) } else { None };
        Ok(Generation {
            language,
            cache,
            state: State::new(prompt, options)?,
            next: prompt.to_vec(),
            finish,
            failed: false,
            stats: Stats { prompt_tokens: prompt.len(), ..Stats::default() },
            begun: None,
        })
    }

    /// Why it ended, once it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// What it took so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn step(&mut self) -> Result<Piece> {
        let start = Instant::now();
        let (language, cache) = (self.language.borrow(), self.cache.borrow_mut());
        let scores = prefill(language.model(), &self.next, cache)?;
        let length = cache.lengths()[0];
        let piece = scores.read(|scores: &[f32]| self.state.next(language, scores, length))??;
        self.next = vec![piece.token];
        self.finish = piece.finish;
        self.stats.tokens += 1;
        match self.begun {
            None => {
                self.stats.prompt_seconds = start.elapsed().as_secs_f64();
                self.begun = Some(Instant::now());
            }
            Some(begun) => self.stats.seconds = begun.elapsed().as_secs_f64(),
        }
        Ok(piece)
    }
}

impl<L: Borrow<LanguageModel>, C: BorrowMut<Cache>> Iterator for Generation<L, C> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finish.is_some() || self.failed {
            return None;
        }
        let piece = self.step();
        self.failed = piece.is_err();
        Some(piece)
    }
}

/// Generates the continuation of a prompt.
pub fn generate(language: &LanguageModel, prompt: &[u32], options: &GenerateOptions) -> Result<Generated> {
    let mut cache = Cache::new(language.model().config(), options.cache)?;
    let mut generation = Generation::new(language, prompt, &mut cache, options)?;
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for piece in &mut generation {
        let piece = piece?;
        text.push_str(&piece.text);
        tokens.push(piece.token);
    }
    let finish = generation.finish().unwrap_or(Finish::Length);
    Ok(Generated { text, tokens, finish, stats: generation.stats() })
}
