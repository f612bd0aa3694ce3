//! The Walsh-Hadamard transform.

use smallvec::smallvec;

use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;

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

/// The Hadamard matrix of an order that is no power of two, in row-major order.
fn matrix(order: usize, transposed: bool) -> Vec<f32> {
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
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        if element(row, column) { 1.0 } else { -1.0 }
    };
    (0..order * order).map(|at| sign(at / order, at % order)).collect()
}

/// The Walsh-Hadamard transform of the last axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hadamard {
    /// The factor of the length that is no power of two, or one.
    pub order: usize,
    /// Whether the matrix of that order is transposed.
    pub transposed: bool,
    /// The factor of the result.
    pub scale: BitEq<f32>,
}

impl Hadamard {
    /// The Hadamard matrix of the factor that is no power of two, in row-major order; empty if that is one.
    pub fn signs(&self) -> Vec<f32> {
        if self.order > 1 { matrix(self.order, self.transposed) } else { Vec::new() }
    }
}

impl Op for Hadamard {
    fn name(&self) -> &'static str {
        "hadamard_transform"
    }

    fn export(&self) -> Export {
        Record::new("hadamard_transform").with("scale", self.scale.0).with("turned", self.transposed).into()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let op = OpRef::new(Hadamard { transposed: !self.transposed, ..self.clone() });
        let cotangent = rule.cotangent()?;
        rule.only(Array::lazy(cotangent.0.shape.clone(), cotangent.dtype(), op, smallvec![cotangent]))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

impl Array {
    /// The Walsh-Hadamard transform of the last axis, times `scale` (one over the square root of its
    /// length, if not given). The length is a power of two, or such a power times 12, 20 or 28.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1.0, 2.0, 3.0, 4.0];
    /// assert_eq!(x.hadamard_transform(Some(1.0))?.to_vec::<f32>()?, [10.0, -2.0, -4.0, 0.0]);
    /// let twice = x.hadamard_transform(None)?.hadamard_transform(None)?; // its own inverse
    /// assert_eq!(twice.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn hadamard_transform(&self, scale: Option<f32>) -> Result<Array> {
        let length = self.shape().last().copied().unwrap_or(1);
        let order = [1, 12, 20, 28]
            .into_iter()
            .find(|order| length.is_multiple_of(*order) && (length / order).is_power_of_two());
        // As in MLX, one element is its own transform in any type.
        if length == 1 && scale.is_none() {
            return Ok(self.clone());
        }
        let Some(order) = order else {
            let what = format!("no transform of {length} elements: shape {:?}", self.shape());
            return Err(Error::shape("hadamard_transform", what).with_shapes([self]));
        };
        let dtype = match self.dtype() {
            Dtype::Complex64 | Dtype::Complex128 | Dtype::Float64 => {
                let what = "not defined for an array".into();
                return Err(Error::Type { op: "hadamard_transform".into(), what, dtype: self.dtype() });
            }
            dtype => dtype.to_inexact(),
        };
        let scale = scale.unwrap_or(1.0 / (length as f32).sqrt());
        let shape: smallvec::SmallVec<[isize; 6]> = self.shape().iter().map(|x| *x as isize).collect();
        let input = if self.ndim() == 0 { self.reshape(&[1])? } else { self.clone() }.astype(dtype)?;
        let op = OpRef::new(Hadamard { order, transposed: false, scale: BitEq(scale) });
        Array::lazy(input.0.shape.clone(), dtype, op, smallvec![input])?.reshape(&shape)
    }
}

reader!("hadamard_transform", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    if replay.free {
        replay.unmoved()?;
    }
    let made = x.hadamard_transform(Some(replay.float("scale")? as f32))?;
    if !replay.flag("turned")? {
        return Ok(made);
    }
    let length = x.shape().last().copied().unwrap_or(1);
    let order = [1, 12, 20, 28]
        .into_iter()
        .find(|order| length.is_multiple_of(*order) && (length / order).is_power_of_two());
    let op =
        Hadamard { order: order.unwrap_or(1), transposed: true, scale: BitEq(replay.float("scale")? as f32) };
    let input = if x.ndim() == 0 { x.reshape(&[1])? } else { x.clone() }.astype(made.dtype())?;
    Array::lazy(input.0.shape.clone(), made.dtype(), OpRef::new(op), smallvec![input])
}
