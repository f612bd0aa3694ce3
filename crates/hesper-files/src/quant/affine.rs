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
    let wrong = |detail: String| Error::Quant { dtype: dtype.name(), detail };
    let bits = affine_bits(dtype).ok_or_else(|| wrong("has no affine form".into()))?;
    let count = block_count(dtype, blocks, scales.len().saturating_mul(AFFINE_GROUP))?;
    if words.len() != count * bits as usize || biases.len() != count {
        let (words, biases) = (words.len(), biases.len());
        return Err(wrong(format!("{count} blocks do not fit {words} words and {biases} biases")));
    }
    let groups = scales.iter_mut().zip(biases).zip(words.chunks_exact_mut(bits as usize));
    let (_, block_bytes) = dtype.block();
    for (block, ((scale, bias), words)) in blocks.chunks_exact(block_bytes as usize).zip(groups) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
        *scale = half(0);
        match dtype {
            GgmlType::Q4_0 => {
                *bias = f16::from_f32(-8.0 * scale.to_f32());
                pack_nibbles(&block[2..], words);
            }
            GgmlType::Q4_1 => {
                *bias = half(2);
                pack_nibbles(&block[4..], words);
            }
            _ => {
                *bias = f16::from_f32(-128.0 * scale.to_f32());
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
