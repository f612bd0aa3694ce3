//! The kernel of rotary position embedding.

use hesper_backend_gpu::{Launch, Rotation};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = text!("rope.metal");

pub(crate) fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
    let Rotation { op, pairs, offsets, .. } = *rotation;
    let [batch, heads, length, width] = rotation.lengths;
    let constants = Constants::default()
        .sizes(&[heads, length, width])
        .offsets(rotation.strides, 3, 0)
        .sizes(&[op.dims])
        .offset(op.offset.unwrap_or(0) as isize)
        .offset(rotation.offset_stride)
        .float(rotation.log)
        .float(op.scale.0)
        .flag(op.traditional)
        .flag(op.back);
    let kernel = Kernel::new(stream, TEXT, "rope").of(rotation.dtype);
    let kernel = kernel.of(offsets.unwrap_or(Dtype::Int32)).of(offsets.is_some()).of(op.base.is_none());
    let across = pairs.min(32);
    kernel.threads(constants, [pairs, length, batch * heads], [across, length.min(256 / across), 1])
}
