//! Writes rows into a block, in place if the op owns it.

use crate::walk::{Cursor, ElementLayout, Strided, copy_row};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::append::Append;
use hesper_core::ops::command::Commands;
use hesper_core::shape::Shape;

use crate::Cpu;
use crate::copy::{Carrier, with_carrier};

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Append>()
}

impl Lower<Append> for Cpu {
    fn lower(op: &Append, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_carrier!(l.dtype(), run::<_>(op, l)).map(Some)
    }
}

/// The shape of a block as rows: heads, rows of each head, elements of each row.
#[derive(Clone, Copy)]
struct Block {
    heads: usize,
    room: usize,
    width: usize,
}

impl Block {
    fn of(shape: &[usize]) -> Self {
        Block { heads: shape[1], room: shape[2], width: shape[3] }
    }

    fn row(&self, sequence: usize, head: usize, row: usize) -> usize {
        ((sequence * self.heads + head) * self.room + row) * self.width
    }
}

fn run<T: Carrier>(op: &Append, l: &Lowering<'_>) -> Result<Data> {
    let shape: Shape = l.shape().into();
    let (old, rows) = (Strided::input(l, 0), Strided::input(l, 1));
    let (to, starts) = (Block::of(&shape), op.starts.clone());
    let size = l.dtype().size();
    let (old_, rows_) = (old.layout(), rows.layout());
    let command = || l.stream().command("append").read_range(&rows.data.buffer, rows.bytes.clone());
    if let Some(owned) = l.take_in_place() {
        // Bind only the range from the first to the last written row.
        let count = rows.shape[2];
        let first = starts.iter().enumerate().map(|(at, start)| to.row(at, 0, *start)).min();
        let last = starts.iter().enumerate().map(|(at, start)| to.row(at, to.heads - 1, start + count)).max();
        let base = owned.data().offset as usize;
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        let bytes = (base + first) * size..(base + last) * size;
        command().read_write_range(&owned.data().buffer, bytes).run(move |native| {
            let [from, view] = native.take()?;
            put(view.as_mut_slice::<T>()?, first, from.as_slice::<T>()?, &rows_, to, &starts);
            Ok(())
        })?;
        return Ok(owned.into_data());
    }
    let output = l.output()?;
    command().read_range(&old.data.buffer, old.bytes.clone()).write(&output).run(move |native| {
        let (old, rows) = (old_, rows_);
        let [from, before, view] = native.take()?;
        let (view, before) = (view.as_mut_slice::<T>()?, before.as_slice::<T>()?);
        view.fill(T::zeroed());
        let mut cursor = Cursor::new(&old.shape[..3], [&old.strides[..3]], 0);
        for _ in 0..old.shape[..3].iter().product() {
            let (index, at) = (cursor.index(), old.offset + cursor.at[0]);
            if index[2] < to.room {
                let start = to.row(index[0], index[1], index[2]);
                copy_row(&mut view[start..start + to.width], before, at, old.strides[3]);
            }
            cursor.advance();
        }
        put(view, 0, from.as_slice::<T>()?, &rows, to, &starts);
        Ok(())
    })?;
    Ok(Data::contiguous(output, &shape))
}

/// Copies rows into the block; `to` begins at element `first` of the block.
fn put<T: Carrier>(
    to: &mut [T],
    first: usize,
    from: &[T],
    rows: &ElementLayout,
    block: Block,
    starts: &[usize],
) {
    let strides = &rows.strides;
    for (sequence, &start) in starts.iter().enumerate() {
        for head in 0..block.heads {
            let begin = block.row(sequence, head, start) - first;
            let base = rows.offset + sequence as isize * strides[0] + head as isize * strides[1];
            for row in 0..rows.shape[2] {
                let out = begin + row * block.width;
                copy_row(&mut to[out..out + block.width], from, base + row as isize * strides[2], strides[3]);
            }
        }
    }
}
