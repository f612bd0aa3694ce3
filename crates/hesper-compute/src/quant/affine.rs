//! Repacks blocks of Q4_0, Q4_1 and Q8_0 as MLX's affine layout: packed words, and a scale and a bias for
//! each 32 elements.
//!
//! An element is `scale * q + bias` with unsigned `q`; words hold elements in order, lowest bits first. The
//! signed types become unsigned by moving their zero into the bias.

use half::f16;
use hesper_types::GgmlType;

use crate::error::{Mismatch, multiple, same, supported};
use crate::par::{Par, Shared, chunks, grain};

/// The packed words of blocks: as many for each block as an element has bits.
pub fn affine_words(par: &dyn Par, kind: GgmlType, blocks: &[u8], words: &mut [u32]) -> Result<(), Mismatch> {
    each_block(par, kind, blocks, words, kind.affine_bits().unwrap_or(1), |block, words| match kind {
        GgmlType::Q8_0 => {
            for (word, bytes) in words.iter_mut().zip(block[2..].as_chunks::<4>().0) {
                // Adding 128 to a signed byte flips its highest bit.
                *word = u32::from_le_bytes(*bytes) ^ 0x8080_8080;
            }
        }
        _ => pack_nibbles(&block[kind.head()..], words),
    })
}

/// The scales of blocks.
pub fn affine_scales(
    par: &dyn Par,
    kind: GgmlType,
    blocks: &[u8],
    scales: &mut [f16],
) -> Result<(), Mismatch> {
    each_block(par, kind, blocks, scales, 1, |block, scale| scale[0] = half(block, 0))
}

/// The biases of blocks.
pub fn affine_biases(
    par: &dyn Par,
    kind: GgmlType,
    blocks: &[u8],
    biases: &mut [f16],
) -> Result<(), Mismatch> {
    each_block(par, kind, blocks, biases, 1, |block, bias| {
        bias[0] = match kind {
            GgmlType::Q4_1 => half(block, 2),
            GgmlType::Q4_0 => f16::from_f32(-8.0 * half(block, 0).to_f32()),
            _ => f16::from_f32(-128.0 * half(block, 0).to_f32()),
        };
    })
}

/// Calls `f` with each block and its `per_block` outputs.
fn each_block<T: Send>(
    par: &dyn Par,
    kind: GgmlType,
    blocks: &[u8],
    out: &mut [T],
    per_block: usize,
    f: impl Fn(&[u8], &mut [T]) + Sync,
) -> Result<(), Mismatch> {
    supported(kind.affine_bits().is_some(), "an affine layout of this block type", "dequantize it")?;
    let (count, bytes) = (blocks.len() / kind.block_bytes(), kind.block_bytes());
    multiple("bytes of blocks", bytes, blocks.len())?;
    same("outputs of the blocks", count * per_block, out.len())?;
    let to = Shared::new(out.as_mut_ptr());
    chunks(par, count, grain(par, count, 2048), |a, b| {
        for (i, block) in blocks[a * bytes..b * bytes].chunks_exact(bytes).enumerate() {
            // SAFETY: the outputs of a block are this task's own.
            f(block, unsafe { to.slice((a + i) * per_block, per_block) });
        }
    });
    Ok(())
}

fn half(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// Reorders nibbles: a block has the first half of its elements in the low nibbles and the second half in the
/// high ones, so words 0 and 1 are the low nibbles, 2 and 3 the high ones.
fn pack_nibbles(bytes: &[u8], words: &mut [u32]) {
    if let ([a, b], [low_a, low_b, high_a, high_b]) = (bytes.as_chunks::<8>().0, words) {
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        (*low_a, *low_b) = (gather(a), gather(b));
        (*high_a, *high_b) = (gather(a >> 4), gather(b >> 4));
    }
}

/// Packs the low nibbles of eight bytes.
fn gather(bytes: u64) -> u32 {
    let nibbles = bytes & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (fours | fours >> 16) as u32
}
