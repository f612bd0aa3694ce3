//! Steps of a model whose tokens are pending in the cache.
//!
//! Where the device chooses the tokens of a step, the next step begins with them before the host has read
//! them. So up to two steps are pending. A step is committed when its result has been read; if its evaluation
//! fails it stays pending, and reading it again evaluates it again.

use std::collections::VecDeque;

use hesper_core::Array;
use hesper_nn::KvCache;

use super::PREFILL_CHUNK;
use crate::device_sampling::{DeviceChoice, NOT_CHOSEN, choose_tokens};
use crate::error::{Error, Result};
use crate::model::Model;

/// A step that has not been committed.
#[derive(Debug)]
struct PendingStep {
    /// New tokens of every sequence.
    tokens: usize,
    logits: Array,
    /// The next token of each sequence, where the device chooses it.
    chosen: Option<Array>,
}

/// The steps that are pending in a cache, oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingSteps(VecDeque<PendingStep>);

impl PendingSteps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// New tokens of the oldest step.
    pub(super) fn tokens(&self) -> usize {
        self.0.front().map_or(0, |step| step.tokens)
    }

    /// Begins the only pending step with `ids` of shape (sequences, tokens).
    pub(super) fn begin(
        &mut self,
        model: &Model,
        ids: &Array,
        cache: &mut dyn KvCache,
        choices: Option<&[DeviceChoice]>,
    ) -> Result<()> {
        self.0.clear();
        cache.rollback()?;
        self.push(model, ids, cache, choices)
    }

    fn push(
        &mut self,
        model: &Model,
        ids: &Array,
        cache: &mut dyn KvCache,
        choices: Option<&[DeviceChoice]>,
    ) -> Result<()> {
        let logits = model.propose(ids, cache)?;
        let chosen = choices.and_then(|choices| choose_tokens(&logits, choices).ok());
        if let Some(tokens) = &chosen {
            // An error is reported when the tokens are read.
            let _ = hesper_core::async_eval(std::iter::once(tokens).chain(cache.arrays()));
        }
        self.0.push_back(PendingStep { tokens: ids.shape()[1], logits, chosen });
        Ok(())
    }

    /// Begins a second step with the tokens that the device chooses in the first one.
    pub(super) fn begin_ahead(&mut self, model: &Model, cache: &mut dyn KvCache, choices: &[DeviceChoice]) {
        let [PendingStep { chosen: Some(tokens), .. }] = self.0.make_contiguous() else { return };
        // A step that cannot begin now is begun when its tokens are known, and reports the error then.
        if let Ok(ids) = tokens.reshape(&[-1, 1]) {
            let _ = self.push(model, &ids, cache, Some(choices));
        }
    }

    /// The tokens that the device chose in the oldest step, or `None` if they have to be chosen by the
    /// logits.
    pub(super) fn chosen_tokens(&self) -> Result<Option<Vec<u32>>> {
        let Some(PendingStep { chosen: Some(tokens), .. }) = self.0.front() else { return Ok(None) };
        Ok(Some(tokens.to_vec::<u32>()?).filter(|tokens| !tokens.contains(&NOT_CHOSEN)))
    }

    /// Reads the logits of the oldest step: a row for each sequence.
    pub(super) fn read_logits<R>(&self, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
        let none = || Error::InvalidArgument("no step is pending".into());
        Ok(self.0.front().ok_or_else(none)?.logits.read(f)?)
    }

    /// Commits the oldest step, whose result has been read.
    pub(super) fn commit(&mut self, cache: &mut dyn KvCache) {
        if let Some(step) = self.0.pop_front() {
            cache.commit(step.tokens);
        }
    }

    /// Drops the steps. The cache discards their tokens before the next step begins.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Runs a prompt through the model and commits it, up to a last chunk that is left in `prompt`. Called
    /// again after an error, it continues where it failed.
    pub(super) fn prefill(
        &mut self,
        model: &Model,
        prompt: &mut Vec<u32>,
        cache: &mut dyn KvCache,
    ) -> Result<()> {
        while prompt.len() > PREFILL_CHUNK {
            if self.is_empty() {
                let ids = Array::try_from_slice(&prompt[..PREFILL_CHUNK], &[1, PREFILL_CHUNK])?;
                self.begin(model, &ids, cache, None)?;
            }
            // The logits of this chunk are never computed.
            hesper_core::eval(cache.arrays())?;
            self.commit(cache);
            prompt.drain(..PREFILL_CHUNK);
        }
        Ok(())
    }
}
