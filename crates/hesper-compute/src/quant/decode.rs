//! Decodes GGUF blocks, in the order of operations of their definition: elements are bit-identical to those
//! of the reference decoder.
//!
//! Blocks of 32 elements split nibbles in halves: byte `i` holds elements `i` and `i + 16`. Blocks of 256
//! elements have a scale per group, and spread the bits of a code over several bytes. These are decoded by
//! vectors explicitly: compilers do not vectorize shifts of bytes.

use hesper_types::GgmlType;

use crate::simd::Isa;

/// Levels of the non-linear 4-bit types.
const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the values of a 4-bit float with two exponent bits.
const FP4_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Decodes a block of a decodable type. `block` and `to` have the sizes of the type.
#[inline(always)]
pub(super) fn decode_block<S: Isa>(s: S, kind: GgmlType, block: &[u8], to: &mut [f32]) {
    match kind {
        GgmlType::Q4_0 => {
            let d = half(block, 0);
            nibbles(&block[2..18], to, |_, q| (f32::from(q) - 8.0) * d);
        }
        GgmlType::Q4_1 => {
            let (d, low) = (half(block, 0), half(block, 2));
            nibbles(&block[4..20], to, |_, q| f32::from(q) * d + low);
        }
        GgmlType::Q5_0 => {
            let (d, high) = (half(block, 0), word(block, 2));
            nibbles(&block[6..22], to, |i, q| (five_bits(q, high, i) - 16.0) * d);
        }
        GgmlType::Q5_1 => {
            let (d, low, high) = (half(block, 0), half(block, 2), word(block, 4));
            nibbles(&block[8..24], to, |i, q| five_bits(q, high, i) * d + low);
        }
        GgmlType::Q8_0 => signed_bytes(half(block, 0), &block[2..34], to),
        GgmlType::Q8_K => signed_bytes(f32::from_bits(word(block, 0)), &block[4..260], to),
        GgmlType::Iq4Nl => levels(s, half(block, 0), &IQ4_LEVELS, &block[2..18], to),
        GgmlType::Iq4Xs => iq4_xs(s, block, to),
        GgmlType::Mxfp4 => {
            // `2^(exponent - 128)`: the levels are doubled. The two lowest exponents are subnormal.
            let exponent = u32::from(block[0]);
            let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
            levels(s, f32::from_bits(bits), &FP4_DOUBLED, &block[1..17], to);
        }
        GgmlType::Q2_K => q2_k(s, block, to),
        GgmlType::Q3_K => q3_k(s, block, to),
        GgmlType::Q4_K => q4_k(s, block, None, &block[16..144], to),
        GgmlType::Q5_K => q4_k(s, block, Some(&block[16..48]), &block[48..176], to),
        GgmlType::Q6_K => q6_k(s, block, to),
        _ => debug_assert!(false, "{kind:?} has no decoder"),
    }
}

/// Converts a half to a float in a few instructions that every processor has. A row has one per 32 elements,
/// so a call would cost more than their products.
#[inline(always)]
pub fn widen(half: u16) -> f32 {
    const UP: f32 = f32::from_bits((127 + 112) << 23);
    let half = u32::from(half);
    let bits = (half & 0x7fff) << 13;
    let finite = (f32::from_bits(bits) * UP).to_bits();
    // Infinities and NaN have the largest exponent, which the factor does not reach.
    let special = u32::from(half & 0x7c00 == 0x7c00).wrapping_neg() & 0x7f80_0000;
    f32::from_bits(finite | special | (half & 0x8000) << 16)
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    widen(u16::from_le_bytes([block[at], block[at + 1]]))
}

#[inline(always)]
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Writes the values of 32 nibbles, given their positions.
#[inline(always)]
fn nibbles(bytes: &[u8], to: &mut [f32], value: impl Fn(usize, u8) -> f32) {
    let (first, second) = to.split_at_mut(16);
    for i in 0..16 {
        first[i] = value(i, bytes[i] & 15);
        second[i] = value(i + 16, bytes[i] >> 4);
    }
}

/// A code whose fifth bit is in a separate 32-bit word.
#[inline(always)]
fn five_bits(low: u8, high: u32, i: usize) -> f32 {
    (u32::from(low) | (high >> i & 1) << 4) as f32
}

#[inline(always)]
fn signed_bytes(d: f32, bytes: &[u8], to: &mut [f32]) {
    for (to, q) in to.iter_mut().zip(bytes) {
        *to = f32::from(*q as i8) * d;
    }
}

/// Writes elements, a multiple of sixteen, by vectors: `$value` gives those from `$i` on. A closure that is
/// not inlined would be compiled without the instructions of the level.
macro_rules! fill {
    ($s:ident, $to:expr, |$i:ident| $value:expr) => {{
        let to: &mut [f32] = $to;
        debug_assert!(to.len().is_multiple_of(16));
        let mut $i = 0;
        while $i < to.len() {
            let value = $value;
            // SAFETY: the length is a multiple of that of a vector.
            unsafe { $s.store(to.as_mut_ptr().add($i), value) };
            $i += S::LANES;
        }
    }};
}

/// The bytes of a vector from `at` on, as integers.
#[inline(always)]
fn bytes<S: Isa>(s: S, from: &[u8], at: usize) -> S::F {
    let from = &from[at..at + S::LANES];
    // SAFETY: the slice has as many bytes as a vector.
    unsafe { s.bytes(from.as_ptr()) }
}

/// 32 nibbles that index a table of levels.
#[inline(always)]
fn levels<S: Isa>(s: S, d: f32, levels: &[i8; 16], from: &[u8], to: &mut [f32]) {
    let (table, from) = (s.table(&levels.map(f32::from)), &from[..16]);
    for (half, to) in to[..32].chunks_exact_mut(16).enumerate() {
        fill!(s, to, |i| s.mul(s.splat(d), s.lookup(table, bytes(s, from, i), 4 * half as u32)));
    }
}

/// Groups of 16 with 4-bit scales and minima; four groups of 32 share their bytes.
#[inline(always)]
fn q2_k<S: Isa>(s: S, block: &[u8], to: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (d, low) = (half(block, 80), half(block, 82));
    for group in 0..16 {
        let scale = s.splat(d * f32::from(scales[group] & 15));
        let minimum = s.splat(low * f32::from(scales[group] >> 4));
        let (from, shift) = (group / 8 * 32 + group % 2 * 16, group % 8 / 2 * 2);
        fill!(s, &mut to[16 * group..16 * group + 16], |i| {
            let code = s.bits(bytes(s, codes, from + i), shift as i32, 3);
            s.sub(s.mul(scale, s.int_to_float(code)), minimum)
        });
    }
}

/// Groups of 16 with 6-bit scales; codes have 3 bits and an offset of -4.
#[inline(always)]
fn q3_k<S: Isa>(s: S, block: &[u8], to: &mut [f32]) {
    let (high, codes, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for group in 0..16 {
        let low = if group < 8 { packed[group] & 15 } else { packed[group - 8] >> 4 };
        let scale = low | (packed[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
        let scale = s.splat(d * (f32::from(scale) - 32.0));
        let begin = group % 2 * 16;
        let (from, shift, bit) = (group / 8 * 32 + begin, group % 8 / 2 * 2, group / 2);
        fill!(s, &mut to[16 * group..16 * group + 16], |i| {
            let low = s.bits(bytes(s, codes, from + i), shift as i32, 3);
            let code = s.or(low, s.bits(bytes(s, high, begin + i), bit as i32 - 2, 4));
            s.mul(scale, s.sub(s.int_to_float(code), s.splat(4.0)))
        });
    }
}

/// Groups of 32 with 6-bit scales and minima, and 4-bit codes; `high` has a fifth bit of each.
#[inline(always)]
fn q4_k<S: Isa>(s: S, block: &[u8], high: Option<&[u8]>, codes: &[u8], to: &mut [f32]) {
    let (d, low, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    for group in 0..8 {
        let (scale, minimum) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => (
                packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
                packed[group + 4] >> 4 | packed[group] >> 6 << 4,
            ),
        };
        let (scale, minimum) = (s.splat(d * f32::from(scale)), s.splat(low * f32::from(minimum)));
        let (from, shift) = (group / 2 * 32, group % 2 * 4);
        fill!(s, &mut to[32 * group..32 * group + 32], |i| {
            let mut code = s.bits(bytes(s, codes, from + i), shift as i32, 15);
            if let Some(high) = high {
                code = s.or(code, s.bits(bytes(s, high, i), group as i32 - 4, 16));
            }
            s.sub(s.mul(scale, s.int_to_float(code)), minimum)
        });
    }
}

/// Groups of 16 with 8-bit scales; four groups of 32 share the bytes of their upper two bits.
#[inline(always)]
fn q6_k<S: Isa>(s: S, block: &[u8], to: &mut [f32]) {
    let d = half(block, 208);
    for part in 0..2 {
        let (low, high) = (&block[64 * part..][..64], &block[128 + 32 * part..][..32]);
        for group in 0..8 {
            let scale = s.splat(d * f32::from(block[192 + 8 * part + group] as i8));
            let (pair, begin) = (group / 2, group % 2 * 16);
            let from = pair % 2 * 32 + begin;
            fill!(s, &mut to[128 * part + 16 * group..][..16], |i| {
                let lower = s.bits(bytes(s, low, from + i), (pair / 2 * 4) as i32, 15);
                let code = s.or(lower, s.bits(bytes(s, high, begin + i), 2 * pair as i32 - 4, 0x30));
                s.mul(scale, s.sub(s.int_to_float(code), s.splat(32.0)))
            });
        }
    }
}

/// Groups of 32 with 6-bit scales, and codes that index a table of levels.
#[inline(always)]
fn iq4_xs<S: Isa>(s: S, block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (group, to) in to.chunks_exact_mut(32).enumerate() {
        let low = i32::from(block[4 + group / 2] >> (group % 2 * 4) & 15);
        let scale = low | i32::from(high >> (group * 2) & 3) << 4;
        levels(s, d * (scale - 32) as f32, &IQ4_LEVELS, &block[8 + 16 * group..][..16], to);
    }
}
