//! Rows written into a block, in place where the op owns it: a strided copy for each run of equal starts.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::append::Append;
use hesper_core::shape::row_major;

use crate::{Gpu, Shared, Target, copy_to, fill};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Append>()
}

impl<G: Gpu> Lower<Append> for Shared<G> {
    fn lower(op: &Append, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let starts = &op.starts;
        let stream = l.stream();
        let size = l.dtype().size();
        let (shape, own) = (l.shape(), row_major(l.shape()));
        let old = l.input(0);
        let (output, base) = if let Some(owned) = l.take_in_place() {
            let old = owned.into_data();
            (old.buffer, old.offset as usize)
        } else {
            let output = l.output()?;
            fill::<G>(stream, &output, 0..output.len(), [0; 8], size)?;
            let mut kept: Vec<usize> = l.input_shape(0).to_vec();
            kept[2] = kept[2].min(shape[2]);
            if kept.iter().product::<usize>() > 0 {
                let to = Target { buffer: &output, offset: 0, strides: &own, partial: true };
                copy_to::<G>(stream, old, &kept, size, &to)?;
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
            copy_to::<G>(stream, &from, &part, size, &to)
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
}
