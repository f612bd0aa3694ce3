//! Decodes ggml's quantised blocks to `f32`, and repacks three of them as MLX's affine layout.
//!
//! Safe, plain Rust over fixed-size blocks, in the order of operations of the format's definition: results
//! equal the reference decoder bit for bit.

mod affine;
mod k_blocks;
mod small_blocks;

use half::f16;

use crate::dtype::GgmlType;
use crate::error::{Error, Result};

pub use affine::{AFFINE_GROUP, affine_biases, affine_bits, affine_scales, affine_words, to_affine};

/// Whether [`dequantize`] knows the type.
pub fn is_supported(dtype: GgmlType) -> bool {
    decoder(dtype).is_some()
}

/// Decodes whole blocks. `out` has as many elements as the blocks.
///
/// ```
/// use hesper_files::{GgmlType, quant};
/// let mut block = [0u8; 34];
/// block[..2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
/// block[2] = 3;
/// let mut out = [0.0; 32];
/// quant::dequantize(GgmlType::Q8_0, &block, &mut out)?;
/// assert_eq!(out[0], 1.5);
/// # Ok::<(), hesper_files::Error>(())
/// ```
pub fn dequantize(dtype: GgmlType, blocks: &[u8], out: &mut [f32]) -> Result<()> {
    let Some(decode) = decoder(dtype) else {
        return Err(Error::Quant { dtype: dtype.name(), detail: "no decoder for this type".into() });
    };
    block_count(dtype, blocks, out.len())?;
    decode(blocks, out);
    Ok(())
}

type Decoder = fn(&[u8], &mut [f32]);

fn decoder(dtype: GgmlType) -> Option<Decoder> {
    Some(match dtype {
        GgmlType::Q4_0 => small_blocks::q4_0,
        GgmlType::Q4_1 => small_blocks::q4_1,
        GgmlType::Q5_0 => small_blocks::q5_0,
        GgmlType::Q5_1 => small_blocks::q5_1,
        GgmlType::Q8_0 => small_blocks::q8_0,
        GgmlType::Iq4Nl => small_blocks::iq4_nl,
        GgmlType::Mxfp4 => small_blocks::mxfp4,
        GgmlType::Q2_K => k_blocks::q2_k,
        GgmlType::Q3_K => k_blocks::q3_k,
        GgmlType::Q4_K => k_blocks::q4_k,
        GgmlType::Q5_K => k_blocks::q5_k,
        GgmlType::Q6_K => k_blocks::q6_k,
        GgmlType::Q8_K => k_blocks::q8_k,
        GgmlType::Iq4Xs => k_blocks::iq4_xs,
        _ => return None,
    })
}

/// The number of blocks, if bytes and elements agree on it.
fn block_count(dtype: GgmlType, blocks: &[u8], elements: usize) -> Result<usize> {
    let (per_block, bytes) = dtype.block();
    let (per_block, bytes) = (per_block as usize, bytes as usize);
    let count = blocks.len() / bytes;
    if !blocks.len().is_multiple_of(bytes) || count.checked_mul(per_block) != Some(elements) {
        let detail = format!(
            "{} bytes for {elements} elements; a block of {per_block} elements has {bytes} bytes",
            blocks.len()
        );
        return Err(Error::Quant { dtype: dtype.name(), detail });
    }
    Ok(count)
}

/// The half-precision number at `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Calls `decode` with each block and its place in the output.
fn each_block<const BYTES: usize, const ELEMENTS: usize>(
    blocks: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let (blocks, _) = blocks.as_chunks::<BYTES>();
    let (outs, _) = out.as_chunks_mut::<ELEMENTS>();
    for (block, out) in blocks.iter().zip(outs) {
        decode(block, out);
    }
}
