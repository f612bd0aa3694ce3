//! The kernel of Fourier transforms of rows that fit into threadgroup memory.

use hesper_backend_gpu::{FourierRows, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("fft.metal");
/// Longest row of the kernel: two complex numbers per element fill the 32 KiB of threadgroup memory.
pub(crate) const LONGEST: usize = 2048;
/// Rooms for short rows leave threadgroup memory to other groups.
const ROOMS: [usize; 3] = [128, 512, LONGEST];

pub(crate) fn fft(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
    let room = ROOMS.into_iter().find(|room| *room >= rows.length).unwrap_or(LONGEST);
    let kernel = Kernel::new(stream, TEXT, "transformed").of(rows.kind).of(rows.is_real).of(room);
    let constants = Constants::default()
        .sizes(&[rows.given, rows.kept, rows.length])
        .flag(rows.inverse)
        .float(rows.scale)
        .int(rows.factors as i32)
        .bits(rows.radices);
    let threads = rows.length.next_multiple_of(32).clamp(32, 256);
    kernel.groups(constants, [rows.rows, 1, 1], threads)
}
