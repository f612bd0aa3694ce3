//! Binds quantized matrices to commands.

use crate::walk::{Cursor, Strided};
use half::{bf16, f16};
use hesper_compute::{QuantFormat, QuantMat, Scales};
use hesper_core::backend::Lowering;
use hesper_core::shape::is_row_major;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Encoder, NativeError, View};
use smallvec::SmallVec;

/// A stack of quantized matrices among the inputs of a command.
#[derive(Clone)]
pub(super) struct Weights {
    format: QuantFormat,
    /// The first of its inputs.
    at: usize,
    /// Codes, scales and biases. Each matrix is row-major; batch strides are arbitrary.
    parts: SmallVec<[Strided; 3]>,
    types: SmallVec<[Dtype; 3]>,
    rows: usize,
    cols: usize,
}

impl Weights {
    /// The inputs from `at` on.
    pub(super) fn of(l: &Lowering<'_>, at: usize, format: QuantFormat) -> Result<Self> {
        let count = if matches!(format, QuantFormat::Affine { .. }) { 3 } else { 2 };
        let (mut parts, mut types): (SmallVec<[Strided; 3]>, _) = (SmallVec::new(), SmallVec::new());
        for at in at..at + count {
            let (shape, strides) = (l.input_shape(at), &l.input(at).strides);
            let batch = shape.len() - 2;
            let in_place = is_row_major(&shape[batch..], &strides[batch..]);
            parts.push(if in_place { Strided::input(l, at) } else { Strided::row_major(l, at)? });
            types.push(l.input_dtype(at));
        }
        let shape = &parts[1].shape;
        let (rows, groups) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        Ok(Weights { format, at, parts, types, rows, cols: groups * format.group() })
    }

    /// Binds the inputs.
    pub(super) fn bind<'a>(&'a self, mut encoder: Encoder<'a>) -> Encoder<'a> {
        for part in &self.parts {
            encoder = encoder.read_range(&part.data.buffer, part.bytes.clone());
        }
        encoder
    }

    /// The batch axes.
    pub(super) fn batch(&self) -> &[usize] {
        let shape = &self.parts[0].shape;
        &shape[..shape.len() - 2]
    }

    /// One of the matrices, from the views of a command.
    pub(super) fn matrix<'v>(
        &self,
        views: &'v [View<'_>],
        number: usize,
    ) -> std::result::Result<QuantMat<'v>, NativeError> {
        let batch = self.batch();
        let start = |part: usize| {
            let strided = &self.parts[part];
            let strides = &strided.strides()[..batch.len()];
            (strided.offset + Cursor::new(batch, [strides], number).at[0]) as usize
        };
        let scales = |part: usize| -> std::result::Result<Scales<'v>, NativeError> {
            let (view, start) = (&views[self.at + part], start(part));
            Ok(match self.types[part] {
                Dtype::Uint8 => Scales::Bytes(tail(view.as_slice::<u8>()?, start)),
                Dtype::Float16 => Scales::F16(tail(view.as_slice::<f16>()?, start)),
                Dtype::Bfloat16 => Scales::Bf16(tail(view.as_slice::<bf16>()?, start)),
                _ => Scales::F32(tail(view.as_slice::<f32>()?, start)),
            })
        };
        let packed = tail(views[self.at].as_slice::<u32>()?, start(0));
        let biases = if self.parts.len() > 2 { Some(scales(2)?) } else { None };
        QuantMat::new(self.format, self.rows, self.cols, packed, scales(1)?, biases).map_err(crate::refused)
    }
}

fn tail<T>(all: &[T], start: usize) -> &[T] {
    all.get(start..).unwrap_or_default()
}
