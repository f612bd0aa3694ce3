//! A cache in groups of codes: a quarter or an eighth of the memory.
//!
//! Rows are rounded when they come and decoded, one layer at a time, when they are attended to.

use hesper::fast;
use hesper::{Array, QuantMode};

use super::growing::empty_like;
use super::{Step, head, room};
use crate::error::{Error, Result};

/// Keys and values of one layer: codes, scales and biases of each.
#[derive(Debug)]
pub(super) struct Quantized {
    bits: usize,
    group: usize,
    blocks: Option<[Rows; 2]>,
}

/// Rows of codes, scales and biases.
type Rows = [Array; 3];

impl Quantized {
    pub(super) fn new(bits: usize, group: usize, width: usize) -> Result<Self> {
        if !matches!(bits, 4 | 8) || !matches!(group, 32 | 64 | 128) || !width.is_multiple_of(group) {
            let what =
                format!("heads of {width} numbers cannot be kept in groups of {group} with {bits} bits");
            return Err(Error::Setting(what));
        }
        Ok(Quantized { bits, group, blocks: None })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.blocks.iter().flatten().flatten()
    }

    pub(super) fn nbytes(&self) -> usize {
        self.arrays().map(Array::nbytes).sum()
    }

    fn encode(&self, rows: &Array) -> hesper::Result<Rows> {
        let (codes, scales, biases) = rows.quantize(Some(self.group), Some(self.bits), QuantMode::Affine)?;
        let biases = match biases {
            Some(biases) => biases,
            None => scales.zeros_like()?,
        };
        Ok([codes, scales, biases])
    }

    fn append(&self, old: Option<Rows>, new: Rows, step: &Step, rows: usize) -> hesper::Result<Rows> {
        let old = match old {
            Some(old) => old,
            None => [empty_like(&new[0])?, empty_like(&new[1])?, empty_like(&new[2])?],
        };
        let one = |at: usize| fast::append(&old[at], &new[at], &step.starts, room(&old[at], rows));
        Ok([one(0)?, one(1)?, one(2)?])
    }

    fn decode(&self, block: &Rows, rows: usize) -> hesper::Result<Array> {
        let [codes, scales, biases] =
            [head(&block[0], rows)?, head(&block[1], rows)?, head(&block[2], rows)?];
        let (group, bits) = (Some(self.group), Some(self.bits));
        codes.dequantize(&scales, Some(&biases), group, bits, QuantMode::Affine, None)
    }

    pub(super) fn attend(
        &mut self,
        step: &Step,
        queries: &Array,
        keys: &Array,
        values: &Array,
        scale: f32,
    ) -> hesper::Result<Array> {
        let rows = step.rows();
        let (old_keys, old_values) = match self.blocks.clone() {
            Some([keys, values]) => (Some(keys), Some(values)),
            None => (None, None),
        };
        let keys = self.append(old_keys, self.encode(keys)?, step, rows)?;
        let values = self.append(old_values, self.encode(values)?, step, rows)?;
        let (seen_keys, seen_values) = (self.decode(&keys, rows)?, self.decode(&values, rows)?);
        self.blocks = Some([keys, values]);
        fast::scaled_dot_product_attention(queries, &seen_keys, &seen_values, scale, step.mask()?, None)
    }
}
