//! Kernels of copies and fills.

use std::ops::Range;

use hesper_backend_gpu::{CopyAxis, Launch, StridedCopy, Target, TransposedCopy};
use hesper_core::Result;
use hesper_core::backend::Data;
use hesper_runtime::{Buffer, Stream};

use crate::Cuda;
use crate::launch::{Constants, launch, launch_blocks};

const TEXT: &str = include_str!("copy.cuh");
/// Most axes of the kernels.
pub(crate) const MAX_AXES: usize = 10;

/// The kernels' type of a word of `size` bytes.
pub(crate) fn word(size: usize) -> &'static str {
    match size {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "w8",
        _ => "w16",
    }
}

/// A row-major copy of strided memory.
pub(crate) fn copy(stream: &Stream, data: &Data, shape: &[usize], size: usize) -> Result<Buffer> {
    hesper_backend_gpu::copy::<Cuda>(stream, data, shape, size)
}

/// Copies all elements to a strided target.
pub(crate) fn copy_to(
    stream: &Stream,
    data: &Data,
    shape: &[usize],
    size: usize,
    target: &Target<'_>,
) -> Result<()> {
    hesper_backend_gpu::copy_to::<Cuda>(stream, data, shape, size, target)
}

/// Fills a range of a buffer with an element of `size` bytes.
pub(crate) fn fill(
    stream: &Stream,
    buffer: &Buffer,
    range: Range<usize>,
    element: [u8; 8],
    size: usize,
) -> Result<()> {
    hesper_backend_gpu::fill::<Cuda>(stream, buffer, range, element, size)
}

pub(crate) fn strided(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch> {
    let n = copy.count;
    let index = if n < 1 << 31 { "" } else { "define INDEX=u64" };
    let entry = format!("strided<{}, {}>", word(copy.word), copy.axes.len());
    let constants = dims(copy.axes).long(n as i64).long(copy.first as i64);
    launch(stream, TEXT, &entry, index, constants, n)
}

pub(crate) fn transposed(stream: &Stream, copy: &TransposedCopy<'_>) -> Result<Launch> {
    let TransposedCopy { size, source, target, first, .. } = *copy;
    let outer: usize = copy.outer.iter().map(|axis| axis.length).product();
    let tile = if size <= 2 { 64 } else { 32 };
    let tiles = source.length.div_ceil(tile) * target.length.div_ceil(tile) * outer;
    let all: Vec<CopyAxis> = [source, target].into_iter().chain(copy.outer.iter().copied()).collect();
    let even = |number: isize| number % 2 == 0;
    let pairs = size == 2
        && copy.starts.iter().all(|start| start.is_multiple_of(4))
        && even(first as isize)
        && even(source.length as isize)
        && even(target.length as isize)
        && even(source.to)
        && even(target.from)
        && copy.outer.iter().all(|axis| even(axis.from) && even(axis.to))
        && tiles < 1 << 31;
    let entry = match pairs {
        true => "transposed_pairs<u16>".to_string(),
        false => format!("transposed<{}, {tile}>", word(size)),
    };
    let constants = dims(&all).long(outer as i64).long(first as i64);
    launch_blocks(stream, TEXT, &entry, "", constants, tiles as u64)
}

pub(crate) fn filled(stream: &Stream, element: [u8; 8], size: usize, n: usize) -> Result<Launch> {
    let constants = Constants::default().long(i64::from_ne_bytes(element)).long(n as i64);
    launch(stream, TEXT, &format!("filled<{}>", word(size)), "", constants, n)
}

fn dims(axes: &[CopyAxis]) -> Constants {
    Constants::default()
        .longs(axes.iter().map(|axis| axis.length as isize), MAX_AXES, 1)
        .longs(axes.iter().map(|axis| axis.from), MAX_AXES, 0)
        .longs(axes.iter().map(|axis| axis.to), MAX_AXES, 0)
}
