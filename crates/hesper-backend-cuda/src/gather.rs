//! Gathers: slices found by index arrays.

use crate::copy::word;
use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::Result;
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gather::Gather;

use crate::Cuda;
use crate::index_arrays::{IndexArray, slice_starts};
use crate::walk::{MAX_AXES, axes_of, joined, walk};

const TEXT: &str = include_str!("gather.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Gather>()
}

impl Lower<Gather> for Cuda {
    fn lower(op: &Gather, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        match *op.axes {
            [axis] => gather_axis(l, axis, &op.sizes, op.before),
            _ => gather_axes(l, &op.axes, &op.sizes, op.before),
        }
    }
}

/// For each index the slice of the source that it points at, behind `before` axes of the slices.
fn gather_axis(l: &Lowering<'_>, axis: usize, sizes: &[usize], before: usize) -> Result<Option<Data>> {
    let (source, shape) = (l.input(0), l.input_shape(0));
    let list = l.row_major(1)?;
    let points: usize = l.input_shape(1).iter().product();
    let size = l.dtype().size();
    let (bytes, first) = reach(source, shape, size);
    let outer = joined(&sizes[..before], &source.strides[..before]);
    let mut inner = joined(&sizes[before..], &source.strides[before..]);
    let stride = source.strides[axis];
    if outer.len() > MAX_AXES || inner.len() > MAX_AXES {
        return Ok(None);
    }
    let output = l.output()?;
    let n: usize = l.shape().iter().product();
    let (listed, _) = reach(&list, l.input_shape(1), l.input_dtype(1).size());
    let command = l.stream().command("gather").read_range(&source.buffer, bytes.clone());
    let command = command.read_range(&list.buffer, listed).write(&output);
    if n == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    // Copy words of several neighbours where all lengths, strides and offsets are multiples of them.
    let mut count = 1;
    if let Some((last, rest)) = inner.split_last()
        && last.1 == 1
    {
        let fits = |count: &usize| {
            let whole = |steps: isize| steps.unsigned_abs().is_multiple_of(*count);
            last.0.is_multiple_of(*count)
                && rest.iter().chain(&outer).all(|axis| whole(axis.1))
                && whole(stride)
                && first.is_multiple_of(*count)
                && bytes.start.is_multiple_of(count * size)
        };
        count = [16, 8, 4, 2].into_iter().filter(|count| count * size <= 16).find(fits).unwrap_or(1);
    }
    let parts = count as isize;
    let shorter = |axes: &[(usize, isize)]| -> Vec<(usize, isize)> {
        axes.iter().map(|axis| (axis.0, axis.1 / parts)).collect()
    };
    let outer = shorter(&outer);
    if count > 1 {
        let last = inner.len() - 1;
        inner[last].0 /= count;
        let kept = inner[last];
        inner = shorter(&inner);
        inner[last] = kept;
    }
    let row: usize = inner.iter().map(|axis| axis.0).product();
    let n = n / count;
    let mut constants = walk(walk(Constants::default(), &outer), &inner);
    for number in [outer.len(), inner.len(), points, row, n, first / count, shape[axis], sizes[axis]] {
        constants = constants.long(number as i64);
    }
    let constants = constants.long((stride / parts) as i64);
    let entry = format!("gather<{}, {}>", word(size * count), type_name(l.input_dtype(1)));
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The same for several index arrays.
fn gather_axes(l: &Lowering<'_>, axes: &[usize], sizes: &[usize], before: usize) -> Result<Option<Data>> {
    let arrays: Vec<IndexArray<'_>> = axes
        .iter()
        .enumerate()
        .map(|(at, axis)| IndexArray {
            data: l.input(at + 1),
            shape: l.input_shape(at + 1),
            dtype: l.input_dtype(at + 1),
            length: l.input_shape(0)[*axis],
            size: sizes[*axis],
            stride: l.input(0).strides[*axis],
        })
        .collect();
    let points = arrays.first().map_or(1, |array| array.shape.iter().product());
    gather_slices(l, &arrays, points, sizes, before)
}

/// Gathers slices whose offsets are the sums of those that the index arrays give.
pub(crate) fn gather_slices(
    l: &Lowering<'_>,
    arrays: &[IndexArray<'_>],
    points: usize,
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    let (stream, source, size) = (l.stream(), l.input(0), l.dtype().size());
    let output = l.output()?;
    let done = Data::contiguous(output.clone(), l.shape());
    let n: usize = l.shape().iter().product();
    if n == 0 {
        stream.command("gather").write(&output).run(|_| Ok(()))?;
        return Ok(Some(done));
    }
    let outer = axes_of(&sizes[..before], &source.strides[..before]);
    let inner = axes_of(&sizes[before..], &source.strides[before..]);
    let (Some(outer), Some(inner)) = (outer, inner) else { return Ok(None) };
    if arrays.is_empty() {
        return Ok(None);
    }
    let Some(starts) = slice_starts(stream, arrays, points, "i64")? else { return Ok(None) };
    let (bytes, first) = reach(source, l.input_shape(0), size);
    let row: usize = inner.iter().map(|axis| axis.0).product();
    let mut constants = walk(walk(Constants::default(), &outer), &inner);
    for number in [outer.len(), inner.len(), points, row, n, first] {
        constants = constants.long(number as i64);
    }
    let pipeline = kernel(stream, TEXT, &format!("gather_slices<{}>", word(size)), "")?;
    let command = stream.command("gather").read_range(&source.buffer, bytes).read(&starts).write(&output);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(done))
}
