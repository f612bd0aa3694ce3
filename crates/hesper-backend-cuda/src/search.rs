//! The kernel of binary search in sorted rows.

use hesper_backend_gpu::Launch;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = concat!(include_str!("sort.cuh"), include_str!("search.cuh"));

pub(crate) fn search(
    stream: &Stream,
    dtype: Dtype,
    right: bool,
    length: usize,
    count: usize,
) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, "searched").of(dtype).of(right);
    kernel.elements(Constants::default().sizes(&[length, count]), count)
}
