//! The fuzz targets.

mod calls;
mod exports;
mod files;
mod index;
mod kernel_text;
mod kernels;

use crate::engine::Target;

/// Every target.
pub fn all() -> Vec<Box<dyn Target>> {
    vec![
        Box::new(files::Files),
        Box::new(exports::Exports),
        Box::new(index::Indexing),
        Box::new(kernel_text::KernelText),
        Box::new(kernels::Kernels),
        Box::new(calls::Calls { simulated: false }),
        Box::new(calls::Calls { simulated: true }),
    ]
}
