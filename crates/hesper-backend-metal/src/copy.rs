//! Kernels of copies and fills.

use std::ops::Range;

use hesper_backend_gpu::{CopyAxis, Launch, StridedCopy, TransposedCopy};
use hesper_core::Result;
use hesper_core::backend::Data;
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, word};
use crate::walk::walk;

const TEXT: &str = text!("copy.metal");
/// Side of a tile of the text.
const TILE: usize = 32;

/// A row-major copy of strided memory.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], size: usize) -> Result<Buffer> {
    hesper_backend_gpu::copy::<MetalBackend>(stream, data, shape, size)
}

/// Fills a range of a buffer with an element of `size` bytes.
pub(crate) fn fill(
    stream: &Stream,
    buffer: &Buffer,
    range: Range<usize>,
    element: [u8; 8],
    size: usize,
) -> Result<()> {
    hesper_backend_gpu::fill::<MetalBackend>(stream, buffer, range, element, size)
}

pub(crate) fn strided(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch> {
    let entry = format!("strided<{}>", word(copy.word));
    let constants = dims(copy.axes).sizes(&[copy.first]);
    Kernel { text: TEXT, entry: &entry }.for_elements(stream, constants, copy.count)
}

pub(crate) fn transposed(stream: &Stream, copy: &TransposedCopy<'_>) -> Result<Launch> {
    let TransposedCopy { source, target, .. } = *copy;
    let constants = dims(copy.outer).sizes(&[copy.first, target.length, source.length]);
    let constants = constants.int(target.from).int(source.to);
    let entry = format!("transposed<{}>", word(copy.size));
    let outer = copy.outer.iter().map(|axis| axis.length).product();
    let groups = [target.length.div_ceil(TILE), source.length.div_ceil(TILE), outer];
    Kernel { text: TEXT, entry: &entry }.for_groups(stream, constants, groups, 256)
}

pub(crate) fn filled(stream: &Stream, element: [u8; 8], size: usize, n: usize) -> Result<Launch> {
    let element = u64::from_le_bytes(element);
    let constants = Constants::default().word(element as u32).word((element >> 32) as u32);
    let entry = format!("filled<{}>", word(size));
    Kernel { text: TEXT, entry: &entry }.for_elements(stream, constants, n)
}

fn dims(axes: &[CopyAxis]) -> Constants {
    let one = [CopyAxis { length: 1, from: 0, to: 0 }];
    let axes = if axes.is_empty() { &one[..] } else { axes };
    let side = |of: fn(&CopyAxis) -> isize| -> Vec<(usize, isize)> {
        axes.iter().map(|axis| (axis.length, of(axis))).collect()
    };
    walk(walk(Constants::default(), &side(|axis| axis.from)), &side(|axis| axis.to))
}
