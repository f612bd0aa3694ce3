//! Gathers: slices at the positions of index arrays.

use crate::walk::{Cursor, GRAIN, Strided, collapse, copy_range, copy_row, par_chunks};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gather::Gather;
use hesper_core::ops::index_arrays::IndexedAxis;

use crate::Cpu;
use crate::copy::{Carrier, with_carrier};
use crate::index_arrays::IndexArrays;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Gather>()
}

impl Lower<Gather> for Cpu {
    fn lower(op: &Gather, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), run::<_>(op, l)).map(Some)
    }
}

fn run<T: Carrier>(op: &Gather, l: &Lowering<'_>) -> Result<Data> {
    let op = op.clone();
    let (source, lists) = (Strided::input(l, 0), IndexArrays::inputs(l, 1));
    let output = l.output()?;
    let (source_, lists_) = (source.layout(), lists.layout());
    let encoder = l.stream().command("gather").read_range(&source.data.buffer, source.bytes.clone());
    lists.read(encoder).write(&output).run(move |native| {
        let (source, lists) = (source_, lists_);
        let Some((to, views)) = native.views().split_last_mut() else { return Ok(()) };
        let to = to.as_mut_slice::<T>()?;
        if to.is_empty() {
            return Ok(());
        }
        let from = views[0].as_slice::<T>()?;
        let strides = &source.strides;
        let indexed = |axis: &usize| IndexedAxis {
            length: source.shape[*axis],
            size: op.sizes[*axis],
            stride: strides[*axis],
        };
        let points = lists.points();
        let lists = lists.open(&views[1..], op.axes.iter().map(indexed).collect())?;
        let (outer, [outer_strides]) = collapse(&op.sizes[..op.before], [&strides[..op.before]]);
        let (inner, [inner_strides]) = collapse(&op.sizes[op.before..], [&strides[op.before..]]);
        let row = inner.iter().product::<usize>();
        // Indices that several outer elements share are converted once.
        let known = (to.len() > points * row).then(|| lists.all_offsets());
        par_chunks(to, (GRAIN / row).max(1) * row, |first, part| {
            let first = first / row;
            let mut outside = Cursor::new(&outer, [&outer_strides], first / points);
            let (mut at, mut rest, mut looked_up) = (first % points, part, Vec::new());
            while !rest.is_empty() {
                let count = (points - at).min(rest.len() / row);
                let (targets, others) = rest.split_at_mut(count * row);
                let offsets = known.as_ref().map_or_else(
                    || {
                        looked_up.resize(count, 0);
                        lists.offsets(at, &mut looked_up);
                        &looked_up[..]
                    },
                    |known| &known[at..at + count],
                );
                let start = source.offset + outside.at[0];
                match (inner.len(), row) {
                    (_, 1) => gather_points(targets, from, start, offsets),
                    (1, _) => {
                        for (target, offset) in targets.chunks_exact_mut(row).zip(offsets) {
                            copy_row(target, from, start + offset, inner_strides[0]);
                        }
                    }
                    _ => {
                        for (target, offset) in targets.chunks_exact_mut(row).zip(offsets) {
                            copy_range(target, from, start + offset, &inner, &inner_strides, 0);
                        }
                    }
                }
                (at, rest) = (0, others);
                outside.advance();
            }
        });
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Copies the elements at offsets from `start`.
#[inline]
pub(crate) fn gather_points<T: Copy>(to: &mut [T], from: &[T], start: isize, offsets: &[isize]) {
    for (element, offset) in to.iter_mut().zip(offsets) {
        *element = from[(start + offset) as usize];
    }
}
