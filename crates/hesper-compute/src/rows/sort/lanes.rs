//! Vectors of unsigned words for the vector sort, and their AVX-512 implementation.
//!
//! Loads and stores need no alignment. The methods are inlined into functions that are compiled for the
//! instructions of the level. Calling them elsewhere is slow, and undefined on a machine without the
//! instructions.

use super::words::Word;

/// A vector of [`Lanes::N`] words.
///
/// # Safety
/// Every method requires that the level's instructions were detected, and that the accessed memory is valid.
pub(super) trait Lanes: Copy + Send + Sync + 'static {
    type W: Word;
    type V: Copy;
    /// Words in a vector: 8 or 16.
    const N: usize;

    unsafe fn load(p: *const Self::W) -> Self::V;
    /// The first `n < N` words; the other lanes hold the largest value.
    unsafe fn load_n(p: *const Self::W, n: usize) -> Self::V;
    unsafe fn store(p: *mut Self::W, v: Self::V);
    /// The first `n <= N` words.
    unsafe fn store_n(p: *mut Self::W, v: Self::V, n: usize);
    unsafe fn splat(w: Self::W) -> Self::V;
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// A bit mask of the lanes where `a < b`.
    unsafe fn below(a: Self::V, b: Self::V) -> u32;
    /// A bit mask of the lanes where `a <= b`.
    unsafe fn up_to(a: Self::V, b: Self::V) -> u32;
    /// The lanes of set bits, moved to the front.
    unsafe fn compress(v: Self::V, bits: u32) -> Self::V;
    /// Lane `i` becomes lane `i ^ X`.
    unsafe fn swap<const X: usize>(v: Self::V) -> Self::V;
    /// Lanes whose index has bit `D` clear from `low`, the others from `high`.
    unsafe fn pick<const D: usize>(low: Self::V, high: Self::V) -> Self::V;
    /// Interleaves both: the lower halves, and the upper halves.
    unsafe fn zip(a: Self::V, b: Self::V) -> (Self::V, Self::V);
}

pub(super) mod avx512 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// Sixteen words of 32 bits.
    #[derive(Clone, Copy)]
    pub(crate) struct Narrow;

    /// Eight words of 64 bits.
    #[derive(Clone, Copy)]
    pub(crate) struct Wide;

    /// Lane indices with bits flipped.
    const fn swapped<const N: usize>(by: usize) -> [u32; N] {
        let mut to = [0; N];
        let mut i = 0;
        while i < N {
            to[i] = (i ^ by) as u32;
            i += 1;
        }
        to
    }

    /// Interleaved lanes of two vectors, from lane `from` on; the second's have indices from `N` on.
    const fn zipped<const N: usize>(from: usize) -> [u32; N] {
        let mut to = [0; N];
        let mut i = 0;
        while i < N {
            to[i] = (from + i / 2 + i % 2 * N) as u32;
            i += 1;
        }
        to
    }

    const fn widened(from: [u32; 8]) -> [u64; 8] {
        let mut to = [0; 8];
        let mut i = 0;
        while i < 8 {
            to[i] = from[i] as u64;
            i += 1;
        }
        to
    }

    /// The lanes whose index has bit `d` set.
    const fn with_bit(d: usize) -> u32 {
        let (mut bits, mut i) = (0, 0);
        while i < 16 {
            if i & d != 0 {
                bits |= 1 << i;
            }
            i += 1;
        }
        bits
    }

    macro_rules! lanes {
        ($name:ident, $w:ty, $n:literal, $mask:ty, $index:expr, $set1:ident, $load:ident, $load_n:ident, $store:ident,
         $store_n:ident, $min:ident, $max:ident, $lt:ident, $le:ident, $compress:ident, $permute:ident, $blend:ident,
         $permute2:ident) => {
            impl Lanes for $name {
                type W = $w;
                type V = __m512i;
                const N: usize = $n;

                #[inline(always)]
                unsafe fn load(p: *const $w) -> __m512i {
                    // SAFETY: the caller's promise, as for all that follow.
                    unsafe { $load(p.cast()) }
                }
                #[inline(always)]
                unsafe fn load_n(p: *const $w, n: usize) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $load_n($set1(-1), ((1u32 << n) - 1) as $mask, p.cast()) }
                }
                #[inline(always)]
                unsafe fn store(p: *mut $w, v: __m512i) {
                    // SAFETY: as above.
                    unsafe { $store(p.cast(), v) }
                }
                #[inline(always)]
                unsafe fn store_n(p: *mut $w, v: __m512i, n: usize) {
                    // SAFETY: as above.
                    unsafe { $store_n(p.cast(), ((1u32 << n) - 1) as $mask, v) }
                }
                #[inline(always)]
                unsafe fn splat(w: $w) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $set1(w.cast_signed()) }
                }
                #[inline(always)]
                unsafe fn min(a: __m512i, b: __m512i) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $min(a, b) }
                }
                #[inline(always)]
                unsafe fn max(a: __m512i, b: __m512i) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $max(a, b) }
                }
                #[inline(always)]
                unsafe fn below(a: __m512i, b: __m512i) -> u32 {
                    // SAFETY: as above.
                    unsafe { u32::from($lt(a, b)) }
                }
                #[inline(always)]
                unsafe fn up_to(a: __m512i, b: __m512i) -> u32 {
                    // SAFETY: as above.
                    unsafe { u32::from($le(a, b)) }
                }
                #[inline(always)]
                unsafe fn compress(v: __m512i, bits: u32) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $compress(bits as $mask, v) }
                }
                #[inline(always)]
                unsafe fn swap<const X: usize>(v: __m512i) -> __m512i {
                    let to = const { $index(swapped::<$n>(X)) };
                    // SAFETY: as above.
                    unsafe { $permute($load(to.as_ptr().cast()), v) }
                }
                #[inline(always)]
                unsafe fn pick<const D: usize>(low: __m512i, high: __m512i) -> __m512i {
                    // SAFETY: as above.
                    unsafe { $blend(const { with_bit(D) as $mask }, low, high) }
                }
                #[inline(always)]
                unsafe fn zip(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
                    let (low, high) = const { ($index(zipped::<$n>(0)), $index(zipped::<$n>($n / 2))) };
                    // SAFETY: as above.
                    unsafe {
                        (
                            $permute2(a, $load(low.as_ptr().cast()), b),
                            $permute2(a, $load(high.as_ptr().cast()), b),
                        )
                    }
                }
            }
        };
    }

    const fn same(x: [u32; 16]) -> [u32; 16] {
        x
    }

    lanes!(
        Narrow,
        u32,
        16,
        __mmask16,
        same,
        _mm512_set1_epi32,
        _mm512_loadu_epi32,
        _mm512_mask_loadu_epi32,
        _mm512_storeu_epi32,
        _mm512_mask_storeu_epi32,
        _mm512_min_epu32,
        _mm512_max_epu32,
        _mm512_cmplt_epu32_mask,
        _mm512_cmple_epu32_mask,
        _mm512_maskz_compress_epi32,
        _mm512_permutexvar_epi32,
        _mm512_mask_blend_epi32,
        _mm512_permutex2var_epi32
    );
    lanes!(
        Wide,
        u64,
        8,
        __mmask8,
        widened,
        _mm512_set1_epi64,
        _mm512_loadu_epi64,
        _mm512_mask_loadu_epi64,
        _mm512_storeu_epi64,
        _mm512_mask_storeu_epi64,
        _mm512_min_epu64,
        _mm512_max_epu64,
        _mm512_cmplt_epu64_mask,
        _mm512_cmple_epu64_mask,
        _mm512_maskz_compress_epi64,
        _mm512_permutexvar_epi64,
        _mm512_mask_blend_epi64,
        _mm512_permutex2var_epi64
    );
}
