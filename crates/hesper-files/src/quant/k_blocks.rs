//! Blocks of 256 elements with scales for their parts.

use super::small_blocks::IQ4_LEVELS;
use super::{each_block, half_at};

pub(super) fn q2_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<84, 256>(blocks, out, |block, out| {
        let (scales, quants) = (&block[..16], &block[16..80]);
        let (scale, least) = (half_at(block, 80), half_at(block, 82));
        // 16 elements share a scale; a byte holds elements of the same place in four runs of 32.
        for (part, out) in out.chunks_exact_mut(16).enumerate() {
            let (half, shift, upper) = (part / 8, part % 8 / 2 * 2, part % 2);
            let step = scale * f32::from(scales[part] & 15);
            let low = least * f32::from(scales[part] >> 4);
            let bytes = &quants[half * 32 + upper * 16..][..16];
            for (out, &byte) in out.iter_mut().zip(bytes) {
                *out = step * f32::from(byte >> shift & 3) - low;
            }
        }
    });
}

pub(super) fn q3_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<110, 256>(blocks, out, |block, out| {
        let (mask, quants, packed) = (&block[..32], &block[32..96], &block[96..108]);
        let scale = half_at(block, 108);
        for (part, out) in out.chunks_exact_mut(16).enumerate() {
            let (half, run, upper) = (part / 8, part % 8 / 2, part % 2);
            // Six bits: four from the first eight bytes, two from the last four.
            let low = if part < 8 { packed[part] & 15 } else { packed[part - 8] >> 4 };
            let high = packed[8 + part % 4] >> (part / 4 * 2) & 3;
            let step = scale * (i32::from(low | high << 4) - 32) as f32;
            let bytes = &quants[half * 32 + upper * 16..][..16];
            let bits = &mask[upper * 16..][..16];
            for ((out, &byte), &bits) in out.iter_mut().zip(bytes).zip(bits) {
                let offset = if bits >> (half * 4 + run) & 1 == 1 { 0 } else { 4 };
                *out = step * (i32::from(byte >> (run * 2) & 3) - offset) as f32;
            }
        }
    });
}

/// The six-bit scale and minimum of part `j` of eight.
fn scale_and_least(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, least) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(least))
}

pub(super) fn q4_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<144, 256>(blocks, out, |block, out| {
        let (scale, least) = (half_at(block, 0), half_at(block, 2));
        let (packed, quants) = (&block[4..16], &block[16..]);
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let (s, m) = scale_and_least(packed, part);
            let (step, low) = (scale * s, least * m);
            let shift = part % 2 * 4;
            for (out, &byte) in out.iter_mut().zip(&quants[part / 2 * 32..]) {
                *out = step * f32::from(byte >> shift & 15) - low;
            }
        }
    });
}

pub(super) fn q5_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<176, 256>(blocks, out, |block, out| {
        let (scale, least) = (half_at(block, 0), half_at(block, 2));
        let (packed, high, quants) = (&block[4..16], &block[16..48], &block[48..]);
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let (s, m) = scale_and_least(packed, part);
            let (step, low) = (scale * s, least * m);
            let shift = part % 2 * 4;
            for ((out, &byte), &high) in out.iter_mut().zip(&quants[part / 2 * 32..]).zip(high) {
                let q = byte >> shift & 15 | (high >> part & 1) << 4;
                *out = step * f32::from(q) - low;
            }
        }
    });
}

pub(super) fn q6_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<210, 256>(blocks, out, |block, out| {
        let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
        let scale = half_at(block, 208);
        // Runs of 32: four in each half, whose bytes hold two runs of low bits and four of high bits.
        for (run, out) in out.chunks_exact_mut(32).enumerate() {
            let (half, quarter) = (run / 4, run % 4);
            let low = &low[half * 64 + quarter % 2 * 32..][..32];
            let high = &high[half * 32..][..32];
            for (part, out) in out.chunks_exact_mut(16).enumerate() {
                let step = scale * f32::from(scales[run * 2 + part] as i8);
                for (l, out) in out.iter_mut().enumerate() {
                    let at = part * 16 + l;
                    let q = low[at] >> (quarter / 2 * 4) & 15 | (high[at] >> (quarter * 2) & 3) << 4;
                    *out = step * (i32::from(q) - 32) as f32;
                }
            }
        }
    });
}

pub(super) fn q8_k(blocks: &[u8], out: &mut [f32]) {
    each_block::<292, 256>(blocks, out, |block, out| {
        let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        for (out, &q) in out.iter_mut().zip(&block[4..260]) {
            *out = scale * f32::from(q as i8);
        }
    });
}

pub(super) fn iq4_xs(blocks: &[u8], out: &mut [f32]) {
    each_block::<136, 256>(blocks, out, |block, out| {
        let scale = half_at(block, 0);
        let high = u16::from_le_bytes([block[2], block[3]]);
        let (low, quants) = (&block[4..8], &block[8..]);
        for (part, out) in out.chunks_exact_mut(32).enumerate() {
            let s = i32::from(low[part / 2] >> (part % 2 * 4) & 15) | i32::from(high >> (part * 2) & 3) << 4;
            let step = scale * (s - 32) as f32;
            for (j, &byte) in quants[part * 16..][..16].iter().enumerate() {
                out[j] = step * f32::from(IQ4_LEVELS[usize::from(byte & 15)]);
                out[j + 16] = step * f32::from(IQ4_LEVELS[usize::from(byte >> 4)]);
            }
        }
    });
}
