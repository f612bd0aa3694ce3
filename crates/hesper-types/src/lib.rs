//! What arrays, files and host kernels all name: the formats of quantized numbers, the function that makes
//! random bits, and the exponential function. Definitions only; `hesper-compute` computes with them.
#![forbid(unsafe_code)]

mod ggml;
pub mod math;
mod quant;
mod random;

pub use ggml::{AFFINE_GROUP, GgmlType};
pub use quant::{Activations, QuantFormat};
pub use random::{threefry, threefry_lanes};
