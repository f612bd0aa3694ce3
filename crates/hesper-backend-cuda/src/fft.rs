//! The kernel of Fourier transforms of rows that fit into a block's shared memory.

use hesper_backend_gpu::{FourierRows, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel, shared};

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
    let threads = length.next_multiple_of(32).clamp(32, 256);
    let kernel = Kernel::new(stream, TEXT, "transformed").of(rows.kind).of(rows.is_real);
    let constants = Constants::default()
        .sizes(&[rows.given, rows.kept])
        .int(length as i32)
        .flag(rows.inverse)
        .float(rows.scale)
        .int(rows.factors as i32)
        .bits(rows.radices);
    kernel.option(shared(24 * length)).groups(constants, [rows.rows, 1, 1], threads)
}

/// Rows of a power of two.
fn fft_in_registers(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
    // Real rows of twice the length are as much work as complex ones.
    let name = match (rows.kind, rows.is_real, rows.inverse) {
        (1, true, false) => "real_to_frequencies",
        (2, false, true) => "frequencies_to_real",
        _ => "fft_power_of_two",
    };
    let halved = name != "fft_power_of_two" && rows.length >= 2 * SHORTEST_IN_REGISTERS;
    let length = if halved { rows.length / 2 } else { rows.length };
    // Elements of a thread: the more, the fewer passes; the fewer, the more threads for a short row.
    let each = if length >= 1024 { 16 } else { 8.min(length / 4) };
    let own = length / each;
    let threads = own.max(256);
    let together = threads / own;
    let kernel =
        Kernel::new(stream, TEXT, if halved { name } else { "fft_power_of_two" }).of(length).of(each);
    let (kernel, sizes) = match (halved, rows.kind) {
        (false, _) => {
            let kernel = kernel.of(rows.kind).of(rows.is_real).of(rows.inverse);
            (kernel, &[rows.given, rows.kept, rows.rows][..])
        }
        (true, 1) => (kernel, &[rows.given, rows.kept, rows.rows][..]),
        (true, _) => (kernel, &[rows.given, rows.rows][..]),
    };
    let constants = Constants::default().sizes(sizes).float(rows.scale);
    let kernel = kernel.option(shared(together * 8 * (length + length / 16)));
    kernel.groups(constants, [rows.rows.div_ceil(together), 1, 1], threads)
}
