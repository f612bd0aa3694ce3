//! A cache that keeps all tokens quantized in groups: a half to an eighth of the memory.

use hesper_core::{Array, Dtype, concatenate, fast};
use hesper_nn::{Error, KvCache, KvRows, KvView, Positions, Quantization, Result};

use super::layer_mut;
use super::rows::{
    Layers, check_settled, empty_like, join_layers, remove_from_layers, room_for, rows_of, same_kind,
};

/// Quantized keys and values of all tokens.
#[derive(Debug)]
pub(super) struct QuantizedCache {
    positions: Positions,
    quantization: Quantization,
    /// Six blocks for each layer: codes, scales and biases of keys, then of values.
    layers: Layers,
}

impl QuantizedCache {
    pub(super) fn new(layers: usize, bits: usize, group: usize, head_dim: usize) -> Result<Self> {
        let quantization = check_bits(bits, group, head_dim)?;
        Ok(QuantizedCache { positions: Positions::new(1), quantization, layers: vec![Vec::new(); layers] })
    }

    /// Its lengths, and a block for each layer with rows as pages store them: codes, scales and biases side
    /// by side. Fails if its rows have another quantization.
    pub(super) fn into_pages(self, bits: usize, group: usize) -> Result<(Positions, Vec<Array>)> {
        if (self.quantization.bits(), self.quantization.group()) != (bits, group) {
            return Err(other_quantization());
        }
        let words = |x: &Array| x.astype(Dtype::Float32)?.view(Dtype::Uint32);
        let rows = |parts: &[Array]| -> hesper_core::Result<Array> {
            concatenate(&[parts[0].clone(), words(&parts[1])?, words(&parts[2])?], -1)
        };
        let has_tokens = self.layers.iter().filter(|layer| !layer.is_empty());
        let blocks = has_tokens.map(|layer| concatenate(&[rows(&layer[..3])?, rows(&layer[3..])?], 1));
        Ok((self.positions, blocks.collect::<hesper_core::Result<_>>()?))
    }
}

/// The quantization of rows of keys and values, if there is one.
pub(super) fn check_bits(bits: usize, group: usize, head_dim: usize) -> Result<Quantization> {
    let quantization = Quantization::new(group, bits, "affine")?;
    if !matches!(bits, 4 | 8) || !head_dim.is_multiple_of(group) {
        return Err(Error::InvalidArgument(format!(
            "cannot quantize keys and values to {bits} bits in groups of {group}: a cache takes 4 or 8 bits, and \
             the head dimension {head_dim} must be a multiple of the group"
        )));
    }
    Ok(quantization)
}

fn other_quantization() -> Error {
    Error::InvalidArgument("cannot join caches of different quantization".into())
}

/// Codes, scales and biases.
pub(super) fn quantize(rows: &Array, quantization: Quantization) -> Result<[Array; 3]> {
    let (group, bits) = (Some(quantization.group()), Some(quantization.bits()));
    let (codes, scales, biases) = rows.quantize(group, bits, quantization.mode())?;
    let biases = match biases {
        Some(biases) => biases,
        None => scales.zeros_like()?,
    };
    Ok([codes, scales, biases])
}

impl KvCache for QuantizedCache {
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
        let (rows, quantization) = (step.rows(), self.quantization);
        let new = [quantize(keys, quantization)?, quantize(values, quantization)?].concat();
        let old: Vec<Array> = match layer.is_empty() {
            true => new.iter().map(empty_like).collect::<hesper_core::Result<_>>()?,
            false => layer.clone(),
        };
        let append =
            |(old, new): (&Array, &Array)| fast::append(old, new, step.starts(), room_for(old, rows));
        let blocks: Vec<Array> = old.iter().zip(&new).map(append).collect::<hesper_core::Result<_>>()?;
        let view = |first: usize| -> Result<KvRows> {
            let part = |at: usize| rows_of(&blocks[first + at], 0, rows);
            Ok(KvRows::Quantized { codes: part(0)?, scales: part(1)?, biases: part(2)?, quantization })
        };
        let view = KvView { keys: view(0)?, values: view(3)?, mask: step.mask(window)? };
        *layer = blocks;
        Ok(view)
    }

    fn join(&mut self, other: Box<dyn KvCache>) -> Result<()> {
        let other = same_kind::<Self>(other)?;
        if other.quantization != self.quantization {
            return Err(other_quantization());
        }
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
