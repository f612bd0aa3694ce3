//! Blocks of 32 elements. Nibbles are split in halves: byte `j` holds elements `j` and `j + 16`.

use super::{each_block, half_at};

/// The 16 levels of the non-linear 4-bit types.
pub(super) const IQ4_LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of a 4-bit float with two exponent bits.
const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Fills the output with the values of the nibbles, given their positions.
fn nibbles(bytes: &[u8], out: &mut [f32; 32], value: impl Fn(usize, u8) -> f32) {
    for (j, &byte) in bytes.iter().take(16).enumerate() {
        out[j] = value(j, byte & 15);
        out[j + 16] = value(j + 16, byte >> 4);
    }
}

pub(super) fn q4_0(blocks: &[u8], out: &mut [f32]) {
    each_block::<18, 32>(blocks, out, |block, out| {
        let scale = half_at(block, 0);
        nibbles(&block[2..], out, |_, q| (i32::from(q) - 8) as f32 * scale);
    });
}

pub(super) fn q4_1(blocks: &[u8], out: &mut [f32]) {
    each_block::<20, 32>(blocks, out, |block, out| {
        let (scale, least) = (half_at(block, 0), half_at(block, 2));
        nibbles(&block[4..], out, |_, q| f32::from(q) * scale + least);
    });
}

/// The fifth bits of 32 elements.
fn fifth_bits(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

pub(super) fn q5_0(blocks: &[u8], out: &mut [f32]) {
    each_block::<22, 32>(blocks, out, |block, out| {
        let (scale, high) = (half_at(block, 0), fifth_bits(block, 2));
        nibbles(&block[6..], out, |i, q| {
            let q = u32::from(q) | (high >> i & 1) << 4;
            (q as i32 - 16) as f32 * scale
        });
    });
}

pub(super) fn q5_1(blocks: &[u8], out: &mut [f32]) {
    each_block::<24, 32>(blocks, out, |block, out| {
        let (scale, least, high) = (half_at(block, 0), half_at(block, 2), fifth_bits(block, 4));
        nibbles(&block[8..], out, |i, q| {
            let q = u32::from(q) | (high >> i & 1) << 4;
            q as f32 * scale + least
        });
    });
}

pub(super) fn q8_0(blocks: &[u8], out: &mut [f32]) {
    each_block::<34, 32>(blocks, out, |block, out| {
        let scale = half_at(block, 0);
        for (out, &q) in out.iter_mut().zip(&block[2..]) {
            *out = f32::from(q as i8) * scale;
        }
    });
}

pub(super) fn iq4_nl(blocks: &[u8], out: &mut [f32]) {
    each_block::<18, 32>(blocks, out, |block, out| {
        let scale = half_at(block, 0);
        nibbles(&block[2..], out, |_, q| scale * f32::from(IQ4_LEVELS[usize::from(q & 15)]));
    });
}

pub(super) fn mxfp4(blocks: &[u8], out: &mut [f32]) {
    each_block::<17, 32>(blocks, out, |block, out| {
        // Half of two to the power of (exponent - 127): the levels are doubled. The two lowest are subnormal.
        let exponent = u32::from(block[0]);
        let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
        let scale = f32::from_bits(bits);
        nibbles(&block[1..], out, |_, q| scale * f32::from(FP4_DOUBLED[usize::from(q & 15)]));
    });
}
