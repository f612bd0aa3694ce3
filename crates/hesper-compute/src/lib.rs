//! SIMD kernels for the host.
//!
//! Pure functions on slices and strided views: matrix products, quantized products, attention, norms,
//! reductions, scans, sorts, Fourier transforms, copies, convolutions and random words. They know nothing of arrays, graphs
//! or devices, and bring no thread pool: every kernel takes a [`Par`], which the device implements. Kernels
//! pick the widest instructions of the machine at run time ([`Simd`]); their results do not depend on the
//! number of threads. They may differ in rounding between SIMD levels.

#![allow(clippy::needless_range_loop, reason = "a kernel's loops run over several arrays by one index")]

mod attention;
mod conv;
mod copy;
mod error;
mod fft;
mod gemm;
mod mat;
mod par;
mod quant;
mod random;
mod rows;
mod scratch;
mod simd;
mod strided;

pub use attention::{
    AttentionShape, DeltaInputs, DeltaShape, HeadSlice, Heads, HeadsMut, Mask, MaskSlice, StepShape, Turn,
    attend_step, attention, attention_slices, gated_delta, keep_step,
};
pub use conv::{ConvShape, conv};
pub use copy::{Place, cast, copy_elements, copy_strided};
pub use error::Mismatch;
pub use fft::{Fft, Kind as FftKind};
pub use gemm::{
    BatchItem, Element, FEW as ELIMINATED, GemmOptions, Hook, Lines, Real, Stack, add_rows, axpy, dot,
    eliminate, gemm, gemm_batched, gemm_stacked, rows_times, solve_unit, symmetric_rows,
};
pub use mat::{MatMut, MatRef};
pub use par::{AtLevel, Par, Serial, Threads};
pub use quant::{
    AFFINE_GROUP, Activations, GgmlType, GgufMat, LayerEnd, QuantFormat, QuantMat, Scales, affine_biases,
    affine_scales, affine_words, dequantize, gguf_dequantize, gguf_layer, gguf_matmul, gguf_quantize,
    qmatmul, quantize_affine, quantize_fp,
};
pub use random::{random_words, threefry};
pub use rows::Axis;
pub use rows::arg::{Ordered, arg_extreme};
pub use rows::input::{ReduceInput, SumOrder};
pub use rows::layout::{ReduceLayout, ReduceOrder};
pub use rows::moments::{Sample, moments};
pub use rows::norm::{layer_norm, logsumexp, rms_norm, softmax};
pub use rows::norm_columns::{logsumexp_along, softmax_along};
pub use rows::reduce::{Reduce, Reduction, reduce, reduce_rows};
pub use rows::scan::{LogSum, Scan, Scannable, scan, scan_logsumexp};
pub use rows::sort::{Sortable, argpartition, argsort, partition, sort, top_k};
pub use rows::source::{Plain, Room, Source};
pub use rows::whole::{Small, Word, count_set, extreme_integers, truths};
pub use simd::{Float, Simd};
pub use strided::{Dim, joined_axes, joined_dims};
