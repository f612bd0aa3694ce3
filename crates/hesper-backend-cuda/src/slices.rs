//! Updates of slices, and slices whose start is computed.

use crate::copy::{Target, copy, copy_to};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::slices::{DynamicSlice, SliceUpdate, Starts};
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::{Strides, row_major};

use crate::Cuda;
use crate::gather::gather_slices;
use crate::index_arrays::{IndexArray, slice_starts};
use crate::scatter::{MAX_ELEMENTS, SliceUpdates};

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<DynamicSlice>().with::<SliceUpdate>()
}

impl Lower<DynamicSlice> for Cuda {
    fn lower(op: &DynamicSlice, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let elements = each_start(l, 1);
        let arrays = start_arrays(l, 1, &op.0, &elements, l.input_shape(0), l.shape(), &l.input(0).strides);
        gather_slices(l, &arrays, 1, l.shape(), 0)
    }
}

impl Lower<SliceUpdate> for Cuda {
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
    let size = l.dtype().size();
    let own = row_major(l.shape());
    let output = match l.take_in_place_if(|data| data.offset == 0) {
        Some(owned) => owned.into_data().buffer,
        None => copy(l.stream(), l.input(0), l.shape(), size)?,
    };
    let strides: Strides = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let offset: isize = own.iter().zip(starts).map(|(stride, start)| stride * start).sum();
    if l.input_shape(1).iter().product::<usize>() > 0 {
        let to = Target { buffer: &output, offset: offset as usize, strides: &strides, partial: true };
        copy_to(l.stream(), l.input(1), l.input_shape(1), size, &to)?;
    }
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// The first input with a slice combined with the second; starts along `given` axes are the third input.
fn combine_update(
    l: &mut Lowering<'_>,
    starts_at: &[isize],
    given: &[usize],
    steps: &[isize],
    mode: UpdateMode,
) -> Result<Option<Data>> {
    let elements: usize = l.shape().iter().product();
    if elements > MAX_ELEMENTS {
        return Ok(None);
    }
    l.bring()?;
    let own = row_major(l.shape());
    let into: Vec<isize> = own.iter().zip(steps).map(|(stride, step)| stride * step).collect();
    let base: isize = starts_at.iter().zip(&own).map(|(start, stride)| start * stride).sum();
    let slices = SliceUpdates {
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
    let arrays = start_arrays(l, 2, given, &elements, l.shape(), l.input_shape(1), &own);
    let Some(starts) = slice_starts(l.stream(), &arrays, 1, "u32")? else { return Ok(None) };
    slices.encode(l, Some(&starts), None)
}

/// The elements of an input of at most one axis, each as an array without axes.
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

/// The starts along axes as index arrays of one point.
fn start_arrays<'a>(
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
