//! The kernel of random bits.

use hesper_backend_gpu::Launch;
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("random.metal");

pub(crate) fn random_bits(stream: &Stream, words: usize) -> Result<Launch> {
    let kernel = Kernel { text: TEXT, entry: "random_bits" };
    kernel.for_elements(stream, Constants::default().sizes(&[words]), words.div_ceil(2))
}
