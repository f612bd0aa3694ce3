//! The kernel of random bits.

use hesper_backend_gpu::Launch;
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("random.metal");

pub(crate) fn random_bits(stream: &Stream, words: usize, key: Option<[u32; 2]>) -> Result<Launch> {
    let constants = Constants::default().sizes(&[words]);
    let (name, constants) = match key {
        Some([first, second]) => ("random_bits_of", constants.int(first as i32).int(second as i32)),
        None => ("random_bits", constants),
    };
    Kernel::new(stream, TEXT, name).elements(constants, words.div_ceil(2))
}
