//! A cache that keeps all tokens, in blocks that grow.

use hesper_core::fast;
use hesper_core::ops::step::{RotaryFrequencies, StepHeads, keep_token};
use hesper_core::{Array, Dtype, concatenate, placement};
use hesper_nn::{Heads, KvCache, KvRows, KvView, Positions, Result, RowView};

use super::layer_mut;
use super::rows::{
    Layers, check_settled, empty_like, heads_of, join_layers, remove_from_layers, room_for, same_kind,
    with_room,
};

/// Keys and values of all tokens.
#[derive(Debug)]
pub(super) struct GrowingCache {
    positions: Positions,
    /// One block for each layer: heads of keys, then heads of values.
    layers: Layers,
}

impl GrowingCache {
    pub(super) fn new(layers: usize) -> Self {
        GrowingCache { positions: Positions::new(1), layers: vec![Vec::new(); layers] }
    }

    /// Its lengths, and the block of each layer.
    pub(super) fn into_blocks(self) -> (Positions, Vec<Array>) {
        (self.positions, self.layers.into_iter().flatten().collect())
    }
}

impl KvCache for GrowingCache {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().flatten().collect()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView> {
        let (step, layer) = (self.positions.step_mut()?, layer_mut(&mut self.layers, layer)?);
        let (heads, rows) = (keys.shape()[1], step.rows());
        let new = concatenate(&[keys.clone(), values.clone()], 1)?;
        let old = match layer.first().cloned() {
            Some(block) => block,
            None => empty_like(&new)?,
        };
        let block = fast::append(&old, &new, step.starts(), room_for(&old, rows))?;
        let view = KvView {
            keys: KvRows::Dense(heads_of(&block, 0, heads, rows)?),
            values: KvRows::Dense(heads_of(&block, heads, 2 * heads, rows)?),
            mask: step.mask(window)?,
        };
        layer.clear();
        layer.push(block);
        Ok(view)
    }

    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> Result<Option<RowView<'_>>> {
        let (step, layer) = (self.positions.step()?, layer_mut(&mut self.layers, layer)?);
        let dtype = tokens.dtype();
        // On the CPU only float32 has a fused kernel.
        let is_known = dtype == Dtype::Float32 || placement::current_device() != placement::Device::Cpu;
        if !is_known || !step.is_decode() {
            return Ok(None);
        }
        let old = match layer.first().cloned() {
            Some(block) if block.dtype() != dtype => return Ok(None),
            Some(block) => block,
            None => Array::zeros(&[step.starts().len(), 2 * heads.kv, 0, heads.dim], dtype)?,
        };
        let old = with_room(&old, room_for(&old, step.rows()))?;
        let rows = keep_token(&old, tokens, step.starts(), None, StepHeads::from(heads), rotation)?;
        layer.clear();
        layer.push(rows.clone());
        Ok(Some(RowView { rows, positions: step.positions(), pages: None }))
    }

    fn join(&mut self, other: Box<dyn KvCache>) -> Result<()> {
        let other = same_kind::<Self>(other)?;
        check_settled(&self.positions)?;
        check_settled(&other.positions)?;
        join_layers(&mut self.layers, &other.layers, self.positions.lengths().len())?;
        self.positions.join(&other.positions);
        Ok(())
    }

    fn remove(&mut self, sequence: usize) -> Result<()> {
        remove_from_layers(&mut self.layers, &self.positions, sequence)?;
        self.positions.remove(sequence);
        Ok(())
    }
}
