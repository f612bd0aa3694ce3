//! Binds quantized matrices to commands.

use crate::walk::{Cursor, Strided};
use half::{bf16, f16};
use hesper_compute::{QuantFormat, QuantMat, Scales};
use hesper_core::backend::Lowering;
use hesper_core::shape::is_row_major;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Access, Encoder, NativeError, View};
use smallvec::SmallVec;

/// A stack of quantized matrices among the inputs of a command: codes, scales and biases. Each matrix is
/// row-major; batch strides are arbitrary.
pub(super) struct Weights(SmallVec<[Strided; 3]>);

impl Weights {
    /// The inputs from `at` on, and their layout for the closure of the command.
    pub(super) fn of(l: &Lowering<'_>, at: usize, format: QuantFormat) -> Result<(Self, WeightLayout)> {
        let count = if matches!(format, QuantFormat::Affine { .. }) { 3 } else { 2 };
        let (mut bound, mut parts) = (SmallVec::<[Strided; 3]>::new(), SmallVec::new());
        for at in at..at + count {
            let (shape, strides) = (l.input_shape(at), &l.input(at).strides);
            let batch = shape.len() - 2;
            let in_place = is_row_major(&shape[batch..], &strides[batch..]);
            let part = if in_place { Strided::input(l, at) } else { Strided::row_major(l, at)? };
            let strides = SmallVec::from_slice(&part.strides()[..batch]);
            parts.push(PartLayout { dtype: l.input_dtype(at), offset: part.offset, strides });
            bound.push(part);
        }
        let shape = &bound[1].shape;
        let (batch, matrix) = shape.split_at(shape.len() - 2);
        let (batch, rows, cols) = (SmallVec::from_slice(batch), matrix[0], matrix[1] * format.group());
        Ok((Weights(bound), WeightLayout { format, at, parts, batch, rows, cols }))
    }

    /// Binds the inputs.
    pub(super) fn bind<'a>(&'a self, encoder: &mut Encoder<'a>) {
        for part in &self.0 {
            encoder.add(&part.data.buffer, part.bytes.clone(), Access::Read);
        }
    }
}

/// How the parts of [`Weights`] lie in the views of a command.
pub(super) struct WeightLayout {
    format: QuantFormat,
    /// The first of the views.
    at: usize,
    parts: SmallVec<[PartLayout; 3]>,
    batch: SmallVec<[usize; 2]>,
    rows: usize,
    cols: usize,
}

struct PartLayout {
    dtype: Dtype,
    offset: isize,
    /// Of the batch axes.
    strides: SmallVec<[isize; 2]>,
}

impl WeightLayout {
    /// The batch axes.
    pub(super) fn batch(&self) -> &[usize] {
        &self.batch
    }

    /// One of the matrices, from the views of a command.
    pub(super) fn matrix<'v>(
        &self,
        views: &'v [View<'_>],
        number: usize,
    ) -> std::result::Result<QuantMat<'v>, NativeError> {
        let start = |part: usize| {
            let PartLayout { offset, strides, .. } = &self.parts[part];
            (offset + Cursor::new(&self.batch, [&strides[..]], number).at[0]) as usize
        };
        let scales = |part: usize| -> std::result::Result<Scales<'v>, NativeError> {
            let (view, start) = (&views[self.at + part], start(part));
            Ok(match self.parts[part].dtype {
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
