//! Elements along one axis at the indices of an array of the same rank.

use std::ops::Range;

use crate::walk::{CopyOnWrite, ElementLayout, GRAIN, Strided, collapse, each_row, par_chunks};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::along_axis::{PutAlong, TakeAlong};
use hesper_core::ops::command::Commands;
use hesper_core::ops::index_arrays::{IndexedAxis, Indices};
use hesper_core::shape::{Shape, Strides, row_major};

use crate::Cpu;
use crate::combine::{Combiner, with_combiner};
use crate::copy::{Carrier, with_carrier};
use crate::gather::gather_points;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<PutAlong>().with::<TakeAlong>()
}

impl Lower<PutAlong> for Cpu {
    fn lower(op: &PutAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_combiner!(l.dtype(), put(op, l)).map(Some)
    }
}

impl Lower<TakeAlong> for Cpu {
    fn lower(op: &TakeAlong, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), take::<_>(op.0, l)).map(Some)
    }
}

/// Strides with zero along the indexed axis: the indices give its offsets.
fn without_axis(strides: &[isize], along: usize) -> Strides {
    let mut strides: Strides = strides.into();
    strides[along] = 0;
    strides
}

/// The number of offsets that are computed at once.
const PIECE: usize = 1 << 10;

/// Calls `f` for pieces of the `count` indices from the row-major index `first` on: the range of the piece
/// among these indices, their offsets, and the start and step of the piece by the second of `strides`. An
/// offset is the one by the first of `strides` plus the index times the stride of the indexed axis.
fn each_piece(
    list: (&ElementLayout, Indices<'_>, IndexedAxis),
    strides: [&[isize]; 2],
    first: usize,
    count: usize,
    mut f: impl FnMut(Range<usize>, &mut [isize], isize, isize),
) {
    let (list, indices, along) = list;
    let [rest, others] = strides;
    let (shape, [rest, list_strides, others]) = collapse(&list.shape, [rest, &list.strides, others]);
    let mut offsets = [0isize; PIECE];
    each_row(
        &shape,
        [&rest, &list_strides, &others],
        first,
        count,
        |range, [at, index, other], [by, step, stride]| {
            for begin in range.clone().step_by(PIECE) {
                let end = (begin + PIECE).min(range.end);
                let skipped = (begin - range.start) as isize;
                let offsets = &mut offsets[..end - begin];
                let mut next = at + skipped * by;
                for offset in offsets.iter_mut() {
                    *offset = next;
                    next += by;
                }
                indices.add_to(offsets, list.offset + index + skipped * step, step, along);
                f(begin..end, offsets, other + skipped * stride, stride);
            }
        },
    );
}

fn take<T: Carrier>(along: usize, l: &Lowering<'_>) -> Result<Data> {
    let (source, list, dtype) = (Strided::input(l, 0), Strided::input(l, 1), l.input_dtype(1));
    let output = l.output()?;
    let (source_, list_) = (source.layout(), list.layout());
    l.stream()
        .command("take_along_axis")
        .read_range(&source.data.buffer, source.bytes.clone())
        .read_range(&list.data.buffer, list.bytes.clone())
        .write(&output)
        .run(move |native| {
            let (source, list) = (source_, list_);
            let [from, view, to] = native.take()?;
            let (from, indices) = (from.as_slice::<T>()?, Indices::of(view, dtype)?);
            let rest = without_axis(&source.strides, along);
            let along = IndexedAxis { length: source.shape[along], size: 1, stride: source.strides[along] };
            par_chunks(to.as_mut_slice::<T>()?, GRAIN, |first, part| {
                let count = part.len();
                each_piece((&list, indices, along), [&rest, &rest], first, count, |range, offsets, _, _| {
                    gather_points(&mut part[range], from, source.offset, offsets);
                });
            });
            Ok(())
        })?;
    Ok(Data::contiguous(output, l.shape()))
}

fn put<T: Carrier>(op: &PutAlong, l: &Lowering<'_>, combine: Combiner<T>) -> Result<Data> {
    let (along, mode) = (op.0, op.1.on(l.dtype()));
    let (list, dtype, new) = (Strided::input(l, 1), l.input_dtype(1), Strided::input(l, 2));
    let shape: Shape = l.shape().into();
    let result = CopyOnWrite::of(l)?;
    let (result_, list_, new_) = (result.access(), list.layout(), new.layout());
    let encoder = l
        .stream()
        .command("put_along_axis")
        .read_range(&list.data.buffer, list.bytes.clone())
        .read_range(&new.data.buffer, new.bytes.clone());
    result.bind(encoder).run(move |native| {
        let (list, new) = (list_, new_);
        let (to, views) = result_.open::<T>(native.views())?;
        let [view, new_view] = views else { return Ok(()) };
        let (indices, from) = (Indices::of(view, dtype)?, new_view.as_slice::<T>()?);
        if to.is_empty() {
            return Ok(());
        }
        let strides = row_major(&shape);
        let rest = without_axis(&strides, along);
        // No two updates with different indices before the indexed axis write the same element, so tasks
        // split those axes.
        let block: usize = shape[along..].iter().product();
        let updates: usize = list.shape[along..].iter().product();
        let along = IndexedAxis { length: shape[along], size: 1, stride: strides[along] };
        par_chunks(to, (GRAIN / block).max(1) * block, |first, part| {
            let (at, count) = (first / block * updates, part.len() / block * updates);
            let list = (&list, indices, along);
            each_piece(list, [&rest, &new.strides], at, count, |_, offsets, start, stride| {
                offsets.iter_mut().for_each(|offset| *offset -= first as isize);
                (combine.points)(mode, part, offsets, from, new.offset + start, stride);
            });
        });
        Ok(())
    })?;
    Ok(result.into_data())
}
