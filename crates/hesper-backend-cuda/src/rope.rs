//! The kernel of rotary position embedding.

use hesper_backend_gpu::{Launch, Rotation};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, launch, type_name};

const TEXT: &str = include_str!("rope.cuh");

pub(crate) fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
    let Rotation { op, lengths, strides, .. } = *rotation;
    let constants = strides
        .iter()
        .fold(Constants::default().sizes(&lengths), |constants, stride| constants.long(*stride as i64));
    let constants = constants
        .long(op.dims as i64)
        .long(i64::from(op.offset.unwrap_or(0)))
        .long(rotation.offset_stride as i64)
        .float(rotation.log)
        .float(op.scale.0)
        .int(i32::from(op.traditional))
        .int(i32::from(op.back));
    let (index, listed) = (rotation.offsets.map_or("i32", type_name), rotation.offsets.is_some());
    let entry = format!("rope<{}, {index}, {listed}, {}>", type_name(rotation.dtype), op.base.is_none());
    let [batch, heads, length, _] = lengths;
    launch(stream, TEXT, &entry, "", constants, batch * heads * length * rotation.pairs)
}
