//! Scatters, and updates of slices.
//!
//! Updates of one element are applied in the order of their indices, bit-identical to the host: points are linked
//! by the element that they update, and the first of them applies all.

use crate::copy::{copy, word};
use crate::launch::{Constants, blocks, kernel, type_name};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scatter::Scatter;
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::row_major;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::Cuda;
use crate::index_arrays::{IndexArray, slice_starts};
use crate::sort::SortRows;
use crate::walk::{axes_of, pairs, walk};

const TEXT: &str = include_str!("scatter.cuh");
/// Up to this many points are linked by comparing all pairs; more are sorted.
const MAX_PAIRWISE: usize = 2048;
/// Offsets of a scatter have 32 bits.
pub(crate) const MAX_ELEMENTS: usize = u32::MAX as usize;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Scatter>()
}

/// The number of a mode in kernels.
fn mode_number(mode: UpdateMode, dtype: Dtype) -> i32 {
    match mode.on(dtype) {
        UpdateMode::Set => 0,
        UpdateMode::Add => 1,
        UpdateMode::Multiply => 2,
        UpdateMode::Max => 3,
        UpdateMode::Min => 4,
    }
}

/// Links the points of each element, in the order of the points.
pub(crate) fn links(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
    let output = stream.alloc(points * 8)?;
    let constants = Constants::default().long(points as i64);
    if points <= MAX_PAIRWISE {
        let pipeline = kernel(stream, TEXT, "link_pairwise<u32>", "")?;
        let command = stream.command("links").read(keys).write(&output).constants(constants.bytes());
        command.dispatch(&pipeline, [blocks(points) * 256, 1, 1], [256, 1, 1])?;
        return Ok(output);
    }
    let order = stream.alloc(points * 4)?;
    let rows = SortRows { stream, dtype: Dtype::Uint32, rows: 1, length: points };
    rows.encode((keys, 0..points * 4), &order, true)?;
    let pipeline = kernel(stream, TEXT, "link_sorted<u32>", "")?;
    let command = stream.command("links").read(keys).read(&order).write(&output);
    command.constants(constants.bytes()).dispatch(&pipeline, [blocks(points) * 256, 1, 1], [256, 1, 1])?;
    Ok(output)
}

/// Updates of the first input of an op: a slice for each point.
pub(crate) struct SliceUpdates<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) dtype: Dtype,
    pub(crate) mode: UpdateMode,
    pub(crate) updates: &'a Data,
    /// Axes of the points, then of a slice.
    pub(crate) shape: &'a [usize],
    /// How many axes are those of the points.
    pub(crate) rank: usize,
    /// The strides of a slice in the output.
    pub(crate) into: &'a [isize],
    /// The offset that is added to every start.
    pub(crate) base: usize,
}

impl SliceUpdates<'_> {
    /// Combines the slices with the first input. Without starts there is one slice; without links no two slices share an
    /// element. `None` if there are too many axes.
    pub(crate) fn encode(
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
            return owned_or_copy(l).map(Some);
        }
        let mode = mode_number(self.mode, self.dtype);
        let of = if mode == 0 { word(self.dtype.size()) } else { type_name(self.dtype) };
        let entry = format!("combine_slices<{of}, {mode}, {}, {}>", starts.is_some(), links.is_some());
        let pipeline = kernel(self.stream, TEXT, &entry, "")?;
        let output = owned_or_copy(l)?;
        let to: Vec<(usize, isize)> = slice.iter().map(|axis| (axis.0, axis.1)).collect();
        let from: Vec<(usize, isize)> = slice.iter().map(|axis| (axis.0, axis.2)).collect();
        let (bytes, first) = reach(self.updates, self.shape, self.dtype.size());
        let command = self.stream.command("scatter").read_range(&self.updates.buffer, bytes.clone());
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
        let mut constants = walk(walk(walk(Constants::default(), &point), &to), &from);
        for number in [point.len(), slice.len(), row, n, first, self.base] {
            constants = constants.long(number as i64);
        }
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks(n) * 256, 1, 1], [256, 1, 1])?;
        Ok(Some(output))
    }
}

/// The memory of the first input, if the op owns it, else a copy.
pub(crate) fn owned_or_copy(l: &Lowering<'_>) -> Result<Data> {
    if let Some(owned) = l.take_in_place_if(|data| data.offset == 0) {
        return Ok(owned.into_data());
    }
    Ok(Data::contiguous(copy(l.stream(), l.input(0), l.shape(), l.dtype().size())?, l.shape()))
}

impl Lower<Scatter> for Cuda {
    fn lower(op: &Scatter, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let rank = l.input_shape(1).len() - l.shape().len();
        let points: usize = l.input_shape(1)[..rank].iter().product();
        let sizes = l.input_shape(1)[rank..].to_vec();
        // Slices longer than one along an indexed axis may overlap in part, which links do not describe.
        let separate = points <= 1 || op.axes.iter().all(|axis| sizes[*axis] == 1);
        let elements: usize = l.shape().iter().product();
        if !separate || elements > MAX_ELEMENTS || points > MAX_ELEMENTS {
            return Ok(None);
        }
        l.bring()?;
        let into = row_major(l.shape());
        if points == 0 || elements == 0 || sizes.contains(&0) {
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
        let stream = l.stream();
        let slices = SliceUpdates {
            stream,
            dtype: l.dtype(),
            mode: op.mode,
            updates: l.input(1),
            shape: l.input_shape(1),
            rank,
            into: &into,
            base: 0,
        };
        if arrays.is_empty() {
            return slices.encode(l, None, None);
        }
        let Some(starts) = slice_starts(stream, &arrays, points, "u32")? else { return Ok(None) };
        let links = if points > 1 { Some(links(stream, &starts, points)?) } else { None };
        slices.encode(l, Some(&starts), links.as_ref())
    }
}
