//! Parts of kernels that tests look at. The crate has no unit tests: they would compile every kernel a second
//! time.

#[cfg(feature = "fft")]
pub use crate::fft_long::factor;
pub use crate::float::exp;
pub use crate::slices::Update;
pub use crate::sort::Key;
pub use crate::walk::Cursor;
