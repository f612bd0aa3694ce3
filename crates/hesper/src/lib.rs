#![doc = include_str!("../README.md")]
//!
//! ## Features
//!
//! This crate has no code of its own: it links the backends that its features name, and re-exports the array
//! crate (`hesper-core`), layers (`nn`) and language models (`lm`).
//!
//! | feature | what it adds |
//! |---|---|
//! | `files` (default) | tensor files: [`io`]; functions in files: [`export`]; implies `quantized` |
//! | `fft` (default) | Fourier transforms: [`fft`] |
//! | `kernels` (default) | kernels written as text: [`CustomKernel`] |
//! | `quantized` (default) | kernels of the CPU for quantized weights ([`Array::quantized_matmul`], [`PackedArray`]) and KV caches; without it, evaluating such an array is an error |
//! | `linalg` | factorizations, equations and norms: [`linalg`]; [`random::multivariate_normal`] |
//! | `cuda` | NVIDIA GPUs; every CUDA library is loaded at run time |
//! | `metal` | Apple GPUs |
//! | `metal-sim` | a simulated Metal on any machine, for tests: `HESPER_METAL=sim` |
//! | `ndarray`, `serde` | conversions from and to arrays of the crate `ndarray`; arrays in the formats of `serde` |
//! | `nn` | layers, losses, optimizers, training: [`nn`]; implies `files` |
//! | `lm` | language models: [`lm`] |
//!
//! `default-features = false` is arrays on the CPU alone: ops, transforms and fusion.
#![deny(unsafe_code)]

pub use hesper_core::*;

// A backend registers itself when it is linked.
use hesper_backend_cpu as _;

/// What only NVIDIA GPUs have: kernels in CUDA C++ and device properties.
#[cfg(feature = "cuda")]
pub use hesper_backend_cuda as cuda;
/// What only Apple GPUs have.
#[cfg(feature = "metal")]
pub use hesper_backend_metal as metal;
#[cfg(feature = "lm")]
pub use hesper_lm as lm;
#[cfg(feature = "nn")]
pub use hesper_nn as nn;

/// The snippets of the book.
#[cfg(doctest)]
mod book {
    macro_rules! chapters {
        ($($name:ident $file:literal),*) => {
            $(#[doc = include_str!(concat!("../../../docs/book/src/", $file, ".md"))]
            mod $name {})*
        };
    }

    chapters!(
        first_steps "first-steps",
        lazy_arrays "lazy-arrays",
        transforms "transforms",
        training "training",
        kernels "kernels",
        threads "threads",
        looking_inside "looking-inside",
        porting "porting"
    );
}
