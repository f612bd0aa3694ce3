//! Products of one row of signed bytes with one row of codes, summed as integers over units of 16 or 32 codes
//! (AVX-512 with VNNI).
//!
//! A row of codes is read from its first to its last byte, which prefetchers follow; interleaving several
//! rows pays off only if each code is used several times.

use std::arch::x86_64::*;

/// How a row stores codes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowCodes {
    /// Blocks of 32 nibbles `stride` bytes apart: the low nibbles of sixteen bytes, then their high ones.
    Nibbles { stride: usize },
    /// Blocks of 32 bytes `stride` bytes apart, whose highest bits are flipped if they are `signed`.
    Bytes { stride: usize, signed: bool },
    /// Nibbles in order; the signed bytes are permuted so that the low and the high nibbles of four bytes
    /// follow each other.
    InOrder,
    /// Blocks of 256 nibbles `stride` bytes apart: the low nibbles of 32 bytes, then their high ones.
    Halves { stride: usize },
    /// Blocks of 256 codes of 6 bits in units of 16: the nibbles, and 128 bytes later the upper bits (Q6_K).
    Six { stride: usize },
}

const NIBBLES: u8 = 0;
const BYTES: u8 = 1;
const IN_ORDER: u8 = 2;
const HALVES: u8 = 3;
const SIX: u8 = 4;

/// Units whose sums are stored together.
pub(crate) const GROUP: usize = 16;

/// Distance of prefetches in bytes: hardware prefetchers stop at page boundaries.
const AHEAD: usize = 16384;

/// Stores the sums of the whole groups of `units` units of a row.
///
/// # Safety
/// The level has AVX-512 and VNNI. `codes` and `x` hold the units, and `to` has room for the sums. Units have
/// 16 codes for [`RowCodes::Six`] and otherwise 32; blocks of 256 codes are whole.
pub(crate) unsafe fn unit_sums(layout: RowCodes, codes: *const u8, x: *const i8, units: usize, to: *mut i32) {
    // SAFETY: the caller's promise.
    unsafe {
        match layout {
            RowCodes::Nibbles { stride } => sums::<NIBBLES>(codes, stride, 0, x, units, to),
            RowCodes::Bytes { stride, signed } => sums::<BYTES>(codes, stride, flipped(signed), x, units, to),
            RowCodes::InOrder => sums::<IN_ORDER>(codes, 16, 0, x, units, to),
            RowCodes::Halves { stride } => sums::<HALVES>(codes, stride, 0, x, units, to),
            RowCodes::Six { stride } => sums::<SIX>(codes, stride, 0, x, units, to),
        }
    }
}

/// Stores the sums of the units behind the last whole group, unit by unit, those of sixteen rows together.
///
/// # Safety
/// As for [`unit_sums`], for each row.
pub(crate) unsafe fn last_unit_sums(
    layout: RowCodes,
    rows: &[*const u8; 16],
    x: *const i8,
    units: usize,
    to: *mut i32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match layout {
            RowCodes::Nibbles { stride } => last_sums::<NIBBLES>(rows, stride, 0, x, units, to),
            RowCodes::Bytes { stride, signed } => {
                last_sums::<BYTES>(rows, stride, flipped(signed), x, units, to);
            }
            RowCodes::InOrder => last_sums::<IN_ORDER>(rows, 16, 0, x, units, to),
            RowCodes::Halves { stride } => last_sums::<HALVES>(rows, stride, 0, x, units, to),
            // A block has sixteen units.
            RowCodes::Six { .. } => {}
        }
    }
}

/// The bits of a code that are flipped.
fn flipped(signed: bool) -> i8 {
    if signed { i8::MIN } else { 0 }
}

/// # Safety
/// As for [`unit_sums`]; `flipped` are the bits that are flipped in every byte.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn sums<const CODES: u8>(
    codes: *const u8,
    stride: usize,
    flipped: i8,
    x: *const i8,
    units: usize,
    to: *mut i32,
) {
    let per = if CODES == SIX { 4 } else { 2 };
    let group_bytes = match CODES {
        NIBBLES | BYTES | IN_ORDER => GROUP * stride,
        HALVES => 2 * stride,
        _ => stride,
    };
    for first in (0..units).step_by(GROUP) {
        let begin = codes.wrapping_add(first / GROUP * group_bytes + AHEAD);
        // SAFETY: a prefetch reads nothing. The caller's promise; the units of the group exist.
        unsafe {
            for line in (0..group_bytes).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(line).cast());
            }
            if first + GROUP > units {
                return;
            }
            let mut dots = [_mm512_setzero_si512(); 8];
            for (i, dot) in dots.iter_mut().enumerate().take(GROUP / per) {
                let at = first / per + i;
                let w = vector::<CODES, true>(codes, stride, flipped, at);
                *dot = _mm512_dpbusd_epi32(*dot, w, _mm512_loadu_si512(x.add(64 * at).cast()));
            }
            let sums = if CODES == SIX { fold_quarters(dots) } else { fold_halves(dots) };
            _mm512_storeu_si512(to.add(first).cast(), sums);
        }
    }
}

/// Two units of all rows at a time: their sums need no transposition, and a few units no zeros beside them.
///
/// # Safety
/// As for [`last_unit_sums`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn last_sums<const CODES: u8>(
    rows: &[*const u8; 16],
    stride: usize,
    flipped: i8,
    x: *const i8,
    units: usize,
    to: *mut i32,
) {
    let begin = units / GROUP * GROUP;
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for first in (begin..units).step_by(2) {
        let (at, whole) = (first / 2, first + 1 < units);
        let (mut low, mut high) = ([_mm512_setzero_si512(); 8], [_mm512_setzero_si512(); 8]);
        // SAFETY: the caller's promise; of units past the last nothing is read.
        unsafe {
            let mask = if whole { u64::MAX } else { u64::from(u32::MAX) };
            let x = _mm512_maskz_loadu_epi8(mask, x.add(64 * at));
            for (dot, row) in low.iter_mut().chain(&mut high).zip(rows) {
                let w = match whole {
                    true => vector::<CODES, true>(*row, stride, flipped, at),
                    false => vector::<CODES, false>(*row, stride, flipped, at),
                };
                *dot = _mm512_dpbusd_epi32(*dot, w, x);
            }
            let (low, high) = (fold_halves(low), fold_halves(high));
            let to = to.add((first - begin) * 16);
            _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi32(low, even, high));
            if whole {
                _mm512_storeu_si512(to.add(16).cast(), _mm512_permutex2var_epi32(low, odd, high));
            }
        }
    }
}

/// The codes of units `2 * at` and `2 * at + 1` (the first only, unless `WHOLE`), or of four units of 16.
///
/// # Safety
/// The units exist.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn vector<const CODES: u8, const WHOLE: bool>(
    codes: *const u8,
    stride: usize,
    flipped: i8,
    at: usize,
) -> __m512i {
    let nibbles = _mm512_set1_epi8(15);
    // SAFETY: the caller's promise.
    unsafe {
        match CODES {
            NIBBLES => {
                let p = codes.add(2 * at * stride);
                let mut both = _mm512_broadcast_i32x4(_mm_loadu_si128(p.cast()));
                if WHOLE {
                    let second = _mm_loadu_si128(p.add(stride).cast());
                    both = _mm512_mask_broadcast_i32x4(both, 0xff00, second);
                }
                let shifts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
                _mm512_and_si512(_mm512_srlv_epi64(both, shifts), nibbles)
            }
            BYTES => {
                let p = codes.add(2 * at * stride);
                let first = _mm512_castsi256_si512(_mm256_loadu_si256(p.cast()));
                let second =
                    if WHOLE { _mm256_loadu_si256(p.add(stride).cast()) } else { _mm256_setzero_si256() };
                _mm512_xor_si512(_mm512_inserti64x4::<1>(first, second), _mm512_set1_epi8(flipped))
            }
            IN_ORDER => {
                let p = codes.add(32 * at);
                let words = match WHOLE {
                    true => _mm256_loadu_si256(p.cast()),
                    false => _mm256_zextsi128_si256(_mm_loadu_si128(p.cast())),
                };
                let words = _mm512_cvtepu32_epi64(words);
                _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi64::<28>(words)), nibbles)
            }
            HALVES => {
                let p = codes.add(at / 4 * stride + at % 4 * 32);
                let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(p.cast()));
                let shifts = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
                _mm512_and_si512(_mm512_srlv_epi64(both, shifts), nibbles)
            }
            _ => {
                let (block, part, upper) = (codes.add(at / 4 * stride), at % 4 / 2, at % 2 == 1);
                let low = _mm512_loadu_si512(block.add(64 * part).cast());
                let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(block.add(128 + 32 * part).cast()));
                let (low, high) = match upper {
                    false => (low, _mm512_sllv_epi64(high, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2))),
                    true => {
                        let shifts = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
                        (_mm512_srli_epi64::<4>(low), _mm512_srlv_epi64(high, shifts))
                    }
                };
                let high = _mm512_and_si512(high, _mm512_set1_epi8(0x30));
                _mm512_or_si512(_mm512_and_si512(low, nibbles), high)
            }
        }
    }
}

/// The sums of the quarters of four vectors: lane `4 q + i` is that of quarter `q` of vector `i`.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold4(v: &[__m512i]) -> __m512i {
    let pair = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (a, b) = (pair(v[0], v[1]), pair(v[2], v[3]));
    _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
}

/// The sums of the quarters of the first four vectors, in order.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold_quarters(v: [__m512i; 8]) -> __m512i {
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_permutexvar_epi32(order, fold4(&v[..4]))
}

/// The sums of the halves of eight vectors, in order.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold_halves(v: [__m512i; 8]) -> __m512i {
    let (a, b) = (fold4(&v[..4]), fold4(&v[4..]));
    // Quarters: the first and the second halves of vectors 0 to 3, then of vectors 4 to 7.
    let sums = _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
    let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    _mm512_permutexvar_epi32(order, sums)
}
