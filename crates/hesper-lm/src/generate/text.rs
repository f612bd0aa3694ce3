//! One text.

use std::borrow::{Borrow, BorrowMut};
use std::time::Instant;

use hesper::{Array, place};

use super::{Finish, GenerateOptions, Generated, PREFILL, Stats, check_prompt};
use crate::cache::{Cache, CacheKind};
use crate::error::{Error, Result};
use crate::language::LanguageModel;
use crate::model::Model;
use crate::sample::{Sampler, UNKNOWN, best_tokens};
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
    /// Whether every token is the best one, and found where the scores are.
    best: bool,
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
            best: options.sampling.is_best() && place::current_device() != place::Device::Cpu,
        })
    }

    /// Chooses the next token by its scores. `length` is that of the text without it.
    pub(super) fn next(&mut self, language: &LanguageModel, scores: &[f32], length: usize) -> Result<Piece> {
        let token = self.sampler.choose(scores, &self.seen).ok_or_else(|| {
            Error::Setting("the model's scores are no numbers; its weights may be damaged".into())
        })?;
        self.push(language, token, length)
    }

    /// Whether every token is the best one, and the next step may begin before it is known here.
    pub(super) fn takes_best(&self) -> bool {
        self.best
    }

    /// Takes the best tokens where the scores are, as on a GPU.
    #[cfg(test)]
    pub(super) fn take_best(&mut self) {
        self.best = true;
    }

    /// Whether the text certainly ends with the next token, behind `length` others.
    pub(super) fn ends_next(&self, language: &LanguageModel, length: usize) -> bool {
        self.made + 1 >= self.max_tokens || length + 1 >= language.model().config().context
    }

    /// Takes a token that was chosen. `length` is that of the text without it.
    pub(super) fn push(&mut self, language: &LanguageModel, token: u32, length: usize) -> Result<Piece> {
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

/// A step that was begun on a GPU: its scores, and the best token of each text.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) scores: Array,
    pub(super) best: Array,
}

impl Begun {
    /// Begins to compute the best tokens for scores, and what is remembered of the step.
    pub(super) fn new(scores: Array, cache: &Cache) -> Result<Self> {
        let best = best_tokens(&scores)?;
        hesper::async_eval(std::iter::once(&best).chain(cache.arrays()))?;
        Ok(Begun { scores, best })
    }

    /// Begins the step behind this one. The cache does not show its token yet: that this one does not end a text is known
    /// when it is read.
    pub(super) fn next(&self, model: &Model, cache: &mut Cache) -> Result<Self> {
        let scores = model.step(&self.best.reshape(&[-1, 1])?, cache)?;
        let next = Begun::new(scores, cache)?;
        cache.hide_last();
        Ok(next)
    }
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
    /// The step of the next token, where it was begun before the last one was known.
    ahead: Option<Begun>,
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
            ahead: None,
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
        let piece = match self.state.takes_best() && cache.kind() == CacheKind::Growing {
            true => {
                let step = match self.ahead.take() {
                    Some(step) => {
                        cache.show_last();
                        step
                    }
                    None => Begun::new(prefill(language.model(), &self.next, cache)?, cache)?,
                };
                let length = cache.lengths()[0];
                if !self.state.ends_next(language, length) {
                    self.ahead = Some(step.next(language.model(), cache)?);
                }
                let token = step.best.item::<u32>()?;
                let piece = match token == UNKNOWN {
                    true => {
                        step.scores.read(|scores: &[f32]| self.state.next(language, scores, length))??
                    }
                    false => self.state.push(language, token, length)?,
                };
                if piece.finish.is_some() || token == UNKNOWN {
                    self.ahead = None;
                }
                piece
            }
            false => {
                let scores = prefill(language.model(), &self.next, cache)?;
                let length = cache.lengths()[0];
                scores.read(|scores: &[f32]| self.state.next(language, scores, length))??
            }
        };
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::demo;

    #[test]
    fn a_step_that_is_begun_before_its_token_is_known_gives_the_same_text() {
        let language = demo::model().unwrap();
        let prompt = language.prompt_tokens("The evening star").unwrap();
        for max_tokens in [1, 2, 40] {
            let options = GenerateOptions { max_tokens, ..Default::default() };
            let plain = generate(&language, &prompt, &options).unwrap();
            let mut cache = Cache::new(language.model().config(), CacheKind::Growing).unwrap();
            let mut generation = Generation::new(&language, &prompt, &mut cache, &options).unwrap();
            generation.state.take_best();
            let tokens: Vec<u32> = (&mut generation).map(|piece| piece.unwrap().token).collect();
            assert_eq!(tokens, plain.tokens);
            assert_eq!(generation.finish(), Some(plain.finish));
            drop(generation);
            assert_eq!(cache.lengths(), [prompt.len() + tokens.len() - 1]);
        }
    }

    #[test]
    fn a_text_that_is_left_early_leaves_a_cache_that_can_be_continued() {
        let language = demo::model().unwrap();
        let prompt = language.prompt_tokens("The evening star").unwrap();
        let options = GenerateOptions { max_tokens: 30, ..Default::default() };
        let whole = generate(&language, &prompt, &options).unwrap().tokens;
        let mut cache = Cache::new(language.model().config(), CacheKind::Growing).unwrap();
        let mut generation = Generation::new(&language, &prompt, &mut cache, &options).unwrap();
        generation.state.take_best();
        let first: Vec<u32> = (&mut generation).take(5).map(|piece| piece.unwrap().token).collect();
        drop(generation);
        let rest = Generation::new(&language, &first[4..], &mut cache, &options).unwrap();
        let rest: Vec<u32> = rest.take(5).map(|piece| piece.unwrap().token).collect();
        assert_eq!([first, rest].concat(), whole[..10]);
    }
}
