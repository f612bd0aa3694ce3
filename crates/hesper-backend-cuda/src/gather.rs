//! Kernels of gathers: slices found by index arrays.

use hesper_backend_gpu::{GatheredSlices, KernelText as _, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::Cuda;
use crate::launch::{Constants, Kernel, lanes_shift};

const TEXT: &str = include_str!("gather.cuh");

pub(crate) fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch> {
    let GatheredSlices { outer, inner, points, row, count, first, .. } = *slices;
    let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(Cuda::word_name(slices.word));
    let constants = Constants::default().axes(outer);
    if let (Some(axis), [(_, 1)]) = (slices.axis, inner) {
        let (rows, shift) = (count / row, lanes_shift(row));
        let constants = constants.sizes(&[outer.len(), points, row, rows, first, axis.length, axis.size]);
        let constants = constants.offset(axis.stride).sizes(&[shift]);
        return kernel("gather_rows").of(axis.index).of(points != rows).elements(constants, rows << shift);
    }
    let constants = constants.axes(inner).sizes(&[outer.len(), inner.len(), points, row, count, first]);
    match slices.axis {
        Some(axis) => {
            let constants = constants.sizes(&[axis.length, axis.size]).offset(axis.stride);
            kernel("gather").of(axis.index).elements(constants, count)
        }
        None => kernel("gather_slices").elements(constants, count),
    }
}
