//! AVX-512, alone and with the dot products of bytes (VNNI) or of bfloat16 pairs (BF16). Processors have them
//! independently of each other: Ice Lake has VNNI alone.

use std::arch::x86_64::*;

use super::Kernel;
use super::avx2::methods;
use super::isa::{Isa, Local};

/// The token of the AVX-512 levels; constructed only where the features were detected.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOT: u8>(());

/// No dot products.
const NONE: u8 = 0;
/// Dot products of bytes (VNNI).
const BYTES: u8 = 1;
/// Dot products of bfloat16 pairs (BF16).
const PAIRS: u8 = 2;

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512::<NONE>(()))
}

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512vnni")]
pub(super) unsafe fn run_bytes<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512::<BYTES>(()))
}

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512bf16")]
pub(super) unsafe fn run_pairs<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512::<PAIRS>(()))
}

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[inline(never)]
unsafe fn local<const DOT: u8, K: Local<Avx512<DOT>>>(s: Avx512<DOT>, part: K) {
    part.run(s);
}

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512vnni")]
#[inline(never)]
unsafe fn local_bytes<const DOT: u8, K: Local<Avx512<DOT>>>(s: Avx512<DOT>, part: K) {
    part.run(s);
}

/// # Safety
/// The features were detected.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[target_feature(enable = "avx512bf16")]
#[inline(never)]
unsafe fn local_pairs<const DOT: u8, K: Local<Avx512<DOT>>>(s: Avx512<DOT>, part: K) {
    part.run(s);
}

/// A mask of the first `n` lanes.
#[inline(always)]
fn first(n: usize) -> u16 {
    ((1u32 << n) - 1) as u16
}

/// The low eight halves of two vectors.
#[inline(always)]
unsafe fn join_halves(low: __m512i, high: __m512i) -> __m256i {
    // SAFETY: AVX-512, by the caller's token.
    unsafe {
        let low = _mm512_castsi512_si256(low);
        _mm256_inserti128_si256::<1>(low, _mm512_castsi512_si128(high))
    }
}

/// Eight 16-bit values of the vectors at `p` and `p + second`.
#[inline(always)]
unsafe fn pick(p: *const u8, second: usize, index: __m128i) -> __m512i {
    // SAFETY: AVX-512, by the caller's token; the caller promises the memory.
    unsafe {
        let (first, second) = (_mm512_loadu_si512(p.cast()), _mm512_loadu_si512(p.add(second).cast()));
        _mm512_permutex2var_epi16(first, _mm512_castsi128_si512(index), second)
    }
}

/// Rounds to bfloat16, NaN kept.
#[inline(always)]
unsafe fn to_bf16(v: __m512) -> __m256i {
    // SAFETY: AVX-512, by the caller's token.
    unsafe {
        let x = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
        let up = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let r = _mm512_mask_or_epi32(up, nan, x, _mm512_set1_epi32(0x0040_0000));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(r))
    }
}

#[inline(always)]
unsafe fn from_bf16(v: __m256i) -> __m512 {
    // SAFETY: AVX-512, by the caller's token.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(v))) }
}

/// Folds sixteen lanes to one: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
macro_rules! fold {
    ($v:expr, $f8:ident, $f:ident, $one:ident) => {{
        let v = $v;
        let h = $f8(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
        let q = $f(_mm256_castps256_ps128(h), _mm256_extractf128_ps::<1>(h));
        let d = $f(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32($one(d, _mm_shuffle_ps::<1>(d, d)))
    }};
}

/// Folds four vectors to a quarter each: 8 + 8, then 4 + 4, as [`fold!`] does.
#[inline(always)]
unsafe fn fold4(a: __m512, b: __m512, c: __m512, d: __m512) -> __m512 {
    // SAFETY: AVX-512, by the caller's token.
    unsafe {
        let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
        let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd))
    }
}

/// Folds the quarters of two vectors to half a quarter: 2 + 2.
#[inline(always)]
unsafe fn fold2(a: __m512, b: __m512) -> __m512 {
    // SAFETY: AVX-512, by the caller's token.
    unsafe {
        let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)))
    }
}

/// Columns `i`, `i + 4`, `i + 8`, `i + 12` of four rows, one in each quarter.
#[inline(always)]
unsafe fn columns(a: __m512, b: __m512, c: __m512, d: __m512) -> [__m512; 4] {
    // SAFETY: AVX-512, by the caller's token.
    unsafe {
        let (ab, ab2) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (cd, cd2) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        [
            _mm512_shuffle_ps::<0x44>(ab, cd),
            _mm512_shuffle_ps::<0xee>(ab, cd),
            _mm512_shuffle_ps::<0x44>(ab2, cd2),
            _mm512_shuffle_ps::<0xee>(ab2, cd2),
        ]
    }
}

/// For each 32-bit lane, the byte where its code of `BITS` bits begins, and the next byte.
pub(super) const fn windows<const BITS: usize>() -> [u8; 64] {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 16 {
        t[4 * i] = (i * BITS / 8) as u8;
        t[4 * i + 1] = (i * BITS / 8 + 1) as u8;
        // The shuffle writes zero for this index.
        t[4 * i + 2] = 0x80;
        t[4 * i + 3] = 0x80;
        i += 1;
    }
    t
}

pub(super) const fn shifts<const BITS: usize>() -> [u32; 16] {
    let mut t = [0; 16];
    let mut i = 0;
    while i < 16 {
        t[i] = (i * BITS % 8) as u32;
        i += 1;
    }
    t
}

impl<const DOT: u8> Isa for Avx512<DOT> {
    const LANES: usize = 16;
    const MR: usize = 8;
    const NV: usize = 3;
    const WIDE_DOTS: bool = DOT == BYTES;
    type F = __m512;
    type D = __m512d;
    type Table = __m512;

    #[inline(always)]
    fn call<K: Local<Self>>(self, part: K) {
        // SAFETY: the token proves the instructions.
        unsafe {
            match DOT {
                BYTES => local_bytes(self, part),
                PAIRS => local_pairs(self, part),
                _ => local(self, part),
            }
        }
    }

    methods! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        @unsafe fn load(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        @unsafe fn load_n(p: *const f32, n: usize) -> __m512 { _mm512_maskz_loadu_ps(first(n), p) }
        @unsafe fn store(p: *mut f32, v: __m512) { _mm512_storeu_ps(p, v) }
        @unsafe fn store_n(p: *mut f32, v: __m512, n: usize) { _mm512_mask_storeu_ps(p, first(n), v) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn pick_greater(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x)
        }
        fn round(a: __m512) -> __m512 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn scale2(a: __m512, n: __m512) -> __m512 { _mm512_scalef_ps(a, n) }
        fn reduce_add(a: __m512) -> f32 { fold!(a, _mm256_add_ps, _mm_add_ps, _mm_add_ss) }
        fn reduce_max(a: __m512) -> f32 { fold!(a, _mm256_max_ps, _mm_max_ps, _mm_max_ss) }
        @unsafe fn load_bf16(p: *const u16) -> __m512 { from_bf16(_mm256_loadu_si256(p.cast())) }
        @unsafe fn load_f16(p: *const u16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        @unsafe fn store_bf16(p: *mut u16, v: __m512) { _mm256_storeu_si256(p.cast(), to_bf16(v)) }
        @unsafe fn store_f16(p: *mut u16, v: __m512) {
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
        }
        @unsafe fn load_bf16_n(p: *const u16, n: usize) -> __m512 {
            from_bf16(_mm256_maskz_loadu_epi16(first(n), p.cast()))
        }
        @unsafe fn load_f16_n(p: *const u16, n: usize) -> __m512 {
            _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p.cast()))
        }
        @unsafe fn store_bf16_n(p: *mut u16, v: __m512, n: usize) {
            _mm256_mask_storeu_epi16(p.cast(), first(n), to_bf16(v))
        }
        @unsafe fn store_f16_n(p: *mut u16, v: __m512, n: usize) {
            _mm256_mask_storeu_epi16(p.cast(), first(n), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
        }
        fn dot_bf16(a: __m512, b: __m512, c: __m512) -> __m512 {
            if DOT == PAIRS {
                let a = std::mem::transmute::<__m512, __m512bh>(a);
                let b = std::mem::transmute::<__m512, __m512bh>(b);
                _mm512_dpbf16_ps(c, a, b)
            } else {
                let (ai, bi) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
                let al = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(ai));
                let bl = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bi));
                let c = _mm512_fmadd_ps(al, bl, c);
                let top = _mm512_castsi512_ps(_mm512_set1_epi32(0xffff_0000_u32 as i32));
                _mm512_fmadd_ps(_mm512_and_ps(a, top), _mm512_and_ps(b, top), c)
            }
        }
        @unsafe fn join_bf16(low: *const u16, high: *const u16) -> __m512 {
            let l = _mm512_cvtepu16_epi32(_mm256_loadu_si256(low.cast()));
            let h = _mm512_cvtepu16_epi32(_mm256_loadu_si256(high.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(l, _mm512_slli_epi32::<16>(h)))
        }
        @unsafe fn transpose(rows: &[__m512; 16], dst: *mut f32, stride: usize) {
            let r = rows;
            let c = [
                columns(r[0], r[1], r[2], r[3]),
                columns(r[4], r[5], r[6], r[7]),
                columns(r[8], r[9], r[10], r[11]),
                columns(r[12], r[13], r[14], r[15]),
            ];
            // The quarters distinguish the four columns that share an index.
            let mut out = [_mm512_setzero_ps(); 16];
            for i in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(c[0][i], c[1][i]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(c[0][i], c[1][i]);
                let even2 = _mm512_shuffle_f32x4::<0x88>(c[2][i], c[3][i]);
                let odd2 = _mm512_shuffle_f32x4::<0xdd>(c[2][i], c[3][i]);
                out[i] = _mm512_shuffle_f32x4::<0x88>(even, even2);
                out[i + 8] = _mm512_shuffle_f32x4::<0xdd>(even, even2);
                out[i + 4] = _mm512_shuffle_f32x4::<0x88>(odd, odd2);
                out[i + 12] = _mm512_shuffle_f32x4::<0xdd>(odd, odd2);
            }
            for (i, v) in out.into_iter().enumerate() {
                _mm512_storeu_ps(dst.add(i * stride), v);
            }
        }
        @unsafe fn transpose8(rows: &[__m512; 8], dst: *mut f32) {
            let low = columns(rows[0], rows[1], rows[2], rows[3]);
            let high = columns(rows[4], rows[5], rows[6], rows[7]);
            // Each quarter of `low[i]` and `high[i]` is half of a column: two columns make a vector.
            for i in [0, 2] {
                let (a, b, c, d) = (low[i], high[i], low[i + 1], high[i + 1]);
                let (ab, ab2) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (cd, cd2) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                let to = dst.add(8 * i);
                _mm512_storeu_ps(to, _mm512_shuffle_f32x4::<0x88>(ab, cd));
                _mm512_storeu_ps(to.add(64), _mm512_shuffle_f32x4::<0xdd>(ab, cd));
                _mm512_storeu_ps(to.add(32), _mm512_shuffle_f32x4::<0x88>(ab2, cd2));
                _mm512_storeu_ps(to.add(96), _mm512_shuffle_f32x4::<0xdd>(ab2, cd2));
            }
        }
        fn unzip(a: __m512, b: __m512) -> (__m512, __m512) {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        }
        fn unzip_quarters(a: __m512, b: __m512) -> (__m512, __m512) {
            (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
        }
        fn split_quarters(a: __m512, b: __m512) -> (__m512, __m512) {
            (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b))
        }
        fn zip(even: __m512, odd: __m512) -> (__m512, __m512) {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(even, low, odd), _mm512_permutex2var_ps(even, high, odd))
        }
        fn reverse(a: __m512) -> __m512 {
            let back = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm512_permutexvar_ps(back, a)
        }
        fn last(a: __m512) -> __m512 { _mm512_permutexvar_ps(_mm512_set1_epi32(15), a) }
        fn field(words: __m512, mask: u32) -> __m512 {
            let v = _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(mask as i32));
            _mm512_cvtepu32_ps(v)
        }
        fn table(t: &[f32; 16]) -> __m512 { _mm512_loadu_ps(t.as_ptr()) }
        fn lookup(t: __m512, words: __m512, shift: u32) -> __m512 {
            let i = _mm512_srl_epi32(_mm512_castps_si512(words), _mm_cvtsi32_si128(shift as i32));
            _mm512_permutexvar_ps(i, t)
        }
        @unsafe fn nibbles(p: *const u8, scale: __m512, offset: __m512) -> (__m512, __m512) {
            // Compute all sixteen possible values, and look them up: only the low four bits count.
            let codes = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
            );
            let t = _mm512_fmadd_ps(codes, scale, offset);
            let b = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
            (_mm512_permutexvar_ps(b, t), _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(b), t))
        }
        @unsafe fn heads_q4_1(p: *const u8, scales: *mut f32, offsets: *mut f32) {
            let p = p.cast::<i32>();
            let rows: [__m512i; 5] = [
                _mm512_loadu_si512(p.cast()),
                _mm512_loadu_si512(p.add(16).cast()),
                _mm512_loadu_si512(p.add(32).cast()),
                _mm512_loadu_si512(p.add(48).cast()),
                _mm512_loadu_si512(p.add(64).cast()),
            ];
            // Word `5 i` of all blocks, counted from the first of its pair of vectors.
            let i = _mm512_setr_epi32(0, 5, 10, 15, 20, 25, 30, 3, 8, 13, 18, 23, 28, 1, 6, 11);
            let first = _mm512_permutex2var_epi32(rows[0], i, rows[1]);
            let second = _mm512_permutex2var_epi32(rows[2], i, rows[3]);
            let both = _mm512_mask_mov_epi32(first, 0b0001_1111_1000_0000, second);
            let words = _mm512_mask_permutexvar_epi32(both, 0b1110_0000_0000_0000, i, rows[4]);
            let d = _mm512_cvtepi32_epi16(words);
            let m = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words));
            _mm512_storeu_ps(scales, _mm512_cvtph_ps(d));
            _mm512_storeu_ps(offsets, _mm512_cvtph_ps(m));
        }
        @unsafe fn reduce_adds(v: &[__m512; 16], n: usize, to: *mut f32) {
            if n <= 4 {
                let four = fold4(v[0], v[1], v[2], v[3]);
                let two = _mm512_add_ps(four, _mm512_permute_ps::<0b01_00_11_10>(four));
                let one = _mm512_add_ps(two, _mm512_permute_ps::<0b10_11_00_01>(two));
                let i = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
                _mm_storeu_ps(to, _mm512_castps512_ps128(_mm512_permutexvar_ps(i, one)));
                return;
            }
            let q = [
                fold4(v[0], v[1], v[2], v[3]),
                fold4(v[4], v[5], v[6], v[7]),
                fold4(v[8], v[9], v[10], v[11]),
                fold4(v[12], v[13], v[14], v[15]),
            ];
            let (a, b) = (fold2(q[0], q[1]), fold2(q[2], q[3]));
            let all = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
            // Quarter `l` holds the sums of vectors `l`, `4 + l`, `8 + l` and `12 + l`.
            let i = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_storeu_ps(to, _mm512_permutexvar_ps(i, all));
        }
        fn prefetch(p: *const u8) { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        fn prefetch_far(p: *const u8) { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        @unsafe fn stream(p: *mut f32, v: __m512) { _mm512_stream_ps(p, v) }
        fn fence() { _mm_sfence() }
        @unsafe fn bytes(p: *const u8) -> __m512 {
            _mm512_castsi512_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())))
        }
        @unsafe fn signed(p: *const u8) -> __m512 {
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())))
        }
        @unsafe fn repeat(p: *const f32, n: usize) -> __m512 {
            match n {
                1 => _mm512_loadu_ps(p),
                2 => {
                    let i = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
                    _mm512_permutexvar_ps(i, _mm512_castps256_ps512(_mm256_loadu_ps(p)))
                }
                4 => {
                    let i = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
                    _mm512_permutexvar_ps(i, _mm512_castps128_ps512(_mm_loadu_ps(p)))
                }
                8 => _mm512_insertf32x8::<1>(_mm512_set1_ps(*p), _mm256_set1_ps(*p.add(1))),
                _ => _mm512_set1_ps(*p),
            }
        }
        @unsafe fn words(rows: &[*const u8; 16], at: usize) -> [__m512; 4] {
            let mut four = [_mm512_setzero_ps(); 4];
            for (r, four) in four.iter_mut().enumerate() {
                let v = _mm512_castsi128_si512(_mm_loadu_si128(rows[r].add(at).cast()));
                let v = _mm512_inserti32x4::<1>(v, _mm_loadu_si128(rows[r + 4].add(at).cast()));
                let v = _mm512_inserti32x4::<2>(v, _mm_loadu_si128(rows[r + 8].add(at).cast()));
                let v = _mm512_inserti32x4::<3>(v, _mm_loadu_si128(rows[r + 12].add(at).cast()));
                *four = _mm512_castsi512_ps(v);
            }
            columns(four[0], four[1], four[2], four[3])
        }
        fn low_halves(words: __m512) -> __m512 {
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castps_si512(words)))
        }
        fn bits(words: __m512, shift: i32, mask: u32) -> __m512 {
            let words = _mm512_castps_si512(words);
            let v = if shift < 0 {
                _mm512_sllv_epi32(words, _mm512_set1_epi32(-shift))
            } else {
                _mm512_srlv_epi32(words, _mm512_set1_epi32(shift))
            };
            _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(mask as i32)))
        }
        fn or(a: __m512, b: __m512) -> __m512 { _mm512_or_ps(a, b) }
        fn flip(a: __m512, mask: u32) -> __m512 { _mm512_xor_ps(a, _mm512_set1_ps(f32::from_bits(mask))) }
        @unsafe fn halves(p: *const u8, stride: usize) -> __m512 {
            // Four or eight halves at a time: the first from a vector at the start, the others from a vector
            // that ends with the last half.
            let found = match stride {
                18 => {
                    let index = _mm_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63);
                    join_halves(pick(p, 64, index), pick(p.add(8 * 18), 64, index))
                }
                20 => {
                    let index = _mm_setr_epi16(0, 10, 20, 30, 33, 43, 53, 63);
                    join_halves(pick(p, 78, index), pick(p.add(8 * 20), 78, index))
                }
                34 => {
                    let index = _mm_setr_epi16(0, 17, 46, 63, 0, 0, 0, 0);
                    let mut pairs = [_mm512_setzero_si512(); 2];
                    for (half, pair) in pairs.iter_mut().enumerate() {
                        let p = p.add(half * 8 * 34);
                        *pair = _mm512_unpacklo_epi64(pick(p, 40, index), pick(p.add(4 * 34), 40, index));
                    }
                    join_halves(pairs[0], pairs[1])
                }
                _ => {
                    let mut values = [0u16; 16];
                    for (i, value) in values.iter_mut().enumerate() {
                        *value = p.add(i * stride).cast::<u16>().read_unaligned();
                    }
                    _mm256_loadu_si256(values.as_ptr().cast())
                }
            };
            _mm512_cvtph_ps(found)
        }
        @unsafe fn splat_bytes(p: *const i8) -> __m512 {
            _mm512_castsi512_ps(_mm512_set1_epi32(p.cast::<i32>().read_unaligned()))
        }
        fn splat_int(x: i32) -> __m512 { _mm512_castsi512_ps(_mm512_set1_epi32(x)) }
        fn dot_bytes(sums: __m512, unsigned: __m512, signed: __m512, bits: usize) -> __m512 {
            let (r, w) = (_mm512_castps_si512(sums), _mm512_castps_si512(unsigned));
            let x = _mm512_castps_si512(signed);
            let pairs = |w| _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), _mm512_set1_epi16(1));
            _mm512_castsi512_ps(if DOT == BYTES {
                _mm512_dpbusd_epi32(r, w, x)
            } else if bits < 8 {
                _mm512_add_epi32(r, pairs(w))
            } else {
                // Sums of two products would saturate, so the highest bit is multiplied separately.
                let low = pairs(_mm512_and_si512(w, _mm512_set1_epi8(0x7f)));
                let high = pairs(_mm512_and_si512(_mm512_srli_epi16::<7>(w), _mm512_set1_epi8(1)));
                _mm512_add_epi32(r, _mm512_add_epi32(low, _mm512_slli_epi32::<7>(high)))
            })
        }
        fn add_int(a: __m512, b: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)))
        }
        fn int_to_float(a: __m512) -> __m512 { _mm512_cvtepi32_ps(_mm512_castps_si512(a)) }
        fn pair_bf16(low: __m512, high: __m512) -> __m512 {
            let l = _mm512_cvtepu16_epi32(to_bf16(low));
            let h = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(to_bf16(high)));
            _mm512_castsi512_ps(_mm512_or_si512(l, h))
        }
        fn d_splat(x: f64) -> __m512d { _mm512_set1_pd(x) }
        @unsafe fn d_load(p: *const f64) -> __m512d { _mm512_loadu_pd(p) }
        @unsafe fn d_load_n(p: *const f64, n: usize) -> __m512d { _mm512_maskz_loadu_pd(first(n) as u8, p) }
        @unsafe fn d_store(p: *mut f64, v: __m512d) { _mm512_storeu_pd(p, v) }
        @unsafe fn d_store_n(p: *mut f64, v: __m512d, n: usize) {
            _mm512_mask_storeu_pd(p, first(n) as u8, v)
        }
        fn d_add(a: __m512d, b: __m512d) -> __m512d { _mm512_add_pd(a, b) }
        fn d_fma(a: __m512d, b: __m512d, c: __m512d) -> __m512d { _mm512_fmadd_pd(a, b, c) }
        fn d_reduce_add(a: __m512d) -> f64 {
            let h = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd::<1>(a));
            let q = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd::<1>(h));
            _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)))
        }
    }

    #[inline(always)]
    fn move_up<const D: usize>(self, a: __m512) -> __m512 {
        // SAFETY: the token proves the instructions.
        unsafe {
            let (a, zero) = (_mm512_castps_si512(a), _mm512_setzero_si512());
            _mm512_castsi512_ps(match D {
                1 => _mm512_alignr_epi32::<15>(a, zero),
                2 => _mm512_alignr_epi32::<14>(a, zero),
                4 => _mm512_alignr_epi32::<12>(a, zero),
                _ => _mm512_alignr_epi32::<8>(a, zero),
            })
        }
    }

    #[inline(always)]
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> __m512 {
        // SAFETY: the token proves the instructions, the caller that `2 * BITS` bytes are readable.
        unsafe {
            if BITS == 8 {
                return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())));
            }
            if BITS == 4 || BITS == 2 {
                let b = BITS as i32;
                let (words, step) = if BITS == 4 {
                    let (l, h) = (p.cast::<i32>().read_unaligned(), p.cast::<i32>().add(1).read_unaligned());
                    (_mm512_inserti64x4::<1>(_mm512_set1_epi32(l), _mm256_set1_epi32(h)), 0)
                } else {
                    (_mm512_set1_epi32(p.cast::<i32>().read_unaligned()), 8 * b)
                };
                let shift = _mm512_setr_epi32(
                    0,
                    b,
                    2 * b,
                    3 * b,
                    4 * b,
                    5 * b,
                    6 * b,
                    7 * b,
                    step,
                    step + b,
                    step + 2 * b,
                    step + 3 * b,
                    step + 4 * b,
                    step + 5 * b,
                    step + 6 * b,
                    step + 7 * b,
                );
                let v = _mm512_srlv_epi32(words, shift);
                return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32((1 << BITS) - 1)));
            }
            let bytes = _mm512_broadcast_i32x4(_mm_maskz_loadu_epi8(first(2 * BITS), p.cast()));
            let window = const { windows::<BITS>() };
            let shift = const { shifts::<BITS>() };
            let v = _mm512_shuffle_epi8(bytes, _mm512_loadu_si512(window.as_ptr().cast()));
            let v = _mm512_srlv_epi32(v, _mm512_loadu_si512(shift.as_ptr().cast()));
            _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32((1 << BITS) - 1)))
        }
    }
}
