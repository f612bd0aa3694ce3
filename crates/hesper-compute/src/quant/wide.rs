//! The blocks of GGUF files that are decoded before they are multiplied: those of 5 bits, and those of 256 numbers in
//! groups with small scales of their own.

use super::gguf::{GgufFormat, widen};

/// Writes the numbers of a block.
///
/// # Safety
/// The block is readable, and `to` has room for its numbers.
#[inline(always)]
pub(super) unsafe fn decode_wide(format: GgufFormat, p: *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    let (block, to) = unsafe {
        let block = std::slice::from_raw_parts(p, format.block_bytes());
        (block, std::slice::from_raw_parts_mut(to, format.block_len()))
    };
    match format {
        GgufFormat::Q5_0 | GgufFormat::Q5_1 => five(format, block, to),
        GgufFormat::Q2_K => q2_k(block, to),
        GgufFormat::Q3_K => q3_k(block, to),
        GgufFormat::Q4_K => q4_k(block, &[0; 32], &block[16..], to),
        GgufFormat::Q5_K => {
            let mut high = [0; 32];
            high.copy_from_slice(&block[16..48]);
            q4_k(block, &high, &block[48..], to);
        }
        GgufFormat::Q6_K => q6_k(block, to),
        GgufFormat::Q4_0 | GgufFormat::Q4_1 | GgufFormat::Q8_0 => {}
    }
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    widen(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// 32 codes: four bits of each in sixteen bytes, the fifth bits in a word before them.
#[inline(always)]
fn five(format: GgufFormat, block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    let (low, at) = if format == GgufFormat::Q5_1 { (half(block, 2), 4) } else { (-16.0 * d, 2) };
    let high = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let codes = &block[at + 4..at + 20];
    for i in 0..16 {
        let (first, second) = (high >> i & 1, high >> (i + 16) & 1);
        to[i] = d * (u32::from(codes[i] & 15) | first << 4) as f32 + low;
        to[16 + i] = d * (u32::from(codes[i] >> 4) | second << 4) as f32 + low;
    }
}

/// Groups of 16 with four bits of scale and of minimum; four groups of 32 share their bytes.
#[inline(always)]
fn q2_k(block: &[u8], to: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, low) = (half(block, 80), half(block, 82));
    for group in 0..16 {
        let (scale, minimum) = (d * f32::from(scales[group] & 15), low * f32::from(scales[group] >> 4));
        let bytes = &codes[group / 8 * 32 + group % 2 * 16..][..16];
        let shift = group % 8 / 2 * 2;
        for (to, code) in to[16 * group..16 * group + 16].iter_mut().zip(bytes) {
            *to = scale * f32::from(code >> shift & 3) - minimum;
        }
    }
}

/// Groups of 16 with six bits of scale; the third bit of a code says that nothing is to be subtracted.
#[inline(always)]
fn q3_k(block: &[u8], to: &mut [f32]) {
    let (high, codes, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for group in 0..16 {
        let low = if group < 8 { packed[group] & 15 } else { packed[group - 8] >> 4 };
        let scale = low | (packed[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
        let scale = d * (f32::from(scale) - 32.0);
        let begin = group % 2 * 16;
        let bytes = &codes[group / 8 * 32 + begin..][..16];
        let (shift, bit) = (group % 8 / 2 * 2, group / 2);
        for i in 0..16 {
            let code = bytes[i] >> shift & 3 | (high[begin + i] >> bit & 1) << 2;
            to[16 * group + i] = scale * (f32::from(code) - 4.0);
        }
    }
}

/// Groups of 32 with six bits of scale and of minimum, and codes of four bits; `high` has a fifth bit of each.
#[inline(always)]
fn q4_k(block: &[u8], high: &[u8; 32], codes: &[u8], to: &mut [f32]) {
    let (d, low, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    for group in 0..8 {
        let (scale, minimum) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => (
                packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
                packed[group + 4] >> 4 | packed[group] >> 6 << 4,
            ),
        };
        let (scale, minimum) = (d * f32::from(scale), low * f32::from(minimum));
        let bytes = &codes[group / 2 * 32..][..32];
        let shift = group % 2 * 4;
        for i in 0..32 {
            let code = bytes[i] >> shift & 15 | (high[i] >> group & 1) << 4;
            to[32 * group + i] = scale * f32::from(code) - minimum;
        }
    }
}

/// Groups of 16 with eight bits of scale; four groups of 32 share the bytes of their upper two bits.
#[inline(always)]
fn q6_k(block: &[u8], to: &mut [f32]) {
    let d = half(block, 208);
    for part in 0..2 {
        let (low, high) = (&block[64 * part..][..64], &block[128 + 32 * part..][..32]);
        let scales = &block[192 + 8 * part..][..8];
        for group in 0..4 {
            let bytes = &low[group % 2 * 32..][..32];
            for i in 0..32 {
                let code = bytes[i] >> (group / 2 * 4) & 15 | (high[i] >> (2 * group) & 3) << 4;
                let scale = d * f32::from(scales[2 * group + i / 16] as i8);
                to[128 * part + 32 * group + i] = scale * (f32::from(code) - 32.0);
            }
        }
    }
}
