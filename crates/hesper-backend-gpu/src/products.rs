//! Products of gathered matrices, of gathered quantized matrices and of segments, as graphs of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::grouped::{GatherMm, SegmentedMm};
use hesper_core::ops::quant::gathered::GatherQmm;
use hesper_core::ops::quant::matmul::QuantizedMatmul;
use hesper_core::shape::signed;
use hesper_core::{Array, Dtype, Error, QuantMode, Result, select};

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table
        .with_shared::<Shared<G>, GatherMm>()
        .with_shared::<Shared<G>, GatherQmm>()
        .with_shared::<Shared<G>, SegmentedMm>()
}

/// Lowers a product with a quantized matrix as a product with the dequantized one.
pub fn quantized_matmul(op: &QuantizedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
    compose(l, |inputs| {
        let [x, codes, scales, rest @ ..] = inputs else {
            return Err(Error::value("quantized_matmul", "three inputs expected"));
        };
        let (mode, group, bits) = (QuantMode::of(op.format), Some(op.format.group()), Some(op.format.bits()));
        let w = codes.dequantize(scales, rest.first(), group, bits, mode, Some(x.dtype()))?;
        x.matmul(&if op.transpose { w.swapaxes(-1, -2)? } else { w })
    })
}

impl<G: Gpu> Lower<GatherQmm> for Shared<G> {
    fn lower(op: &GatherQmm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (format, transpose) = (op.format, op.transpose);
        compose(l, |inputs| {
            let [x, left, right, codes, scales, rest @ ..] = inputs else {
                return Err(Error::value("gather_qmm", "five inputs expected"));
            };
            let of = |array: &Array| array.take(right.clone(), Some(0));
            let (codes, scales) = (of(codes)?, of(scales)?);
            let biases = rest.first().map(of).transpose()?;
            let (group, bits) = (Some(format.group()), Some(format.bits()));
            let mode = QuantMode::of(format);
            let w = codes.dequantize(&scales, biases.as_ref(), group, bits, mode, Some(x.dtype()))?;
            let w = if transpose { w.swapaxes(-1, -2)? } else { w };
            x.take(left.clone(), Some(0))?.matmul(&w)
        })
    }
}

impl<G: Gpu> Lower<GatherMm> for Shared<G> {
    fn lower(_: &GatherMm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, gathered_products)
    }
}

impl<G: Gpu> Lower<SegmentedMm> for Shared<G> {
    fn lower(_: &SegmentedMm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, segment_products)
    }
}

/// Products of matrices that two index arrays gather.
fn gathered_products(inputs: &[Array]) -> Result<Array> {
    let [a, b, left, right] = inputs else {
        return Err(Error::value("gather_mm", "four inputs expected"));
    };
    a.take(left.clone(), Some(0))?.matmul(&b.take(right.clone(), Some(0))?)
}

/// Products over segments of the inner axis: elements outside of a segment are zeroed.
fn segment_products(inputs: &[Array]) -> Result<Array> {
    let [a, b, segments] = inputs else {
        return Err(Error::value("segmented_mm", "three inputs expected"));
    };
    let k = a.shape()[1] as i64;
    let mut shape = signed(&segments.shape()[..segments.ndim() - 1]);
    shape.extend([a.shape()[0] as isize, b.shape()[1] as isize]);
    // A negative bound counts from one past the last element.
    let bounds = segments.astype(Dtype::Int64)?.reshape(&[-1, 1, 2])?;
    let bounds = select(&bounds.less(0)?, &bounds.add(k + 1)?, &bounds)?;
    let places = Array::from_slice(&(0..k).collect::<Vec<i64>>());
    let inside = places
        .greater_equal(bounds.slice_axis(2, 0, 1, 1)?)?
        .logical_and(places.less(bounds.slice_axis(2, 1, 2, 1)?)?)?;
    let zero = Array::scalar(0.0, a.dtype())?;
    select(&inside, a, &zero)?.matmul(b)?.reshape(&shape)
}
