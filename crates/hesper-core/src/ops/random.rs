//! The ops behind [`random`](crate::random): random bits, random order and choice.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpKind, OpRef};
use crate::Dtype;
use crate::error::Result;
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::source::stop_gradient;
use crate::shape::{Shape, row_major};

/// Random words of 32 bits from a key.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Bits;

impl Op for Bits {
    fn name(&self) -> &'static str {
        "random bits"
    }

    fn export(&self) -> Export {
        Record::new("random_bits").into()
    }
}

/// An array of random words from a key.
pub fn bits_of(key: Array, shape: &[usize]) -> Result<Array> {
    Array::lazy(shape.into(), Dtype::Uint32, OpRef::Static(&Bits), smallvec![key])
}

/// Rows of an array in the order that sorts random words; equal words keep their order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PermuteRows;

impl Op for PermuteRows {
    fn name(&self) -> &'static str {
        "permutation"
    }

    fn export(&self) -> Export {
        Record::new("permutation").into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let order = rule.inputs[1].argsort(Some(0))?;
        let rows = rule.cotangent()?.expand_dims(1)?;
        rule.only(zeros_like(&rule.inputs[0])?.scatter_add(&[stop_gradient(&order)?], &rows, &[0]))
    }
}

/// The rows in the order that sorts `words`.
pub fn permute_rows(rows: &Array, words: &Array) -> Result<Array> {
    let inputs = smallvec![rows.clone(), words.clone()];
    Array::lazy(rows.0.shape.clone(), rows.dtype(), OpRef::Static(&PermuteRows), inputs)
}

/// The index of the largest float32 of each row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Choose;

impl Op for Choose {
    fn name(&self) -> &'static str {
        "categorical"
    }

    fn export(&self) -> Export {
        Record::new("categorical").into()
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// The index of the largest element along an axis.
pub fn choose(numbers: &Array, axis: usize) -> Result<Array> {
    let axis = axis as isize;
    let mut order: SmallVec<[isize; 6]> = (0..numbers.ndim() as isize).filter(|one| *one != axis).collect();
    order.push(axis);
    let last = numbers.transpose(&order)?;
    let [rest @ .., length] = last.shape() else { return Ok(last) };
    if *length == 0 {
        let what = format!("a distribution over no values, in logits of shape {:?}", numbers.shape());
        return Err(crate::Error::value("categorical", what));
    }
    let shape: Shape = rest.into();
    Array::lazy(shape, Dtype::Uint32, OpRef::Static(&Choose), smallvec![last])
}

/// Pairs of float32 as complex numbers: the same memory.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AsComplex;

impl Op for AsComplex {
    fn name(&self) -> &'static str {
        "as complex"
    }

    fn export(&self) -> Export {
        Record::new("as_complex").into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let mut pairs = l.row_major(0)?;
        if pairs.offset % 2 != 0 {
            // Copy: a complex number would not be aligned to its size.
            pairs = l.copy_of(0)?;
        }
        Ok(Data { buffer: pairs.buffer, offset: pairs.offset / 2, strides: row_major(l.shape()) })
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let cotangent = rule.cotangent()?;
        let pairs = crate::stack(&[cotangent.real()?, cotangent.imag()?], -1)?;
        rule.only(pairs.reshape(rule.inputs[0].shape()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// Pairs of float32 as complex numbers of a shape.
pub fn as_complex(pairs: &Array, shape: &[usize]) -> Result<Array> {
    Array::lazy(shape.into(), Dtype::Complex64, OpRef::Static(&AsComplex), smallvec![pairs.clone()])
}

reader!("random_bits", One(read_bits));
fn read_bits(replay: &Replay<'_>) -> Result<Array> {
    let [key] = replay.inputs()?;
    if key.dtype() != Dtype::Uint32 || key.size() != 2 {
        return Err(replay.wrong("no key"));
    }
    bits_of(key.clone(), replay.shape())
}

reader!("permutation", One(read_permutation));
fn read_permutation(replay: &Replay<'_>) -> Result<Array> {
    let [rows, words] = replay.inputs()?;
    if words.dtype() != Dtype::Uint32 || words.ndim() != 1 || rows.shape().first() != words.shape().first() {
        return Err(replay.wrong("words that do not fit its rows"));
    }
    permute_rows(rows, words)
}

reader!("categorical", One(read_categorical));
fn read_categorical(replay: &Replay<'_>) -> Result<Array> {
    let [numbers] = replay.inputs()?;
    if numbers.dtype() != Dtype::Float32 || numbers.ndim() == 0 {
        return Err(replay.wrong("no rows of float32"));
    }
    choose(numbers, numbers.ndim() - 1)
}

reader!("as_complex", One(read_as_complex));
fn read_as_complex(replay: &Replay<'_>) -> Result<Array> {
    let [pairs] = replay.inputs()?;
    replay.unmoved()?;
    let size = crate::shape::size_of(replay.shape())?;
    if pairs.dtype() != Dtype::Float32 || size.checked_mul(2) != Some(pairs.size()) {
        return Err(replay.wrong("no pairs of float32"));
    }
    as_complex(pairs, replay.shape())
}
