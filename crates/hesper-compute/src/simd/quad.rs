//! The registers of the baseline: four floats or two doubles.
//!
//! SSE2 on x86-64, elsewhere arrays that the compiler vectorizes. SSE2 keeps compile times low: an op on
//! arrays is a loop that the compiler must unroll and vectorize in every kernel of the crate.

#[cfg(target_arch = "x86_64")]
pub(super) use sse2::*;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use arrays::*;

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    pub(in crate::simd) type F = __m128;
    pub(in crate::simd) type D = __m128d;

    /// Functions whose body is SSE2, which every x86-64 processor has.
    macro_rules! functions {
        ($(fn $name:ident($($a:ident: $t:ty),*) -> $r:ty $body:block)*) => {$(
            #[inline(always)]
            pub(in crate::simd) fn $name($($a: $t),*) -> $r {
                // SAFETY: SSE2 is part of the target; no memory is touched.
                #[allow(unused_unsafe, reason = "most intrinsics without pointers are safe")]
                unsafe { $body }
            }
        )*};
    }

    functions! {
        fn splat(x: f32) -> F { _mm_set1_ps(x) }
        fn add(a: F, b: F) -> F { _mm_add_ps(a, b) }
        fn sub(a: F, b: F) -> F { _mm_sub_ps(a, b) }
        fn mul(a: F, b: F) -> F { _mm_mul_ps(a, b) }
        fn div(a: F, b: F) -> F { _mm_div_ps(a, b) }
        fn min(a: F, b: F) -> F { _mm_min_ps(a, b) }
        fn max(a: F, b: F) -> F { _mm_max_ps(a, b) }
        fn pick_greater(a: F, b: F, x: F, y: F) -> F {
            let greater = _mm_cmpgt_ps(a, b);
            _mm_or_ps(_mm_and_ps(greater, x), _mm_andnot_ps(greater, y))
        }
        fn or(a: F, b: F) -> F { _mm_or_ps(a, b) }
        fn flip(a: F, mask: u32) -> F { _mm_xor_ps(a, _mm_set1_ps(f32::from_bits(mask))) }
        fn round(a: F) -> F {
            // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer while |x| < 2^22.
            let big = _mm_set1_ps(12_582_912.0);
            let small = _mm_cmplt_ps(_mm_andnot_ps(_mm_set1_ps(-0.0), a), _mm_set1_ps(4_194_304.0));
            let rounded = _mm_sub_ps(_mm_add_ps(a, big), big);
            _mm_or_ps(_mm_and_ps(small, rounded), _mm_andnot_ps(small, a))
        }
        fn scale2(a: F, n: F) -> F {
            let n = _mm_cvttps_epi32(n);
            let half = _mm_srai_epi32::<1>(n);
            let two = |e| _mm_castsi128_ps(_mm_slli_epi32::<23>(_mm_add_epi32(e, _mm_set1_epi32(127))));
            _mm_mul_ps(_mm_mul_ps(a, two(half)), two(_mm_sub_epi32(n, half)))
        }
        fn bits(words: F, shift: i32, mask: u32) -> F {
            let (words, count) = (_mm_castps_si128(words), _mm_cvtsi32_si128(shift.abs()));
            let v = if shift < 0 { _mm_sll_epi32(words, count) } else { _mm_srl_epi32(words, count) };
            _mm_castsi128_ps(_mm_and_si128(v, _mm_set1_epi32(mask as i32)))
        }
        fn add_int(a: F, b: F) -> F {
            _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a), _mm_castps_si128(b)))
        }
        fn int_to_float(a: F) -> F { _mm_cvtepi32_ps(_mm_castps_si128(a)) }
        fn d_splat(x: f64) -> D { _mm_set1_pd(x) }
        fn d_add(a: D, b: D) -> D { _mm_add_pd(a, b) }
        fn d_mul(a: D, b: D) -> D { _mm_mul_pd(a, b) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arrays {
    pub(in crate::simd) type F = [f32; 4];
    pub(in crate::simd) type D = [f64; 2];

    #[inline(always)]
    fn map2(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
        std::array::from_fn(|i| f(a[i], b[i]))
    }

    macro_rules! functions {
        ($($(#[$attribute:meta])? fn $name:ident($($a:ident: $t:ty),*) -> $r:ty $body:block)*) => {$(
            $(#[$attribute])?
            #[inline(always)]
            pub(in crate::simd) fn $name($($a: $t),*) -> $r $body
        )*};
    }

    functions! {
        fn splat(x: f32) -> F { [x; 4] }
        fn add(a: F, b: F) -> F { map2(a, b, |a, b| a + b) }
        fn sub(a: F, b: F) -> F { map2(a, b, |a, b| a - b) }
        fn mul(a: F, b: F) -> F { map2(a, b, |a, b| a * b) }
        fn div(a: F, b: F) -> F { map2(a, b, |a, b| a / b) }
        fn min(a: F, b: F) -> F { map2(a, b, |a, b| if a < b { a } else { b }) }
        fn max(a: F, b: F) -> F { map2(a, b, |a, b| if a > b { a } else { b }) }
        fn pick_greater(a: F, b: F, x: F, y: F) -> F {
            std::array::from_fn(|i| if a[i] > b[i] { x[i] } else { y[i] })
        }
        fn or(a: F, b: F) -> F { map2(a, b, |a, b| f32::from_bits(a.to_bits() | b.to_bits())) }
        fn flip(a: F, mask: u32) -> F { a.map(|a| f32::from_bits(a.to_bits() ^ mask)) }
        fn round(a: F) -> F {
            // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer while |x| < 2^22.
            const BIG: f32 = 12_582_912.0;
            a.map(|x| if x.abs() < 4_194_304.0 { (x + BIG) - BIG } else { x })
        }
        fn scale2(a: F, n: F) -> F {
            map2(a, n, |x, n| {
                let n = n as i32;
                let (h, l) = (n >> 1, n - (n >> 1));
                let two = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
                x * two(h) * two(l)
            })
        }
        fn bits(words: F, shift: i32, mask: u32) -> F {
            words.map(|v| {
                let v = if shift < 0 { v.to_bits() << -shift } else { v.to_bits() >> shift };
                f32::from_bits(v & mask)
            })
        }
        #[allow(dead_code, reason = "tile registers use it, which only x86-64 has")]
        fn add_int(a: F, b: F) -> F {
            map2(a, b, |a, b| f32::from_bits(a.to_bits().wrapping_add(b.to_bits())))
        }
        fn int_to_float(a: F) -> F { a.map(|a| a.to_bits() as i32 as f32) }
        fn d_splat(x: f64) -> D { [x; 2] }
        fn d_add(a: D, b: D) -> D { [a[0] + b[0], a[1] + b[1]] }
        fn d_mul(a: D, b: D) -> D { [a[0] * b[0], a[1] * b[1]] }
    }
}
