//! SIMD kernels for the host.
//!
//! Pure functions on slices and strided views: matrix products, quantized products, attention, norms,
//! reductions, scans, sorts, Fourier transforms, copies, convolutions and random bits. They know nothing of
//! arrays, graphs or devices, and have no thread pool: every kernel takes a [`Par`], which the device
//! implements. Kernels use the widest instructions of the machine ([`Simd`], detected at run time). Results
//! do not depend on the number of threads; their rounding may differ between SIMD levels.

#![allow(clippy::needless_range_loop, reason = "a kernel's loops run over several arrays by one index")]
#![cfg_attr(
    not(all(feature = "fft", feature = "quantized")),
    allow(dead_code, reason = "the vector operations of kernels that are left out")
)]

mod affine_group;
mod attention;
mod conv;
mod copy;
mod error;
#[cfg(feature = "fft")]
mod fft;
mod gemm;
#[doc(hidden)]
pub mod internals;
mod mat;
#[doc(hidden)]
pub mod memory;
mod par;
#[cfg(feature = "quantized")]
mod quant;
mod random;
mod rows;
mod scratch;
mod simd;
mod strided;
mod update;

pub use attention::{
    AttentionShape, DeltaInputs, DeltaShape, GradientInputs, HeadSlice, Heads, HeadsMut, Mask, MaskSlice,
    PageTables, Rotary, RowFormat, StepShape, append_step, attend_step, attention, attention_gradient,
    attention_slices, gated_delta,
};
pub use conv::{ConvShape, conv};
pub use copy::{StridedView, copy_elements, copy_strided};
pub use error::Mismatch;
#[cfg(feature = "fft")]
pub use fft::{Fft, FftKind};
pub use gemm::{
    Element, GemmOptions, Lines, MAX_ELIMINATED, Real, Stack, add_rows, axpy, dot, eliminate, gemm,
    gemm_stacked, rows_times, solve_unit, symmetric_rows,
};
pub use hesper_types::{Activations, Caches, GgmlType, QuantFormat};
pub use mat::{MatMut, MatRef};
pub use par::{AtLevel, Par, Serial, Threads, pieces_mut};
#[cfg(feature = "quantized")]
pub use quant::{
    GgufMat, LayerEpilogue, QuantMat, Scales, affine_biases, affine_scales, affine_words, dequantize,
    gguf_dequantize, gguf_layer, gguf_matmul, gguf_quantize, qmatmul, quantize_affine, quantize_fp,
};
pub use random::random_words;
pub use rows::Axis;
pub use rows::arg::{Ordered, arg_extreme};
pub use rows::input::{ReduceInput, SumOrder};
pub use rows::integers::{Integer, Word, count_set, extreme_integers, truths};
pub use rows::layout::{ReduceLayout, ReduceOrder};
pub use rows::moments::{Sample, moments};
pub use rows::norm::{layer_norm, logsumexp, rms_norm, softmax};
pub use rows::norm_columns::{logsumexp_along, softmax_along};
pub use rows::norm_gradient::{NormGradientInputs, norm_gradient};
pub use rows::reduce::{Reduce, Reduction, reduce, reduce_rows};
pub use rows::scan::{LogSum, Scan, Scannable, scan, scan_logsumexp};
pub use rows::sort::{Sortable, argpartition, argsort, partition, sort};
pub use rows::source::{Plain, RowScratch, Source};
pub use simd::{Float, Simd};
pub use strided::{Dim, joined_axes};
pub use update::add_to;
