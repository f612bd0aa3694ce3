//! From token ids to the first hidden states.

use hesper_core::Array;
use hesper_nn::{Embedding, KvCache, Module};

use crate::error::Result;

/// An embedding of tokens, with learned positions or without.
#[derive(Module, Clone)]
pub(crate) struct TokenEmbedding {
    tokens: Embedding,
    positions: Option<Embedding>,
}

impl TokenEmbedding {
    /// An embedding without positions.
    pub(crate) fn new(tokens: Embedding) -> Self {
        TokenEmbedding { tokens, positions: None }
    }

    /// The same with a table of learned positions.
    pub(crate) fn with_positions(self, positions: Embedding) -> Self {
        TokenEmbedding { positions: Some(positions), ..self }
    }

    /// The embedding of tokens.
    pub(crate) fn tokens(&self) -> &Embedding {
        &self.tokens
    }

    /// The vectors of the new tokens, sequence by sequence: (tokens, hidden size).
    pub(crate) fn forward(&self, ids: &Array, cache: &dyn KvCache) -> Result<Array> {
        let x = self.tokens.forward(&ids.reshape(&[-1])?)?;
        let Some(table) = &self.positions else { return Ok(x) };
        let step = cache.positions().step()?;
        let positions: Vec<i32> = step.positions().iter().map(|position| *position as i32).collect();
        Ok(x.add(&table.forward(&Array::try_from_slice(&positions, &[positions.len()])?)?)?)
    }
}
