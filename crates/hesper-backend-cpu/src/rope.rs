//! Rotary position embedding.
//!
//! Cosines and sines are computed once for each position and shared by all heads; angles are computed in
//! single precision.

use crate::float::{Float, Wide};
use crate::parallel::{GRAIN, par_chunks_mut};
use crate::walk::{Cursor, Strided, rows};
use half::{bf16, f16};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::rope_update::RopeUpdate;
use hesper_core::ops::index_arrays::Indices;
use hesper_core::ops::rope::{Rope, steps};
use hesper_core::{Dtype, Result};
use hesper_runtime::Access;
use smallvec::{SmallVec, smallvec};

use crate::Cpu;
use crate::copy::copy;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Rope>().with::<RopeUpdate>()
}

impl Lower<RopeUpdate> for Cpu {
    fn lower(op: &RopeUpdate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.dtype() {
            Dtype::Float32 => update::<f32>(op, l).map(Some),
            Dtype::Float16 => update::<f16>(op, l).map(Some),
            Dtype::Bfloat16 => update::<bf16>(op, l).map(Some),
            _ => Ok(None),
        }
    }
}

impl Lower<Rope> for Cpu {
    fn lower(op: &Rope, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let data = match l.dtype() {
            Dtype::Float16 => run::<f16>(*op, l),
            Dtype::Bfloat16 => run::<bf16>(*op, l),
            Dtype::Float64 => run::<f64>(*op, l),
            _ => run::<f32>(*op, l),
        };
        data.map(Some)
    }
}

/// Rotates the pairs of a row; `rotation` holds cosines, then sines.
fn rotate<W: Wide>(op: &Rope, row: &mut [W], rotation: &[f32]) {
    let (cos, sin) = rotation.split_at(op.dims / 2);
    let angles = cos.iter().zip(sin).map(|(c, s)| (W::of(f64::from(*c)), W::of(f64::from(*s))));
    let rotated = |x: W, y: W, c: W, s: W| {
        (x.times(c).minus(y.times(s)), x.times(s).minus(W::of(0.0).minus(y.times(c))))
    };
    if op.traditional {
        for (pair, (c, s)) in row[..op.dims].chunks_exact_mut(2).zip(angles) {
            (pair[0], pair[1]) = rotated(pair[0], pair[1], c, s);
        }
    } else {
        let (first, second) = row[..op.dims].split_at_mut(op.dims / 2);
        for ((x, y), (c, s)) in first.iter_mut().zip(second).zip(angles) {
            (*x, *y) = rotated(*x, *y, c, s);
        }
    }
}

/// Writes the cosines of a position, then the sines.
fn angles(op: &Rope, steps: &[f32], position: f32, to: &mut [f32]) {
    let position = position * op.scale.0;
    let (cos, sin) = to.split_at_mut(steps.len());
    for ((step, cos), sin) in steps.iter().zip(cos).zip(sin) {
        (*sin, *cos) = (position * step).sin_cos();
        *sin = if op.back { -*sin } else { *sin };
    }
}

/// Heads of one row each at a known position.
pub(crate) struct RotatedRows {
    op: Rope,
    /// Sequences and heads, and their strides.
    counts: [usize; 2],
    strides: [isize; 2],
    offset: isize,
    width: usize,
}

impl RotatedRows {
    /// Rows whose elements are contiguous.
    pub(crate) fn new(op: Rope, rows: &Strided) -> Self {
        let (shape, strides) = (&rows.shape, rows.strides());
        RotatedRows {
            op,
            counts: [shape[0], shape[1]],
            strides: [strides[0], strides[1]],
            offset: rows.offset,
            width: shape[3],
        }
    }

    /// Rotates the rows, and gives each with its sequence and head.
    pub(crate) fn each<T: Float>(
        &self,
        from: &[T],
        periods: &[f32],
        mut give: impl FnMut([usize; 2], &[T::Wide]),
    ) {
        let op = &self.op;
        let steps = steps(op.dims / 2, op.base.map(|base| base.0), periods);
        let mut rotation = vec![0.0; op.dims];
        angles(op, &steps, op.offset.unwrap_or(0) as f32, &mut rotation);
        let mut row = vec![T::Wide::of(0.0); self.width];
        for at in 0..self.counts[0] * self.counts[1] {
            let place = [at / self.counts[1], at % self.counts[1]];
            let apart: isize = place.iter().zip(self.strides).map(|(at, stride)| *at as isize * stride).sum();
            let start = (self.offset + apart) as usize;
            T::load(&from[start..start + self.width], &mut row);
            rotate(op, &mut row, &rotation);
            give(place, &row);
        }
    }
}

/// Writes rotated rows into a slice, in place if the op owns the array.
fn update<T: Float>(op: &RopeUpdate, l: &Lowering<'_>) -> Result<Data> {
    let (shape, size) = (l.shape(), l.dtype().size());
    let from = rows(l, 1)?;
    let rotated = RotatedRows::new(op.rope, &from);
    let periods = if op.rope.base.is_none() { Some(Strided::row_major(l, 2)?) } else { None };
    let row = {
        let (heads, room, width) = (shape[1], shape[2], shape[3]);
        let first = [0, 1, 2].map(|axis| op.starts[axis] as usize);
        move |sequence: usize, head: usize| {
            (((first[0] + sequence) * heads + first[1] + head) * room + first[2]) * width
        }
    };
    let [batch, heads] = rotated.counts;
    let (first, end) = (row(0, 0), row(batch - 1, heads - 1) + rotated.width);
    let block = match l.take_in_place() {
        Some(owned) => owned.into_data(),
        None => Data::contiguous(copy(l.stream(), l.input(0), shape, l.dtype())?, shape),
    };
    let base = block.offset as usize;
    let mut command = l.stream().command(op.name()).read_range(&from.data.buffer, from.bytes);
    if let Some(periods) = &periods {
        command = command.read_range(&periods.data.buffer, periods.bytes.clone());
    }
    command.read_write_range(&block.buffer, (base + first) * size..(base + end) * size).run(
        move |native| {
            let Some((to, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let to = to.as_mut_slice::<T>()?;
            let periods = inputs.get(1).map_or(Ok(&[][..]), |periods| periods.as_slice::<f32>())?;
            rotated.each::<T>(inputs[0].as_slice()?, periods, |[sequence, head], found| {
                let begin = row(sequence, head) - first;
                T::store(found, &mut to[begin..begin + found.len()]);
            });
            Ok(())
        },
    )?;
    Ok(block)
}

/// Cosines and sines in a table on the heap, at most.
const MAX_HEAP_ROTATIONS: usize = 1 << 12;

fn run<T: Float>(op: Rope, l: &Lowering<'_>) -> Result<Data> {
    let shape = l.shape();
    let (rank, width) = (shape.len(), shape[shape.len() - 1]);
    let (batch, length) = (shape[0], shape[rank - 2]);
    let x = if l.input(0).strides[rank - 1] == 1 || width == 1 {
        Strided::input(l, 0)
    } else {
        Strided::row_major(l, 0)?
    };
    let mut bound: SmallVec<[Strided; 3]> = smallvec![x];
    for at in 1..l.input_count() {
        bound.push(if at == 1 && op.offset.is_none() {
            Strided::input(l, at)
        } else {
            Strided::row_major(l, at)?
        });
    }
    let offsets = op.offset.is_none().then(|| (bound[1].layout(), l.input_dtype(1)));
    // One table of cosines and sines for each sequence with an offset of its own.
    let tables = offsets.as_ref().map_or(1, |(offsets, _)| offsets.shape.iter().product::<usize>());
    let rotations = tables * length * op.dims;
    // A small table costs less on the heap than from the pool of the stream.
    let table = if rotations > MAX_HEAP_ROTATIONS { Some(l.stream().alloc(rotations * 4)?) } else { None };
    let output = l.output()?;
    let mut command = l.stream().command(op.name());
    for one in &bound {
        command.add(&one.data.buffer, one.bytes.clone(), Access::Read);
    }
    let (inputs, freqs_at) = (bound.len(), op.base.is_none().then_some(bound.len() - 1));
    let x = bound[0].layout();
    for written in table.iter().chain([&output]) {
        command.add(written, .., Access::Write);
    }
    command.run(move |native| {
        let (inputs, written) = native.views().split_at_mut(inputs);
        let Some((out, table)) = written.split_last_mut() else { return Ok(()) };
        let freqs = freqs_at.map_or(Ok(&[][..]), |at| inputs[at].as_slice::<f32>())?;
        let steps = steps(op.dims / 2, op.base.map(|base| base.0), freqs);
        let starts: Vec<f32> = match &offsets {
            None => vec![op.offset.unwrap_or(0) as f32],
            Some((offsets, dtype)) => {
                let all = Indices::of(&inputs[1], *dtype)?;
                let stride = offsets.strides.first().copied().unwrap_or(0);
                (0..tables).map(|at| all.number(offsets.offset + at as isize * stride) as f32).collect()
            }
        };
        let dims = op.dims;
        let mut heap = Vec::new();
        let table = match table.first_mut() {
            Some(table) => table.as_mut_slice::<f32>()?,
            None => {
                heap.resize(rotations, 0.0);
                &mut heap[..]
            }
        };
        par_chunks_mut(table, GRAIN / 16 / dims.max(1) * dims, |task, rotations| {
            let first = task * (GRAIN / 16 / dims.max(1)).max(1);
            for (at, rotation) in rotations.chunks_exact_mut(dims).enumerate() {
                let (start, place) = (starts[(first + at) / length], (first + at) % length);
                angles(&op, &steps, place as f32 + start, rotation);
            }
        });
        let (table, x_all) = (&*table, inputs[0].as_slice::<T>()?);
        let rows = (GRAIN / width).max(1);
        let heads: usize = x.shape[1..rank - 2].iter().product();
        par_chunks_mut(out.as_mut_slice::<T>()?, rows * width, |task, piece| {
            let mut row = vec![T::Wide::of(0.0); width];
            let outer = &x.shape[..rank - 1];
            let mut cursor = Cursor::new(outer, [&x.strides[..rank - 1]], task * rows);
            for (at, to) in piece.chunks_exact_mut(width).enumerate() {
                let number = task * rows + at;
                let start = (x.offset + cursor.at[0]) as usize;
                T::load(&x_all[start..start + width], &mut row);
                let sequence = if tables == batch { number / (heads * length) } else { 0 };
                let first = (sequence * length + number % length) * dims;
                rotate(&op, &mut row, &table[first..first + dims]);
                T::store(&row, to);
                cursor.advance();
            }
        });
        Ok(())
    })?;
    Ok(Data::contiguous(output, shape))
}
