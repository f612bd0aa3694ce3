//! Gathers: slices and elements found by index arrays.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::along_axis::TakeAlong;
use hesper_core::ops::command::Commands;
use hesper_core::ops::gather::Gather;
use hesper_core::ops::slices::DynamicSlice;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits, read, type_name, word};
use crate::walk::{MAX_AXES, joined, walk};

pub(crate) const TEXT: &str = include_str!("kernels/index.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<DynamicSlice>().with::<Gather>().with::<TakeAlong>()
}

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

/// The offset of the slice of each point; `None` if an index array has too many axes.
pub(crate) fn slice_starts(
    stream: &Stream,
    arrays: &[IndexArray<'_>],
    points: usize,
) -> Result<Option<Buffer>> {
    if arrays.iter().any(|array| joined(array.shape, &array.data.strides).len() > MAX_AXES) {
        return Ok(None);
    }
    let output = stream.alloc(points * 4)?;
    for (at, array) in arrays.iter().enumerate() {
        let (bytes, first) = reach(array.data, array.shape, array.dtype.size());
        let command = stream.command("slice_starts").read_range(&array.data.buffer, bytes);
        let command = if at == 0 { command.write(&output) } else { command.read_write(&output) };
        let constants = walk(Constants::default(), &joined(array.shape, &array.data.strides));
        let constants = constants.sizes(&[first, array.length, array.size]).int(array.stride);
        let entry = format!("slice_starts<{}, {}>", type_name(array.dtype), at > 0);
        Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, points)?;
    }
    Ok(Some(output))
}

impl Lower<Gather> for MetalBackend {
    fn lower(op: &Gather, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        if let [axis] = *op.axes {
            return gather_axis(l, axis, &op.sizes, op.before);
        }
        let arrays: Vec<IndexArray<'_>> = op
            .axes
            .iter()
            .enumerate()
            .map(|(at, axis)| IndexArray {
                data: l.input(at + 1),
                shape: l.input_shape(at + 1),
                dtype: l.input_dtype(at + 1),
                length: l.input_shape(0)[*axis],
                size: op.sizes[*axis],
                stride: l.input(0).strides[*axis],
            })
            .collect();
        let points = arrays.first().map_or(1, |array| array.shape.iter().product());
        gather_slices(l, &arrays, points, &op.sizes, op.before)
    }
}

/// For each index the slice of the source that it points at, behind `before` axes of the slices.
fn gather_axis(l: &Lowering<'_>, axis: usize, sizes: &[usize], before: usize) -> Result<Option<Data>> {
    let (source, shape) = (l.input(0), l.input_shape(0));
    let size = l.dtype().size();
    let (bytes, first) = reach(source, shape, size);
    let mut outer = joined(&sizes[..before], &source.strides[..before]);
    let mut inner = joined(&sizes[before..], &source.strides[before..]);
    let stride = source.strides[axis];
    if outer.len() > MAX_AXES || inner.len() > MAX_AXES {
        return Ok(None);
    }
    let list = l.row_major(1)?;
    let points: usize = l.input_shape(1).iter().product();
    let output = l.output()?;
    let command = l.stream().command("gather").read_range(&source.buffer, bytes.clone());
    let command = read(command, l, 1, &list).write(&output);
    let n: usize = l.shape().iter().product();
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
    let count = [16, 8, 4, 2].into_iter().filter(|count| count * size <= 16).find(fits).unwrap_or(1);
    if count > 1 {
        inner[last].0 /= count;
        inner[..last].iter_mut().chain(&mut outer).for_each(|axis| axis.1 /= count as isize);
    }
    let row: usize = inner.iter().map(|axis| axis.0).product();
    let constants = walk(walk(Constants::default(), &outer), &inner)
        .sizes(&[points, row, first / count, shape[axis], sizes[axis]])
        .int(stride / count as isize);
    let entry = format!("gather<{}, {}>", word(size * count), type_name(l.input_dtype(1)));
    Kernel { text: TEXT, entry: &entry }.elements(l.stream(), command, &constants, n / count)?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// Gathers slices whose offsets are the sums of those that the index arrays give.
fn gather_slices(
    l: &Lowering<'_>,
    arrays: &[IndexArray<'_>],
    points: usize,
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    let (stream, source, size) = (l.stream(), l.input(0), l.dtype().size());
    let outer = joined(&sizes[..before], &source.strides[..before]);
    let inner = joined(&sizes[before..], &source.strides[before..]);
    if outer.len() > MAX_AXES || inner.len() > MAX_AXES || arrays.is_empty() {
        return Ok(None);
    }
    let output = l.output()?;
    let done = Data::contiguous(output.clone(), l.shape());
    let n: usize = l.shape().iter().product();
    if n == 0 {
        stream.command("gather").write(&output).run(|_| Ok(()))?;
        return Ok(Some(done));
    }
    let Some(starts) = slice_starts(stream, arrays, points)? else { return Ok(None) };
    let (bytes, first) = reach(source, l.input_shape(0), size);
    let row: usize = inner.iter().map(|axis| axis.0).product();
    let constants = walk(walk(Constants::default(), &outer), &inner).sizes(&[points, row, first, 0, 0, 0]);
    let command = stream.command("gather").read_range(&source.buffer, bytes).read(&starts).write(&output);
    let entry = format!("gather_slices<{}>", word(size));
    Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, n)?;
    Ok(Some(done))
}

impl Lower<DynamicSlice> for MetalBackend {
    fn lower(op: &DynamicSlice, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let elements = each_start(l, 1);
        let arrays = start_arrays(l, 1, &op.0, &elements, l.input_shape(0), l.shape(), &l.input(0).strides);
        gather_slices(l, &arrays, 1, l.shape(), 0)
    }
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

impl Lower<TakeAlong> for MetalBackend {
    fn lower(op: &TakeAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (axis, rank) = (op.0, l.shape().len());
        if rank > MAX_AXES || rank == 0 || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let size = l.dtype().size();
        let (source, list) = (l.input(0), l.input(1));
        let (bytes, first) = reach(source, l.input_shape(0), size);
        let (listed, second) = reach(list, l.input_shape(1), l.input_dtype(1).size());
        let output = l.output()?;
        let n: usize = l.shape().iter().product();
        let command = l.stream().command("take_along_axis").read_range(&source.buffer, bytes);
        let command = command.read_range(&list.buffer, listed).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let still = |at: usize| if at == axis { 0 } else { source.strides[at] };
        let sources: Vec<(usize, isize)> = (0..rank).map(|at| (l.shape()[at], still(at))).collect();
        let lists: Vec<(usize, isize)> = (0..rank).map(|at| (l.shape()[at], list.strides[at])).collect();
        let constants = walk(walk(Constants::default(), &sources), &lists);
        let constants = constants.sizes(&[first, second, l.input_shape(0)[axis]]).int(source.strides[axis]);
        let entry = format!("take_along_axis<{}, {}>", word(size), type_name(l.input_dtype(1)));
        Kernel { text: TEXT, entry: &entry }.elements(l.stream(), command, &constants, n)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}
