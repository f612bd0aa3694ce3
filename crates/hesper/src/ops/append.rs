//! Rows written into a block that grows: what caches of keys and values are made of.
//!
//! A block has room for more rows than are in use. Where nobody else can ask for the old block, the new
//! rows are written into its memory and nothing is copied; otherwise, or where the block must grow, the
//! old rows are copied first. The result is the same either way.

use smallvec::smallvec;

use super::concat::concatenate;
use super::pad::Pad;
use super::walk::{Carrier, Cursor, Spread, Strided, copy_row, with_carrier};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::Shape;
use crate::transform::rule::{Backward, Cotangents, zeros_like};

/// Writes the second input into the first: sequence `n` at `starts[n]` along the axis before the last.
#[derive(Debug, Clone)]
struct Append {
    starts: Vec<usize>,
}

impl Op for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn export(&self) -> Export {
        Record::new("append").with("starts", &self.starts[..]).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        with_carrier!(l.dtype(), run::<_>(self, l))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::moves::append(l, &self.starts)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (block, rows) = (&rule.inputs[0], &rule.inputs[1]);
        let mut rest = rule.cotangent()?;
        let [_, heads, room, width] = [0, 1, 2, 3].map(|at| rest.shape()[at] as isize);
        let length = rows.shape()[2] as isize;
        let mut taken = Vec::with_capacity(self.starts.len());
        let nothing = Array::zeros(&[1, heads as usize, length as usize, width as usize], rest.dtype())?;
        for (number, start) in self.starts.iter().enumerate() {
            let (number, start) = (number as isize, *start as isize);
            let (from, to) = ([number, 0, start, 0], [number + 1, heads, start + length, width]);
            taken.push(rest.slice(&from, &to, &[1; 4])?);
            rest = rest.slice_update(&nothing, &from, &to, &[1; 4])?;
        }
        let known = (block.shape()[2] as isize).min(room);
        rest = rest.slice_axis(2, 0, known, 1)?;
        let missing = block.shape()[2] - known as usize;
        let rest = rest.pad(&[(0, 0), (0, 0), (0, missing), (0, 0)], &Pad::Constant(0.into()))?;
        let taken = if taken.is_empty() { zeros_like(rows)? } else { concatenate(&taken, 0)? };
        Ok(smallvec![Some(rest), Some(taken)])
    }
}

/// A block as rows: sequences, heads, room and the length of a row.
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
    let (old_, rows_) = (old.spread(), rows.spread());
    let command = || l.stream().command("append").read_range(&rows.data.buffer, rows.bytes.clone());
    if let Some(owned) = l.take_in_place() {
        // Only what lies between the first and the last row that is written.
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
            let (place, at) = (cursor.place(), old.offset + cursor.at[0]);
            if place[2] < to.room {
                let start = to.row(place[0], place[1], place[2]);
                copy_row(&mut view[start..start + to.width], before, at, old.strides[3]);
            }
            cursor.advance();
        }
        put(view, 0, from.as_slice::<T>()?, &rows, to, &starts);
        Ok(())
    })?;
    Ok(Data::contiguous(output, &shape))
}

/// Copies rows to their places; `to` begins at element `first` of the block.
fn put<T: Carrier>(to: &mut [T], first: usize, from: &[T], rows: &Spread, block: Block, starts: &[usize]) {
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

/// A block of shape (sequences, heads, rows, width) with room for `room` rows and `rows` written into it:
/// those of sequence `n` behind `starts[n]` rows. Sequences beyond those of `rows` stay as they are, and rows
/// of which nothing is known are zero.
///
/// If the block that is given is used by nobody else, its memory is used again: replace your own handle
/// by the result, and appending costs what the new rows cost.
///
/// ```
/// use hesper::{Array, Dtype, fast};
/// let mut block = Array::zeros(&[1, 1, 0, 2], Dtype::Float32)?;
/// for step in 0..3 {
///     let row = Array::try_from_slice(&[step as f32, 1.0], &[1, 1, 1, 2])?;
///     block = fast::append(&block, &row, &[step], 4)?;
/// }
/// assert_eq!(block.to_vec::<f32>()?, [0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 0.0, 0.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn append(block: &Array, rows: &Array, starts: &[usize], room: usize) -> Result<Array> {
    let (from, to) = (rows.shape(), block.shape());
    let fits = from.len() == 4
        && to.len() == 4
        && from[0] == starts.len()
        && from[0] <= to[0]
        && from[1] == to[1]
        && from[3] == to[3]
        && starts.iter().all(|start| start.checked_add(from[2]).is_some_and(|end| end <= room));
    if !fits {
        let what =
            format!("rows of shape {from:?} at {starts:?} for a block of shape {to:?} and room for {room}");
        return Err(Error::shape("append", what));
    }
    let rows = rows.astype(block.dtype())?;
    let shape: Shape = smallvec![to[0], to[1], room, to[3]];
    let op = Append { starts: starts.to_vec() };
    Array::lazy(shape, block.dtype(), OpRef::new(op), smallvec![block.clone(), rows])
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [block, rows] = replay.inputs()?;
    let room = replay.shape().get(2).copied().unwrap_or(0);
    append(block, rows, &replay.lengths("starts")?, room)
}
