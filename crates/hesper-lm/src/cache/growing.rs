//! A cache that keeps everything: a block with room for more, which grows in steps.
//!
//! Keys and values of a layer lie in one block, the heads of keys before those of values.

use hesper::fast::{self, StepHeads};
use hesper::{Array, Dtype, concatenate, place};
use hesper_nn::Heads;

use super::{Step, room};
use crate::error::Result;

/// Keys and values of one layer.
#[derive(Debug, Default)]
pub(super) struct Growing {
    block: Option<Array>,
}

impl Growing {
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.block.iter()
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
        let (heads, rows) = (keys.shape()[1], step.rows());
        let new = concatenate(&[keys.clone(), values.clone()], 1)?;
        let old = match self.block.clone() {
            Some(block) => block,
            None => empty_like(&new)?,
        };
        let block = fast::append(&old, &new, &step.starts, room(&old, rows))?;
        let (keys, values) = (part(&block, 0, heads, rows)?, part(&block, heads, 2 * heads, rows)?);
        self.block = Some(block);
        fast::scaled_dot_product_attention(queries, &keys, &values, scale, step.mask()?, None)
    }

    /// One new token of each sequence, its queries, keys and values side by side.
    pub(super) fn attend_token(
        &mut self,
        step: &Step,
        token: &Array,
        heads: Heads,
        turns: Option<&fast::Turns>,
        scale: f32,
    ) -> hesper::Result<Option<Array>> {
        let Heads { queries, keys, width } = heads;
        let heads = StepHeads { queries, keys, width };
        // The host's kernels for single tokens are those of single precision.
        let dtype = token.dtype();
        if dtype != Dtype::Float32 && place::current_device() == place::Device::Cpu {
            return Ok(None);
        }
        let old = match self.block.clone() {
            Some(block) if block.dtype() != dtype => return Ok(None),
            Some(block) => block,
            None => Array::zeros(&[step.starts.len(), 2 * keys, 0, width], dtype)?,
        };
        let wanted = room(&old, step.rows());
        let block = fast::keep_token(&with_room(old, wanted)?, token, &step.starts, heads, turns)?;
        let seen = fast::attend_token(token, &block, &step.starts, heads, turns, scale, step.window)?;
        self.block = Some(block);
        Ok(Some(seen))
    }

    /// Adds the sequences of another layer.
    pub(super) fn join(&mut self, other: Growing) -> Result<()> {
        let (own, new) = match (self.block.take(), other.block) {
            (Some(own), Some(new)) => (own, new),
            (own, new) => {
                self.block = own.or(new);
                return Ok(());
            }
        };
        let longest = own.shape()[2].max(new.shape()[2]);
        self.block = Some(concatenate(&[with_room(own, longest)?, with_room(new, longest)?], 0)?);
        Ok(())
    }

    /// Takes sequence `at` out; the first `rows` rows of the last one take its place.
    pub(super) fn leave(&mut self, at: usize, last: usize, rows: usize) -> Result<()> {
        let Some(block) = self.block.take() else { return Ok(()) };
        if last == 0 {
            return Ok(());
        }
        let (end, length) = (block.shape().to_vec(), block.shape()[2]);
        let part = |from: usize, to: usize, rows: usize| {
            let end = [to, end[1], rows, end[3]].map(|length| length as isize);
            block.slice(&[from as isize, 0, 0, 0], &end, &[1; 4])
        };
        let mut pieces = vec![part(0, at, length)?];
        if at < last {
            pieces.push(with_room(part(last, last + 1, rows)?, length)?);
            pieces.push(part(at + 1, last, length)?);
        }
        pieces.retain(|piece| piece.shape()[0] > 0);
        self.block = Some(concatenate(&pieces, 0)?);
        Ok(())
    }
}

/// The first `rows` rows of some heads.
fn part(block: &Array, from: usize, to: usize, rows: usize) -> hesper::Result<Array> {
    let end = [block.shape()[0], to, rows, block.shape()[3]].map(|length| length as isize);
    block.slice(&[0, from as isize, 0, 0], &end, &[1; 4])
}

/// A block without rows for sequences like these.
pub(super) fn empty_like(rows: &Array) -> hesper::Result<Array> {
    let shape = rows.shape();
    Array::zeros(&[shape[0], shape[1], 0, shape[3]], rows.dtype())
}

/// A block with room for at least `rows` rows.
fn with_room(block: Array, rows: usize) -> hesper::Result<Array> {
    let shape = block.shape();
    if shape[2] >= rows {
        return Ok(block);
    }
    let none = Array::zeros(&[shape[0], shape[1], 0, shape[3]], block.dtype())?;
    fast::append(&block, &none, &vec![0; shape[0]], rows)
}
