//! Caches of keys and values.
//!
//! A [`Cache`] belongs to one text, or to a batch of texts that are decoded together. It holds the keys and
//! values of every layer in one of three ways ([`CacheKind`]): growing in steps, rotating over a window of the
//! last tokens, or quantized. New rows are written into memory that the cache owns alone
//! ([`hesper::fast::append`]), so a step costs what it adds.
//!
//! A step of a model is: [`Cache::begin`] with the number of new tokens, one [`KeyValues::attend`] for each layer,
//! [`Cache::end`]. Positions advance at the end, when every layer has seen the tokens.

mod growing;
mod quantized;
mod rotating;

use std::sync::OnceLock;

use hesper::fast::{AttentionMask, Offset, Turns};
use hesper::{Array, Dtype};
use hesper_nn::{Heads, KeyValues};

use crate::config::Config;
use crate::error::{Error, Result};
use growing::Growing;
use quantized::Quantized;
use rotating::Rotating;

/// Rows by which caches grow.
pub(crate) const STEP: usize = 256;

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheKind {
    /// All of them, as they are.
    #[default]
    Growing,
    /// The first `keep` tokens and the last ones, `window` in all.
    Rotating {
        /// Tokens at the beginning that are never forgotten.
        keep: usize,
        /// Most tokens that are remembered.
        window: usize,
    },
    /// All of them, in groups of codes.
    Quantized {
        /// Bits of a code: 4 or 8.
        bits: usize,
        /// Codes that share a scale.
        group: usize,
    },
}

impl CacheKind {
    /// As people ask for it: with a window of so many tokens, else in so many bits, else all of them.
    pub fn of(window: Option<usize>, bits: Option<usize>) -> Self {
        match (window, bits) {
            (Some(window), _) => CacheKind::Rotating { keep: 4, window },
            (None, Some(bits)) => CacheKind::Quantized { bits, group: 32 },
            (None, None) => CacheKind::Growing,
        }
    }
}

#[derive(Debug)]
enum Layer {
    Growing(Growing),
    Rotating(Rotating),
    Quantized(Quantized),
}

/// What all layers of a step share.
#[derive(Debug, Clone)]
struct Step {
    /// Rows of each sequence before the step.
    starts: Vec<usize>,
    /// New tokens of every sequence.
    tokens: usize,
    offset: Offset,
    /// How many of the last tokens are seen, if not all.
    window: Option<usize>,
    /// Which rows each token may see, where that has to be told row by row.
    marks: OnceLock<Array>,
}

impl Step {
    /// Rows of the longest sequence behind the step.
    fn rows(&self) -> usize {
        self.starts.iter().max().map_or(0, |longest| longest + self.tokens)
    }

    /// Which rows new tokens see.
    fn mask(&self) -> hesper::Result<AttentionMask<'_>> {
        let rows = self.rows();
        let short = self.window.is_none_or(|window| rows <= window);
        match (&self.starts[..], self.tokens) {
            ([_], 1) if short => return Ok(AttentionMask::None),
            ([_], _) if short => return Ok(AttentionMask::Causal),
            _ => {}
        }
        let marks = match self.marks.get() {
            Some(marks) => marks,
            None => {
                let marks = self.marked(rows)?;
                self.marks.get_or_init(|| marks)
            }
        };
        Ok(AttentionMask::Array(marks))
    }

    /// Bools of shape (sequences, 1, tokens, rows).
    fn marked(&self, rows: usize) -> hesper::Result<Array> {
        let window = self.window.unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(self.starts.len() * self.tokens * rows);
        for start in &self.starts {
            for token in *start..start + self.tokens {
                let oldest = (token + 1).saturating_sub(window);
                bytes.extend((0..rows).map(|row| u8::from(row <= token && row >= oldest)));
            }
        }
        Array::from_bytes(&bytes, Dtype::Bool, &[self.starts.len(), 1, self.tokens, rows])
    }
}

/// Keys and values of all layers.
#[derive(Debug)]
pub struct Cache {
    kind: CacheKind,
    layers: Vec<Layer>,
    /// Tokens of each sequence so far.
    lengths: Vec<usize>,
    window: Option<usize>,
    step: Option<Step>,
}

impl Cache {
    /// An empty cache for one text.
    pub fn new(config: &Config, kind: CacheKind) -> Result<Self> {
        let layer = || -> Result<Layer> {
            Ok(match kind {
                CacheKind::Growing => Layer::Growing(Growing::default()),
                CacheKind::Rotating { keep, window } => Layer::Rotating(Rotating::new(keep, window)?),
                CacheKind::Quantized { bits, group } => {
                    Layer::Quantized(Quantized::new(bits, group, config.head_width)?)
                }
            })
        };
        let layers = (0..config.layers).map(|_| layer()).collect::<Result<_>>()?;
        Ok(Cache { kind, layers, lengths: vec![0], window: config.window, step: None })
    }

    /// How keys and values are kept.
    pub fn kind(&self) -> CacheKind {
        self.kind
    }

    /// Tokens of each text so far.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Bytes that keys and values take.
    pub fn nbytes(&self) -> usize {
        let layer = |layer: &Layer| match layer {
            Layer::Growing(layer) => layer.nbytes(),
            Layer::Rotating(layer) => layer.nbytes(),
            Layer::Quantized(layer) => layer.nbytes(),
        };
        self.layers.iter().map(layer).sum()
    }

    /// Begins a step of `tokens` new tokens for every text.
    pub(crate) fn begin(&mut self, tokens: usize) -> Result<()> {
        let starts = self.lengths.clone();
        let position = |start: &usize| {
            i32::try_from(*start).map_err(|_| Error::Setting(format!("position {start} is too large")))
        };
        let offset = match &starts[..] {
            [one] => Offset::Number(position(one)?),
            all => {
                let positions = all.iter().map(position).collect::<Result<Vec<i32>>>()?;
                Offset::Array(Array::try_from_slice(&positions, &[all.len()])?)
            }
        };
        self.step = Some(Step { starts, tokens, offset, window: self.window, marks: OnceLock::new() });
        Ok(())
    }

    /// Ends a step: every layer has seen the tokens.
    pub(crate) fn end(&mut self) {
        if let Some(step) = self.step.take() {
            self.lengths.iter_mut().for_each(|length| *length += step.tokens);
        }
    }

    /// A layer, for the step that was begun.
    pub(crate) fn layer(&mut self, at: usize) -> Result<LayerStep<'_>> {
        match (&self.step, self.layers.get_mut(at)) {
            (Some(step), Some(layer)) => Ok(LayerStep { layer, step }),
            _ => Err(Error::Setting(format!("the cache has no step for layer {at}"))),
        }
    }

    /// Arrays that hold the state: to be evaluated with the result of a step.
    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let mut all = Vec::new();
        for layer in &self.layers {
            match layer {
                Layer::Growing(layer) => all.extend(layer.arrays()),
                Layer::Rotating(layer) => all.extend(layer.arrays()),
                Layer::Quantized(layer) => all.extend(layer.arrays()),
            }
        }
        all
    }

    /// Forgets all but the first `length` tokens of a single text. Only where all are kept.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        if !matches!(self.kind, CacheKind::Growing | CacheKind::Quantized { .. }) {
            return Err(Error::Setting("a rotating cache cannot go back".into()));
        }
        // Rows behind the length are overwritten by what comes next, and never seen before that.
        self.lengths.iter_mut().for_each(|own| *own = (*own).min(length));
        Ok(())
    }

    /// Takes the last token of every text back, whose rows stay where they are until others are written there. Only where
    /// all are kept.
    pub(crate) fn hide_last(&mut self) {
        self.lengths.iter_mut().for_each(|length| *length = length.saturating_sub(1));
    }

    /// Undoes [`Cache::hide_last`], if nothing was written since.
    pub(crate) fn show_last(&mut self) {
        self.lengths.iter_mut().for_each(|length| *length += 1);
    }

    /// Adds the texts of another cache behind its own.
    pub(crate) fn join(&mut self, other: Cache) -> Result<()> {
        for (own, new) in self.layers.iter_mut().zip(other.layers) {
            match (own, new) {
                (Layer::Growing(own), Layer::Growing(new)) => own.join(new)?,
                _ => return Err(Error::Setting("only growing caches are decoded together".into())),
            }
        }
        self.lengths.extend(other.lengths);
        Ok(())
    }

    /// Takes a text out; the last one takes its place.
    pub(crate) fn leave(&mut self, at: usize) -> Result<()> {
        let last = self.lengths.len() - 1;
        let rows = self.lengths[last];
        for layer in &mut self.layers {
            match layer {
                Layer::Growing(layer) => layer.leave(at, last, rows)?,
                _ => return Err(Error::Setting("only growing caches are decoded together".into())),
            }
        }
        self.lengths.swap_remove(at);
        Ok(())
    }
}

/// A layer during a step.
pub(crate) struct LayerStep<'a> {
    layer: &'a mut Layer,
    step: &'a Step,
}

impl KeyValues for LayerStep<'_> {
    fn offset(&self) -> Offset {
        self.step.offset.clone()
    }

    fn sequences(&self) -> usize {
        self.step.starts.len()
    }

    fn attend(&mut self, queries: &Array, keys: &Array, values: &Array, scale: f32) -> hesper::Result<Array> {
        match self.layer {
            Layer::Growing(layer) => layer.attend(self.step, queries, keys, values, scale),
            Layer::Rotating(layer) => layer.attend(self.step, queries, keys, values, scale),
            Layer::Quantized(layer) => layer.attend(self.step, queries, keys, values, scale),
        }
    }

    fn attend_token(
        &mut self,
        token: &Array,
        heads: Heads,
        turns: Option<&Turns>,
        scale: f32,
    ) -> hesper::Result<Option<Array>> {
        match self.layer {
            Layer::Growing(layer) => layer.attend_token(self.step, token, heads, turns, scale),
            _ => Ok(None),
        }
    }
}

/// The first `rows` rows of a block.
fn head(block: &Array, rows: usize) -> hesper::Result<Array> {
    let end: Vec<isize> = block.shape().iter().map(|length| *length as isize).collect();
    block.slice(&[0, 0, 0, 0], &[end[0], end[1], rows as isize, end[3]], &[1, 1, 1, 1])
}

/// Room for `rows` rows, in steps; what there is, if it is enough.
fn room(block: &Array, rows: usize) -> usize {
    if rows <= block.shape()[2] { block.shape()[2] } else { rows.next_multiple_of(STEP) }
}
