//! The kernel of random bits.

use hesper_backend_gpu::{Launch, Sink};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::chip::multiprocessors;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("random.cuh");

/// Threads of a block.
const THREADS: usize = 256;

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
    // A thread draws several times, so that it does not wait for the key each time.
    let blocks = words.div_ceil(8 * THREADS).clamp(1, multiprocessors(stream) * 16);
    let kernel = Kernel::new(stream, TEXT, name).epilogue(sink.slot());
    kernel.try_threads(constants, [blocks * THREADS, 1, 1], [THREADS, 1, 1])
}
