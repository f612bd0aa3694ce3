//! Plain loops over doubles, compiled for wider vectors where the machine has them.
//!
//! Operations are the same at every level and in the same order, so the results are the same.

use hesper_compute::Simd;

/// A loop; nothing in it is a closure, which would not be compiled for the level.
pub(super) trait Wide {
    type Out;
    /// The loop; implementations are `#[inline(always)]`.
    fn run(self) -> Self::Out;
}

/// Runs a loop compiled for a level, or for the widest available one below it.
pub(super) fn widest<K: Wide>(simd: Simd, kernel: K) -> K::Out {
    match simd.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx512Dot | Simd::Avx512 => unsafe { avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx2 => unsafe { avx2(kernel) },
        _ => kernel.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<K: Wide>(kernel: K) -> K::Out {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<K: Wide>(kernel: K) -> K::Out {
    kernel.run()
}
