//! The Walsh-Hadamard transform.

use half::{bf16, f16};
use smallvec::smallvec;

use super::walk::{GRAIN, Strided, par_chunks};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose;
use crate::ops::command::Commands;
use crate::transform::rule::{Backward, Batch, Cotangents};
use crate::{Dtype, Element};
use hesper_compute::Float;

/// Four by four circulant blocks, each given by its first row.
type Blocks = [&'static str; 16];

/// Williamson's matrix of 20 rows.
const TWENTY: Blocks = [
    "+----", "+----", "++--+", "+-++-", "-++++", "+----", "-+--+", "++--+", "--++-", "+-++-", "+----",
    "-++++", "-+--+", "--++-", "+----", "+----",
];

/// Williamson's matrix of 28 rows.
const TWENTY_EIGHT: Blocks = [
    "+------", "++----+", "+-+--+-", "+--++--", "--++++-", "+------", "-++--++", "+-+--+-", "-+-++-+",
    "+--++--", "+------", "--++++-", "-++--++", "-+-++-+", "++----+", "+------",
];

/// The Hadamard matrix of an order that is no power of two, row by row.
fn matrix(order: usize, turned: bool) -> Vec<f32> {
    let element = |row: usize, column: usize| -> bool {
        let blocks = match order {
            12 => {
                // Paley's: quadratic residues modulo 5, with a border, times a matrix of two rows.
                let (i, j) = (row / 2, column / 2);
                let (down, right) = (row % 2 == 1, column % 2 == 1);
                if i == j {
                    return !(down || right);
                }
                let residue = i == 0 || j == 0 || matches!((j + 5 - i) % 5, 1 | 4);
                return residue != (down && right);
            }
            20 => TWENTY,
            _ => TWENTY_EIGHT,
        };
        let size = order / 4;
        let first = blocks[row / size * 4 + column / size].as_bytes();
        first[(column % size + size - row % size) % size] == b'+'
    };
    let sign = |row: usize, column: usize| {
        let (row, column) = if turned { (column, row) } else { (row, column) };
        if element(row, column) { 1.0 } else { -1.0 }
    };
    (0..order * order).map(|at| sign(at / order, at % order)).collect()
}

#[derive(Debug, Clone)]
struct Hadamard {
    /// The factor of the length that is no power of two, or one.
    order: usize,
    /// Whether the matrix of that order is turned round.
    turned: bool,
    scale: f32,
}

impl Op for Hadamard {
    fn name(&self) -> &'static str {
        "hadamard_transform"
    }

    fn export(&self) -> Export {
        Record::new("hadamard_transform").with("scale", self.scale).with("turned", self.turned).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float16 => run::<f16>(self, l),
            Dtype::Bfloat16 => run::<bf16>(self, l),
            _ => run::<f32>(self, l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let signs = if self.order > 1 { matrix(self.order, self.turned) } else { Vec::new() };
        compose::compose(l, |inputs| compose::hadamard(inputs, self.order, &signs, self.scale))
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let op = OpRef::new(Hadamard { turned: !self.turned, ..self.clone() });
        let cotangent = rule.cotangent()?;
        rule.only(Array::lazy(cotangent.0.shape.clone(), cotangent.dtype(), op, smallvec![cotangent]))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

fn run<T: Float + Element>(op: &Hadamard, l: &Lowering<'_>) -> Result<Data> {
    let (op, input, output) = (op.clone(), Strided::row_major(l, 0)?, l.output()?);
    let length = l.shape()[l.shape().len() - 1];
    let buffer = input.data.buffer.clone();
    l.stream().command("hadamard").read_range(&buffer, input.bytes.clone()).write(&output).run(
        move |native| {
            let [from, to] = native.take()?;
            let from = from.as_slice::<T>()?;
            let signs = if op.order > 1 { matrix(op.order, op.turned) } else { Vec::new() };
            let part = length / op.order;
            par_chunks(to.as_mut_slice::<T>()?, (GRAIN / length).max(1) * length, |first, rows| {
                let (mut line, mut mixed) = (vec![0.0f32; length], vec![0.0f32; length]);
                for (at, row) in rows.chunks_mut(length).enumerate() {
                    let from = &from[first + at * length..][..length];
                    line.iter_mut().zip(from).for_each(|(to, x)| *to = x.to_f32());
                    line.chunks_mut(part).for_each(butterflies);
                    if op.order > 1 {
                        mix(&signs, op.order, &line, &mut mixed);
                        std::mem::swap(&mut line, &mut mixed);
                    }
                    row.iter_mut().zip(&line).for_each(|(to, x)| *to = T::from_f32(x * op.scale));
                }
            });
            Ok(())
        },
    )?;
    Ok(Data::contiguous(output, l.shape()))
}

/// The transform of a power of two, in place.
fn butterflies(line: &mut [f32]) {
    let mut half = 1;
    while half < line.len() {
        for pair in line.chunks_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// A matrix of signs times the parts of a line.
fn mix(signs: &[f32], order: usize, line: &[f32], mixed: &mut [f32]) {
    let part = line.len() / order;
    for (target, signs) in mixed.chunks_mut(part).zip(signs.chunks(order)) {
        target.fill(0.0);
        for (from, sign) in line.chunks(part).zip(signs) {
            target.iter_mut().zip(from).for_each(|(to, x)| *to += sign * x);
        }
    }
}

impl Array {
    /// The Walsh-Hadamard transform of the last axis, times `scale` (one over the square root of its
    /// length, if not given). Lengths are a power of two, or one times 12, 20 or 28.
    pub fn hadamard_transform(&self, scale: Option<f32>) -> Result<Array> {
        let length = self.shape().last().copied().unwrap_or(1);
        let order = [1, 12, 20, 28]
            .into_iter()
            .find(|order| length.is_multiple_of(*order) && (length / order).is_power_of_two());
        let Some(order) = order else {
            let what = format!("no transform of {length} elements: shape {:?}", self.shape());
            return Err(Error::shape("hadamard_transform", what));
        };
        let dtype = match self.dtype() {
            Dtype::Complex64 | Dtype::Float64 => {
                let what = "not defined for an array".into();
                return Err(Error::Type { op: "hadamard_transform".into(), what, dtype: self.dtype() });
            }
            dtype => dtype.to_inexact(),
        };
        let scale = scale.unwrap_or(1.0 / (length as f32).sqrt());
        let shape: smallvec::SmallVec<[isize; 6]> = self.shape().iter().map(|x| *x as isize).collect();
        let input = if self.ndim() == 0 { self.reshape(&[1])? } else { self.clone() }.astype(dtype)?;
        let op = OpRef::new(Hadamard { order, turned: false, scale });
        Array::lazy(input.0.shape.clone(), dtype, op, smallvec![input])?.reshape(&shape)
    }
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    if replay.free {
        replay.unmoved()?;
    }
    let made = x.hadamard_transform(Some(replay.float("scale")? as f32))?;
    if !replay.flag("turned")? {
        return Ok(made);
    }
    // The other way round it is the transposed matrix.
    let length = x.shape().last().copied().unwrap_or(1);
    let order = [1, 12, 20, 28]
        .into_iter()
        .find(|order| length.is_multiple_of(*order) && (length / order).is_power_of_two());
    let op = Hadamard { order: order.unwrap_or(1), turned: true, scale: replay.float("scale")? as f32 };
    let input = if x.ndim() == 0 { x.reshape(&[1])? } else { x.clone() }.astype(made.dtype())?;
    Array::lazy(input.0.shape.clone(), made.dtype(), OpRef::new(op), smallvec![input])
}
