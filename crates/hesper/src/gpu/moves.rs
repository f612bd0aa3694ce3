//! Elements found by indices, joined arrays, rotary positions and random words on GPUs.

use hesper_runtime::{Buffer, Stream};

use super::copy::{Target, copy_to, fill, word};
use super::{Constants, blocks, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;
use crate::shape::{Strides, row_major};

const TEXT: &str = include_str!("moves.cuh");
/// Most axes of a walk.
pub(super) const MOST: usize = 6;

pub(super) fn is_index(dtype: Dtype) -> bool {
    matches!(
        dtype,
        Dtype::Int8
            | Dtype::Int16
            | Dtype::Int32
            | Dtype::Int64
            | Dtype::Uint8
            | Dtype::Uint16
            | Dtype::Uint32
            | Dtype::Uint64
    )
}

/// Lengths and strides of axes, joined where they are walked through as one; at least one axis.
pub(super) fn joined(shape: &[usize], strides: &[isize]) -> Vec<(usize, isize)> {
    let mut axes: Vec<(usize, isize)> = Vec::new();
    for (&length, &stride) in shape.iter().zip(strides) {
        if length == 1 {
            continue;
        }
        match axes.last_mut() {
            Some(last) if last.1 == stride * length as isize => *last = (last.0 * length, stride),
            _ => axes.push((length, stride)),
        }
    }
    if axes.is_empty() {
        axes.push((1, 0));
    }
    axes
}

pub(super) fn walk(constants: Constants, axes: &[(usize, isize)]) -> Constants {
    constants.longs(axes.iter().map(|axis| axis.0 as isize), MOST, 1).longs(
        axes.iter().map(|axis| axis.1),
        MOST,
        0,
    )
}

/// All inputs one behind the other along an axis.
pub(crate) fn concatenate(l: &mut Lowering<'_>, along: usize) -> Result<Option<Data>> {
    l.bring()?;
    let output = l.output()?;
    let strides = row_major(l.shape());
    let size = l.dtype().size();
    let mut first = 0;
    for at in 0..l.input_count() {
        let shape = l.input_shape(at);
        let to = Target { buffer: &output, offset: first, strides: &strides, partial: false };
        copy_to(l.stream(), l.input(at), shape, size, &to)?;
        first += shape[along] * strides[along] as usize;
    }
    if l.input_count() == 0 || output.is_empty() {
        l.stream().command("concatenate").write(&output).run(|_| Ok(()))?;
    }
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The first input with the second in place of a slice of it.
pub(crate) fn slice_update(l: &mut Lowering<'_>, starts: &[isize], steps: &[isize]) -> Result<Option<Data>> {
    if steps.iter().any(|step| *step < 1) || starts.iter().any(|start| *start < 0) {
        return Ok(None);
    }
    l.bring()?;
    let size = l.dtype().size();
    let own = row_major(l.shape());
    let output = match l.take_in_place_if(|data| data.offset == 0) {
        Some(owned) => owned.into_data().buffer,
        None => super::copy::copy(l.stream(), l.input(0), l.shape(), size)?,
    };
    let strides: Strides = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let offset: isize = own.iter().zip(starts).map(|(stride, start)| stride * start).sum();
    if l.input_shape(1).iter().product::<usize>() > 0 {
        let to = Target { buffer: &output, offset: offset as usize, strides: &strides, partial: true };
        copy_to(l.stream(), l.input(1), l.input_shape(1), size, &to)?;
    }
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The second input written into the first, sequence `n` at row `starts[n]`.
pub(crate) fn append(l: &mut Lowering<'_>, starts: &[usize]) -> Result<Option<Data>> {
    l.bring()?;
    let stream = l.stream();
    let size = l.dtype().size();
    let (shape, own) = (l.shape(), row_major(l.shape()));
    let old = l.input(0);
    let (output, base) = if let Some(owned) = l.take_in_place() {
        let old = owned.into_data();
        (old.buffer, old.offset as usize)
    } else {
        let output = l.output()?;
        fill(stream, &output, 0..output.len(), [0; 8], size)?;
        let mut kept: Vec<usize> = l.input_shape(0).to_vec();
        kept[2] = kept[2].min(shape[2]);
        if kept.iter().product::<usize>() > 0 {
            let to = Target { buffer: &output, offset: 0, strides: &own, partial: true };
            copy_to(stream, old, &kept, size, &to)?;
        }
        (output, 0)
    };
    let rows = l.input_shape(1);
    let put = |first: usize, count: usize, start: usize| -> Result<()> {
        let mut part = rows.to_vec();
        part[0] = count;
        if part.iter().product::<usize>() == 0 {
            return Ok(());
        }
        let from = l.input(1);
        let from = Data { offset: from.offset + first as isize * from.strides[0], ..from.clone() };
        let offset = base + first * own[0] as usize + start * own[2] as usize;
        let to = Target { buffer: &output, offset, strides: &own, partial: true };
        copy_to(stream, &from, &part, size, &to)
    };
    // Sequences that start at the same row are one copy.
    let mut first = 0;
    while first < starts.len() {
        let same = starts[first..].iter().take_while(|start| **start == starts[first]).count();
        put(first, same, starts[first])?;
        first += same;
    }
    let data = Data::contiguous(output, shape);
    Ok(Some(Data { offset: base as isize, ..data }))
}

/// For each index the slice of the source that it points at, behind `before` axes of the slices.
pub(crate) fn gather(
    l: &mut Lowering<'_>,
    axes: &[usize],
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    if (1..l.input_count()).any(|at| !is_index(l.input_dtype(at))) {
        return Ok(None);
    }
    l.bring()?;
    let [axis] = *axes else { return super::scatter::gather_axes(l, axes, sizes, before) };
    let (source, shape) = (l.input(0), l.input_shape(0));
    let list = l.row_major(1)?;
    let points: usize = l.input_shape(1).iter().product();
    let size = l.dtype().size();
    let (bytes, first) = reach(source, shape, size);
    let outer = joined(&sizes[..before], &source.strides[..before]);
    let mut inner = joined(&sizes[before..], &source.strides[before..]);
    let stride = source.strides[axis];
    if outer.len() > MOST || inner.len() > MOST {
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
    // Neighbours move together where everything is a multiple of them.
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
    let entry = format!("gathered<{}, {}>", word(size * count), type_name(l.input_dtype(1)));
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// Elements along an axis, by indices of the result's shape.
pub(crate) fn take_along(l: &mut Lowering<'_>, axis: usize) -> Result<Option<Data>> {
    let rank = l.shape().len();
    if rank > MOST || rank == 0 || !is_index(l.input_dtype(1)) {
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
    let mut constants = walk(walk(Constants::default(), &sources), &lists);
    for number in [rank, n, first, second, l.input_shape(0)[axis]] {
        constants = constants.long(number as i64);
    }
    let constants = constants.long(source.strides[axis] as i64);
    let entry = format!("along<{}, {}>", word(size), type_name(l.input_dtype(1)));
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// How features are turned.
pub(crate) struct Turn {
    pub(crate) dims: usize,
    pub(crate) traditional: bool,
    /// Of the frequencies; without it they are the last input.
    pub(crate) base: Option<f32>,
    pub(crate) scale: f32,
    /// The first position; without it the second input says it.
    pub(crate) offset: Option<i32>,
    pub(crate) back: bool,
}

impl Turn {
    pub(crate) fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let listed = self.offset.is_none();
        if !matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
            || (listed && !is_index(l.input_dtype(1)))
        {
            return Ok(None);
        }
        l.bring()?;
        let shape = l.shape();
        let rank = shape.len();
        let (batch, length, width) = (shape[0], shape[rank - 2], shape[rank - 1]);
        let heads: usize = shape[1..rank - 2].iter().product();
        let given = l.input(0);
        let across = joined(&shape[1..rank - 2], &given.strides[1..rank - 2]);
        let forwards = given.strides.iter().all(|stride| *stride >= 0);
        let lies = (given.strides[rank - 1] == 1 || width == 1) && across.len() == 1 && forwards;
        let output = l.output()?;
        let n = batch * heads * length * (self.dims / 2 + width - self.dims);
        if lies {
            // Strides of axes of length one say nothing, and do no harm.
            let strides = [given.strides[0], across[0].1, given.strides[rank - 2]];
            return self.turned(l, given, &output, n, strides);
        }
        let copied = super::copy::copy(l.stream(), given, shape, dtype.size())?;
        let x = Data::contiguous(copied, shape);
        let strides = [x.strides[0], (length * width) as isize, width as isize];
        self.turned(l, &x, &output, n, strides)
    }

    fn turned(
        &self,
        l: &Lowering<'_>,
        x: &Data,
        output: &Buffer,
        n: usize,
        [s0, s1, s2]: [isize; 3],
    ) -> Result<Option<Data>> {
        let shape = l.shape();
        let rank = shape.len();
        let size = l.dtype().size();
        let heads: usize = shape[1..rank - 2].iter().product();
        let (bytes, _) = reach(x, shape, size);
        let waves = self.base.is_none().then(|| l.row_major(l.input_count() - 1)).transpose()?;
        let listed = self.offset.is_none();
        let mut command = l.stream().command("rope").read_range(&x.buffer, bytes.clone());
        // What is not there is bound as the input, and not read.
        let mut offset_stride = 0;
        command = if listed {
            let offsets = l.input(1);
            let count: usize = l.input_shape(1).iter().product();
            if count > 1 {
                offset_stride = offsets.strides.first().copied().unwrap_or(0);
            }
            if offset_stride < 0 {
                return Ok(None);
            }
            let (range, _) = reach(offsets, l.input_shape(1), l.input_dtype(1).size());
            command.read_range(&offsets.buffer, range)
        } else {
            command.read_range(&x.buffer, bytes.clone())
        };
        command = match &waves {
            Some(waves) => {
                let start = waves.offset as usize * 4;
                command.read_range(&waves.buffer, start..start + self.dims / 2 * 4)
            }
            None => command.read_range(&x.buffer, bytes),
        };
        let command = command.write(output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output.clone(), shape)));
        }
        let log = self.base.map_or(0.0, |base| -base.ln() / (self.dims / 2) as f32);
        let mut constants = Constants::default();
        for length in [shape[0], heads, shape[rank - 2], shape[rank - 1]] {
            constants = constants.long(length as i64);
        }
        for stride in [s0, s1, s2] {
            constants = constants.long(stride as i64);
        }
        let constants = constants
            .long(self.dims as i64)
            .long(i64::from(self.offset.unwrap_or(0)))
            .long(offset_stride as i64)
            .float(log)
            .float(self.scale)
            .int(i32::from(self.traditional))
            .int(i32::from(self.back));
        let index = if listed { type_name(l.input_dtype(1)) } else { "i32" };
        let entry = format!("turned<{}, {index}, {listed}, {}>", type_name(l.dtype()), waves.is_some());
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
        Ok(Some(Data::contiguous(output.clone(), shape)))
    }
}

/// Random words of a key, which is two words at an element of a buffer.
pub(crate) fn words(stream: &Stream, key: &Data, output: &Buffer) -> Result<()> {
    let n = output.len() / 4;
    let start = key.offset as usize * 4;
    let command = stream.command("random bits").read_range(&key.buffer, start..start + 8).write(output);
    if n == 0 {
        return Ok(command.run(|_| Ok(()))?);
    }
    let pipeline = kernel(stream, TEXT, "words<u32>", "")?;
    let constants = Constants::default().long(n as i64);
    Ok(command.constants(constants.bytes()).dispatch(
        &pipeline,
        [blocks(n.div_ceil(2)) * 256, 1, 1],
        [256, 1, 1],
    )?)
}
