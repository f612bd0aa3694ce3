//! The kernel of random bits.

use hesper_backend_gpu::Launch;
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("random.cuh");

pub(crate) fn random_bits(stream: &Stream, words: usize) -> Result<Launch> {
    let kernel = Kernel::new(stream, TEXT, "random_bits").of(Dtype::Uint32);
    kernel.elements(Constants::default().sizes(&[words]), words.div_ceil(8))
}
