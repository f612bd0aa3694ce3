//! Scatters, and updates of slices.
//!
//! Updates of one element are applied in the order of their indices, bit-identical to the host: points are
//! linked by the element that they update, and the first of them applies all.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scatter::Scatter;
use hesper_core::ops::slices::{SliceUpdate, Starts};
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::{Strides, row_major};
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::index_arrays::{each_start, index_arrays, slice_starts, start_arrays};
use crate::walk::{Axes, axes_of, elements_of_word, fits, pairs};
use crate::{Gpu, Shared, Target, copy, copy_to};

/// Offsets of a scatter have 32 bits.
pub(crate) const MAX_OFFSET: usize = u32::MAX as usize;

/// Parameters of a kernel that combines slices with an array.
#[derive(Debug)]
pub struct CombinedSlices<'a> {
    /// The number of the mode in the texts: set, add, multiply, maximum, minimum.
    pub mode: u32,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Whether the second buffer has the offset of each slice; if not there is one slice.
    pub has_starts: bool,
    /// Whether the third buffer links the slices that update the same elements.
    pub has_links: bool,
    /// The axes of the points, with the strides of the updates.
    pub points: &'a [(usize, isize)],
    /// The axes of a slice, with strides in the output.
    pub to: &'a [(usize, isize)],
    /// The axes of a slice, with the strides of the updates.
    pub from: &'a [(usize, isize)],
    /// Elements of a slice.
    pub row: usize,
    /// Elements of all updates.
    pub count: usize,
    /// The first update, from the beginning of the range that is bound.
    pub first: usize,
    /// The offset that is added to every start.
    pub base: usize,
}

/// Parameters of a kernel that combines slices of neighbours with an array, several points with each slice.
#[derive(Debug, Clone, Copy)]
pub struct CombinedRuns {
    /// The number of the mode in the texts, as in [`CombinedSlices`].
    pub mode: u32,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Elements that can be loaded at once: lengths, strides and offsets are multiples of it.
    pub together: usize,
    /// How many slices there are.
    pub points: usize,
    /// Elements of a slice.
    pub row: usize,
    /// Elements from the updates of a point to those of the next.
    pub stride: isize,
    /// The first update, from the beginning of the range that is bound.
    pub first: usize,
    /// The offset that is added to every start.
    pub base: usize,
}

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Scatter>().with_shared::<Shared<G>, SliceUpdate>()
}

/// Links the points of each element, in the order of the points; `None` for a single point.
pub(crate) fn links<G: Gpu>(stream: &Stream, keys: &Buffer, points: usize) -> Result<Option<Buffer>> {
    if points > 1 { G::link_points(stream, keys, points).map(Some) } else { Ok(None) }
}

/// Updates of the first input of an op: a slice for each point.
pub(crate) struct SliceUpdates<'a> {
    mode: UpdateMode,
    updates: &'a Data,
    /// Axes of the points, then of a slice.
    shape: &'a [usize],
    /// The axes of the points, with the strides of the updates.
    points: Axes,
    /// The axes of a slice, with strides in the output.
    to: Axes,
    /// The axes of a slice, with the strides of the updates.
    from: Axes,
    /// The offset that is added to every start.
    base: usize,
}

impl<'a> SliceUpdates<'a> {
    /// Updates of `shape`, whose first `rank` axes are those of the points, for slices with the strides
    /// `into` in the output. `None` if there are more axes than kernels take.
    pub(crate) fn new<G: Gpu>(
        mode: UpdateMode,
        (updates, shape): (&'a Data, &'a [usize]),
        rank: usize,
        into: &[isize],
        base: usize,
    ) -> Option<Self> {
        let (point_strides, slice_strides) = updates.strides.split_at(rank);
        let points = axes_of::<G>(&shape[..rank], point_strides)?;
        let (to, from) = pairs::<G>(&shape[rank..], into, slice_strides)?;
        Some(SliceUpdates { mode, updates, shape, points, to, from, base })
    }

    /// The number of the mode in the texts.
    fn mode_number(&self, dtype: Dtype) -> u32 {
        match self.mode.on(dtype) {
            UpdateMode::Set => 0,
            UpdateMode::Add => 1,
            UpdateMode::Multiply => 2,
            UpdateMode::Max => 3,
            UpdateMode::Min => 4,
        }
    }

    /// Combines slices of neighbours with the first input, where the backend has a kernel for that. Starts
    /// are multiples of `units`.
    fn encode_runs<G: Gpu>(
        &self,
        l: &Lowering<'_>,
        starts: &Buffer,
        units: &[isize],
    ) -> Result<Option<Data>> {
        // Single elements are left to the kernel with a thread for each.
        let (&[(points, stride)], &[(row, 1)], &[(_, 1)]) = (&*self.points, &*self.to, &*self.from) else {
            return Ok(None);
        };
        let (stream, dtype, base) = (l.stream(), l.dtype(), self.base);
        if row == 1 {
            return Ok(None);
        }
        let size = dtype.size();
        let (bytes, first) = reach(self.updates, self.shape, size);
        let fits = |count: &usize| {
            let whole = |steps: &isize| steps.unsigned_abs().is_multiple_of(*count);
            [row, first, base].iter().all(|length| length.is_multiple_of(*count))
                && whole(&stride)
                && units.iter().all(whole)
                && bytes.start.is_multiple_of(count * size)
        };
        let together = elements_of_word(size, fits);
        let mode = self.mode_number(dtype);
        let runs = CombinedRuns { mode, dtype, together, points, row, stride, first, base };
        let Some((launch, order)) = G::combine_runs(stream, &runs, starts)? else { return Ok(None) };
        let output = owned_or_copy::<G>(l)?;
        let command = stream.command("scatter").read_range(&self.updates.buffer, bytes);
        launch.encode(command.read(starts).read(&order).read_write(&output.buffer))?;
        Ok(Some(output))
    }

    /// Combines the slices with the first input. Without starts there is one slice; without links no two
    /// slices share an element.
    pub(crate) fn encode<G: Gpu>(
        &self,
        l: &Lowering<'_>,
        starts: Option<&Buffer>,
        links: Option<&Buffer>,
    ) -> Result<Data> {
        let count: usize = self.shape.iter().product();
        if count == 0 {
            return owned_or_copy::<G>(l);
        }
        let (stream, dtype) = (l.stream(), l.dtype());
        let (bytes, first) = reach(self.updates, self.shape, dtype.size());
        let slices = CombinedSlices {
            mode: self.mode_number(dtype),
            dtype,
            has_starts: starts.is_some(),
            has_links: links.is_some(),
            points: &self.points,
            to: &self.to,
            from: &self.from,
            row: self.to.iter().map(|axis| axis.0).product(),
            count,
            first,
            base: self.base,
        };
        // Compile before an input is taken: a text that is refused leaves the input as it is.
        let launch = G::combine_slices(stream, &slices)?;
        let output = owned_or_copy::<G>(l)?;
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
        launch.encode(command.read_write(&output.buffer))?;
        Ok(output)
    }
}

/// The memory of the first input, if the op owns it, else a copy.
pub(crate) fn owned_or_copy<G: Gpu>(l: &Lowering<'_>) -> Result<Data> {
    if let Some(owned) = l.take_in_place_if(|data| data.offset == 0) {
        return Ok(owned.into_data());
    }
    Ok(Data::contiguous(copy::<G>(l.stream(), l.input(0), l.shape(), l.dtype().size())?, l.shape()))
}

impl<G: Gpu> Lower<Scatter> for Shared<G> {
    fn lower(op: &Scatter, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let rank = l.input_shape(1).len() - l.shape().len();
        let points: usize = l.input_shape(1)[..rank].iter().product();
        let sizes = l.input_shape(1)[rank..].to_vec();
        // Slices longer than one along an indexed axis may overlap in part, which links do not describe.
        let separate = points <= 1 || op.axes.iter().all(|axis| sizes[*axis] == 1);
        let elements: usize = l.shape().iter().product();
        if !separate || elements > MAX_OFFSET || points > G::MAX_POINTS || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let into = row_major(l.shape());
        if points == 0 || elements == 0 || sizes.contains(&0) {
            return owned_or_copy::<G>(l).map(Some);
        }
        let arrays = index_arrays(l, 2, &op.axes, l.shape(), &sizes, &into);
        // Slices whose elements are apart in memory would be read in pieces of a few bytes.
        let is_dense = l.input(1).strides.last().is_none_or(|stride| *stride == 1);
        let data = if is_dense || sizes.last() == Some(&1) { l.input(1).clone() } else { l.row_major(1)? };
        let updates = (&data, l.input_shape(1));
        let Some(slices) = SliceUpdates::new::<G>(op.mode, updates, rank, &into, 0) else { return Ok(None) };
        if arrays.is_empty() {
            return slices.encode::<G>(l, None, None).map(Some);
        }
        let Some(starts) = slice_starts::<G>(l.stream(), &arrays, points, 4)? else { return Ok(None) };
        let units: Vec<isize> = op.axes.iter().map(|axis| into[*axis]).collect();
        if points > 1
            && let Some(combined) = slices.encode_runs::<G>(l, &starts, &units)?
        {
            return Ok(Some(combined));
        }
        let links = links::<G>(l.stream(), &starts, points)?;
        slices.encode::<G>(l, Some(&starts), links.as_ref()).map(Some)
    }
}

impl<G: Gpu> Lower<SliceUpdate> for Shared<G> {
    fn lower(op: &SliceUpdate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match (&op.starts, op.mode) {
            (Starts::At(starts), UpdateMode::Set) if op.steps.iter().all(|step| *step > 0) => {
                copy_update::<G>(l, starts, &op.steps)
            }
            (Starts::At(starts), mode) => combine_update::<G>(l, starts, &[], &op.steps, mode),
            (Starts::Given(axes), mode) => combine_update::<G>(l, &[], axes, &op.steps, mode),
        }
    }
}

/// The first input with the second in place of a slice of it: a strided copy.
fn copy_update<G: Gpu>(l: &mut Lowering<'_>, starts: &[isize], steps: &[isize]) -> Result<Option<Data>> {
    l.bring()?;
    let own = row_major(l.shape());
    let output = owned_or_copy::<G>(l)?;
    let strides: Strides = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let offset: isize = own.iter().zip(starts).map(|(stride, start)| stride * start).sum();
    if l.input_shape(1).iter().product::<usize>() > 0 {
        let (buffer, offset) = (&output.buffer, offset as usize);
        let to = Target { buffer, offset, strides: &strides, partial: true };
        copy_to::<G>(l.stream(), l.input(1), l.input_shape(1), l.dtype().size(), &to)?;
    }
    Ok(Some(output))
}

/// The first input with a slice combined with the second; starts along `given` axes are the third input.
fn combine_update<G: Gpu>(
    l: &mut Lowering<'_>,
    starts_at: &[isize],
    given: &[usize],
    steps: &[isize],
    mode: UpdateMode,
) -> Result<Option<Data>> {
    if l.shape().iter().product::<usize>() > MAX_OFFSET || !fits::<G>(l) {
        return Ok(None);
    }
    l.bring()?;
    let own = row_major(l.shape());
    let into: Vec<isize> = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let base: isize = starts_at.iter().zip(&own).map(|(start, stride)| start * stride).sum();
    let updates = (l.input(1), l.input_shape(1));
    let slices = SliceUpdates::new::<G>(mode, updates, 0, &into, base as usize);
    let Some(slices) = slices else { return Ok(None) };
    if given.is_empty() {
        return slices.encode::<G>(l, None, None).map(Some);
    }
    let elements = each_start(l, 2);
    let arrays = start_arrays(l, 2, given, &elements, l.shape(), l.input_shape(1), &own);
    let Some(starts) = slice_starts::<G>(l.stream(), &arrays, 1, 4)? else { return Ok(None) };
    slices.encode::<G>(l, Some(&starts), None).map(Some)
}
