//! Elements along one axis, found by an index array with the same axes.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::along_axis::{PutAlong, TakeAlong};
use hesper_core::ops::command::Commands;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result};

use crate::scatter::{MAX_OFFSET, SliceUpdates, links, owned_or_copy};
use crate::walk::{Axes, fits};
use crate::{Gpu, Shared};

/// Parameters of a kernel that finds elements along an axis.
#[derive(Debug)]
pub struct AlongAxis<'a> {
    /// The type of the indices.
    pub index: Dtype,
    /// The axes of the indices, with the strides of the array that is indexed; 0 along the indexed axis.
    pub array: &'a [(usize, isize)],
    /// The axes of the indices, with their own strides.
    pub indices: &'a [(usize, isize)],
    /// How many indices there are.
    pub count: usize,
    /// The first element of the array, from the beginning of the range that is bound.
    pub array_first: usize,
    /// The first index, from the beginning of the range that is bound.
    pub index_first: usize,
    /// Elements of the array along the indexed axis.
    pub length: usize,
    /// The stride of the array along the indexed axis.
    pub stride: isize,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, PutAlong>().with_shared::<Shared<G>, TakeAlong>()
}

/// The axes of an index array of `shape`: with the strides of the array that it indexes along `axis`, and
/// with its own.
fn axes_along(shape: &[usize], axis: usize, array: &[isize], indices: &[isize]) -> (Axes, Axes) {
    let still = |at: usize| if at == axis { 0 } else { array[at] };
    let array = shape.iter().enumerate().map(|(at, length)| (*length, still(at))).collect();
    (array, shape.iter().copied().zip(indices.iter().copied()).collect())
}

impl<G: Gpu> Lower<TakeAlong> for Shared<G> {
    fn lower(op: &TakeAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (axis, rank) = (op.0, l.shape().len());
        if rank > G::MAX_AXES || rank == 0 || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let size = l.dtype().size();
        let (source, list) = (l.input(0), l.input(1));
        let (bytes, array_first) = reach(source, l.input_shape(0), size);
        let (listed, index_first) = reach(list, l.input_shape(1), l.input_dtype(1).size());
        let output = l.output()?;
        let count: usize = l.shape().iter().product();
        let command = l.stream().command("take_along_axis").read_range(&source.buffer, bytes);
        let command = command.read_range(&list.buffer, listed).write(&output);
        if count == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let (array, indices) = axes_along(l.shape(), axis, &source.strides, &list.strides);
        let along = AlongAxis {
            index: l.input_dtype(1),
            array: &array,
            indices: &indices,
            count,
            array_first,
            index_first,
            length: l.input_shape(0)[axis],
            stride: source.strides[axis],
        };
        G::take_along(l.stream(), size, &along)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl<G: Gpu> Lower<PutAlong> for Shared<G> {
    fn lower(op: &PutAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let PutAlong(axis, mode) = *op;
        let rank = l.shape().len();
        let points: usize = l.input_shape(1).iter().product();
        let elements: usize = l.shape().iter().product();
        let linked = elements <= MAX_OFFSET && points <= G::MAX_POINTS;
        if rank == 0 || rank > G::MAX_AXES || !linked || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        if points == 0 || elements == 0 {
            return owned_or_copy::<G>(l).map(Some);
        }
        let updates = (l.input(2), l.input_shape(2));
        let Some(slices) = SliceUpdates::new::<G>(mode, updates, rank, &[], 0) else { return Ok(None) };
        let (stream, own) = (l.stream(), row_major(l.shape()));
        let (list, shape) = (l.input(1), l.input_shape(1));
        let (array, indices) = axes_along(shape, axis, &own, &list.strides);
        let keys = stream.alloc(points * 4)?;
        let (bytes, index_first) = reach(list, shape, l.input_dtype(1).size());
        let along = AlongAxis {
            index: l.input_dtype(1),
            array: &array,
            indices: &indices,
            count: points,
            array_first: 0,
            index_first,
            length: l.shape()[axis],
            stride: own[axis],
        };
        let command = stream.command("element_offsets").read_range(&list.buffer, bytes).write(&keys);
        G::element_offsets(stream, &along)?.encode(command)?;
        let links = links::<G>(stream, &keys, points)?;
        slices.encode::<G>(l, Some(&keys), links.as_ref()).map(Some)
    }
}
