//! What the CUDA and the Metal printer share: the lines of a text, scalar expressions, and the part
//! of the prelude that is plain C++.
//!
//! The shared functions name their types `i8` to `f64`, `f16` and `bf16`. They call functions that each
//! device's prelude defines (`fma_of`, `mul_high`, ...), never the device's own ones.

pub(crate) mod prelude;
pub(crate) mod scalar;
pub(crate) mod value;
pub(crate) mod writer;
