//! The kernel of random bits.

use hesper_backend_gpu::{KernelText, Launch, Sink};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("random.cuh");

pub(crate) fn random_bits(
    stream: &Stream,
    words: usize,
    key: Option<[u32; 2]>,
    sink: &Sink,
) -> Result<Option<Launch>> {
    let constants = Constants::default().sizes(&[words]);
    let (name, constants) = match key {
        Some([first, second]) => ("random_bits_of", constants.int(first as i32).int(second as i32)),
        None => ("random_bits", constants),
    };
    let (grid, threadgroup) = Cuda::element_grid(words.div_ceil(8));
    Kernel::new(stream, TEXT, name).epilogue(sink.slot()).try_threads(constants, grid, threadgroup)
}
