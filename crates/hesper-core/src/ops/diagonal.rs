//! Diagonals: as views of matrices, as matrices made of vectors, and their sums.

use smallvec::smallvec;

use super::reinterpret::strided_sum;
use super::{Op, OpKind, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Data, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, Strides, axis, row_major};

/// A diagonal of two axes as the last axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Diagonal {
    /// The axes that it runs along.
    pub axes: [usize; 2],
    /// Where it starts, along each of the axes.
    pub start: [usize; 2],
}

impl Op for Diagonal {
    fn name(&self) -> &'static str {
        "diagonal"
    }

    fn export(&self) -> Export {
        let offset = self.start[1] as isize - self.start[0] as isize;
        Record::new("diagonal").with("axes", &self.axes[..]).with("offset", offset).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn view(&self, data: &Data, _: &[usize], to: &[usize]) -> Option<Data> {
        let [first, second] = self.axes;
        let mut strides: Strides = data
            .strides
            .iter()
            .enumerate()
            .filter(|(axis, _)| !self.axes.contains(axis))
            .map(|(_, stride)| *stride)
            .collect();
        strides.push(data.strides[first] + data.strides[second]);
        let moved =
            self.start[0] as isize * data.strides[first] + self.start[1] as isize * data.strides[second];
        // A diagonal of no elements starts outside.
        let moved = if to.contains(&0) { 0 } else { moved };
        Some(Data { buffer: data.buffer.clone(), offset: data.offset + moved, strides })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let shape = rule.inputs[0].shape();
        let all = row_major(shape);
        let [first, second] = self.axes;
        let mut strides: Strides =
            (0..all.len()).filter(|at| !self.axes.contains(at)).map(|at| all[at]).collect();
        strides.push(all[first] + all[second]);
        let offset = self.start[0] as isize * all[first] + self.start[1] as isize * all[second];
        rule.only(strided_sum(&rule.cotangent()?, shape, &strides, offset))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let op = Diagonal { axes: self.axes.map(|at| at + 1), start: self.start };
        rule.apply(OpRef::new(op), smallvec![rule.front(0)?])
    }
}

/// A square matrix with a vector on a diagonal, so many columns to the right of the main one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Diag(pub isize);

impl Op for Diag {
    fn name(&self) -> &'static str {
        "diag"
    }

    fn export(&self) -> Export {
        Record::new("diag").with("k", self.0).into()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(rule.cotangent()?.diagonal(self.0, 0, 1))
    }
}

impl Array {
    /// The diagonal of two axes, `offset` places along the second, as a view: those axes go, and the
    /// diagonal is the last one.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1, 2, 3], [4, 5, 6]];
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec::<i32>()?, [2, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn diagonal(&self, offset: isize, axis1: isize, axis2: isize) -> Result<Array> {
        let op = "diagonal";
        if self.ndim() < 2 {
            let what = format!("an array of shape {:?} has no two axes", self.shape());
            return Err(Error::shape(op, what).with_shapes([self]));
        }
        let axes = [axis(op, axis1, self.ndim())?, axis(op, axis2, self.ndim())?];
        if axes[0] == axes[1] {
            return Err(Error::RepeatedAxis { op: op.into(), axes: vec![axis1, axis2] });
        }
        let [rows, columns] = axes.map(|axis| self.shape()[axis]);
        let start = [offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs()];
        let length = rows.saturating_sub(start[0]).min(columns.saturating_sub(start[1]));
        let mut shape: Shape =
            (0..self.ndim()).filter(|axis| !axes.contains(axis)).map(|axis| self.shape()[axis]).collect();
        shape.push(length);
        Array::lazy(shape, self.dtype(), OpRef::new(Diagonal { axes, start }), smallvec![self.clone()])
    }

    /// Of a matrix a diagonal; of a vector the square matrix that has it on its diagonal and is zero
    /// elsewhere. `k` places to the right of the main one.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1, 2].diag(0)?;
    /// assert_eq!(x.to_vec::<i32>()?, [1, 0, 0, 2]);
    /// assert_eq!(x.diag(0)?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn diag(&self, k: isize) -> Result<Array> {
        match self.ndim() {
            2 => self.diagonal(k, 0, 1),
            1 => {
                let side = self.size().saturating_add(k.unsigned_abs());
                let op = OpRef::new(Diag(k));
                Array::lazy(smallvec![side, side], self.dtype(), op, smallvec![self.clone()])
            }
            _ => {
                let what = format!("takes a vector or a matrix, not an array of shape {:?}", self.shape());
                Err(Error::shape("diag", what).with_shapes([self]))
            }
        }
    }

    /// The sum of a diagonal of two axes, of elements of a type of their own if asked.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let x = array![[1u8, 2], [3, 255]];
    /// assert_eq!(x.trace(0, 0, 1, Some(Dtype::Int32))?.item::<i32>()?, 256);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn trace(&self, offset: isize, axis1: isize, axis2: isize, dtype: Option<Dtype>) -> Result<Array> {
        let diagonal = self.diagonal(offset, axis1, axis2)?;
        let diagonal = match dtype {
            Some(dtype) => diagonal.astype(dtype)?,
            None => diagonal,
        };
        diagonal.sum(-1)
    }
}

reader!("diagonal", One(read_diagonal));
fn read_diagonal(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let axes = replay.axes("axes")?;
    let [first, second] = axes[..] else { return Err(replay.wrong("no two axes")) };
    x.diagonal(replay.axis("offset")?, first, second)
}

reader!("diag", One(read_diag));
fn read_diag(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    if x.ndim() != 1 {
        return Err(replay.wrong("an input that is no vector"));
    }
    x.diag(replay.axis("k")?)
}
