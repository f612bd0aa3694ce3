//! Many texts in one step.
//!
//! Prompts go through the model one by one; then every step gives each text one token. Texts join when they are
//! added and leave when they end, whatever the others do. Their rows lie in one block for each layer, and marks
//! keep each text to its own.

use std::time::Instant;

use hesper::Array;

use super::text::{Begun, Piece, State, prefill};
use super::{Finish, GenerateOptions, Generated, Stats, check_prompt};
use crate::cache::{Cache, CacheKind};
use crate::error::{Error, Result};
use crate::language::LanguageModel;
use crate::sample::UNKNOWN;

/// What a step gave for one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The text, by the number that [`Batch::add`] gave.
    pub id: u64,
    /// Its new piece.
    pub piece: Piece,
}

/// Texts that are generated together.
#[derive(Debug)]
pub struct Batch<'a> {
    language: &'a LanguageModel,
    cache: Option<Cache>,
    /// In the order of the cache.
    texts: Vec<Text>,
    /// Pieces that came with prompts and were not given yet.
    waiting: Vec<Event>,
    /// The step of the next tokens, where it was begun before the last ones were known.
    ahead: Option<Begun>,
    next_id: u64,
}

#[derive(Debug)]
struct Text {
    id: u64,
    state: State,
    last: u32,
}

impl<'a> Batch<'a> {
    /// A batch without texts.
    pub fn new(language: &'a LanguageModel) -> Self {
        Batch { language, cache: None, texts: Vec::new(), waiting: Vec::new(), ahead: None, next_id: 0 }
    }

    /// How many texts are being generated.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.waiting.is_empty()
    }

    /// Adds a text; its prompt goes through the model now. Gives its number.
    pub fn add(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<u64> {
        if options.cache != CacheKind::Growing {
            return Err(Error::Setting("texts that are decoded together are kept in growing caches".into()));
        }
        let config = self.language.model().config();
        check_prompt(prompt, 0, config.context, config.vocabulary)?;
        if options.max_tokens == 0 {
            return Err(Error::Setting("a text of no tokens cannot be generated in a batch".into()));
        }
        let mut cache = Cache::new(config, CacheKind::Growing)?;
        let scores = prefill(self.language.model(), prompt, &mut cache)?;
        let mut state = State::new(prompt, options)?;
        let piece = scores.read(|scores: &[f32]| state.next(self.language, scores, prompt.len()))??;
        let id = self.next_id;
        self.next_id += 1;
        if piece.finish.is_none() {
            self.ahead = None;
            match &mut self.cache {
                None => self.cache = Some(cache),
                Some(all) => {
                    all.join(cache)?;
                    // Otherwise every text that joins would keep the blocks that there were before it.
                    hesper::async_eval(all.arrays())?;
                }
            }
            self.texts.push(Text { id, state, last: piece.token });
        }
        self.waiting.push(Event { id, piece });
        Ok(id)
    }

    /// One token for every text. Texts that end leave.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        let mut events = std::mem::take(&mut self.waiting);
        let (Some(cache), false) = (&mut self.cache, self.texts.is_empty()) else { return Ok(events) };
        let (language, texts) = (self.language, &mut self.texts);
        let model = language.model();
        let from_last = |cache: &mut Cache, texts: &[Text]| -> Result<Array> {
            let ids: Vec<u32> = texts.iter().map(|text| text.last).collect();
            model.step(&Array::try_from_slice(&ids, &[ids.len(), 1])?, cache)
        };
        let pieces = match texts.iter().all(|text| text.state.takes_best()) {
            true => {
                let step = match self.ahead.take() {
                    Some(step) => {
                        cache.show_last();
                        step
                    }
                    None => Begun::new(from_last(cache, texts)?, cache)?,
                };
                let lengths = cache.lengths().to_vec();
                let mut each = texts.iter().zip(&lengths);
                if !each.any(|(text, length)| text.state.ends_next(language, *length)) {
                    self.ahead = Some(step.next(model, cache)?);
                }
                let tokens = step.best.to_vec::<u32>()?;
                match tokens.contains(&UNKNOWN) {
                    true => {
                        self.ahead = None;
                        by_scores(language, texts, &step.scores, &lengths)?
                    }
                    false => {
                        let each = texts.iter_mut().zip(tokens).zip(lengths);
                        each.map(|((text, token), length)| text.state.push(language, token, length))
                            .collect::<Result<Vec<_>>>()?
                    }
                }
            }
            false => {
                let scores = from_last(cache, texts)?;
                let lengths = cache.lengths().to_vec();
                by_scores(language, texts, &scores, &lengths)?
            }
        };
        let mut gone = Vec::new();
        for (at, piece) in pieces.into_iter().enumerate() {
            self.texts[at].last = piece.token;
            if piece.finish.is_some() {
                gone.push(at);
            }
            events.push(Event { id: self.texts[at].id, piece });
        }
        // From the back, so that places stay what they are.
        for at in gone.into_iter().rev() {
            self.remove(at)?;
        }
        Ok(events)
    }

    /// Ends a text before its time; whether it was there.
    pub fn cancel(&mut self, id: u64) -> Result<bool> {
        self.waiting.retain(|event| event.id != id);
        match self.texts.iter().position(|text| text.id == id) {
            Some(at) => self.remove(at).map(|()| true),
            None => Ok(false),
        }
    }

    fn remove(&mut self, at: usize) -> Result<()> {
        self.ahead = None;
        self.texts.swap_remove(at);
        match (&mut self.cache, self.texts.is_empty()) {
            (_, true) => self.cache = None,
            (Some(cache), false) => cache.leave(at)?,
            (None, false) => {}
        }
        Ok(())
    }
}

/// The next piece of every text, by scores that are read back.
fn by_scores(
    language: &LanguageModel,
    texts: &mut [Text],
    scores: &Array,
    lengths: &[usize],
) -> Result<Vec<Piece>> {
    scores.read(|scores: &[f32]| {
        let rows = scores.chunks(scores.len() / texts.len());
        let each = texts.iter_mut().zip(rows).zip(lengths);
        each.map(|((text, row), length)| text.state.next(language, row, *length)).collect()
    })?
}

/// Generates the continuations of prompts, all together, each with its own options.
pub fn batch_generate(
    language: &LanguageModel,
    prompts: &[(Vec<u32>, GenerateOptions)],
) -> Result<Vec<Generated>> {
    let mut batch = Batch::new(language);
    let mut all: Vec<Generated> = Vec::with_capacity(prompts.len());
    for (prompt, options) in prompts {
        let start = Instant::now();
        batch.add(prompt, options)?;
        let stats = Stats {
            prompt_tokens: prompt.len(),
            prompt_seconds: start.elapsed().as_secs_f64(),
            ..Stats::default()
        };
        all.push(Generated { text: String::new(), tokens: Vec::new(), finish: Finish::Length, stats });
    }
    let start = Instant::now();
    while !batch.is_empty() {
        for Event { id, piece } in batch.step()? {
            let one = &mut all[id as usize];
            one.text.push_str(&piece.text);
            one.tokens.push(piece.token);
            one.finish = piece.finish.unwrap_or(one.finish);
            one.stats.tokens += 1;
            one.stats.seconds = start.elapsed().as_secs_f64();
        }
    }
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::{demo, generate};

    #[test]
    fn steps_that_are_begun_early_give_the_texts_of_one_by_one_whoever_joins_and_leaves() {
        let language = demo::model().unwrap();
        let prompts = ["The evening star", "The", "It is seen", "A star"];
        let prompts = prompts.map(|text| language.prompt_tokens(text).unwrap());
        let options = |at: usize| GenerateOptions { max_tokens: 3 + 7 * at, ..Default::default() };
        let mut batch = Batch::new(&language);
        let mut texts = vec![Vec::new(); prompts.len()];
        for round in 0..60 {
            // A text joins every fourth round.
            if round % 4 == 0 && round / 4 < prompts.len() {
                batch.add(&prompts[round / 4], &options(round / 4)).unwrap();
                batch.texts.iter_mut().for_each(|text| text.state.take_best());
            }
            for event in batch.step().unwrap() {
                texts[event.id as usize].push(event.piece.token);
            }
        }
        assert!(batch.is_empty());
        for (at, (prompt, tokens)) in prompts.iter().zip(texts).enumerate() {
            assert_eq!(tokens, generate(&language, prompt, &options(at)).unwrap().tokens, "text {at}");
        }
    }
}
