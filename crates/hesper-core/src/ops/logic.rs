//! Comparison, classification, logic and bits, element by element: the table, choice between arrays, and
//! whether whole arrays agree.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, Scalar, UnaryOp, ValueId};
use smallvec::smallvec;

use super::OpRef;
use super::arithmetic::{Number, number};
use super::complex;
use super::elementwise::{Elementwise, Factor, Types, table};
use super::functions::infinity;
use crate::Dtype;
use crate::array::Array;
use crate::error::Result;
use crate::export::Replay;
use crate::ops::readers::reader;
use crate::shape::broadcast;

fn compare(b: &mut Builder, op: CmpOp, x: ValueId, y: ValueId) -> ValueId {
    match number(b, x) {
        Number::Complex => complex::compare(b, op, x, y),
        Number::Bool => {
            // Bools have no order in a kernel.
            let (x, y) = (b.convert(x, Scalar::U8), b.convert(y, Scalar::U8));
            b.compare(op, x, y)
        }
        Number::Integer | Number::Float => b.compare(op, x, y),
    }
}

/// Classifies floats; complex numbers by either part (by both for "finite"); integers are finite.
fn classify(b: &mut Builder, op: UnaryOp, x: ValueId) -> ValueId {
    let finite = op == UnaryOp::IsFinite;
    match number(b, x) {
        Number::Float => b.unary(op, x),
        Number::Integer | Number::Bool => b.bool(finite),
        Number::Complex => {
            let z = complex::parts(b, x);
            let (re, im) = (b.unary(op, z.re), b.unary(op, z.im));
            b.binary(if finite { BinaryOp::And } else { BinaryOp::Or }, re, im)
        }
    }
}

/// Shifts as in C: narrow integers as 32-bit ones, counts modulo the width.
fn shift(b: &mut Builder, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
    let own = b.ty(x).scalar().unwrap_or(Scalar::I32);
    if own.bits() >= 32 {
        return b.binary(op, x, y);
    }
    let (x, y) = (b.convert(x, Scalar::I32), b.convert(y, Scalar::I32));
    let shifted = b.binary(op, x, y);
    b.convert(shifted, own)
}

table! {
    /// Whether elements are equal.
    equal(other): Compare = |b, x, y| compare(b, CmpOp::Eq, x, y);
    /// Whether elements differ.
    not_equal(other): Compare = |b, x, y| compare(b, CmpOp::Ne, x, y);
    /// Whether elements are less. Complex numbers are ordered by real, then by imaginary part.
    less(other): Compare = |b, x, y| compare(b, CmpOp::Lt, x, y);
    /// Whether elements are less or equal.
    less_equal(other): Compare = |b, x, y| compare(b, CmpOp::Le, x, y);
    /// Whether elements are greater.
    greater(other): Compare = |b, x, y| compare(b, CmpOp::Gt, x, y);
    /// Whether elements are greater or equal.
    greater_equal(other): Compare = |b, x, y| compare(b, CmpOp::Ge, x, y);
    /// Logical and.
    logical_and(other): Logical = |b, x, y| b.binary(BinaryOp::And, x, y);
    /// Logical or.
    logical_or(other): Logical = |b, x, y| b.binary(BinaryOp::Or, x, y);
    /// Logical exclusive or.
    logical_xor(other): Logical = |b, x, y| b.binary(BinaryOp::Xor, x, y);
    /// Logical not.
    logical_not(): Logical = |b, x| b.unary(UnaryOp::Not, x);
    /// Bitwise and.
    bitwise_and(other): Integral = |b, x, y| b.binary(BinaryOp::And, x, y);
    /// Bitwise or.
    bitwise_or(other): Integral = |b, x, y| b.binary(BinaryOp::Or, x, y);
    /// Bitwise exclusive or.
    bitwise_xor(other): Integral = |b, x, y| b.binary(BinaryOp::Xor, x, y);
    /// All bits turned over.
    bitwise_invert(): Integral = |b, x| b.unary(UnaryOp::Not, x);
    /// Bits shifted to the left.
    left_shift(other): Shift = |b, x, y| shift(b, BinaryOp::Shl, x, y);
    /// Bits shifted to the right.
    right_shift(other): Shift = |b, x, y| shift(b, BinaryOp::Shr, x, y);
    /// Whether elements are NaN.
    isnan(): Compare = |b, x| classify(b, UnaryOp::IsNan, x);
    /// Whether elements are infinite.
    isinf(): Compare = |b, x| classify(b, UnaryOp::IsInf, x);
    /// Whether elements are finite.
    isfinite(): Compare = |b, x| classify(b, UnaryOp::IsFinite, x);
    /// Whether elements are plus infinity.
    isposinf(): Compare = |b, x| infinity(b, x, 1.0);
    /// Whether elements are minus infinity.
    isneginf(): Compare = |b, x| infinity(b, x, -1.0);
}

/// `if_true` where `condition` holds, else `if_false`, element by element: `where` in other languages.
pub fn select(condition: &Array, if_true: &Array, if_false: &Array) -> Result<Array> {
    static OP: Elementwise =
        Elementwise::new("where", Types::Same, |b, inputs| b.select(inputs[0], inputs[1], inputs[2]))
            .with_derivative(|x, _, at| {
                Ok(if at == 1 { Factor::If(x[0].clone()) } else { Factor::Unless(x[0].clone()) })
            });
    let condition = condition.astype(Dtype::Bool)?;
    let (_, dtype) = OP.types_for(&[if_true.dtype(), if_false.dtype()])?;
    let shape = broadcast("where", condition.shape(), if_true.shape())?;
    let shape = broadcast("where", &shape, if_false.shape())?;
    let inputs = smallvec![condition, if_true.astype(dtype)?, if_false.astype(dtype)?];
    Array::lazy(shape, dtype, OpRef::Static(&OP), inputs)
}

/// How far numbers may differ and still be close: `|a - b| <= absolute + relative * |b|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// In parts of the second number. Default `1e-5`.
    pub relative: f64,
    /// Default `1e-8`.
    pub absolute: f64,
    /// Whether NaN is close to NaN. Default no.
    pub equal_nan: bool,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { relative: 1e-5, absolute: 1e-8, equal_nan: false }
    }
}

impl Array {
    /// Whether elements are close. Infinities are close to themselves only.
    pub fn isclose(&self, other: &Array, tolerance: Tolerance) -> Result<Array> {
        let distance = self.subtract(other)?.abs()?;
        let allowed = other.abs()?.multiply(tolerance.relative)?.add(tolerance.absolute)?;
        let near = distance.less_equal(&allowed)?;
        let infinite = self.isinf()?.logical_or(other.isinf()?)?;
        let close = select(&infinite, &self.equal(other)?, &near)?;
        if !tolerance.equal_nan {
            return Ok(close);
        }
        close.logical_or(self.isnan()?.logical_and(other.isnan()?)?)
    }

    /// Whether all elements are close: a bool of no axes.
    pub fn allclose(&self, other: &Array, tolerance: Tolerance) -> Result<Array> {
        holds(&self.isclose(other, tolerance)?)
    }

    /// Whether shapes and all elements are equal, whatever the types: a bool of no axes.
    pub fn array_equal(&self, other: &Array, equal_nan: bool) -> Result<Array> {
        if self.shape() != other.shape() {
            return Array::scalar(0.0, Dtype::Bool);
        }
        let equal = self.equal(other)?;
        if !equal_nan {
            return holds(&equal);
        }
        holds(&equal.logical_or(self.isnan()?.logical_and(other.isnan()?)?)?)
    }
}

/// Whether all elements hold.
fn holds(bools: &Array) -> Result<Array> {
    if bools.size() == 0 {
        return Array::scalar(1.0, Dtype::Bool);
    }
    bools.astype(Dtype::Uint8)?.min(None, false)?.astype(Dtype::Bool)
}

reader!("where", One(read_where));
fn read_where(replay: &Replay<'_>) -> Result<Array> {
    let [condition, if_true, if_false] = replay.inputs()?;
    select(condition, if_true, if_false)
}
