//! Parts of kernels that tests compare with each other. The crate has no unit tests: they would compile every
//! kernel a second time, which takes minutes.

pub use crate::attention::prefill_within;
#[cfg(feature = "fft")]
pub use crate::fft::root as root_of_unity;
pub use crate::gemm::bf16_product;
#[cfg(feature = "quantized")]
pub use crate::quant::widen;
pub use crate::strided::locate;
