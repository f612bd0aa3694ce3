//! A cache over a window: the first tokens and the last ones.
//!
//! Single tokens overwrite the oldest row that is not among the first. Keys were turned by their position when
//! they came, so the order of rows does not matter to them. Many tokens at once are joined to the rows in
//! order of time, attended under a mask that keeps each token to its window, and cut back.

use hesper::fast::{self, AttentionMask};
use hesper::{Array, Dtype, concatenate};

use super::{Step, head, room};
use crate::error::{Error, Result};

/// Keys and values of one layer.
#[derive(Debug)]
pub(super) struct Rotating {
    keep: usize,
    window: usize,
    blocks: Option<[Array; 2]>,
    /// Rows in use.
    rows: usize,
    /// The row that the next token overwrites, once all are in use.
    next: usize,
}

impl Rotating {
    pub(super) fn new(keep: usize, window: usize) -> Result<Self> {
        if window <= keep {
            return Err(Error::Setting(format!("a window of {window} tokens cannot keep the first {keep}")));
        }
        Ok(Rotating { keep, window, blocks: None, rows: 0, next: keep })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.blocks.iter().flatten()
    }

    pub(super) fn nbytes(&self) -> usize {
        self.arrays().map(Array::nbytes).sum()
    }

    pub(super) fn attend(
        &mut self,
        step: &Step,
        queries: &Array,
        keys: &Array,
        values: &Array,
        scale: f32,
    ) -> hesper::Result<Array> {
        match (step.tokens, self.blocks.clone()) {
            (1, Some(blocks)) => self.one(blocks, queries, keys, values, scale),
            (_, blocks) => self.many(blocks, queries, keys, values, scale),
        }
    }

    fn one(
        &mut self,
        [old_keys, old_values]: [Array; 2],
        queries: &Array,
        keys: &Array,
        values: &Array,
        scale: f32,
    ) -> hesper::Result<Array> {
        let full = self.rows == self.window;
        let at = if full { self.next } else { self.rows };
        match full {
            true => self.next = if at + 1 == self.window { self.keep } else { at + 1 },
            false => self.rows += 1,
        }
        let wanted = room(&old_keys, self.rows).min(self.window.max(old_keys.shape()[2]));
        let keys = fast::append(&old_keys, keys, &[at], wanted)?;
        let values = fast::append(&old_values, values, &[at], wanted)?;
        let seen = (head(&keys, self.rows)?, head(&values, self.rows)?);
        self.blocks = Some([keys, values]);
        fast::scaled_dot_product_attention(queries, &seen.0, &seen.1, scale, AttentionMask::None, None)
    }

    fn many(
        &mut self,
        blocks: Option<[Array; 2]>,
        queries: &Array,
        keys: &Array,
        values: &Array,
        scale: f32,
    ) -> hesper::Result<Array> {
        let (old, tokens) = (self.rows, keys.shape()[2]);
        let (all_keys, all_values) = match &blocks {
            None => (keys.clone(), values.clone()),
            Some([old_keys, old_values]) => (
                concatenate(&[self.ordered(old_keys)?, keys.clone()], 2)?,
                concatenate(&[self.ordered(old_values)?, values.clone()], 2)?,
            ),
        };
        let total = old + tokens;
        let seen = self.marks(old, tokens)?;
        let mask = match &seen {
            None => AttentionMask::Causal,
            Some(marks) => AttentionMask::Array(marks),
        };
        let result = fast::scaled_dot_product_attention(queries, &all_keys, &all_values, scale, mask, None)?;
        // The first rows and the last ones, as a block of their own.
        let cut = |all: &Array| -> hesper::Result<Array> {
            let end: Vec<isize> = all.shape().iter().map(|length| *length as isize).collect();
            let part = |from: usize, to: usize| {
                all.slice(&[0, 0, from as isize, 0], &[end[0], end[1], to as isize, end[3]], &[1; 4])
            };
            if total <= self.window {
                return all.contiguous();
            }
            let last = total - (self.window - self.keep);
            concatenate(&[part(0, self.keep)?, part(last, total)?], 2)
        };
        self.blocks = Some([cut(&all_keys)?, cut(&all_values)?]);
        self.rows = total.min(self.window);
        self.next = self.keep;
        Ok(result)
    }

    /// The rows in use, in order of time.
    fn ordered(&self, block: &Array) -> hesper::Result<Array> {
        let used = head(block, self.rows)?;
        if self.rows < self.window || self.next == self.keep {
            return Ok(used);
        }
        let end: Vec<isize> = used.shape().iter().map(|length| *length as isize).collect();
        let part = |from: usize, to: usize| {
            used.slice(&[0, 0, from as isize, 0], &[end[0], end[1], to as isize, end[3]], &[1; 4])
        };
        concatenate(&[part(0, self.keep)?, part(self.next, self.rows)?, part(self.keep, self.next)?], 2)
    }

    /// Which of the old and new rows each new token sees: those before it in its window. `None` if that is
    /// all of them.
    fn marks(&self, old: usize, tokens: usize) -> hesper::Result<Option<Array>> {
        let total = old + tokens;
        if total <= self.window {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(tokens * total);
        for token in old..total {
            let oldest = (token + 1).saturating_sub(self.window - self.keep).max(self.keep);
            bytes.extend((0..total).map(|row| u8::from(row <= token && (row < self.keep || row >= oldest))));
        }
        Ok(Some(Array::from_bytes(&bytes, Dtype::Bool, &[1, 1, tokens, total])?))
    }
}
