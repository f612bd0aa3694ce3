//! A decoder with its configuration: checks the tokens of a step and runs it as a transaction on the cache.

use hesper_core::{Array, Dtype};
use hesper_nn::{KvCache, Module};

use crate::architecture::{Architecture, CausalLm};
use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{Error, Result};

/// A decoder from tokens to logits of the next token. It holds no state: any number of threads may use it at
/// once, each with its own cache.
#[derive(Module, Clone)]
pub struct Model {
    #[module(skip)]
    config: Config,
    #[module(flatten)]
    network: Box<dyn CausalLm>,
}

impl Model {
    /// A model with the weights of a checkpoint.
    pub(crate) fn build(architecture: &dyn Architecture, weights: &Checkpoint) -> Result<Self> {
        let network = architecture.build(weights)?;
        weights.check_all_used()?;
        Ok(Model { config: architecture.config().clone(), network })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Logits after the last token of every sequence: float32 of shape (sequences, vocabulary). `ids` has the
    /// shape (sequences, tokens). The tokens are pending in the cache: commit them when the logits have been
    /// evaluated, or evaluate the logits again if that failed.
    pub fn propose(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array> {
        let [sequences, tokens] = shape_of(ids)?;
        let last: Vec<u32> = (1..=sequences).map(|count| (count * tokens).saturating_sub(1) as u32).collect();
        self.propose_ragged(ids, &vec![tokens; sequences], &last, cache)
    }

    /// The same for sequences with different numbers of new tokens: `tokens[n]` of sequence `n`, which `ids`
    /// has one sequence after the other. Gives the logits after the tokens of `ids` at the indices `outputs`:
    /// float32 of shape (outputs, vocabulary).
    pub fn propose_ragged(
        &self,
        ids: &Array,
        tokens: &[usize],
        outputs: &[u32],
        cache: &mut dyn KvCache,
    ) -> Result<Array> {
        Ok(self.propose_with_states(ids, tokens, outputs, &[], cache)?.0)
    }

    /// The same, with the hidden states after the last norm of the tokens at the indices `states`: float32 of
    /// shape (states, hidden size). An embedding of a text is pooled from those of its tokens.
    pub fn propose_with_states(
        &self,
        ids: &Array,
        tokens: &[usize],
        outputs: &[u32],
        states: &[u32],
        cache: &mut dyn KvCache,
    ) -> Result<(Array, Option<Array>)> {
        let hidden = self.hidden(ids, tokens, cache)?;
        let logits = self.network.logits(&rows_of(&hidden, outputs)?)?;
        let states = match states {
            [] => None,
            _ => Some(self.network.normed(&rows_of(&hidden, states)?)?.astype(Dtype::Float32)?),
        };
        cache.end();
        Ok((logits, states))
    }

    /// Logits after the last token of every sequence, whose tokens are committed at once. Other pending
    /// tokens are discarded.
    pub fn step(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array> {
        cache.rollback()?;
        let logits = self.propose(ids, cache)?;
        cache.commit(ids.shape()[1]);
        Ok(logits)
    }

    /// Logits after every token: float32 of shape (sequences, tokens, vocabulary). The tokens are committed
    /// at once, other pending tokens discarded.
    pub fn forward(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array> {
        let [sequences, tokens] = shape_of(ids)?;
        cache.rollback()?;
        let hidden = self.hidden(ids, &vec![tokens; sequences], cache)?;
        let logits = self.network.logits(&hidden)?.reshape(&[sequences as isize, tokens as isize, -1])?;
        cache.end();
        cache.commit(tokens);
        Ok(logits)
    }

    /// The hidden states of all tokens, whose step is open in the cache.
    fn hidden(&self, ids: &Array, tokens: &[usize], cache: &mut dyn KvCache) -> Result<Array> {
        let held = cache.lengths().len();
        if tokens.is_empty() || tokens.contains(&0) {
            return Err(Error::EmptyPrompt);
        }
        if tokens.len() != held {
            let what =
                format!("token ids of {} sequences do not fit a cache of {held} sequences", tokens.len());
            return Err(Error::InvalidArgument(what));
        }
        if tokens.iter().sum::<usize>() != ids.size() {
            let what = format!("{} token ids for sequences of {tokens:?} new tokens", ids.size());
            return Err(Error::InvalidArgument(what));
        }
        let behind = cache.lengths().iter().zip(tokens).map(|(length, tokens)| length + tokens);
        let longest = behind.max().unwrap_or(0) + cache.positions().pending();
        if longest > self.config.context_length {
            return Err(Error::ContextLength { tokens: longest, limit: self.config.context_length });
        }
        cache.begin(tokens)?;
        self.network.hidden(ids, cache)
    }
}

/// The rows of a matrix at `indices`.
fn rows_of(all: &Array, indices: &[u32]) -> Result<Array> {
    let [rows, width] = [all.shape()[0], all.shape()[1]];
    if indices.iter().copied().eq(0..rows as u32) {
        return Ok(all.clone());
    }
    Ok(match *indices {
        [only] => all.slice(&[only as isize, 0], &[only as isize + 1, width as isize], &[1, 1])?,
        _ => all.take(Array::try_from_slice(indices, &[indices.len()])?, Some(0))?,
    })
}

/// Sequences and tokens of ids.
fn shape_of(ids: &Array) -> Result<[usize; 2]> {
    <[usize; 2]>::try_from(ids.shape()).map_err(|_| {
        let what = format!("token ids must have the shape (sequences, tokens), not {:?}", ids.shape());
        Error::InvalidArgument(what)
    })
}
