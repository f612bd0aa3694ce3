//! Updates of slices, and slices whose start is computed.
//!
//! An owned array is updated in place. Any other is copied in the same pass: each row is copied, then
//! combined with the update if the slice contains it.

use crate::walk::{Cursor, ElementLayout, GRAIN, Strided, copy_range, copy_row, par_chunks};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::index_arrays::Indices;
use hesper_core::ops::slices::{DynamicSlice, SliceUpdate, Starts};
use hesper_core::ops::update_mode::UpdateMode;
use hesper_core::shape::{Shape, Strides, row_major};
use smallvec::{SmallVec, smallvec};

use crate::Cpu;
use crate::combine::{Combiner, with_combiner};
use crate::copy::{Carrier, copy_all, with_carrier};

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<DynamicSlice>().with::<SliceUpdate>()
}

impl Lower<DynamicSlice> for Cpu {
    fn lower(op: &DynamicSlice, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), slice::<_>(&op.0, l)).map(Some)
    }
}

impl Lower<SliceUpdate> for Cpu {
    fn lower(op: &SliceUpdate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_combiner!(l.dtype(), update(op, l)).map(Some)
    }
}

/// A slice of the array and its update.
pub struct Update {
    /// The shape of the array.
    pub shape: Shape,
    /// The first index of the slice along each axis.
    pub starts: SmallVec<[isize; 6]>,
    /// The step of the slice along each axis.
    pub steps: SmallVec<[isize; 6]>,
    /// The shape of the slice and of its update.
    pub sizes: Shape,
    /// The strides of the update.
    pub strides: Strides,
    /// The first element of the update.
    pub offset: isize,
}

impl Update {
    /// Joins the last axes if the update covers them whole.
    pub fn join(&mut self, source: &mut Strides) {
        while self.shape.len() > 1 {
            let last = self.shape.len() - 1;
            let (length, before) = (self.shape[last], last - 1);
            let whole = self.starts[last] == 0 && self.steps[last] == 1 && self.sizes[last] == length;
            let joins = whole
                && (self.steps[before] == 1 || self.sizes[before] == 1)
                && source[before] == source[last] * length as isize
                && self.strides[before] == self.strides[last] * length as isize;
            if !joins {
                return;
            }
            self.shape[before] *= length;
            self.sizes[before] *= length;
            self.starts[before] *= length as isize;
            self.steps[before] = 1;
            (source[before], self.strides[before]) = (source[last], self.strides[last]);
            for list in [source as &mut Strides, &mut self.strides] {
                list.truncate(last);
            }
            self.starts.truncate(last);
            self.steps.truncate(last);
            self.shape.truncate(last);
            self.sizes.truncate(last);
        }
    }

    /// The offset in the update of a row of the outer axes, if the slice contains the row.
    fn row(&self, index: &[usize]) -> Option<isize> {
        let mut at = self.offset;
        for (axis, &index) in index.iter().enumerate() {
            let from_start = index as isize - self.starts[axis];
            let (step, rest) = (from_start / self.steps[axis], from_start % self.steps[axis]);
            if rest != 0 || step < 0 || step as usize >= self.sizes[axis] {
                return None;
            }
            at += step * self.strides[axis];
        }
        Some(at)
    }

    /// The offset of the first row of the slice, and the strides of its outer axes.
    fn row_strides(&self) -> (isize, Strides) {
        let own = row_major(&self.shape);
        let outer = self.shape.len() - 1;
        let first = (0..outer).map(|axis| self.starts[axis] * own[axis]).sum();
        (first, (0..outer).map(|axis| self.steps[axis] * own[axis]).collect())
    }
}

/// Reads starts from an array.
fn read_starts(
    indices: Indices<'_>,
    list: &ElementLayout,
    axes: &[usize],
    shape: &[usize],
    sizes: &[usize],
) -> SmallVec<[isize; 6]> {
    let mut starts: SmallVec<[isize; 6]> = smallvec![0; shape.len()];
    let mut cursor = Cursor::new(&list.shape, [&list.strides], 0);
    for &axis in axes {
        starts[axis] = indices.get(list.offset + cursor.at[0], shape[axis], sizes[axis]);
        cursor.advance();
    }
    starts
}

fn update<T: Carrier>(op: &SliceUpdate, l: &Lowering<'_>, combine: Combiner<T>) -> Result<Data> {
    let (op, mode) = (op.clone(), op.mode.on(l.dtype()));
    let (source, new) = (Strided::input(l, 0), Strided::input(l, 1));
    let list = match op.starts {
        Starts::At(_) => None,
        Starts::Given(_) => Some((Strided::input(l, 2), l.input_dtype(2))),
    };
    // An owned input is updated in place.
    let (in_place, result) = match l.take_in_place() {
        Some(owned) => (true, owned.into_data()),
        None => (false, Data::contiguous(l.output()?, l.shape())),
    };
    let mut encoder = l.stream().command("slice_update").read_range(&new.data.buffer, new.bytes.clone());
    if let Some((list, _)) = &list {
        encoder = encoder.read_range(&list.data.buffer, list.bytes.clone());
    }
    encoder = if in_place {
        encoder.read_write_range(&result.buffer, source.bytes.clone())
    } else {
        encoder.read_range(&source.data.buffer, source.bytes.clone()).write(&result.buffer)
    };
    let list_layout = list.as_ref().map(|(list, dtype)| (list.layout(), *dtype));
    let (source_, new_) = (source.layout(), new.layout());
    encoder.run(move |native| {
        let (source, new, list) = (source_, new_, list_layout);
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        if to.is_empty() {
            return Ok(());
        }
        let from = views[0].as_slice::<T>()?;
        let old = match views.last() {
            Some(old) if !in_place => Some(old.as_slice::<T>()?),
            _ => None,
        };
        let starts = match (&op.starts, &list) {
            (Starts::Given(axes), Some((list, dtype))) => {
                let indices = Indices::of(&views[1], *dtype)?;
                read_starts(indices, list, axes, &source.shape, &new.shape)
            }
            (Starts::At(starts), _) => starts.clone(),
            (Starts::Given(_), None) => return Err("the array of starts is missing".into()),
        };
        let mut strides = source.strides.clone();
        let mut update = Update {
            shape: source.shape.clone(),
            starts,
            steps: op.steps.clone(),
            sizes: new.shape.clone(),
            strides: new.strides.clone(),
            offset: new.offset,
        };
        update.join(&mut strides);
        let Some((&length, outer)) = update.shape.split_last() else {
            if let Some(old) = old {
                copy_range(to, old, source.offset, &[], &[], 0);
            }
            (combine.row)(mode, to, 1, from, new.offset, 0);
            return Ok(());
        };
        let last = outer.len();
        let (start, step, size) = (update.starts[last], update.steps[last], update.sizes[last]);
        let stride = update.strides[last];
        // Visit the target in ascending order, also for negative steps.
        let (low, by, first, stride) = if step > 0 || size == 0 {
            (start, step.max(1), 0, stride)
        } else {
            let back = (size - 1) as isize;
            (start + back * step, -step, back * stride, -stride)
        };
        let put = |row: &mut [T], place: isize| {
            let end = low as usize + (size - 1) * by as usize + 1;
            (combine.row)(mode, &mut row[low as usize..end], by as usize, from, place + first, stride);
        };
        let updates: usize = update.sizes.iter().product();
        if in_place && updates < GRAIN {
            let (base, row_strides) = update.row_strides();
            let mut cursor =
                Cursor::new(&update.sizes[..last], [&row_strides[..last], &update.strides[..last]], 0);
            for _ in 0..updates / size.max(1) {
                let row = (base + cursor.at[0]) as usize;
                put(&mut to[row..row + length], update.offset + cursor.at[1]);
                cursor.advance();
            }
            return Ok(());
        }
        par_chunks(to, (GRAIN / length).max(1) * length, |begin, part| {
            let mut cursor = Cursor::new(outer, [&strides[..last]], begin / length);
            for row in part.chunks_mut(length) {
                let at = source.offset + cursor.at[0];
                let source_row = if size == 0 { None } else { update.row(cursor.index()) };
                match (old, source_row) {
                    (None, _) => {}
                    (_, Some(_)) if mode == UpdateMode::Set && size == length => {}
                    (Some(old), _) => copy_row(row, old, at, strides[last]),
                }
                if let Some(offset) = source_row {
                    put(row, offset);
                }
                cursor.advance();
            }
        });
        Ok(())
    })?;
    Ok(result)
}

fn slice<T: Carrier>(axes: &SmallVec<[usize; 6]>, l: &Lowering<'_>) -> Result<Data> {
    let (source, list, dtype) = (Strided::input(l, 0), Strided::input(l, 1), l.input_dtype(1));
    let (axes, sizes): (_, Shape) = (axes.clone(), l.shape().into());
    let output = l.output()?;
    let (source_, list_) = (source.layout(), list.layout());
    l.stream()
        .command("dynamic_slice")
        .read_range(&source.data.buffer, source.bytes.clone())
        .read_range(&list.data.buffer, list.bytes.clone())
        .write(&output)
        .run(move |native| {
            let (source, list) = (source_, list_);
            let [from, view, to] = native.take()?;
            let starts = read_starts(Indices::of(view, dtype)?, &list, &axes, &source.shape, &sizes);
            let moved: isize = starts.iter().zip(&source.strides).map(|(start, stride)| start * stride).sum();
            let part = ElementLayout { offset: source.offset + moved, shape: sizes, ..source };
            copy_all(to.as_mut_slice::<T>()?, from.as_slice::<T>()?, &part)
        })?;
    Ok(Data::contiguous(output, l.shape()))
}
