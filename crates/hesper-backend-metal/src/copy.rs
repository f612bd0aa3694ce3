//! Kernels of copies and fills.

use hesper_backend_gpu::{CopyAxis, KernelText as _, Launch, StridedCopy, TransposedCopy};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::MetalBackend;
use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("copy.metal");
/// Side of a tile of the text.
const TILE: usize = 32;

pub(crate) fn strided(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch> {
    let constants = dims(copy.axes).sizes(&[copy.first]);
    kernel(stream, "strided", copy.word).elements(constants, copy.count)
}

pub(crate) fn transposed(stream: &Stream, copy: &TransposedCopy<'_>) -> Result<Launch> {
    let TransposedCopy { source, target, .. } = *copy;
    let constants = dims(copy.outer).sizes(&[copy.first, target.length, source.length]);
    let constants = constants.offset(target.from).offset(source.to);
    let outer = copy.outer.iter().map(|axis| axis.length).product();
    let groups = [target.length.div_ceil(TILE), source.length.div_ceil(TILE), outer];
    kernel(stream, "transposed", copy.size).groups(constants, groups, 256)
}

pub(crate) fn filled(stream: &Stream, element: [u8; 8], size: usize, n: usize) -> Result<Launch> {
    kernel(stream, "filled", size).elements(Constants::default().bits(u64::from_le_bytes(element)), n)
}

/// A kernel that copies words of `size` bytes.
fn kernel<'a>(stream: &'a Stream, name: &str, size: usize) -> Kernel<'a> {
    Kernel::new(stream, TEXT, name).of(MetalBackend::word_name(size))
}

fn dims(axes: &[CopyAxis]) -> Constants {
    let one = [CopyAxis { length: 1, from: 0, to: 0 }];
    let axes = if axes.is_empty() { &one[..] } else { axes };
    let side = |of: fn(&CopyAxis) -> isize| -> Vec<(usize, isize)> {
        axes.iter().map(|axis| (axis.length, of(axis))).collect()
    };
    Constants::default().axes(&side(|axis| axis.from)).axes(&side(|axis| axis.to))
}
