//! Kernels of gathers: slices found by index arrays.

use hesper_backend_gpu::{GatheredSlices, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::copy::word;
use crate::launch::{Constants, lanes_shift, launch, type_name};
use crate::walk::walk;

const TEXT: &str = include_str!("gather.cuh");

pub(crate) fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch> {
    let GatheredSlices { outer, inner, points, row, count, first, .. } = *slices;
    if let (Some(axis), [(_, 1)]) = (slices.axis, inner) {
        let (rows, shift) = (count / row, lanes_shift(row));
        let constants = walk(Constants::default(), outer);
        let constants = constants.sizes(&[outer.len(), points, row, rows, first, axis.length, axis.size]);
        let constants = constants.long(axis.stride as i64).long(i64::from(shift));
        let entry = format!("gather_rows<{}, {}>", word(slices.word), type_name(axis.index));
        return launch(stream, TEXT, &entry, "", constants, rows << shift);
    }
    let constants = walk(walk(Constants::default(), outer), inner);
    let constants = constants.sizes(&[outer.len(), inner.len(), points, row, count, first]);
    let word = word(slices.word);
    let (entry, constants) = match slices.axis {
        Some(axis) => {
            let constants = constants.sizes(&[axis.length, axis.size]).long(axis.stride as i64);
            (format!("gather<{word}, {}>", type_name(axis.index)), constants)
        }
        None => (format!("gather_slices<{word}>"), constants),
    };
    launch(stream, TEXT, &entry, "", constants, count)
}
