//! The models: one decoder for all families, which differ in what their blocks are made of.

mod build;

use hesper::Array;
use hesper_nn::{Attention, Embedding, KeyValues, Linear, Mlp, Norm, Residual, module};

use crate::cache::Cache;
use crate::config::Config;
use crate::error::{Error, Result};

/// One block of a decoder.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    attention_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
}

module!(Block { attention_norm, attention, mlp_norm, mlp });

impl Block {
    fn forward(&self, x: &mut Residual, memory: &mut dyn KeyValues) -> Result<()> {
        if self.attention.is_packed(&self.attention_norm, x.sum()?) {
            let behind = self.attention.residual(&self.attention_norm, x.sum()?, memory)?;
            *x = Residual::new(self.mlp.residual(&self.mlp_norm, &behind)?);
            return Ok(());
        }
        let h = x.normed(&self.attention_norm)?;
        x.add(self.attention.forward(&h, memory)?)?;
        let h = x.normed(&self.mlp_norm)?;
        x.add(self.mlp.forward(&h)?)?;
        Ok(())
    }

    /// Makes of several products one, where weights are stored alike.
    fn join(&mut self) -> Result<()> {
        self.attention.join()?;
        Ok(self.mlp.join()?)
    }
}

/// A decoder: tokens to scores of the next token. It holds no state; any number of threads may use it at once, each
/// with a [`Cache`] of its own.
#[derive(Debug, Clone)]
pub struct Model {
    config: Config,
    tokens: Embedding,
    positions: Option<Embedding>,
    blocks: Vec<Block>,
    norm: Norm,
    head: Option<Linear>,
}

module!(Model { tokens, positions, blocks, norm, head });

impl Model {
    /// What it is made of.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The scores of the token after the last one, for every text: an array of shape (texts, vocabulary) of
    /// float32. `ids` has the shape (texts, tokens), and `cache` as many texts.
    pub fn step(&self, ids: &Array, cache: &mut Cache) -> Result<Array> {
        let mut hidden = self.hidden(ids, cache)?;
        let (texts, tokens) = (ids.shape()[0] as isize, ids.shape()[1] as isize);
        if tokens > 1 {
            let width = self.config.width as isize;
            hidden = hidden.reshape(&[texts, tokens, width])?;
            hidden = hidden.slice(&[0, tokens - 1, 0], &[texts, tokens, width], &[1, 1, 1])?;
            hidden = hidden.reshape(&[texts, width])?;
        }
        self.scores(&hidden)
    }

    /// The scores after every token: an array of shape (texts, tokens, vocabulary) of float32.
    pub fn all_scores(&self, ids: &Array, cache: &mut Cache) -> Result<Array> {
        let hidden = self.hidden(ids, cache)?;
        let (texts, tokens) = (ids.shape()[0] as isize, ids.shape()[1] as isize);
        Ok(self.scores(&hidden)?.reshape(&[texts, tokens, -1])?)
    }

    fn scores(&self, hidden: &Array) -> Result<Array> {
        let scores = match &self.head {
            Some(head) => head.forward(&self.norm.forward(hidden)?)?,
            None => self.tokens.weight().apply_normed(&self.norm, hidden)?,
        };
        Ok(scores.astype(hesper::Dtype::Float32)?)
    }

    /// What goes into the last norm: a row for every token, those of all texts one behind the other.
    fn hidden(&self, ids: &Array, cache: &mut Cache) -> Result<Array> {
        let &[texts, tokens] = ids.shape() else {
            return Err(Error::Setting(format!("tokens of shape {:?} are not those of texts", ids.shape())));
        };
        if tokens == 0 || texts == 0 {
            return Err(Error::EmptyPrompt);
        }
        if texts != cache.lengths().len() {
            let what = format!("{texts} texts and a cache for {}", cache.lengths().len());
            return Err(Error::Setting(what));
        }
        let longest = cache.lengths().iter().max().map_or(tokens, |longest| longest + tokens);
        if longest > self.config.context {
            return Err(Error::Context { tokens: longest, limit: self.config.context });
        }
        let mut x = self.tokens.forward(&ids.reshape(&[-1])?)?;
        if let Some(table) = &self.positions {
            let places: Vec<i32> = cache
                .lengths()
                .iter()
                .flat_map(|start| (0..tokens).map(move |token| (start + token) as i32))
                .collect();
            x = x.add(&table.forward(&Array::try_from_slice(&places, &[places.len()])?)?)?;
        }
        cache.begin(tokens)?;
        let mut x = Residual::new(x);
        for (at, block) in self.blocks.iter().enumerate() {
            block.forward(&mut x, &mut cache.layer(at)?)?;
        }
        cache.end();
        Ok(x.sum()?.clone())
    }
}
