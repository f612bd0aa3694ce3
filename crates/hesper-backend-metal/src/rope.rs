//! The kernel of rotary position embedding.

use hesper_backend_gpu::{Launch, Rotation};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel, type_name};

const TEXT: &str = text!("rope.metal");

pub(crate) fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
    let Rotation { op, pairs, .. } = *rotation;
    let [batch, heads, length, width] = rotation.lengths;
    let constants = Constants::default()
        .sizes(&[heads, length, width])
        .ints(rotation.strides.into_iter(), 3, 0)
        .sizes(&[op.dims])
        .int(op.offset.unwrap_or(0) as isize)
        .int(rotation.offset_stride)
        .float(rotation.log)
        .float(op.scale.0)
        .flag(op.traditional)
        .flag(op.back);
    let (index, listed) = (rotation.offsets.map_or("int", type_name), rotation.offsets.is_some());
    let entry = format!("rope<{}, {index}, {listed}, {}>", type_name(rotation.dtype), op.base.is_none());
    let across = pairs.min(32) as u64;
    let threadgroup = [across, (length as u64).min(256 / across), 1];
    let grid = [pairs, length, batch * heads];
    Kernel { text: TEXT, entry: &entry }.launch(stream, constants, grid, threadgroup)
}
