//! Plain loops over doubles, compiled for several SIMD levels.
//!
//! The operations and their order are the same at every level, so the results are too.

use hesper_compute::Simd;

/// A loop. It must not contain closures, which would not be compiled for the level.
pub(super) trait Multiversioned {
    type Out;
    /// The loop; implementations are `#[inline(always)]`.
    fn run(self) -> Self::Out;
}

/// Runs a loop compiled for a level, or for the widest available one below it.
pub(super) fn run_multiversioned<K: Multiversioned>(simd: Simd, kernel: K) -> K::Out {
    match simd.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        level if level >= Simd::Avx512 => unsafe { avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx2 | Simd::Avx2Dot => unsafe { avx2(kernel) },
        _ => kernel.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<K: Multiversioned>(kernel: K) -> K::Out {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<K: Multiversioned>(kernel: K) -> K::Out {
    kernel.run()
}
