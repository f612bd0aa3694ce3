//! Gathers: slices found by index arrays.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gather::Gather;
use hesper_core::ops::slices::DynamicSlice;
use hesper_core::{Dtype, Result};

use crate::index_arrays::{IndexArray, each_start, index_arrays, slice_starts, start_arrays};
use crate::walk::{axes_of, elements_of_word, fits};
use crate::{Gpu, Shared};

/// Parameters of a kernel that gathers slices. Lengths, strides and offsets count words.
#[derive(Debug)]
pub struct GatheredSlices<'a> {
    /// Bytes of a word.
    pub word: usize,
    /// Axes of a slice before the axes of the points, with strides in the source.
    pub outer: &'a [(usize, isize)],
    /// Axes of a slice behind the axes of the points.
    pub inner: &'a [(usize, isize)],
    /// How many slices there are.
    pub points: usize,
    /// Words of a slice along its inner axes.
    pub row: usize,
    /// Words of the output.
    pub count: usize,
    /// The first word, from the beginning of the range that is bound.
    pub first: usize,
    /// The axis that an index array indexes. `None`: the second buffer has the offsets of the slices.
    pub axis: Option<IndexedAxis>,
}

/// The axis of a source that an index array indexes.
#[derive(Debug, Clone, Copy)]
pub struct IndexedAxis {
    /// The type of the indices.
    pub index: Dtype,
    /// Elements along the axis.
    pub length: usize,
    /// Elements of a slice along the axis.
    pub size: usize,
    /// Words from one element to the next.
    pub stride: isize,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, DynamicSlice>().with_shared::<Shared<G>, Gather>()
}

impl<G: Gpu> Lower<Gather> for Shared<G> {
    fn lower(op: &Gather, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        if let [axis] = *op.axes {
            return gather_axis::<G>(l, axis, &op.sizes, op.before);
        }
        let arrays = index_arrays(l, 1, &op.axes, l.input_shape(0), &op.sizes, &l.input(0).strides);
        let points = arrays.first().map_or(1, |array| array.shape.iter().product());
        gather_slices::<G>(l, &arrays, points, &op.sizes, op.before)
    }
}

impl<G: Gpu> Lower<DynamicSlice> for Shared<G> {
    fn lower(op: &DynamicSlice, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let elements = each_start(l, 1);
        let arrays = start_arrays(l, 1, &op.0, &elements, l.input_shape(0), l.shape(), &l.input(0).strides);
        gather_slices::<G>(l, &arrays, 1, l.shape(), 0)
    }
}

/// Bytes that a GPU reads for a single element.
const SECTOR: usize = 32;

/// The source of a gather. Slices whose neighbours are apart in memory are read from a row-major copy if that
/// moves fewer bytes.
fn source_of(l: &Lowering<'_>, sizes: &[usize]) -> Result<Data> {
    let (source, size) = (l.input(0), l.dtype().size());
    let last = sizes.iter().zip(&source.strides).rev().find(|(length, _)| **length > 1);
    let is_apart = last.is_some_and(|(_, stride)| stride.unsigned_abs() * size >= SECTOR);
    let gathered: usize = l.shape().iter().product();
    let whole: usize = l.input_shape(0).iter().product();
    if is_apart && gathered * SECTOR > 2 * whole * size { l.row_major(0) } else { Ok(source.clone()) }
}

/// For each index the slice of the source that it points at, behind `before` axes of the slices.
fn gather_axis<G: Gpu>(
    l: &Lowering<'_>,
    axis: usize,
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    let (source, shape) = (&source_of(l, sizes)?, l.input_shape(0));
    let size = l.dtype().size();
    let (bytes, first) = reach(source, shape, size);
    let outer = axes_of::<G>(&sizes[..before], &source.strides[..before]);
    let inner = axes_of::<G>(&sizes[before..], &source.strides[before..]);
    let (Some(mut outer), Some(mut inner)) = (outer, inner) else { return Ok(None) };
    let stride = source.strides[axis];
    let list = l.row_major(1)?;
    let points: usize = l.input_shape(1).iter().product();
    let output = l.output()?;
    let n: usize = l.shape().iter().product();
    let index = l.input_dtype(1);
    let (listed, _) = reach(&list, l.input_shape(1), index.size());
    let command = l.stream().command("gather").read_range(&source.buffer, bytes.clone());
    let command = command.read_range(&list.buffer, listed).write(&output);
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    // Copy words of several neighbours where all lengths, strides and offsets are multiples of them.
    let last = inner.len() - 1;
    let fits = |count: &usize| {
        let whole = |steps: isize| steps.unsigned_abs().is_multiple_of(*count);
        inner[last].1 == 1
            && inner[last].0.is_multiple_of(*count)
            && inner[..last].iter().chain(&outer).all(|axis| whole(axis.1))
            && whole(stride)
            && first.is_multiple_of(*count)
            && bytes.start.is_multiple_of(count * size)
    };
    let count = elements_of_word(size, fits);
    if count > 1 {
        inner[last].0 /= count;
        inner[..last].iter_mut().chain(&mut outer).for_each(|axis| axis.1 /= count as isize);
    }
    let stride = stride / count as isize;
    let slices = GatheredSlices {
        word: size * count,
        outer: &outer,
        inner: &inner,
        points,
        row: inner.iter().map(|axis| axis.0).product(),
        count: n / count,
        first: first / count,
        axis: Some(IndexedAxis { index, length: shape[axis], size: sizes[axis], stride }),
    };
    G::gather(l.stream(), &slices)?.encode(command)?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// Gathers slices whose offsets are the sums of those that the index arrays give.
fn gather_slices<G: Gpu>(
    l: &Lowering<'_>,
    arrays: &[IndexArray<'_>],
    points: usize,
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    let (stream, source, size) = (l.stream(), l.input(0), l.dtype().size());
    let outer = axes_of::<G>(&sizes[..before], &source.strides[..before]);
    let inner = axes_of::<G>(&sizes[before..], &source.strides[before..]);
    let (Some(outer), Some(inner)) = (outer, inner) else { return Ok(None) };
    if arrays.is_empty() {
        return Ok(None);
    }
    let output = l.output()?;
    let done = Data::contiguous(output.clone(), l.shape());
    let n: usize = l.shape().iter().product();
    if n == 0 {
        stream.command("gather").write(&output).run(|_| Ok(()))?;
        return Ok(Some(done));
    }
    let Some(starts) = slice_starts::<G>(stream, arrays, points, G::OFFSET_SIZE)? else { return Ok(None) };
    let (bytes, first) = reach(source, l.input_shape(0), size);
    let slices = GatheredSlices {
        word: size,
        outer: &outer,
        inner: &inner,
        points,
        row: inner.iter().map(|axis| axis.0).product(),
        count: n,
        first,
        axis: None,
    };
    let command = stream.command("gather").read_range(&source.buffer, bytes).read(&starts).write(&output);
    G::gather(stream, &slices)?.encode(command)?;
    Ok(Some(done))
}
