//! Which SIMD instructions the lane kernels use. Detected once; every level gives the same bits.

use std::sync::OnceLock;

/// A set of SIMD instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum SimdLevel {
    /// What every processor of the architecture has (SSE2, NEON).
    Plain,
    /// AVX2 with FMA, F16C, BMI2, LZCNT and POPCNT.
    Avx2,
    /// [`SimdLevel::Avx2`] and AVX-512 F, BW, DQ, VL.
    Avx512,
}

impl SimdLevel {
    /// The best level of this processor.
    pub fn detect() -> SimdLevel {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            SimdLevel::all().into_iter().rev().find(|l| l.is_available()).unwrap_or(SimdLevel::Plain)
        })
    }

    /// Every level, lowest first.
    pub const fn all() -> [SimdLevel; 3] {
        [SimdLevel::Plain, SimdLevel::Avx2, SimdLevel::Avx512]
    }

    /// Whether this processor has the level.
    pub fn is_available(self) -> bool {
        match self {
            SimdLevel::Plain => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                SimdLevel::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            SimdLevel::Avx2 | SimdLevel::Avx512 => false,
        }
    }

    /// This level, or the best available one below it.
    pub fn or_available(self) -> SimdLevel {
        SimdLevel::all()
            .into_iter()
            .rev()
            .find(|l| *l <= self && l.is_available())
            .unwrap_or(SimdLevel::Plain)
    }
}

/// Defines a function once per SIMD level and a function that picks the pointer.
///
/// `multiversion! { pick<O: Bound>(args) -> Pointer = body::<O> }` makes `pick::<O>(level)` return a
/// pointer to `body::<O>` compiled for the level; `body` must be `#[inline(always)]`.
macro_rules! multiversion {
    ($(#[$m:meta])* $pick:ident<$o:ident: $bound:path>($($arg:ident: $ty:ty),*) -> $ptr:ty = $body:path) => {
        $(#[$m])*
        pub(in crate::exec) fn $pick<$o: $bound>(level: crate::exec::level::SimdLevel) -> $ptr {
            unsafe fn plain<$o: $bound>($($arg: $ty),*) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2,lzcnt,popcnt")]
            unsafe fn avx2<$o: $bound>($($arg: $ty),*) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body($($arg),*) }
            }
            // Without kernels of text, what the JIT leaves to the lane kernels is little: one level less to
            // compile. Every level gives the same bits.
            #[cfg(all(target_arch = "x86_64", feature = "text"))]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,lzcnt,popcnt")]
            unsafe fn avx512<$o: $bound>($($arg: $ty),*) {
                // SAFETY: the caller keeps the contract of the body.
                unsafe { $body($($arg),*) }
            }
            match level {
                #[cfg(all(target_arch = "x86_64", feature = "text"))]
                crate::exec::level::SimdLevel::Avx512 => avx512::<$o>,
                #[cfg(target_arch = "x86_64")]
                crate::exec::level::SimdLevel::Avx2 => avx2::<$o>,
                #[cfg(all(target_arch = "x86_64", not(feature = "text")))]
                crate::exec::level::SimdLevel::Avx512 => avx2::<$o>,
                _ => plain::<$o>,
            }
        }
    };
}
pub(in crate::exec) use multiversion;
