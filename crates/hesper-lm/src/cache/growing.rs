//! A cache that keeps everything: blocks with room for more, which grow in steps.

use hesper::fast::{self, AttentionMask};
use hesper::{Array, concatenate};

use super::{Step, head, room};
use crate::error::Result;

/// Keys and values of one layer.
#[derive(Debug, Default)]
pub(super) struct Growing {
    blocks: Option<[Array; 2]>,
}

impl Growing {
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
        let rows = step.starts.iter().max().map_or(0, |longest| longest + step.tokens);
        let [old_keys, old_values] = match self.blocks.clone() {
            Some(blocks) => blocks,
            None => [empty_like(keys)?, empty_like(values)?],
        };
        let keys = fast::append(&old_keys, keys, &step.starts, room(&old_keys, rows))?;
        let values = fast::append(&old_values, values, &step.starts, room(&old_values, rows))?;
        let mask = match &step.marks {
            Some(marks) => AttentionMask::Array(marks),
            None if step.tokens == 1 => AttentionMask::None,
            None => AttentionMask::Causal,
        };
        let (seen_keys, seen_values) = (head(&keys, rows)?, head(&values, rows)?);
        self.blocks = Some([keys, values]);
        fast::scaled_dot_product_attention(queries, &seen_keys, &seen_values, scale, mask, None)
    }

    /// Adds the sequences of another layer.
    pub(super) fn join(&mut self, other: Growing) -> Result<()> {
        let (Some(own), Some(new)) = (&self.blocks, &other.blocks) else {
            self.blocks = self.blocks.take().or(other.blocks);
            return Ok(());
        };
        let longest = own[0].shape()[2].max(new[0].shape()[2]);
        let both = |at: usize| -> Result<Array> {
            let (own, new) = (with_room(&own[at], longest)?, with_room(&new[at], longest)?);
            Ok(concatenate(&[own, new], 0)?)
        };
        self.blocks = Some([both(0)?, both(1)?]);
        Ok(())
    }

    /// Takes sequence `at` out; the first `rows` rows of the last one take its place.
    pub(super) fn leave(&mut self, at: usize, last: usize, rows: usize) -> Result<()> {
        let Some(blocks) = self.blocks.take() else { return Ok(()) };
        if last == 0 {
            return Ok(());
        }
        let part = |block: &Array, from: usize, to: usize, rows: usize| {
            let end: Vec<isize> = block.shape().iter().map(|length| *length as isize).collect();
            block.slice(&[from as isize, 0, 0, 0], &[to as isize, end[1], rows as isize, end[3]], &[1; 4])
        };
        let without = |block: &Array| -> Result<Array> {
            let length = block.shape()[2];
            let mut pieces = vec![part(block, 0, at, length)?];
            if at < last {
                let moved = part(block, last, last + 1, rows)?;
                pieces.push(with_room(&moved, length)?);
                pieces.push(part(block, at + 1, last, length)?);
            }
            pieces.retain(|piece| piece.shape()[0] > 0);
            Ok(concatenate(&pieces, 0)?)
        };
        self.blocks = Some([without(&blocks[0])?, without(&blocks[1])?]);
        Ok(())
    }
}

/// A block without rows for sequences like these.
pub(super) fn empty_like(rows: &Array) -> hesper::Result<Array> {
    let shape = rows.shape();
    Array::zeros(&[shape[0], shape[1], 0, shape[3]], rows.dtype())
}

/// A block with room for at least `rows` rows.
fn with_room(block: &Array, rows: usize) -> hesper::Result<Array> {
    let shape = block.shape();
    if shape[2] >= rows {
        return Ok(block.clone());
    }
    let none = Array::zeros(&[shape[0], shape[1], 0, shape[3]], block.dtype())?;
    fast::append(block, &none, &vec![0; shape[0]], rows)
}
