//! What the CUDA and the Metal printer share: the lines of a text, scalar expressions, and the part
//! of the prelude that is plain C++.
//!
//! The shared functions name their types `i8` to `f64`, `f16` and `bf16`, call what a device defines
//! (`fma_of`, `mul_high`, ...) and never the device's own functions.

pub(crate) mod prelude;
pub(crate) mod scalar;
pub(crate) mod value;
pub(crate) mod writer;
