//! Scatters, and updates of slices.
//!
//! Updates of one element are applied in the order of their indices, bit-identical to the host: points are linked by the
//! element that they update, and the first of them applies all.

use hesper_compute::joined_axes;
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::along_axis::PutAlong;
use hesper_core::ops::command::Commands;
use hesper_core::ops::scatter::Scatter;
use hesper_core::ops::slices::{SliceUpdate, Starts};
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::{Strides, row_major};
use hesper_runtime::{Buffer, Stream};

use crate::MetalBackend;
use crate::copy::{Target, copy, copy_to};
use crate::gather::{IndexArray, TEXT, each_start, slice_starts, start_arrays};
use crate::launch::{Constants, Kernel, fits, type_name, word};
use crate::walk::{MAX_AXES, joined, walk};

/// Points are linked by comparing all pairs; more than so many are left to the host.
const MAX_LINKED: usize = 4096;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<PutAlong>().with::<Scatter>().with::<SliceUpdate>()
}

/// Links the points of each element, in the order of the points.
fn links(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let command = stream.command("links").read(keys).write(&output);
    let constants = Constants::default().sizes(&[points]);
    Kernel { text: TEXT, entry: "link_points" }.elements(stream, command, &constants, points)?;
    Ok(output)
}

/// Updates of the first input of an op: a slice for each point.
struct SliceUpdates<'a> {
    mode: UpdateMode,
    updates: &'a Data,
    /// Axes of the points, then of a slice.
    shape: &'a [usize],
    /// How many axes are those of the points.
    rank: usize,
    /// The strides of a slice in the output.
    into: &'a [isize],
    /// The offset that is added to every start.
    base: usize,
}

impl SliceUpdates<'_> {
    /// Whether there are few enough axes.
    fn fits(&self) -> bool {
        let (points, sizes) = self.shape.split_at(self.rank);
        let (point_strides, slice_strides) = self.updates.strides.split_at(self.rank);
        joined(points, point_strides).len() <= MAX_AXES
            && joined_axes(sizes, [self.into, slice_strides]).count() <= MAX_AXES
    }

    /// Combines the slices with the first input. Without starts there is one slice; without links no two slices share an
    /// element.
    fn encode(&self, l: &Lowering<'_>, starts: Option<&Buffer>, links: Option<&Buffer>) -> Result<Data> {
        let (points, sizes) = self.shape.split_at(self.rank);
        let (point_strides, slice_strides) = self.updates.strides.split_at(self.rank);
        let point = joined(points, point_strides);
        let slice: Vec<_> = joined_axes(sizes, [self.into, slice_strides]).collect();
        let side = |at: usize| match slice.is_empty() {
            true => vec![(1, 0)],
            false => slice.iter().map(|(length, strides)| (*length, strides[at])).collect(),
        };
        let row: usize = sizes.iter().product();
        let n = row * points.iter().product::<usize>();
        let output = owned_or_copy(l)?;
        if n == 0 {
            return Ok(output);
        }
        let (stream, dtype) = (l.stream(), l.dtype());
        let mode = match self.mode.on(dtype) {
            UpdateMode::Set => 0,
            UpdateMode::Add => 1,
            UpdateMode::Multiply => 2,
            UpdateMode::Max => 3,
            UpdateMode::Min => 4,
        };
        let of = if mode == 0 { word(dtype.size()) } else { type_name(dtype) };
        let entry = format!("combine_slices<{of}, {mode}, {}, {}>", starts.is_some(), links.is_some());
        let (bytes, first) = reach(self.updates, self.shape, dtype.size());
        let command = stream.command("scatter").read_range(&self.updates.buffer, bytes.clone());
        // An input that the kernel does not read is bound to the updates.
        let command = match starts {
            Some(starts) => command.read(starts),
            None => command.read_range(&self.updates.buffer, bytes.clone()),
        };
        let command = match links {
            Some(links) => command.read(links),
            None => command.read_range(&self.updates.buffer, bytes),
        };
        let command = command.read_write(&output.buffer);
        let constants = walk(walk(walk(Constants::default(), &point), &side(0)), &side(1));
        let constants = constants.sizes(&[row, first, self.base]);
        Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, n)?;
        Ok(output)
    }
}

/// The memory of the first input, if the op owns it, else a copy.
fn owned_or_copy(l: &Lowering<'_>) -> Result<Data> {
    if let Some(owned) = l.take_in_place_if(|data| data.offset == 0) {
        return Ok(owned.into_data());
    }
    Ok(Data::contiguous(copy(l.stream(), l.input(0), l.shape(), l.dtype().size())?, l.shape()))
}

impl Lower<Scatter> for MetalBackend {
    fn lower(op: &Scatter, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let rank = l.input_shape(1).len() - l.shape().len();
        let points: usize = l.input_shape(1)[..rank].iter().product();
        let sizes = l.input_shape(1)[rank..].to_vec();
        // Slices longer than one along an indexed axis may overlap in part, which links do not describe.
        let separate = points <= 1 || op.axes.iter().all(|axis| sizes[*axis] == 1);
        if !separate || points > MAX_LINKED || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let into = row_major(l.shape());
        if points == 0 || l.shape().contains(&0) || sizes.contains(&0) {
            return owned_or_copy(l).map(Some);
        }
        let arrays: Vec<IndexArray<'_>> = op
            .axes
            .iter()
            .enumerate()
            .map(|(at, axis)| IndexArray {
                data: l.input(at + 2),
                shape: l.input_shape(at + 2),
                dtype: l.input_dtype(at + 2),
                length: l.shape()[*axis],
                size: sizes[*axis],
                stride: into[*axis],
            })
            .collect();
        let (updates, shape) = (l.input(1), l.input_shape(1));
        let slices = SliceUpdates { mode: op.mode, updates, shape, rank, into: &into, base: 0 };
        if !slices.fits() {
            return Ok(None);
        }
        if arrays.is_empty() {
            return slices.encode(l, None, None).map(Some);
        }
        let Some(starts) = slice_starts(l.stream(), &arrays, points)? else { return Ok(None) };
        let links = if points > 1 { Some(links(l.stream(), &starts, points)?) } else { None };
        slices.encode(l, Some(&starts), links.as_ref()).map(Some)
    }
}

impl Lower<PutAlong> for MetalBackend {
    fn lower(op: &PutAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let PutAlong(axis, mode) = *op;
        let rank = l.shape().len();
        let points: usize = l.input_shape(1).iter().product();
        if rank == 0 || rank > MAX_AXES || points > MAX_LINKED || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        if points == 0 || l.shape().contains(&0) {
            return owned_or_copy(l).map(Some);
        }
        let (stream, own) = (l.stream(), row_major(l.shape()));
        let (list, shape) = (l.input(1), l.input_shape(1));
        let lists: Vec<(usize, isize)> = shape.iter().copied().zip(list.strides.iter().copied()).collect();
        let still = |at: usize| if at == axis { 0 } else { own[at] };
        let rest: Vec<(usize, isize)> = (0..rank).map(|at| (shape[at], still(at))).collect();
        let keys = stream.alloc(points * 4)?;
        let (bytes, first) = reach(list, shape, l.input_dtype(1).size());
        let constants = walk(walk(Constants::default(), &rest), &lists);
        let constants = constants.sizes(&[0, first, l.shape()[axis]]).int(own[axis]);
        let entry = format!("element_offsets<{}>", type_name(l.input_dtype(1)));
        let command = stream.command("element_offsets").read_range(&list.buffer, bytes).write(&keys);
        Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, points)?;
        let links = if points > 1 { Some(links(stream, &keys, points)?) } else { None };
        let (updates, shape) = (l.input(2), l.input_shape(2));
        let slices = SliceUpdates { mode, updates, shape, rank, into: &[], base: 0 };
        slices.encode(l, Some(&keys), links.as_ref()).map(Some)
    }
}

impl Lower<SliceUpdate> for MetalBackend {
    fn lower(op: &SliceUpdate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match (&op.starts, op.mode) {
            (Starts::At(starts), UpdateMode::Set) if op.steps.iter().all(|step| *step > 0) => {
                copy_update(l, starts, &op.steps)
            }
            (Starts::At(starts), mode) => combine_update(l, starts, &[], &op.steps, mode),
            (Starts::Given(axes), mode) => combine_update(l, &[], axes, &op.steps, mode),
        }
    }
}

/// The first input with the second in place of a slice of it: a strided copy.
fn copy_update(l: &mut Lowering<'_>, starts: &[isize], steps: &[isize]) -> Result<Option<Data>> {
    l.bring()?;
    let own = row_major(l.shape());
    let output = owned_or_copy(l)?;
    let strides: Strides = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let offset: isize = own.iter().zip(starts).map(|(stride, start)| stride * start).sum();
    if l.input_shape(1).iter().product::<usize>() > 0 {
        let (buffer, offset) = (&output.buffer, offset as usize);
        let to = Target { buffer, offset, strides: &strides, partial: true };
        copy_to(l.stream(), l.input(1), l.input_shape(1), l.dtype().size(), &to)?;
    }
    Ok(Some(output))
}

/// The first input with a slice combined with the second; starts along `given` axes are the third input.
fn combine_update(
    l: &mut Lowering<'_>,
    starts_at: &[isize],
    given: &[usize],
    steps: &[isize],
    mode: UpdateMode,
) -> Result<Option<Data>> {
    let own = row_major(l.shape());
    let into: Vec<isize> = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    if !fits(l) || joined_axes(l.input_shape(1), [&into, &l.input(1).strides]).count() > MAX_AXES {
        return Ok(None);
    }
    l.bring()?;
    let base: isize = starts_at.iter().zip(&own).map(|(start, stride)| start * stride).sum();
    let (updates, shape) = (l.input(1), l.input_shape(1));
    let slices = SliceUpdates { mode, updates, shape, rank: 0, into: &into, base: base as usize };
    if given.is_empty() {
        return slices.encode(l, None, None).map(Some);
    }
    let elements = each_start(l, 2);
    let arrays = start_arrays(l, 2, given, &elements, l.shape(), l.input_shape(1), &own);
    let Some(starts) = slice_starts(l.stream(), &arrays, 1)? else { return Ok(None) };
    slices.encode(l, Some(&starts), None).map(Some)
}
