//! The kernel of binary search in sorted rows.

use hesper_backend_gpu::Launch;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, launch, type_name};

const TEXT: &str = concat!(include_str!("sort.cuh"), include_str!("search.cuh"));

pub(crate) fn search(
    stream: &Stream,
    dtype: Dtype,
    right: bool,
    length: usize,
    count: usize,
) -> Result<Launch> {
    let entry = format!("searched<{}, {right}>", type_name(dtype));
    launch(stream, TEXT, &entry, "", Constants::default().sizes(&[length, count]), count)
}
