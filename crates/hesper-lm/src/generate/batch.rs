//! Many texts in one step.
//!
//! Prompts go through the model one by one; then every step gives each text one token. Texts join when they are
//! added and leave when they end, whatever the others do. Their rows lie in one block for each layer, and marks
//! keep each text to its own.

use std::time::Instant;

use hesper::Array;

use super::text::{Piece, State, prefill};
use super::{Finish, GenerateOptions, Generated, Stats, check_prompt};
use crate::cache::{Cache, CacheKind};
use crate::error::{Error, Result};
use crate::language::LanguageModel;

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
        Batch { language, cache: None, texts: Vec::new(), waiting: Vec::new(), next_id: 0 }
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
        let ids: Vec<u32> = self.texts.iter().map(|text| text.last).collect();
        let scores = self.language.model().step(&Array::try_from_slice(&ids, &[ids.len(), 1])?, cache)?;
        let lengths = cache.lengths().to_vec();
        let (language, texts) = (self.language, &mut self.texts);
        let pieces = scores.read(|scores: &[f32]| {
            let rows = scores.chunks(scores.len() / texts.len());
            let each = texts.iter_mut().zip(rows).zip(&lengths);
            each.map(|((text, row), length)| text.state.next(language, row, *length))
                .collect::<Result<Vec<_>>>()
        })??;
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
        self.texts.swap_remove(at);
        match (&mut self.cache, self.texts.is_empty()) {
            (_, true) => self.cache = None,
            (Some(cache), false) => cache.leave(at)?,
            (None, false) => {}
        }
        Ok(())
    }
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
