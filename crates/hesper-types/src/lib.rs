//! What arrays, files and host kernels all name: the formats of quantized numbers, the function that makes
//! random bits, the exponential function, and the sizes of the machine's caches. Definitions only;
//! `hesper-compute` computes with them.

mod caches;
mod ggml;
pub mod math;
mod quant;
mod random;

pub use caches::Caches;
pub use ggml::{AFFINE_GROUP, GgmlType};
pub use quant::{Activations, QuantFormat};
pub use random::{threefry, threefry_lanes};
