//! Generation of one sequence.

use std::borrow::{Borrow, BorrowMut};
use std::time::Instant;

use hesper_core::Array;
use hesper_nn::KvCache;

use super::sequence::{Piece, Sequence};
use super::step::PendingSteps;
use super::{Finish, GenerateOptions, Generated, Stats, check_prompt};
use crate::error::{Error, Result};
use crate::language_model::LanguageModel;

/// A sequence being generated: an iterator over its tokens. It borrows or owns the model (`&LanguageModel`,
/// `Arc<LanguageModel>`) and the cache (`&mut dyn KvCache`, `Box<dyn KvCache>`).
///
/// After an error the iterator has ended, so a loop that skips errors ends too. The sequence and the cache
/// are as before the failed step; [`retry`](Generation::retry) continues with it.
///
/// ```
/// use hesper as _;
/// use hesper_lm::{GenerateOptions, Generation, demo};
/// let model = demo::model()?;
/// let prompt = model.prompt_tokens("The evening star")?;
/// let options = GenerateOptions { max_tokens: 8, ..Default::default() };
/// let cache = options.cache.create(model.model().config())?;
/// let mut generation = Generation::new(&model, &prompt, cache, &options)?;
/// for piece in &mut generation {
///     print!("{}", piece?.text);
/// }
/// assert_eq!(generation.stats().prompt_tokens, prompt.len());
/// # Ok::<(), hesper_lm::Error>(())
/// ```
#[derive(Debug)]
pub struct Generation<L, C> {
    language: L,
    cache: C,
    sequence: Sequence,
    /// Tokens that are not in the cache: the rest of the prompt, or the last token.
    next: Vec<u32>,
    steps: PendingSteps,
    finish: Option<Finish>,
    failed: bool,
    stats: Stats,
    first_token: Option<Instant>,
}

impl<L: Borrow<LanguageModel>, C: BorrowMut<dyn KvCache>> Generation<L, C> {
    /// Continues the sequence in `cache` with `prompt`. At the end the cache holds all tokens but the last.
    pub fn new(language: L, prompt: &[u32], cache: C, options: &GenerateOptions) -> Result<Self> {
        let &[length] = cache.borrow().lengths() else {
            let sequences = cache.borrow().lengths().len();
            let what = format!("generation of one sequence does not take a cache of {sequences}");
            return Err(Error::InvalidArgument(what));
        };
        check_prompt(prompt, length, language.borrow().model().config())?;
        Ok(Generation {
            language,
            cache,
            sequence: Sequence::new(prompt, options)?,
            next: prompt.to_vec(),
            steps: PendingSteps::default(),
            finish: (options.max_tokens == 0).then_some(Finish::Length),
            failed: false,
            stats: Stats { prompt_tokens: prompt.len(), ..Stats::default() },
            first_token: None,
        })
    }

    /// Why it ended, once it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// Counts and times so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Continues after an error: the next call tries the failed step again.
    pub fn retry(&mut self) -> &mut Self {
        self.failed = false;
        self
    }

    fn step(&mut self) -> Result<Piece> {
        let start = Instant::now();
        let (language, cache) = (self.language.borrow(), self.cache.borrow_mut());
        let (model, sequence) = (language.model(), &mut self.sequence);
        let choice = |ahead| sequence.device_choice(ahead).filter(|_| cache.can_roll_back());
        let (choice, choice_ahead) = (choice(0), choice(1));
        self.steps.prefill(model, &mut self.next, cache)?;
        if self.steps.is_empty() {
            let ids = Array::try_from_slice(&self.next, &[1, self.next.len()])?;
            self.steps.begin(model, &ids, cache, choice.as_ref().map(std::slice::from_ref))?;
        }
        let length = cache.lengths()[0] + self.steps.tokens();
        if let Some(choice) = choice_ahead.filter(|_| !sequence.ends_next(language, length)) {
            self.steps.begin_ahead(model, cache, &[choice]);
        }
        let (piece, by_device) = match self.steps.chosen_tokens()?.as_deref() {
            Some(&[token]) => (sequence.push_chosen(language, token, length)?, true),
            _ => {
                let sample = |logits: &[f32]| sequence.sample(language, logits, length);
                (self.steps.read_logits(sample)??, false)
            }
        };
        self.steps.commit(cache);
        if piece.finish.is_some() || !by_device {
            // The step ahead has another token than the one that was chosen.
            self.steps.clear();
        }
        self.next = vec![piece.token];
        self.finish = piece.finish;
        self.stats.tokens += 1;
        match self.first_token {
            None => {
                self.stats.prompt_seconds = start.elapsed().as_secs_f64();
                self.first_token = Some(Instant::now());
            }
            Some(first) => self.stats.seconds = first.elapsed().as_secs_f64(),
        }
        Ok(piece)
    }
}

impl<L: Borrow<LanguageModel>, C: BorrowMut<dyn KvCache>> Iterator for Generation<L, C> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.finish.is_some() {
            return None;
        }
        let piece = self.step();
        self.failed = piece.is_err();
        Some(piece)
    }
}

/// Generates the continuation of a prompt.
pub fn generate(language: &LanguageModel, prompt: &[u32], options: &GenerateOptions) -> Result<Generated> {
    let cache = options.cache.create(language.model().config())?;
    let mut generation = Generation::new(language, prompt, cache, options)?;
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
    use crate::{CacheKind, demo};

    #[test]
    fn a_step_that_begins_before_its_token_is_known_gives_the_same_sequence() {
        let language = demo::model().unwrap();
        let prompt = language.prompt_tokens("The evening star").unwrap();
        for max_tokens in [1, 2, 40] {
            let options = GenerateOptions { max_tokens, ..Default::default() };
            let plain = generate(&language, &prompt, &options).unwrap();
            let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
            let mut generation = Generation::new(&language, &prompt, &mut *cache, &options).unwrap();
            generation.sequence.choose_on_device(true);
            let tokens: Vec<u32> = (&mut generation).map(|piece| piece.unwrap().token).collect();
            assert_eq!(tokens, plain.tokens);
            assert_eq!(generation.finish(), Some(plain.finish));
            drop(generation);
            assert_eq!(cache.lengths(), [prompt.len() + tokens.len() - 1]);
        }
    }

    #[test]
    fn a_generation_that_is_dropped_early_leaves_a_cache_that_can_be_continued() {
        let language = demo::model().unwrap();
        let prompt = language.prompt_tokens("The evening star").unwrap();
        let options = GenerateOptions { max_tokens: 30, ..Default::default() };
        let whole = generate(&language, &prompt, &options).unwrap().tokens;
        let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
        let mut generation = Generation::new(&language, &prompt, &mut *cache, &options).unwrap();
        generation.sequence.choose_on_device(true);
        let first: Vec<u32> = (&mut generation).take(5).map(|piece| piece.unwrap().token).collect();
        drop(generation);
        assert_eq!(cache.lengths(), [prompt.len() + 4]);
        let rest = Generation::new(&language, &first[4..], &mut *cache, &options).unwrap();
        let rest: Vec<u32> = rest.take(5).map(|piece| piece.unwrap().token).collect();
        assert_eq!([first, rest].concat(), whole[..10]);
    }
}
