//! The kernel of Fourier transforms of rows that fit into a block's shared memory.

use hesper_backend_gpu::{FourierRows, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, kernel};

const TEXT: &str = include_str!("fft.cuh");
/// Longest row of the kernel: three complex numbers per element are in shared memory.
pub(crate) const LONGEST: usize = 8192;

/// Shortest power of two whose rows are transformed in registers.
const SHORTEST_IN_REGISTERS: usize = 16;

pub(crate) fn fft(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
    let length = rows.length;
    if length.is_power_of_two() && length >= SHORTEST_IN_REGISTERS {
        return fft_in_registers(stream, rows);
    }
    let threads = length.next_multiple_of(32).clamp(32, 256) as u64;
    let entry = format!("transformed<{}, {}>", rows.kind, rows.is_real);
    let pipeline = kernel(stream, TEXT, &entry, &format!("shared {}", 24 * length))?;
    let constants = Constants::default()
        .sizes(&[rows.given, rows.kept])
        .int(length as i32)
        .int(i32::from(rows.inverse))
        .float(rows.scale)
        .int(rows.factors as i32)
        .long(rows.radices as i64);
    let (grid, threadgroup) = ([rows.rows as u64 * threads, 1, 1], [threads, 1, 1]);
    Ok(Launch { pipeline, constants: constants.into_bytes(), grid, threadgroup })
}

/// Rows of a power of two.
fn fft_in_registers(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
    let length = rows.length;
    // Elements of a thread: the more, the fewer passes; the fewer, the more threads for a short row.
    let each = if length >= 1024 { 16 } else { 8.min(length / 4) };
    let own = length / each;
    let threads = own.max(256);
    let together = threads / own;
    let (kind, is_real, inverse) = (rows.kind, rows.is_real, rows.inverse);
    let entry = format!("fft_power_of_two<{length}, {each}, {kind}, {is_real}, {inverse}>");
    let shared = together * 8 * (length + length / 16);
    let pipeline = kernel(stream, TEXT, &entry, &format!("shared {shared}"))?;
    let constants = Constants::default().sizes(&[rows.given, rows.kept, rows.rows]).float(rows.scale);
    let grid = [(rows.rows.div_ceil(together) * threads) as u64, 1, 1];
    Ok(Launch { pipeline, constants: constants.into_bytes(), grid, threadgroup: [threads as u64, 1, 1] })
}
