//! SIMD kernels for the host.
//!
//! Pure functions on slices and strided views: matrix products, quantized products, attention, norms,
//! reductions, scans, sorts, copies and convolutions. They know nothing of arrays, graphs or devices, and
//! bring no thread pool: every kernel takes a [`Par`], which the device implements. Kernels pick the widest
//! instructions of the machine at run time ([`Simd`]); their results do not depend on the number of threads.
//! They may differ in rounding between SIMD levels.

mod error;
mod gemm;
mod mat;
mod par;
mod scratch;
mod simd;

pub use error::Mismatch;
pub use gemm::{BatchItem, Element, GemmOptions, Hook, gemm, gemm_batched};
pub use mat::{MatMut, MatRef};
pub use par::{AtLevel, Par, Serial, Threads};
pub use simd::{Float, Simd};
