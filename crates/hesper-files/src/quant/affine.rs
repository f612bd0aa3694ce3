//! Repacks Q4_0, Q4_1 and Q8_0 as MLX's affine layout: packed words, and a scale and a bias for each group.
//!
//! An element is `scale * q + bias` with unsigned `q`; words hold elements in order, lowest bits first. The
//! signed types become unsigned by moving their zero into the bias.

use half::f16;

use super::block_count;
use crate::dtype::GgmlType;
use crate::error::{Error, Result};

/// Elements that share a scale and a bias.
pub const AFFINE_GROUP: usize = 32;

/// Bits of an element in the affine layout; `None` for types that do not fit it.
pub fn affine_bits(dtype: GgmlType) -> Option<u32> {
    match dtype {
        GgmlType::Q4_0 | GgmlType::Q4_1 => Some(4),
        GgmlType::Q8_0 => Some(8),
        _ => None,
    }
}

/// Repacks whole blocks. Each block of 32 elements gives one scale, one bias, and four (4 bits) or eight
/// (8 bits) words; the slices must have room for exactly that.
pub fn to_affine(
    dtype: GgmlType,
    blocks: &[u8],
    words: &mut [u32],
    scales: &mut [f16],
    biases: &mut [f16],
) -> Result<()> {
    affine_words(dtype, blocks, words)?;
    affine_scales(dtype, blocks, scales)?;
    affine_biases(dtype, blocks, biases)
}

/// The packed words of whole blocks; see [`to_affine`].
pub fn affine_words(dtype: GgmlType, blocks: &[u8], words: &mut [u32]) -> Result<()> {
    let bits = affine_bits(dtype).ok_or_else(|| not_affine(dtype))? as usize;
    require(dtype, blocks, words.len(), bits)?;
    for (block, words) in each(dtype, blocks).zip(words.chunks_exact_mut(bits)) {
        match dtype {
            GgmlType::Q4_0 => pack_nibbles(&block[2..], words),
            GgmlType::Q4_1 => pack_nibbles(&block[4..], words),
            _ => {
                let (bytes, _) = block[2..].as_chunks::<4>();
                for (word, bytes) in words.iter_mut().zip(bytes) {
                    // Adding 128 to a signed byte flips its highest bit.
                    *word = u32::from_le_bytes(*bytes) ^ 0x8080_8080;
                }
            }
        }
    }
    Ok(())
}

/// The scales of whole blocks; see [`to_affine`].
pub fn affine_scales(dtype: GgmlType, blocks: &[u8], scales: &mut [f16]) -> Result<()> {
    require(dtype, blocks, scales.len(), 1)?;
    for (block, scale) in each(dtype, blocks).zip(scales) {
        *scale = half_of(block, 0);
    }
    Ok(())
}

/// The biases of whole blocks; see [`to_affine`].
pub fn affine_biases(dtype: GgmlType, blocks: &[u8], biases: &mut [f16]) -> Result<()> {
    require(dtype, blocks, biases.len(), 1)?;
    for (block, bias) in each(dtype, blocks).zip(biases) {
        *bias = match dtype {
            GgmlType::Q4_1 => half_of(block, 2),
            GgmlType::Q4_0 => f16::from_f32(-8.0 * half_of(block, 0).to_f32()),
            _ => f16::from_f32(-128.0 * half_of(block, 0).to_f32()),
        };
    }
    Ok(())
}

fn not_affine(dtype: GgmlType) -> Error {
    Error::Quant { dtype: dtype.name(), detail: "has no affine form".into() }
}

/// Fails unless each block has `per_block` of the `outputs`.
fn require(dtype: GgmlType, blocks: &[u8], outputs: usize, per_block: usize) -> Result<()> {
    affine_bits(dtype).ok_or_else(|| not_affine(dtype))?;
    let elements = (outputs / per_block).saturating_mul(AFFINE_GROUP);
    if !outputs.is_multiple_of(per_block) {
        let detail = format!("{outputs} words are no multiple of the {per_block} of a block");
        return Err(Error::Quant { dtype: dtype.name(), detail });
    }
    block_count(dtype, blocks, elements).map(|_| ())
}

fn each(dtype: GgmlType, blocks: &[u8]) -> impl Iterator<Item = &[u8]> {
    blocks.chunks_exact(dtype.block().1 as usize)
}

fn half_of(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// From nibbles split in halves to nibbles in order: words 0 and 1 are the low ones, 2 and 3 the high ones.
fn pack_nibbles(bytes: &[u8], words: &mut [u32]) {
    let (halves, _) = bytes.as_chunks::<8>();
    if let ([a, b], [low_a, low_b, high_a, high_b]) = (halves, words) {
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        (*low_a, *low_b) = (gather(a), gather(b));
        (*high_a, *high_b) = (gather(a >> 4), gather(b >> 4));
    }
}

/// The low nibbles of eight bytes, side by side.
fn gather(bytes: u64) -> u32 {
    let nibbles = bytes & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (fours | fours >> 16) as u32
}
