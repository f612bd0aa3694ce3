//! AVX2 with FMA and F16C, without and with the dot product instruction for bytes (AVX-VNNI).

use std::arch::x86_64::*;

use super::Kernel;
use super::avx512::{shifts, windows};
use super::isa::{Isa, Local};

/// The token of the AVX2 level; constructed only where AVX2, FMA and F16C were detected.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<const DOT: bool>(());

/// # Safety
/// AVX2, FMA and F16C were detected.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2::<false>(()))
}

/// # Safety
/// AVX2, FMA, F16C and AVX-VNNI were detected.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avxvnni")]
pub(super) unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2::<true>(()))
}

/// # Safety
/// AVX2, FMA and F16C were detected.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
#[inline(never)]
unsafe fn local<const DOT: bool, K: Local<Avx2<DOT>>>(s: Avx2<DOT>, part: K) {
    part.run(s);
}

/// # Safety
/// AVX2, FMA, F16C and AVX-VNNI were detected.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avxvnni")]
#[inline(never)]
unsafe fn local_dot<const DOT: bool, K: Local<Avx2<DOT>>>(s: Avx2<DOT>, part: K) {
    part.run(s);
}

/// Defines methods whose body is intrinsics of the token's level.
macro_rules! methods {
    ($($(#[$m:meta])* $(@$u:ident)? fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)? $body:block)*) => {$(
        methods!(@one $(#[$m])* $($u)? [$name] ($($a: $t),*) ($($r)?) $body);
    )*};
    (@one $(#[$m:meta])* unsafe [$name:ident] ($($a:ident: $t:ty),*) ($($r:ty)?) $body:block) => {
        $(#[$m])* #[inline(always)]
        unsafe fn $name(self, $($a: $t),*) $(-> $r)? {
            // SAFETY: the token proves the instructions, the caller the memory.
            #[allow(unused_unsafe, reason = "some bodies touch no memory")]
            unsafe { $body }
        }
    };
    (@one $(#[$m:meta])* [$name:ident] ($($a:ident: $t:ty),*) ($($r:ty)?) $body:block) => {
        $(#[$m])* #[inline(always)]
        fn $name(self, $($a: $t),*) $(-> $r)? {
            // SAFETY: the token proves the instructions.
            #[allow(unused_unsafe, reason = "some bodies use no intrinsics")]
            unsafe { $body }
        }
    };
}
pub(super) use methods;

/// All ones in the first `n` of eight lanes.
#[inline(always)]
unsafe fn mask(n: usize) -> __m256i {
    // SAFETY: AVX2, by the caller's token.
    unsafe {
        let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lane)
    }
}

/// The first `n` of eight 16-bit values, then zeros.
#[inline(always)]
unsafe fn load16_n(p: *const u16, n: usize) -> __m128i {
    let mut buf = [0u16; 8];
    // SAFETY: the caller promises `n <= 8` readable elements.
    unsafe {
        std::ptr::copy_nonoverlapping(p, buf.as_mut_ptr(), n);
        _mm_loadu_si128(buf.as_ptr().cast())
    }
}

#[inline(always)]
unsafe fn store16_n(p: *mut u16, v: __m128i, n: usize) {
    let mut buf = [0u16; 8];
    // SAFETY: the caller promises `n <= 8` writable elements.
    unsafe {
        _mm_storeu_si128(buf.as_mut_ptr().cast(), v);
        std::ptr::copy_nonoverlapping(buf.as_ptr(), p, n);
    }
}

/// Rounds to bfloat16, NaN kept.
#[inline(always)]
unsafe fn to_bf16(v: __m256) -> __m128i {
    // SAFETY: AVX2, by the caller's token.
    unsafe {
        let x = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(x), _mm256_set1_epi32(1));
        let up = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        let r = _mm256_blendv_epi8(up, _mm256_or_si256(x, _mm256_set1_epi32(0x0040_0000)), nan);
        let r = _mm256_srli_epi32::<16>(r);
        _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256::<1>(r))
    }
}

#[inline(always)]
unsafe fn from_bf16(v: __m128i) -> __m256 {
    // SAFETY: AVX2, by the caller's token.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(v))) }
}

#[inline(always)]
unsafe fn zip8(low: *const u16, high: *const u16) -> __m256 {
    // SAFETY: AVX2, by the caller's token; the caller promises eight readable elements each.
    unsafe {
        let l = _mm256_cvtepu16_epi32(_mm_loadu_si128(low.cast()));
        let h = _mm256_cvtepu16_epi32(_mm_loadu_si128(high.cast()));
        _mm256_castsi256_ps(_mm256_or_si256(l, _mm256_slli_epi32::<16>(h)))
    }
}

/// Columns `i` (low half) and `i + 4` (high half) of four rows.
#[inline(always)]
unsafe fn columns(a: __m256, b: __m256, c: __m256, d: __m256) -> [__m256; 4] {
    // SAFETY: AVX2, by the caller's token.
    unsafe {
        let (ab, ab2) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd, cd2) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(ab2, cd2),
            _mm256_shuffle_ps::<0xee>(ab2, cd2),
        ]
    }
}

/// Folds eight lanes to one: 4 + 4, 2 + 2, 1 + 1.
macro_rules! fold {
    ($v:expr, $f:ident, $one:ident) => {{
        let v = $v;
        let q = $f(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let d = $f(q, _mm_movehl_ps(q, q));
        _mm_cvtss_f32($one(d, _mm_shuffle_ps::<1>(d, d)))
    }};
}

impl<const DOT: bool> Isa for Avx2<DOT> {
    const LANES: usize = 8;
    const MR: usize = 6;
    const NV: usize = 2;
    type F = __m256;
    type D = __m256d;
    type Table = (__m256, __m256);

    #[inline(always)]
    fn call<K: Local<Self>>(self, part: K) {
        // SAFETY: the token proves the instructions.
        unsafe { if DOT { local_dot(self, part) } else { local(self, part) } }
    }

    methods! {
        fn splat(x: f32) -> __m256 { _mm256_set1_ps(x) }
        @unsafe fn load(p: *const f32) -> __m256 { _mm256_loadu_ps(p) }
        @unsafe fn load_n(p: *const f32, n: usize) -> __m256 { _mm256_maskload_ps(p, mask(n)) }
        @unsafe fn store(p: *mut f32, v: __m256) { _mm256_storeu_ps(p, v) }
        @unsafe fn store_n(p: *mut f32, v: __m256, n: usize) { _mm256_maskstore_ps(p, mask(n), v) }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        fn min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn pick_greater(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
            _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b))
        }
        fn round(a: __m256) -> __m256 {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn scale2(a: __m256, n: __m256) -> __m256 {
            let n = _mm256_cvtps_epi32(n);
            let h = _mm256_srai_epi32::<1>(n);
            let l = _mm256_sub_epi32(n, h);
            let bias = _mm256_set1_epi32(127);
            let h = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(h, bias)));
            let l = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(l, bias)));
            _mm256_mul_ps(_mm256_mul_ps(a, h), l)
        }
        fn reduce_add(a: __m256) -> f32 { fold!(a, _mm_add_ps, _mm_add_ss) }
        fn reduce_max(a: __m256) -> f32 { fold!(a, _mm_max_ps, _mm_max_ss) }
        @unsafe fn load_bf16(p: *const u16) -> __m256 { from_bf16(_mm_loadu_si128(p.cast())) }
        @unsafe fn load_f16(p: *const u16) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
        @unsafe fn store_bf16(p: *mut u16, v: __m256) { _mm_storeu_si128(p.cast(), to_bf16(v)) }
        @unsafe fn store_f16(p: *mut u16, v: __m256) {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v))
        }
        @unsafe fn load_bf16_n(p: *const u16, n: usize) -> __m256 { from_bf16(load16_n(p, n)) }
        @unsafe fn load_f16_n(p: *const u16, n: usize) -> __m256 { _mm256_cvtph_ps(load16_n(p, n)) }
        @unsafe fn store_bf16_n(p: *mut u16, v: __m256, n: usize) { store16_n(p, to_bf16(v), n) }
        @unsafe fn store_f16_n(p: *mut u16, v: __m256, n: usize) {
            store16_n(p, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v), n)
        }
        fn dot_bf16(a: __m256, b: __m256, c: __m256) -> __m256 {
            let (ai, bi) = (_mm256_castps_si256(a), _mm256_castps_si256(b));
            let top = _mm256_castsi256_ps(_mm256_set1_epi32(0xffff_0000_u32 as i32));
            let al = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(ai));
            let bl = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bi));
            let c = _mm256_fmadd_ps(al, bl, c);
            _mm256_fmadd_ps(_mm256_and_ps(a, top), _mm256_and_ps(b, top), c)
        }
        @unsafe fn join_bf16(low: *const u16, high: *const u16) -> __m256 { zip8(low, high) }
        @unsafe fn transpose(rows: &[__m256; 16], dst: *mut f32, stride: usize) {
            let r = rows;
            let top = columns(r[0], r[1], r[2], r[3]);
            let low = columns(r[4], r[5], r[6], r[7]);
            for i in 0..4 {
                _mm256_storeu_ps(dst.add(i * stride), _mm256_permute2f128_ps::<0x20>(top[i], low[i]));
            }
            for i in 0..4 {
                _mm256_storeu_ps(dst.add((i + 4) * stride), _mm256_permute2f128_ps::<0x31>(top[i], low[i]));
            }
        }
        fn unzip(a: __m256, b: __m256) -> (__m256, __m256) {
            let low = _mm256_permute2f128_ps::<0x20>(a, b);
            let high = _mm256_permute2f128_ps::<0x31>(a, b);
            (_mm256_shuffle_ps::<0x88>(low, high), _mm256_shuffle_ps::<0xdd>(low, high))
        }
        fn unzip_quarters(a: __m256, b: __m256) -> (__m256, __m256) {
            (_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b))
        }
        fn split_quarters(a: __m256, b: __m256) -> (__m256, __m256) {
            (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
        }
        fn zip(even: __m256, odd: __m256) -> (__m256, __m256) {
            let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        }
        fn reverse(a: __m256) -> __m256 {
            _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0))
        }
        fn last(a: __m256) -> __m256 { _mm256_permutevar8x32_ps(a, _mm256_set1_epi32(7)) }
        fn field(words: __m256, mask: u32) -> __m256 {
            let v = _mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi32(mask as i32));
            // The conversion is signed: a field that includes the top bit, whose low eight bits are zero, is
            // shifted down first.
            if mask >> 31 == 0 {
                _mm256_cvtepi32_ps(v)
            } else {
                _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32::<8>(v)), _mm256_set1_ps(256.0))
            }
        }
        fn table(t: &[f32; 16]) -> (__m256, __m256) {
            (_mm256_loadu_ps(t.as_ptr()), _mm256_loadu_ps(t.as_ptr().add(8)))
        }
        fn lookup(t: (__m256, __m256), words: __m256, shift: u32) -> __m256 {
            let i = _mm256_srl_epi32(_mm256_castps_si256(words), _mm_cvtsi32_si128(shift as i32));
            let (l, h) = (_mm256_permutevar8x32_ps(t.0, i), _mm256_permutevar8x32_ps(t.1, i));
            _mm256_blendv_ps(l, h, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(i)))
        }
        @unsafe fn nibbles(p: *const u8, scale: __m256, offset: __m256) -> (__m256, __m256) {
            let b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
            let l = _mm256_cvtepi32_ps(_mm256_and_si256(b, _mm256_set1_epi32(15)));
            let h = _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(b));
            (_mm256_fmadd_ps(l, scale, offset), _mm256_fmadd_ps(h, scale, offset))
        }
        fn prefetch(p: *const u8) { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        @unsafe fn stream(p: *mut f32, v: __m256) { _mm256_stream_ps(p, v) }
        fn fence() { _mm_sfence() }
        @unsafe fn bytes(p: *const u8) -> __m256 {
            _mm256_castsi256_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())))
        }
        @unsafe fn signed(p: *const u8) -> __m256 {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())))
        }
        @unsafe fn repeat(p: *const f32, n: usize) -> __m256 {
            match n {
                1 => _mm256_loadu_ps(p),
                2 => {
                    let v = _mm256_castps128_ps256(_mm_loadu_ps(p));
                    _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))
                }
                4 => _mm256_insertf128_ps::<1>(_mm256_set1_ps(*p), _mm_set1_ps(*p.add(1))),
                _ => _mm256_set1_ps(*p),
            }
        }
        @unsafe fn words(rows: &[*const u8; 16], at: usize) -> [__m256; 4] {
            let mut two = [_mm256_setzero_ps(); 4];
            for (r, two) in two.iter_mut().enumerate() {
                let low = _mm256_castsi128_si256(_mm_loadu_si128(rows[r].add(at).cast()));
                let high = _mm_loadu_si128(rows[r + 4].add(at).cast());
                *two = _mm256_castsi256_ps(_mm256_inserti128_si256::<1>(low, high));
            }
            columns(two[0], two[1], two[2], two[3])
        }
        fn bits(words: __m256, shift: i32, mask: u32) -> __m256 {
            let words = _mm256_castps_si256(words);
            let v = if shift < 0 {
                _mm256_sllv_epi32(words, _mm256_set1_epi32(-shift))
            } else {
                _mm256_srlv_epi32(words, _mm256_set1_epi32(shift))
            };
            _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(mask as i32)))
        }
        fn or(a: __m256, b: __m256) -> __m256 { _mm256_or_ps(a, b) }
        fn flip(a: __m256, mask: u32) -> __m256 { _mm256_xor_ps(a, _mm256_set1_ps(f32::from_bits(mask))) }
        @unsafe fn splat_bytes(p: *const i8) -> __m256 {
            _mm256_castsi256_ps(_mm256_set1_epi32(p.cast::<i32>().read_unaligned()))
        }
        fn splat_int(x: i32) -> __m256 { _mm256_castsi256_ps(_mm256_set1_epi32(x)) }
        fn dot_bytes(sums: __m256, unsigned: __m256, signed: __m256, bits: usize) -> __m256 {
            let (r, w) = (_mm256_castps_si256(sums), _mm256_castps_si256(unsigned));
            let x = _mm256_castps_si256(signed);
            let pairs = |w| _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
            _mm256_castsi256_ps(if DOT {
                _mm256_dpbusd_avx_epi32(r, w, x)
            } else if bits < 8 {
                _mm256_add_epi32(r, pairs(w))
            } else {
                // Sums of two products would saturate, so the highest bit is multiplied separately.
                let low = pairs(_mm256_and_si256(w, _mm256_set1_epi8(0x7f)));
                let high = pairs(_mm256_and_si256(_mm256_srli_epi16::<7>(w), _mm256_set1_epi8(1)));
                _mm256_add_epi32(r, _mm256_add_epi32(low, _mm256_slli_epi32::<7>(high)))
            })
        }
        fn add_int(a: __m256, b: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)))
        }
        fn int_to_float(a: __m256) -> __m256 { _mm256_cvtepi32_ps(_mm256_castps_si256(a)) }
        fn pair_bf16(low: __m256, high: __m256) -> __m256 {
            let l = _mm256_cvtepu16_epi32(to_bf16(low));
            let h = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(to_bf16(high)));
            _mm256_castsi256_ps(_mm256_or_si256(l, h))
        }
        fn d_splat(x: f64) -> __m256d { _mm256_set1_pd(x) }
        @unsafe fn d_load(p: *const f64) -> __m256d { _mm256_loadu_pd(p) }
        @unsafe fn d_load_n(p: *const f64, n: usize) -> __m256d {
            let m = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3));
            _mm256_maskload_pd(p, m)
        }
        @unsafe fn d_store(p: *mut f64, v: __m256d) { _mm256_storeu_pd(p, v) }
        @unsafe fn d_store_n(p: *mut f64, v: __m256d, n: usize) {
            let m = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3));
            _mm256_maskstore_pd(p, m, v)
        }
        fn d_add(a: __m256d, b: __m256d) -> __m256d { _mm256_add_pd(a, b) }
        fn d_fma(a: __m256d, b: __m256d, c: __m256d) -> __m256d { _mm256_fmadd_pd(a, b, c) }
        fn d_reduce_add(a: __m256d) -> f64 {
            let q = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd::<1>(a));
            _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)))
        }
    }

    #[inline(always)]
    fn move_up<const D: usize>(self, a: __m256) -> __m256 {
        // SAFETY: the token proves the instructions.
        unsafe {
            let zero = _mm256_setzero_ps();
            match D {
                1 => {
                    let up = _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6));
                    _mm256_blend_ps::<1>(up, zero)
                }
                2 => {
                    let up = _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5));
                    _mm256_blend_ps::<3>(up, zero)
                }
                _ => _mm256_permute2f128_ps::<0x08>(a, a),
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<const BITS: usize>(self, p: *const u8) -> __m256 {
        // SAFETY: the token proves the instructions, the caller that `BITS` bytes are readable.
        unsafe {
            if BITS == 8 {
                return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
            }
            if BITS == 4 || BITS == 2 {
                let word = if BITS == 4 {
                    p.cast::<i32>().read_unaligned()
                } else {
                    p.cast::<i16>().read_unaligned().into()
                };
                let b = BITS as i32;
                let shift = _mm256_setr_epi32(0, b, 2 * b, 3 * b, 4 * b, 5 * b, 6 * b, 7 * b);
                let v = _mm256_srlv_epi32(_mm256_set1_epi32(word), shift);
                return _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32((1 << BITS) - 1)));
            }
            let mut word = 0u64;
            std::ptr::copy_nonoverlapping(p, (&raw mut word).cast(), BITS);
            let bytes = _mm256_broadcastsi128_si256(_mm_cvtsi64_si128(word as i64));
            let window = const { windows::<BITS>() };
            let shift = const { shifts::<BITS>() };
            let v = _mm256_shuffle_epi8(bytes, _mm256_loadu_si256(window.as_ptr().cast()));
            let v = _mm256_srlv_epi32(v, _mm256_loadu_si256(shift.as_ptr().cast()));
            _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32((1 << BITS) - 1)))
        }
    }
}
