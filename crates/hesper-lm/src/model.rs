//! A decoder with its configuration: checks the tokens of a step and runs it as a transaction on the cache.

use hesper_core::Array;
use hesper_nn::{KvCache, Module};

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::models::{Architecture, CausalLm};

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
        let mut hidden = self.hidden(ids, cache)?;
        let (sequences, tokens) = (ids.shape()[0] as isize, ids.shape()[1] as isize);
        if tokens > 1 {
            let size = self.config.hidden_size as isize;
            hidden = hidden.reshape(&[sequences, tokens, size])?;
            hidden = hidden.slice(&[0, tokens - 1, 0], &[sequences, tokens, size], &[1, 1, 1])?;
            hidden = hidden.reshape(&[sequences, size])?;
        }
        let logits = self.network.logits(&hidden)?;
        cache.end();
        Ok(logits)
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
        cache.rollback()?;
        let hidden = self.hidden(ids, cache)?;
        let (sequences, tokens) = (ids.shape()[0] as isize, ids.shape()[1] as isize);
        let logits = self.network.logits(&hidden)?.reshape(&[sequences, tokens, -1])?;
        cache.end();
        cache.commit(ids.shape()[1]);
        Ok(logits)
    }

    /// The hidden states of all tokens, whose step is open in the cache.
    fn hidden(&self, ids: &Array, cache: &mut dyn KvCache) -> Result<Array> {
        let &[sequences, tokens] = ids.shape() else {
            let what = format!("token ids must have the shape (sequences, tokens), not {:?}", ids.shape());
            return Err(Error::InvalidArgument(what));
        };
        if tokens == 0 || sequences == 0 {
            return Err(Error::EmptyPrompt);
        }
        if sequences != cache.lengths().len() {
            let held = cache.lengths().len();
            let what = format!("token ids of {sequences} sequences do not fit a cache of {held} sequences");
            return Err(Error::InvalidArgument(what));
        }
        let longest = cache.lengths().iter().max().unwrap_or(&0) + cache.positions().pending() + tokens;
        if longest > self.config.context_length {
            return Err(Error::ContextLength { tokens: longest, limit: self.config.context_length });
        }
        cache.begin(tokens)?;
        self.network.hidden(ids, cache)
    }
}
