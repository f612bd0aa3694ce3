//! The kernel of rotary position embedding.

use hesper_backend_gpu::{Launch, Rotation};
use hesper_core::{Dtype, Result};
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("rope.cuh");
/// Pairs of features that fill a GPU, one in each thread.
const MANY: usize = 1 << 18;

pub(crate) fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
    let Rotation { op, lengths, strides, offsets, .. } = *rotation;
    let [batch, heads, length, _] = lengths;
    // Heads share an angle. Few elements are spread over many threads instead.
    let each = if batch * heads * length * rotation.pairs < MANY { 1 } else { 4 };
    let constants = Constants::default()
        .sizes(&lengths)
        .offsets(strides, strides.len(), 0)
        .sizes(&[op.dims])
        .offset(op.offset.unwrap_or(0) as isize)
        .offset(rotation.offset_stride)
        .float(rotation.log)
        .float(op.scale.0)
        .flag(op.traditional)
        .flag(op.back);
    let kernel = Kernel::new(stream, TEXT, "rope").of(rotation.dtype);
    let kernel =
        kernel.of(offsets.unwrap_or(Dtype::Int32)).of(offsets.is_some()).of(op.base.is_none()).of(each);
    kernel.elements(constants, batch * heads.div_ceil(each) * length * rotation.pairs)
}
