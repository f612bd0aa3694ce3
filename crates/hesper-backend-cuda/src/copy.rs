//! Kernels of copies and fills.

use hesper_backend_gpu::{CopyAxis, KernelText as _, Launch, StridedCopy, TransposedCopy};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::Cuda;
use crate::launch::{Constants, Kernel, index_option};

const TEXT: &str = include_str!("copy.cuh");
/// Most axes of the kernels.
pub(crate) const MAX_AXES: usize = 10;

pub(crate) fn strided(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch> {
    let n = copy.count;
    let kernel = Kernel::new(stream, TEXT, "strided").of(Cuda::word_name(copy.word)).of(copy.axes.len());
    kernel.option(index_option(n)).elements(dims(copy.axes).sizes(&[n, copy.first]), n)
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
    let kernel = match pairs {
        true => Kernel::new(stream, TEXT, "transposed_pairs").of(Cuda::word_name(size)),
        false => Kernel::new(stream, TEXT, "transposed").of(Cuda::word_name(size)).of(tile),
    };
    kernel.groups(dims(&all).sizes(&[outer, first]), [tiles, 1, 1], 256)
}

pub(crate) fn filled(stream: &Stream, element: [u8; 8], size: usize, n: usize) -> Result<Launch> {
    let constants = Constants::default().bits(u64::from_le_bytes(element)).sizes(&[n]);
    Kernel::new(stream, TEXT, "filled").of(Cuda::word_name(size)).elements(constants, n)
}

fn dims(axes: &[CopyAxis]) -> Constants {
    Constants::default()
        .offsets(axes.iter().map(|axis| axis.length as isize), MAX_AXES, 1)
        .offsets(axes.iter().map(|axis| axis.from), MAX_AXES, 0)
        .offsets(axes.iter().map(|axis| axis.to), MAX_AXES, 0)
}
