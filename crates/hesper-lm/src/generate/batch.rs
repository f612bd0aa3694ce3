//! Generation of several sequences in common steps.
//!
//! Each prompt goes through the model by itself; then every step decodes one token of each sequence.
//! Sequences are added and leave between steps.

use std::time::Instant;

use hesper_core::Array;
use hesper_nn::KvCache;

use super::sequence::{Piece, Sequence};
use super::step::PendingSteps;
use super::{Finish, GenerateOptions, Generated, Stats, check_prompt};
use crate::device_sampling::DeviceChoice;
use crate::error::{Error, Result};
use crate::language_model::LanguageModel;

/// What a step gave one sequence.
#[derive(Debug)]
pub struct Event {
    /// The sequence: the id that [`Batch::add`] returned.
    pub id: u64,
    /// Its next token, or why it could not be chosen. A sequence with an error has left the batch.
    pub piece: Result<Piece>,
}

/// Sequences that are generated together.
///
/// After an error of a call the sequences and the cache are as they were; the call may be repeated.
#[derive(Debug)]
pub struct Batch<'a> {
    language: &'a LanguageModel,
    cache: Option<Box<dyn KvCache>>,
    /// In the order of the cache.
    members: Vec<Member>,
    steps: PendingSteps,
    /// Events that have not been returned.
    events: Vec<Event>,
    next_id: u64,
}

#[derive(Debug)]
struct Member {
    id: u64,
    sequence: Sequence,
    last_token: u32,
    /// Whether it has finished and leaves the cache before the next step.
    finished: bool,
}

impl<'a> Batch<'a> {
    /// A batch without sequences.
    pub fn new(language: &'a LanguageModel) -> Self {
        Batch {
            language,
            cache: None,
            members: Vec::new(),
            steps: PendingSteps::default(),
            events: Vec::new(),
            next_id: 0,
        }
    }

    /// The number of sequences being generated.
    pub fn len(&self) -> usize {
        self.members.iter().filter(|member| !member.finished).count()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.events.is_empty()
    }

    /// Adds a sequence and runs its prompt through the model. Returns its id.
    pub fn add(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<u64> {
        if !options.cache.is_batchable() {
            let what = format!("a cache of kind {:?} cannot be decoded in a batch", options.cache);
            return Err(Error::InvalidArgument(what));
        }
        if options.max_tokens == 0 {
            return Err(Error::InvalidArgument("max_tokens must be at least 1 in a batch".into()));
        }
        let (language, model) = (self.language, self.language.model());
        check_prompt(prompt, 0, model.config())?;
        let mut cache = options.cache.create(model.config())?;
        let mut sequence = Sequence::new(prompt, options)?;
        let (mut steps, mut rest) = (PendingSteps::default(), prompt.to_vec());
        steps.prefill(model, &mut rest, &mut *cache)?;
        steps.begin(model, &Array::try_from_slice(&rest, &[1, rest.len()])?, &mut *cache, None)?;
        let piece = steps.read_logits(|logits| sequence.sample(language, logits, prompt.len()))??;
        steps.commit(&mut *cache);
        if piece.finish.is_none() {
            self.remove_ended()?;
            self.steps.clear();
            match &mut self.cache {
                None => self.cache = Some(options.cache.batched(cache, model.config())?),
                Some(all) => {
                    all.rollback()?;
                    all.join(cache)?;
                }
            }
            self.members.push(Member {
                id: self.next_id,
                sequence,
                last_token: piece.token,
                finished: false,
            });
        }
        self.events.push(Event { id: self.next_id, piece: Ok(piece) });
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    /// Decodes one token of every sequence. Sequences that end leave the batch.
    pub fn step(&mut self) -> Result<Vec<Event>> {
        self.remove_ended()?;
        self.decode()?;
        let events = std::mem::take(&mut self.events);
        // What cannot be removed now is removed before the next step, which reports the error.
        let _ = self.remove_ended();
        Ok(events)
    }

    fn decode(&mut self) -> Result<()> {
        let (language, model, members) = (self.language, self.language.model(), &mut self.members);
        let Some(cache) = self.cache.as_deref_mut() else { return Ok(()) };
        let choices = |ahead| -> Option<Vec<DeviceChoice>> {
            let each = members.iter().map(|member| member.sequence.device_choice(ahead));
            each.collect::<Option<Vec<_>>>().filter(|_| cache.can_roll_back())
        };
        let (choices, choices_ahead) = (choices(0), choices(1));
        if self.steps.is_empty() {
            let ids: Vec<u32> = members.iter().map(|member| member.last_token).collect();
            let ids = Array::try_from_slice(&ids, &[ids.len(), 1])?;
            self.steps.begin(model, &ids, cache, choices.as_deref())?;
        }
        let lengths: Vec<usize> = cache.lengths().iter().map(|length| length + 1).collect();
        let mut each = members.iter().zip(&lengths);
        let ends = each.any(|(member, length)| member.sequence.ends_next(language, *length));
        if let Some(choices) = choices_ahead.filter(|_| !ends) {
            self.steps.begin_ahead(model, cache, &choices);
        }
        let tokens = self.steps.chosen_tokens()?;
        let each = members.iter_mut().zip(&lengths);
        let pieces: Vec<Result<Piece>> = match &tokens {
            Some(tokens) => {
                let each = each.zip(tokens);
                each.map(|((member, length), token)| member.sequence.push_chosen(language, *token, *length))
                    .collect()
            }
            None => self.steps.read_logits(|logits| {
                let each = each.zip(logits.chunks(logits.len() / lengths.len()));
                each.map(|((member, length), row)| member.sequence.sample(language, row, *length)).collect()
            })?,
        };
        self.steps.commit(cache);
        if tokens.is_none() {
            // The step ahead has other tokens than those that were chosen.
            self.steps.clear();
        }
        for (member, piece) in self.members.iter_mut().zip(pieces) {
            match &piece {
                Ok(piece) => {
                    member.last_token = piece.token;
                    member.finished = piece.finish.is_some();
                }
                Err(_) => member.finished = true,
            }
            self.events.push(Event { id: member.id, piece });
        }
        Ok(())
    }

    /// Removes a sequence. Returns whether the batch had it.
    pub fn cancel(&mut self, id: u64) -> bool {
        self.events.retain(|event| event.id != id);
        let Some(member) = self.members.iter_mut().find(|member| member.id == id && !member.finished) else {
            return false;
        };
        member.finished = true;
        // What cannot be removed now is removed before the next step, which reports the error.
        let _ = self.remove_ended();
        true
    }

    /// Removes sequences that have finished from the cache.
    fn remove_ended(&mut self) -> Result<()> {
        if self.is_empty() {
            (self.cache, self.members) = (None, Vec::new());
            self.steps.clear();
        }
        // From the back: then the indices of those in front stay the same.
        while let Some(at) = self.members.iter().rposition(|member| member.finished) {
            self.steps.clear();
            if let Some(cache) = &mut self.cache {
                cache.rollback()?;
                cache.remove(at)?;
            }
            self.members.swap_remove(at);
        }
        Ok(())
    }
}

/// Generates the continuations of several prompts together, each with its own options.
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
            let (piece, one) = (piece?, &mut all[id as usize]);
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
    fn steps_that_begin_early_give_the_sequences_of_single_generation_while_others_join_and_leave() {
        let language = demo::model().unwrap();
        let prompts = ["The evening star", "The", "It is seen", "A star"];
        let prompts = prompts.map(|text| language.prompt_tokens(text).unwrap());
        let options = |at: usize| GenerateOptions { max_tokens: 3 + 7 * at, ..Default::default() };
        let mut batch = Batch::new(&language);
        let mut sequences = vec![Vec::new(); prompts.len()];
        for round in 0..60 {
            // A sequence joins every fourth round.
            if round % 4 == 0 && round / 4 < prompts.len() {
                batch.add(&prompts[round / 4], &options(round / 4)).unwrap();
                batch.members.iter_mut().for_each(|member| member.sequence.choose_on_device(true));
            }
            for event in batch.step().unwrap() {
                sequences[event.id as usize].push(event.piece.unwrap().token);
            }
        }
        assert!(batch.is_empty());
        for (at, (prompt, tokens)) in prompts.iter().zip(sequences).enumerate() {
            assert_eq!(tokens, generate(&language, prompt, &options(at)).unwrap().tokens, "sequence {at}");
        }
    }
}
