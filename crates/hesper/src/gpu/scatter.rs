//! Scatters, updates of slices and gathers over several axes on GPUs.
//!
//! Where updates meet one element they are applied in the order of their indices, as on the host and with the
//! same bits: points are linked by the element that they meet, and the first of them applies all.

use hesper_runtime::{Buffer, Stream};

use super::copy::{copy, word};
use super::moves::{MOST, is_index, joined, walk};
use super::{Constants, blocks, kernel, sort, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::combine::Mode;
use crate::ops::command::Commands;
use crate::ops::native::reach;
use crate::shape::row_major;

const TEXT: &str = include_str!("scatter.cuh");
/// So many points are linked by looking at each other; more are sorted.
const FEW: usize = 2048;
/// Offsets of a scatter are words of 32 bits.
const LARGEST: usize = u32::MAX as usize;

fn mode_number(mode: Mode, dtype: Dtype) -> i32 {
    match mode.on(dtype) {
        Mode::Set => 0,
        Mode::Add => 1,
        Mode::Multiply => 2,
        Mode::Max => 3,
        Mode::Min => 4,
    }
}

/// Axes and their strides, joined; `None` if there are too many.
fn axes_of(shape: &[usize], strides: &[isize]) -> Option<Vec<(usize, isize)>> {
    Some(joined(shape, strides)).filter(|axes| axes.len() <= MOST)
}

/// The axes of two walks that go together; at least one.
fn pairs(shape: &[usize], one: &[isize], other: &[isize]) -> Option<Vec<(usize, isize, isize)>> {
    let mut axes: Vec<(usize, isize, isize)> = Vec::new();
    for ((&length, &a), &b) in shape.iter().zip(one).zip(other) {
        if length == 1 {
            continue;
        }
        let whole = length as isize;
        match axes.last_mut() {
            Some(last) if last.1 == a * whole && last.2 == b * whole => *last = (last.0 * length, a, b),
            _ => axes.push((length, a, b)),
        }
    }
    if axes.is_empty() {
        axes.push((1, 0, 0));
    }
    Some(axes).filter(|axes| axes.len() <= MOST)
}

/// One of the lists that say where slices start.
struct List<'a> {
    data: &'a Data,
    shape: &'a [usize],
    dtype: Dtype,
    /// Length of the indexed axis, of the slice along it, and the axis's stride in what is indexed.
    length: usize,
    size: usize,
    stride: isize,
}

/// Where the slice of each point starts, as `u32` or `i64`; `None` if the lists have too many axes.
fn starts(stream: &Stream, lists: &[List<'_>], points: usize, of: &str) -> Result<Option<Buffer>> {
    let output = stream.alloc(points * if of == "u32" { 4 } else { 8 })?;
    for (at, list) in lists.iter().enumerate() {
        let Some(axes) = axes_of(list.shape, &list.data.strides) else { return Ok(None) };
        let (bytes, first) = reach(list.data, list.shape, list.dtype.size());
        let command = stream.command("starts").read_range(&list.data.buffer, bytes);
        let command = if at == 0 { command.write(&output) } else { command.read_write(&output) };
        let constants = walk(Constants::default(), &axes).long(axes.len() as i64).long(points as i64);
        let constants = constants.long(first as i64).long(list.length as i64).long(list.size as i64);
        let constants = constants.long(list.stride as i64);
        let entry = format!("started<{}, {of}, {}>", type_name(list.dtype), at > 0);
        let pipeline = kernel(stream, TEXT, &entry, "")?;
        command.constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks(points) * 256, 1, 1],
            [256, 1, 1],
        )?;
    }
    Ok(Some(output))
}

/// Links the points that meet the same element.
fn links(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let constants = Constants::default().long(points as i64);
    if points <= FEW {
        let pipeline = kernel(stream, TEXT, "linked_by_looking<u32>", "")?;
        let command = stream.command("links").read(keys).write(&output).constants(constants.bytes());
        command.dispatch(&pipeline, [blocks(points) * 256, 1, 1], [256, 1, 1])?;
        return Ok(output);
    }
    let order = stream.alloc(points * 4)?;
    let rows = sort::Rows { stream, dtype: Dtype::Uint32, rows: 1, length: points };
    rows.encode((keys, 0..points * 4), &order, true)?;
    let pipeline = kernel(stream, TEXT, "linked_by_order<u32>", "")?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(points) * 256, 1, 1], [256, 1, 1])?;
    Ok(output)
}

/// Slices of updates, one for each point, that are combined with what is in `output`.
struct Slices<'a> {
    stream: &'a Stream,
    dtype: Dtype,
    mode: Mode,
    updates: &'a Data,
    /// Axes of the points, then of a slice.
    shape: &'a [usize],
    /// How many of them are those of the points.
    rank: usize,
    /// The strides of a slice in the output.
    into: &'a [isize],
    /// Where a slice at no index starts.
    base: usize,
}

impl Slices<'_> {
    /// Combines them with the first input of an op. Without starts there is one slice; without links no two slices meet.
    /// `None` if there are too many axes.
    fn encode(
        &self,
        l: &Lowering<'_>,
        starts: Option<&Buffer>,
        links: Option<&Buffer>,
    ) -> Result<Option<Data>> {
        let (points, sizes) = self.shape.split_at(self.rank);
        let (point_strides, slice_strides) = self.updates.strides.split_at(self.rank);
        let (Some(point), Some(slice)) =
            (axes_of(points, point_strides), pairs(sizes, self.into, slice_strides))
        else {
            return Ok(None);
        };
        let row: usize = sizes.iter().product();
        let n = row * points.iter().product::<usize>();
        if n == 0 {
            return own_copy(l).map(Some);
        }
        let mode = mode_number(self.mode, self.dtype);
        let of = if mode == 0 { word(self.dtype.size()) } else { type_name(self.dtype) };
        let entry = format!("combined<{of}, {mode}, {}, {}>", starts.is_some(), links.is_some());
        let pipeline = kernel(self.stream, TEXT, &entry, "")?;
        let output = own_copy(l)?;
        let to: Vec<(usize, isize)> = slice.iter().map(|axis| (axis.0, axis.1)).collect();
        let from: Vec<(usize, isize)> = slice.iter().map(|axis| (axis.0, axis.2)).collect();
        let (bytes, first) = reach(self.updates, self.shape, self.dtype.size());
        let command = self.stream.command("scatter").read_range(&self.updates.buffer, bytes.clone());
        // What is not there is bound as the updates, and not read.
        let command = match starts {
            Some(starts) => command.read(starts),
            None => command.read_range(&self.updates.buffer, bytes.clone()),
        };
        let command = match links {
            Some(links) => command.read(links),
            None => command.read_range(&self.updates.buffer, bytes),
        };
        let command = command.read_write(&output.buffer);
        let mut constants = walk(walk(walk(Constants::default(), &point), &to), &from);
        for number in [point.len(), slice.len(), row, n, first, self.base] {
            constants = constants.long(number as i64);
        }
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
        Ok(Some(output))
    }
}

/// The first input, to be changed: its own memory if nobody else needs it, else a copy.
fn own_copy(l: &Lowering<'_>) -> Result<Data> {
    if let Some(owned) = l.take_in_place_if(|data| data.offset == 0) {
        return Ok(owned.into_data());
    }
    Ok(Data::contiguous(copy(l.stream(), l.input(0), l.shape(), l.dtype().size())?, l.shape()))
}

/// The first input with slices combined with the second, at the indices of the others.
pub(crate) fn scatter(l: &mut Lowering<'_>, axes: &[usize], mode: Mode) -> Result<Option<Data>> {
    let rank = l.input_shape(1).len() - l.shape().len();
    let points: usize = l.input_shape(1)[..rank].iter().product();
    let sizes = l.input_shape(1)[rank..].to_vec();
    // Slices that are longer than one along an indexed axis may meet in part.
    let apart = points <= 1 || axes.iter().all(|axis| sizes[*axis] == 1);
    let listed = (2..l.input_count()).all(|at| is_index(l.input_dtype(at)));
    let elements: usize = l.shape().iter().product();
    if !apart || !listed || elements > LARGEST || points > LARGEST {
        return Ok(None);
    }
    l.bring()?;
    let into = row_major(l.shape());
    if points == 0 || elements == 0 || sizes.contains(&0) {
        return own_copy(l).map(Some);
    }
    let lists: Vec<List<'_>> = axes
        .iter()
        .enumerate()
        .map(|(at, axis)| List {
            data: l.input(at + 2),
            shape: l.input_shape(at + 2),
            dtype: l.input_dtype(at + 2),
            length: l.shape()[*axis],
            size: sizes[*axis],
            stride: into[*axis],
        })
        .collect();
    let stream = l.stream();
    let slices = Slices {
        stream,
        dtype: l.dtype(),
        mode,
        updates: l.input(1),
        shape: l.input_shape(1),
        rank,
        into: &into,
        base: 0,
    };
    if lists.is_empty() {
        return slices.encode(l, None, None);
    }
    let Some(starts) = starts(stream, &lists, points, "u32")? else { return Ok(None) };
    let links = if points > 1 { Some(links(stream, &starts, points)?) } else { None };
    slices.encode(l, Some(&starts), links.as_ref())
}

/// The first input with elements along an axis, found by the indices of the second, combined with the third.
pub(crate) fn put_along(l: &mut Lowering<'_>, axis: usize, mode: Mode) -> Result<Option<Data>> {
    let rank = l.shape().len();
    let points: usize = l.input_shape(1).iter().product();
    let elements: usize = l.shape().iter().product();
    if rank == 0 || rank > MOST || !is_index(l.input_dtype(1)) || elements > LARGEST || points > LARGEST {
        return Ok(None);
    }
    l.bring()?;
    if points == 0 || elements == 0 {
        return own_copy(l).map(Some);
    }
    let (stream, own) = (l.stream(), row_major(l.shape()));
    let (list, shape) = (l.input(1), l.input_shape(1));
    let lists: Vec<(usize, isize)> = shape.iter().copied().zip(list.strides.iter().copied()).collect();
    let still = |at: usize| if at == axis { 0 } else { own[at] };
    let rest: Vec<(usize, isize)> = (0..rank).map(|at| (shape[at], still(at))).collect();
    let keys = stream.alloc(points * 4)?;
    let (bytes, first) = reach(list, shape, l.input_dtype(1).size());
    let mut constants = walk(walk(Constants::default(), &lists), &rest);
    for number in [rank, points, first, l.shape()[axis]] {
        constants = constants.long(number as i64);
    }
    let constants = constants.long(own[axis] as i64);
    let pipeline = kernel(stream, TEXT, &format!("pointed<{}>", type_name(l.input_dtype(1))), "")?;
    let command = stream.command("points").read_range(&list.buffer, bytes).write(&keys);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(points) * 256, 1, 1], [256, 1, 1])?;
    let links = if points > 1 { Some(links(stream, &keys, points)?) } else { None };
    let slices = Slices {
        stream,
        dtype: l.dtype(),
        mode,
        updates: l.input(2),
        shape: l.input_shape(2),
        rank,
        into: &[],
        base: 0,
    };
    slices.encode(l, Some(&keys), links.as_ref())
}

/// The first input with a slice combined with the second; starts along `given` axes are the third input.
pub(crate) fn update_slice(
    l: &mut Lowering<'_>,
    starts_at: &[isize],
    given: &[usize],
    steps: &[isize],
    mode: Mode,
) -> Result<Option<Data>> {
    let elements: usize = l.shape().iter().product();
    if elements > LARGEST || (!given.is_empty() && !is_index(l.input_dtype(2))) {
        return Ok(None);
    }
    l.bring()?;
    let own = row_major(l.shape());
    let into: Vec<isize> = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let base: isize = starts_at.iter().zip(&own).map(|(start, stride)| start * stride).sum();
    let slices = Slices {
        stream: l.stream(),
        dtype: l.dtype(),
        mode,
        updates: l.input(1),
        shape: l.input_shape(1),
        rank: 0,
        into: &into,
        base: base as usize,
    };
    if given.is_empty() {
        return slices.encode(l, None, None);
    }
    let elements = each_start(l, 2);
    let lists = start_lists(l, 2, given, &elements, l.shape(), l.input_shape(1), &own);
    let Some(starts) = starts(l.stream(), &lists, 1, "u32")? else { return Ok(None) };
    slices.encode(l, Some(&starts), None)
}

/// The elements of an input of at most one axis, each as an array of no axes.
fn each_start(l: &Lowering<'_>, at: usize) -> Vec<Data> {
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

fn start_lists<'a>(
    l: &Lowering<'_>,
    at: usize,
    axes: &[usize],
    elements: &'a [Data],
    shape: &[usize],
    sizes: &[usize],
    strides: &[isize],
) -> Vec<List<'a>> {
    let one = |(data, axis): (&'a Data, &usize)| List {
        data,
        shape: &[],
        dtype: l.input_dtype(at),
        length: shape[*axis],
        size: sizes[*axis],
        stride: strides[*axis],
    };
    elements.iter().zip(axes).map(one).collect()
}

/// A slice of known size that starts where the second input says.
pub(crate) fn dynamic_slice(l: &mut Lowering<'_>, axes: &[usize]) -> Result<Option<Data>> {
    if !is_index(l.input_dtype(1)) {
        return Ok(None);
    }
    l.bring()?;
    let elements = each_start(l, 1);
    let lists = start_lists(l, 1, axes, &elements, l.input_shape(0), l.shape(), &l.input(0).strides);
    gathered(l, &lists, 1, l.shape(), 0)
}

/// For each point of several lists the slice of the source that they point at.
pub(crate) fn gather_axes(
    l: &Lowering<'_>,
    axes: &[usize],
    sizes: &[usize],
    before: usize,
) -> Result<Option<Data>> {
    let lists: Vec<List<'_>> = axes
        .iter()
        .enumerate()
        .map(|(at, axis)| List {
            data: l.input(at + 1),
            shape: l.input_shape(at + 1),
            dtype: l.input_dtype(at + 1),
            length: l.input_shape(0)[*axis],
            size: sizes[*axis],
            stride: l.input(0).strides[*axis],
        })
        .collect();
    let points = lists.first().map_or(1, |list| list.shape.iter().product());
    gathered(l, &lists, points, sizes, before)
}

fn gathered(
    l: &Lowering<'_>,
    lists: &[List<'_>],
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
    if lists.is_empty() {
        return Ok(None);
    }
    let Some(starts) = starts(stream, lists, points, "i64")? else { return Ok(None) };
    let (bytes, first) = reach(source, l.input_shape(0), size);
    let row: usize = inner.iter().map(|axis| axis.0).product();
    let mut constants = walk(walk(Constants::default(), &outer), &inner);
    for number in [outer.len(), inner.len(), points, row, n, first] {
        constants = constants.long(number as i64);
    }
    let pipeline = kernel(stream, TEXT, &format!("gathered_at<{}>", word(size)), "")?;
    let command = stream.command("gather").read_range(&source.buffer, bytes).read(&starts).write(&output);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
    Ok(Some(done))
}
