//! Lazy arrays for machine learning.
//!
//! An [`Array`] is built by ops and computed when its numbers are asked for. In between, the planner
//! fuses chains of element-wise ops into kernels and hands everything to the runtime's streams, which
//! order it. See [`eval`](mod@eval).
#![forbid(unsafe_code)]

mod array;
mod dtype;
mod error;
pub mod eval;
mod host;
mod ops;
pub mod place;
mod scalar;
mod shape;

pub use array::Array;
pub use dtype::{Category, Dtype, Element};
pub use error::{Error, Result};
pub use eval::{async_eval, eval};
pub use host::HostArray;
pub use ops::custom::{CustomKernel, KernelCall};
pub use ops::elementwise::select;
pub use scalar::Operand;
pub use shape::{Shape, Strides};
