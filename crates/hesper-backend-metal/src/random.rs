//! The kernel of random bits.

use hesper_backend_gpu::Launch;
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("random.metal");

pub(crate) fn random_bits(stream: &Stream, words: usize) -> Result<Launch> {
    let constants = Constants::default().sizes(&[words]);
    Kernel::new(stream, TEXT, "random_bits").elements(constants, words.div_ceil(2))
}
