//! A cache of a fixed number of tokens: the first ones and the most recent ones.
//!
//! A single token overwrites the oldest row behind the first ones. Keys were rotated by their position when
//! they were appended, so the order of rows does not matter. Several tokens at once are concatenated to the
//! rows in the order of their positions, attended under a mask that restricts each token to its window, and
//! cut back. The window of the cache replaces that of the model.

use hesper_core::{Array, Dtype, concatenate, fast};
use hesper_nn::{Error, KvCache, KvMask, KvRows, KvView, Positions, Result};

use super::layer_mut;
use super::rows::{room_for, rows_of};

/// Keys and values of the first and the most recent tokens of one sequence.
#[derive(Debug)]
pub(super) struct RotatingCache {
    positions: Positions,
    keep: usize,
    window: usize,
    layers: Vec<Layer>,
    /// The layers before the open step. Dropped at its end: a block with two handles is not overwritten in
    /// place.
    saved: Option<Vec<Layer>>,
}

#[derive(Debug, Clone)]
struct Layer {
    /// Keys and values.
    blocks: Option<[Array; 2]>,
    /// Rows in use.
    rows: usize,
    /// The row that the next token overwrites once all are in use.
    next: usize,
}

impl RotatingCache {
    pub(super) fn new(layers: usize, keep: usize, window: usize) -> Result<Self> {
        if window <= keep {
            let what = format!("a window of {window} tokens is too small to keep the first {keep}");
            return Err(Error::InvalidArgument(what));
        }
        let layer = Layer { blocks: None, rows: 0, next: keep };
        let layers = vec![layer; layers];
        Ok(RotatingCache { positions: Positions::new(1), keep, window, layers, saved: None })
    }

    /// Undoes a step that was not ended.
    fn restore(&mut self) {
        if let Some(layers) = self.saved.take() {
            self.layers = layers;
            self.positions.abort();
        }
    }
}

impl KvCache for RotatingCache {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().flat_map(|layer| layer.blocks.iter().flatten()).collect()
    }

    fn can_roll_back(&self) -> bool {
        false
    }

    fn begin(&mut self, tokens: &[usize]) -> Result<()> {
        self.restore();
        self.positions.begin(tokens)?;
        self.saved = Some(self.layers.clone());
        Ok(())
    }

    fn end(&mut self) {
        self.saved = None;
        self.positions.end();
    }

    fn rollback(&mut self) -> Result<()> {
        self.restore();
        match self.positions.pending() {
            0 => Ok(()),
            pending => {
                Err(Error::CacheLost(format!("{pending} tokens that failed have overwritten earlier ones")))
            }
        }
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        _window: Option<usize>,
    ) -> Result<KvView> {
        let layer = layer_mut(&mut self.layers, layer)?;
        match (keys.shape()[2], layer.blocks.clone()) {
            (1, Some(blocks)) => layer.overwrite(blocks, [keys, values], self.keep, self.window),
            (_, blocks) => layer.extend(blocks, [keys, values], self.keep, self.window),
        }
    }
}

impl Layer {
    /// One more token in a row that is free, or in the place of the oldest one.
    fn overwrite(
        &mut self,
        [old_keys, old_values]: [Array; 2],
        [keys, values]: [&Array; 2],
        keep: usize,
        window: usize,
    ) -> Result<KvView> {
        let full = self.rows == window;
        let (at, rows) = if full { (self.next, self.rows) } else { (self.rows, self.rows + 1) };
        let room = room_for(&old_keys, rows).min(window.max(old_keys.shape()[2]));
        let keys = fast::append(&old_keys, keys, &[at], room)?;
        let values = fast::append(&old_values, values, &[at], room)?;
        let view = KvView {
            keys: KvRows::Dense(rows_of(&keys, 0, rows)?),
            values: KvRows::Dense(rows_of(&values, 0, rows)?),
            mask: KvMask::None,
        };
        if full {
            self.next = if at + 1 == window { keep } else { at + 1 };
        }
        (self.rows, self.blocks) = (rows, Some([keys, values]));
        Ok(view)
    }

    /// Several more tokens.
    fn extend(
        &mut self,
        blocks: Option<[Array; 2]>,
        [keys, values]: [&Array; 2],
        keep: usize,
        window: usize,
    ) -> Result<KvView> {
        let total = self.rows + keys.shape()[2];
        let [keys, values] = match &blocks {
            None => [keys.clone(), values.clone()],
            Some([old_keys, old_values]) => [
                concatenate(&[self.in_order(old_keys, keep, window)?, keys.clone()], 2)?,
                concatenate(&[self.in_order(old_values, keep, window)?, values.clone()], 2)?,
            ],
        };
        // The first rows and the most recent ones, in memory of their own.
        let cut = |all: &Array| -> hesper_core::Result<Array> {
            if total <= window {
                return all.contiguous();
            }
            let recent = total - (window - keep);
            concatenate(&[rows_of(all, 0, keep)?, rows_of(all, recent, total)?], 2)
        };
        let blocks = [cut(&keys)?, cut(&values)?];
        let mask = match total <= window {
            true => KvMask::Causal,
            false => KvMask::Rows(window_mask(self.rows, total, keep, window)?),
        };
        *self = Layer { blocks: Some(blocks), rows: total.min(window), next: keep };
        Ok(KvView { keys: KvRows::Dense(keys), values: KvRows::Dense(values), mask })
    }

    /// The rows in use, in the order of their positions.
    fn in_order(&self, block: &Array, keep: usize, window: usize) -> hesper_core::Result<Array> {
        let rows = |from: usize, to: usize| rows_of(block, from, to);
        if self.rows < window || self.next == keep {
            return rows(0, self.rows);
        }
        concatenate(&[rows(0, keep)?, rows(self.next, self.rows)?, rows(keep, self.next)?], 2)
    }
}

/// Which of `total` rows each of the tokens from `old` on sees: the first `keep`, and those before it in its
/// window.
fn window_mask(old: usize, total: usize, keep: usize, window: usize) -> hesper_core::Result<Array> {
    let mut seen = Vec::with_capacity((total - old) * total);
    for token in old..total {
        let oldest = (token + 1).saturating_sub(window - keep).max(keep);
        seen.extend((0..total).map(|row| u8::from(row <= token && (row < keep || row >= oldest))));
    }
    Array::from_bytes(&seen, Dtype::Bool, &[1, 1, total - old, total])
}
