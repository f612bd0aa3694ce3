//! Matrix products of gathered matrices and of segments, as graphs of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::grouped::{GatherMm, SegmentedMm};
use hesper_core::shape::signed;
use hesper_core::{Array, Dtype, Error, Result, select};

use crate::Cuda;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<GatherMm>().with::<SegmentedMm>()
}

impl Lower<GatherMm> for Cuda {
    fn lower(_: &GatherMm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, gathered_products)
    }
}

impl Lower<SegmentedMm> for Cuda {
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
