//! Lazy arrays for machine learning.
//!
//! An [`Array`] is built by ops and computed when its elements are needed. The planner fuses chains of
//! element-wise ops into kernels and encodes everything on the runtime's streams, which order it. See
//! [`eval`](mod@eval).
#![deny(unsafe_code)]

mod array;
mod axes;
pub mod backend;
mod dtype;
mod error;
pub mod eval;
pub mod export;
pub mod fast;
mod graph;
mod guarded;
mod host;
#[doc(hidden)]
pub mod identity;
#[doc(hidden)]
pub mod ids;
mod interop;
#[cfg(feature = "files")]
pub mod io;
#[cfg(feature = "linalg")]
pub mod linalg;
mod nested;
mod operators;
#[doc(hidden)]
pub mod ops;
pub mod placement;
mod print;
pub mod random;
mod registry;
mod scalar;
#[doc(hidden)]
pub mod shape;
mod tape;
pub mod trace;
pub mod transform;

pub use axes::{Axes, axes};
pub use dtype::{Category, Dtype, Element};
pub use error::{Error, Result};
pub use eval::{async_eval, eval, is_quick};
pub use graph::Array;
pub use half::{bf16, f16};
pub use hesper_runtime as runtime;
pub use hesper_runtime::{Buffer, HostMemory, Runtime, Stream, Submission};
pub use host::{HostArray, HostArrayMut};
pub use nested::{Literal, Nested};
pub use ops::concat::{concatenate, stack};
pub use ops::conv::{Conv, ConvolveMode};
pub use ops::creation::{Indexing, Range, meshgrid};
#[cfg(feature = "kernels")]
pub use ops::custom::{CustomKernel, KernelCall};
pub use ops::einsum::{einsum, einsum_path};
#[cfg(feature = "fft")]
pub use ops::fft;
pub use ops::index::{Index, Update};
pub use ops::logic::{Tolerance, select};
pub use ops::movement::Split;
pub use ops::packed::{PackedArray, PackedFormat, packed_matmul};
pub use ops::pad::Pad;
pub use ops::quant::{Activations, QuantMode};
pub use ops::sort::Different;
pub use ops::view::Length;
pub use placement::{Device, set_default_device, with_device, with_stream};
pub use print::{PrintOptions, print_options, set_print_options};
pub use scalar::Operand;
pub use shape::{Shape, Strides};
