//! The kernel of random bits.

use hesper_backend_gpu::Launch;
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, launch};

const TEXT: &str = include_str!("random.cuh");

pub(crate) fn random_bits(stream: &Stream, words: usize) -> Result<Launch> {
    let constants = Constants::default().long(words as i64);
    launch(stream, TEXT, "random_bits<u32>", "", constants, words.div_ceil(2))
}
