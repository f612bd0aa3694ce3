//! SIMD levels, their detection, and the dispatch of one generic kernel to the widest of them.
//!
//! A kernel is written once against [`Isa`], a token with vector operations as methods. [`dispatch`] calls it
//! inside a function compiled for the level's instructions, into which everything is inlined. A token is
//! constructed only where its instructions were detected.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod elem;
mod isa;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
mod quad;
#[cfg(target_arch = "x86_64")]
pub(crate) mod unit_sums;

use std::sync::OnceLock;

pub use elem::Float;
pub(crate) use elem::{FloatKind, FloatLanes, load_lanes, store_lanes};
pub(crate) use isa::{Isa, Local};

/// A set of instructions that kernels are compiled for, ordered from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Simd {
    /// The baseline of the target.
    Plain,
    /// NEON (aarch64).
    Neon,
    /// NEON with the dot product of bytes.
    NeonDot,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX2 with AVX-VNNI.
    Avx2Dot,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with VNNI.
    Avx512Dot,
    /// AVX-512 with VNNI and BF16.
    Avx512Bf16,
}

impl Simd {
    /// The widest level of this machine.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Simd> = OnceLock::new();
        *LEVEL.get_or_init(Self::probe)
    }

    /// Every level this machine can run, narrowest first.
    pub fn available() -> Vec<Self> {
        let x86 = [Self::Avx2, Self::Avx2Dot, Self::Avx512, Self::Avx512Dot, Self::Avx512Bf16];
        let all = [Self::Plain, Self::Neon, Self::NeonDot].into_iter().chain(x86);
        all.filter(|level| level.is_available()).collect()
    }

    fn is_available(self) -> bool {
        match self {
            Self::Neon | Self::NeonDot => cfg!(target_arch = "aarch64") && self <= Self::detect(),
            // AVX-512 does not imply AVX-VNNI.
            Self::Avx2Dot => has_avx_vnni(),
            _ => self <= Self::detect(),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn probe() -> Self {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let dot = is_x86_feature_detected!("avx512vnni");
        match (avx2, avx512) {
            (_, true) if dot && is_x86_feature_detected!("avx512bf16") => Self::Avx512Bf16,
            (_, true) if dot => Self::Avx512Dot,
            (_, true) => Self::Avx512,
            (true, _) if has_avx_vnni() => Self::Avx2Dot,
            (true, _) => Self::Avx2,
            _ => Self::Plain,
        }
    }

    /// Whether a bfloat16 dot instruction is as fast as an `f32` multiply-add.
    ///
    /// It is on AMD processors. Intel's take four times as long, so widening to `f32` is faster there.
    pub(crate) fn has_fast_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            static AMD: OnceLock<bool> = OnceLock::new();
            let amd = *AMD.get_or_init(|| {
                let id = std::arch::x86_64::__cpuid(0);
                [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
            });
            self.min(Self::detect()) == Self::Avx512Bf16 && amd
        }
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    #[cfg(target_arch = "aarch64")]
    fn probe() -> Self {
        if std::arch::is_aarch64_feature_detected!("dotprod") { Self::NeonDot } else { Self::Neon }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn probe() -> Self {
        Self::Plain
    }
}

/// Whether the processor has the dot product of bytes on vectors of 256 bits, besides AVX2, FMA and F16C.
fn has_avx_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("avxvnni")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A computation that is compiled for every level.
pub(crate) trait Kernel {
    /// What it returns.
    type Out;
    /// The computation. Implementations must be `#[inline(always)]` to be compiled for the level.
    fn run<S: Isa>(self, s: S) -> Self::Out;
}

/// Runs the kernel compiled for the level, or for the widest available level below it.
///
/// The dot product level is left to [`dispatch_dot`]: few kernels gain from it, and each level adds compile
/// time.
#[inline]
pub(crate) fn dispatch<K: Kernel>(level: Simd, kernel: K) -> K::Out {
    match level.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx512 | Simd::Avx512Dot | Simd::Avx512Bf16 => unsafe { avx512::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx2 | Simd::Avx2Dot => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "aarch64")]
        Simd::Neon | Simd::NeonDot => neon::run(kernel),
        _ => plain::run(kernel),
    }
}

/// [`dispatch`] to AVX2 at most, for loops over integers and scans: code for AVX-512 is no faster there, and
/// for some twice as slow.
#[inline]
pub(crate) fn dispatch_256<K: Kernel>(level: Simd, kernel: K) -> K::Out {
    match level.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        level if level >= Simd::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "aarch64")]
        Simd::Neon | Simd::NeonDot => neon::run(kernel),
        _ => plain::run(kernel),
    }
}

/// [`dispatch`] for products of bfloat16 pairs, which are fast at the level with such an instruction only
/// ([`Simd::has_fast_bf16`]). The plain level stands for all others: it lets tests run on any machine.
#[inline]
pub(crate) fn dispatch_pairs<K: Kernel>(level: Simd, kernel: K) -> K::Out {
    match level.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx512Bf16 => unsafe { avx512::run_pairs(kernel) },
        _ => plain::run(kernel),
    }
}

/// [`dispatch`] for kernels that multiply bytes.
#[inline]
pub(crate) fn dispatch_dot<K: Kernel>(level: Simd, kernel: K) -> K::Out {
    match level.min(Simd::detect()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx512Dot | Simd::Avx512Bf16 => unsafe { avx512::run_bytes(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected.
        Simd::Avx2Dot if has_avx_vnni() => unsafe { avx2::run_dot(kernel) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the level was detected.
        Simd::NeonDot => unsafe { neon::run_dot(kernel) },
        _ => dispatch(level, kernel),
    }
}
