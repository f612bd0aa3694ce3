//! Index arrays: the offsets of the slices that they point at.

use hesper_core::backend::{Data, Lowering, reach};
use hesper_core::ops::command::Commands;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::Gpu;
use crate::walk::axes_of;

/// An index array and the axis that it indexes.
pub(crate) struct IndexArray<'a> {
    pub(crate) data: &'a Data,
    pub(crate) shape: &'a [usize],
    pub(crate) dtype: Dtype,
    /// Elements along the indexed axis.
    pub(crate) length: usize,
    /// Elements of a slice along the indexed axis.
    pub(crate) size: usize,
    /// The stride of the indexed axis.
    pub(crate) stride: isize,
}

/// Parameters of a kernel that computes the offset of the slice of each point along one axis.
#[derive(Debug)]
pub struct SliceStarts<'a> {
    /// The type of the indices.
    pub index: Dtype,
    /// Bytes of an offset.
    pub offset_size: usize,
    /// Whether offsets are added to those that the output has.
    pub adds: bool,
    /// The axes of the index array.
    pub axes: &'a [(usize, isize)],
    /// How many indices there are.
    pub points: usize,
    /// The first index, from the beginning of the range that is bound.
    pub first: usize,
    /// Elements along the indexed axis.
    pub length: usize,
    /// Elements of a slice along the indexed axis.
    pub size: usize,
    /// The stride of the indexed axis.
    pub stride: isize,
}

/// The offset of the slice of each point, in `offset_size` bytes; `None` if an index array has too many axes.
pub(crate) fn slice_starts<G: Gpu>(
    stream: &Stream,
    arrays: &[IndexArray<'_>],
    points: usize,
    offset_size: usize,
) -> Result<Option<Buffer>> {
    let axes: Option<Vec<_>> =
        arrays.iter().map(|array| axes_of::<G>(array.shape, &array.data.strides)).collect();
    let Some(axes) = axes else { return Ok(None) };
    let output = stream.alloc(points * offset_size)?;
    for (at, (array, axes)) in arrays.iter().zip(&axes).enumerate() {
        let (bytes, first) = reach(array.data, array.shape, array.dtype.size());
        let command = stream.command("slice_starts").read_range(&array.data.buffer, bytes);
        let command = if at == 0 { command.write(&output) } else { command.read_write(&output) };
        let IndexArray { dtype: index, length, size, stride, .. } = *array;
        let adds = at > 0;
        let starts = SliceStarts { index, offset_size, adds, axes, points, first, length, size, stride };
        G::slice_starts(stream, &starts)?.encode(command)?;
    }
    Ok(Some(output))
}

/// The index arrays that are the inputs from `at` on, of slices of `sizes` of an array.
pub(crate) fn index_arrays<'a>(
    l: &'a Lowering<'_>,
    at: usize,
    axes: &[usize],
    shape: &[usize],
    sizes: &[usize],
    strides: &[isize],
) -> Vec<IndexArray<'a>> {
    let one = |(number, axis): (usize, &usize)| IndexArray {
        data: l.input(at + number),
        shape: l.input_shape(at + number),
        dtype: l.input_dtype(at + number),
        length: shape[*axis],
        size: sizes[*axis],
        stride: strides[*axis],
    };
    axes.iter().enumerate().map(one).collect()
}

/// The elements of an input of at most one axis, each as an array without axes.
pub(crate) fn each_start(l: &Lowering<'_>, at: usize) -> Vec<Data> {
    let data = l.input(at);
    let count: usize = l.input_shape(at).iter().product();
    let stride = data.strides.first().copied().unwrap_or(0);
    let one = |k: usize| Data {
        offset: data.offset + k as isize * stride,
        strides: Default::default(),
        ..data.clone()
    };
    (0..count).map(one).collect()
}

/// The starts along axes as index arrays of one point.
pub(crate) fn start_arrays<'a>(
    l: &Lowering<'_>,
    at: usize,
    axes: &[usize],
    elements: &'a [Data],
    shape: &[usize],
    sizes: &[usize],
    strides: &[isize],
) -> Vec<IndexArray<'a>> {
    let one = |(data, axis): (&'a Data, &usize)| IndexArray {
        data,
        shape: &[],
        dtype: l.input_dtype(at),
        length: shape[*axis],
        size: sizes[*axis],
        stride: strides[*axis],
    };
    elements.iter().zip(axes).map(one).collect()
}
