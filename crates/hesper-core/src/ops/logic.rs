//! Comparison, classification, logic and bits, element by element: the table, choice between arrays, and
//! whether whole arrays agree.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, Scalar, UnaryOp, ValueId};
use smallvec::smallvec;

use super::OpRef;
use super::arithmetic::{Number, number};
use super::complex;
use super::elementwise::{Elementwise, Factor, Types, define_ops};
use super::functions::infinity;
use crate::Dtype;
use crate::error::Result;
use crate::graph::{Array, Replay};
use crate::ops::readers::reader;
use crate::scalar::Operand;
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

/// A shift of 32 or 64 bits. By the width and more it leaves no bit, but that of the sign to the right.
fn within(b: &mut Builder, op: BinaryOp, x: ValueId, y: ValueId, own: Scalar) -> ValueId {
    let (unsigned, bits) = if own.bits() == 64 { (Scalar::U64, 64) } else { (Scalar::U32, 32) };
    let (count, width) = (b.convert(y, unsigned), b.constant(unsigned, bits));
    let is_within = b.compare(CmpOp::Lt, count, width);
    let shifted = b.binary(op, x, y);
    let beyond = if op == BinaryOp::Shr && own.is_signed_int() {
        let last = b.constant(own, bits - 1);
        b.binary(op, x, last)
    } else {
        b.constant(own, 0)
    };
    b.select(is_within, shifted, beyond)
}

/// Shifts narrow integers as 32-bit ones.
fn shift(b: &mut Builder, op: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
    let own = b.ty(x).scalar().unwrap_or(Scalar::I32);
    if own.bits() >= 32 {
        return within(b, op, x, y, own);
    }
    let (x, y) = (b.convert(x, Scalar::I32), b.convert(y, Scalar::I32));
    let shifted = within(b, op, x, y, Scalar::I32);
    b.convert(shifted, own)
}

/// The table of comparisons, classification, logic and bits. [`elementwise`](super::elementwise) explains an
/// entry.
#[doc(hidden)]
#[macro_export]
macro_rules! logic_ops {
    ($callback:ident) => {
        $callback! {
        /// Whether elements are equal.
        equal(other): Compare = |b, x, y| compare(b, CmpOp::Eq, x, y);
            rust "array![7, 4].equal(array![7.0, 4.5])" => "array([True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([False, True], dtype=bool)";
            cases [Integer, Count] [Real, Real] [Complex, Complex];
        /// Whether elements differ.
        not_equal(other): Compare = |b, x, y| compare(b, CmpOp::Ne, x, y);
            rust "array![7, 4].not_equal(4)" => "array([True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([True, False], dtype=bool)";
            cases [Integer, Count] [Real, Real] [Complex, Complex];
        /// Whether elements of the first are less. Complex numbers are ordered by real, then by imaginary
        /// part.
        less(other): Compare = |b, x, y| compare(b, CmpOp::Lt, x, y);
            rust "array![1.0, f32::NAN].less(2.0)" => "array([True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([False, False], dtype=bool)";
            cases [Real, Real] [Integer, Count] [Complex, Complex];
        /// Whether elements of the first are less or equal.
        less_equal(other): Compare = |b, x, y| compare(b, CmpOp::Le, x, y);
            rust "array![1, 2, 3].less_equal(2)" => "array([True, True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([False, True], dtype=bool)";
            cases [Real, Real] [Integer, Count] [Complex, Complex];
        /// Whether elements of the first are greater.
        greater(other): Compare = |b, x, y| compare(b, CmpOp::Gt, x, y);
            rust "array![7, 4].greater(array![2, 4])" => "array([True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([True, False], dtype=bool)";
            cases [Real, Real] [Integer, Count] [Complex, Complex];
        /// Whether elements of the first are greater or equal.
        greater_equal(other): Compare = |b, x, y| compare(b, CmpOp::Ge, x, y);
            rust "array![7, 4].greater_equal(array![2, 5])" => "array([True, False], dtype=bool)";
            python "mx.array([7, 4]), mx.array([2, 4])" => "array([True, True], dtype=bool)";
            cases [Real, Real] [Integer, Count] [Complex, Complex];
        /// Logical and.
        logical_and(other): Logical = |b, x, y| b.binary(BinaryOp::And, x, y);
            rust "array![2, 0].logical_and(true)" => "array([True, False], dtype=bool)";
            python "mx.array([True, False]), True" => "array([True, False], dtype=bool)";
            cases [Integer, Count];
        /// Logical or.
        logical_or(other): Logical = |b, x, y| b.binary(BinaryOp::Or, x, y);
            rust "array![true, false].logical_or(array![false, false])" => "array([True, False], dtype=bool)";
            python "mx.array([True, False]), False" => "array([True, False], dtype=bool)";
            cases [Integer, Count];
        /// Logical exclusive or.
        logical_xor(other): Logical = |b, x, y| b.binary(BinaryOp::Xor, x, y);
            rust "array![true, false].logical_xor(true)" => "array([False, True], dtype=bool)";
            python "mx.array([True, False]), True" => "array([False, True], dtype=bool)";
            cases [Integer, Count];
        /// Logical not.
        logical_not(): Logical = |b, x| b.unary(UnaryOp::Not, x);
            rust "array![0.0, 0.5].logical_not()" => "array([True, False], dtype=bool)";
            python "mx.array([True, False])" => "array([False, True], dtype=bool)";
            cases [Integer];
        /// Bitwise and.
        bitwise_and(other): Integral = |b, x, y| b.binary(BinaryOp::And, x, y);
            rust "array![6, 3].bitwise_and(2)" => "array([2, 2], dtype=int32)";
            python "mx.array([6, 3]), 2" => "array([2, 2], dtype=int32)";
            cases [Integer, Count];
        /// Bitwise or.
        bitwise_or(other): Integral = |b, x, y| b.binary(BinaryOp::Or, x, y);
            rust "array![6, 3].bitwise_or(1)" => "array([7, 3], dtype=int32)";
            python "mx.array([6, 3]), 1" => "array([7, 3], dtype=int32)";
            cases [Integer, Count];
        /// Bitwise exclusive or.
        bitwise_xor(other): Integral = |b, x, y| b.binary(BinaryOp::Xor, x, y);
            rust "array![6, 3].bitwise_xor(2)" => "array([4, 1], dtype=int32)";
            python "mx.array([6, 3]), 2" => "array([4, 1], dtype=int32)";
            cases [Integer, Count];
        /// All bits turned over.
        bitwise_invert(): Integral = |b, x| b.unary(UnaryOp::Not, x);
            rust "array![0u8, 5].bitwise_invert()" => "array([255, 250], dtype=uint8)";
            python "mx.array([0, 5])" => "array([-1, -6], dtype=int32)";
            cases [Integer];
        /// Bits shifted to the left.
        left_shift | bitwise_left_shift(other): Shift = |b, x, y| shift(b, BinaryOp::Shl, x, y);
            rust "array![1, 3].left_shift(2)" => "array([4, 12], dtype=int32)";
            python "mx.array([1, 3]), 2" => "array([4, 12], dtype=int32)";
            cases [Integer, Count];
        /// Bits shifted to the right.
        right_shift | bitwise_right_shift(other): Shift = |b, x, y| shift(b, BinaryOp::Shr, x, y);
            rust "array![8, -8].right_shift(1)" => "array([4, -4], dtype=int32)";
            python "mx.array([8, 3]), 1" => "array([4, 1], dtype=int32)";
            cases [Integer, Count];
        /// Whether elements are NaN.
        isnan(): Compare = |b, x| classify(b, UnaryOp::IsNan, x);
            rust "array![1.0, f32::NAN].isnan()" => "array([False, True], dtype=bool)";
            python "mx.array([1.0, mx.nan])" => "array([False, True], dtype=bool)";
            cases [Real] [Integer] [Complex];
        /// Whether elements are infinite.
        isinf(): Compare = |b, x| classify(b, UnaryOp::IsInf, x);
            rust "array![1.0, f32::NEG_INFINITY].isinf()" => "array([False, True], dtype=bool)";
            python "mx.array([1.0, mx.inf])" => "array([False, True], dtype=bool)";
            cases [Real] [Integer] [Complex];
        /// Whether elements are finite.
        isfinite(): Compare = |b, x| classify(b, UnaryOp::IsFinite, x);
            rust "array![1.0, f32::INFINITY].isfinite()" => "array([True, False], dtype=bool)";
            python "mx.array([1.0, mx.inf])" => "array([True, False], dtype=bool)";
            cases [Real] [Integer] [Complex];
        /// Whether elements are positive infinity.
        isposinf(): Compare = |b, x| infinity(b, x, 1.0);
            rust "array![f32::INFINITY, f32::NEG_INFINITY].isposinf()" => "array([True, False], dtype=bool)";
            python "mx.array([1.0, mx.inf])" => "array([False, True], dtype=bool)";
            cases [Real] [Integer] [Complex];
        /// Whether elements are negative infinity.
        isneginf(): Compare = |b, x| infinity(b, x, -1.0);
            rust "array![f32::INFINITY, f32::NEG_INFINITY].isneginf()" => "array([False, True], dtype=bool)";
            python "mx.array([1.0, -mx.inf])" => "array([False, True], dtype=bool)";
            cases [Real] [Integer] [Complex];
        }
    };
}
logic_ops!(define_ops);

/// `if_true` where `condition` holds, else `if_false`, element by element: `where` in other languages.
///
/// A number takes the type of the array beside it. Of two numbers a float is float32, an integer int32.
///
/// ```
/// use hesper::{array, select};
/// let x = array![-1.0, 2.0, -3.0];
/// let leaky = select(&x.less(0.0)?, &x * 0.5, &x)?;
/// assert_eq!(leaky.to_vec::<f32>()?, [-0.5, 2.0, -1.5]);
/// let positive = select(&x.less(0.0)?, 0, &x)?;
/// assert_eq!(positive.to_vec::<f32>()?, [0.0, 2.0, 0.0]);
/// assert_eq!(select(&x.less(0.0)?, -1, 1)?.to_vec::<i32>()?, [-1, 1, -1]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn select(condition: &Array, if_true: impl Into<Operand>, if_false: impl Into<Operand>) -> Result<Array> {
    let (if_true, if_false) = Operand::pair(if_true.into(), if_false.into())?;
    select_arrays(condition, &if_true, &if_false)
}

fn select_arrays(condition: &Array, if_true: &Array, if_false: &Array) -> Result<Array> {
    static OP: Elementwise =
        Elementwise::new("where", Types::Same, |b, inputs| b.select(inputs[0], inputs[1], inputs[2]))
            .with_derivative(|x, _, at| {
                Ok(match at {
                    0 => Factor::Zero,
                    1 => Factor::If(x[0].clone()),
                    _ => Factor::Unless(x[0].clone()),
                })
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
    ///
    /// ```
    /// use hesper::{Tolerance, array};
    /// let (a, b) = (array![1.0, 2.0], array![1.000001, 2.1]);
    /// assert_eq!(a.isclose(&b, Tolerance::default())?.to_bools()?, [true, false]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn isclose(&self, other: &Array, tolerance: Tolerance) -> Result<Array> {
        let distance = self.subtract(other)?.abs()?;
        let size = other.abs()?;
        let absolute = Operand::from(tolerance.absolute).beside(&size)?;
        let relative = Operand::from(tolerance.relative).beside(&size)?;
        let allowed = absolute.add(relative.multiply(size)?)?;
        let near = distance.less_equal(&allowed)?;
        let infinite = self.isinf()?.logical_or(other.isinf()?)?;
        let above = self.isposinf()?.logical_and(other.isposinf()?)?;
        let below = self.isneginf()?.logical_and(other.isneginf()?)?;
        let close = near.logical_and(infinite.logical_not()?)?.logical_or(above.logical_or(below)?)?;
        if !tolerance.equal_nan {
            return Ok(close);
        }
        close.logical_or(self.isnan()?.logical_and(other.isnan()?)?)
    }

    /// Whether all elements are close: a bool of no axes.
    ///
    /// ```
    /// use hesper::{Tolerance, array};
    /// let (a, b) = (array![1.0, 2.0], array![1.0, 2.1]);
    /// let rough = Tolerance { relative: 0.1, ..Tolerance::default() };
    /// assert!(a.allclose(&b, rough)?.to_bools()?[0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn allclose(&self, other: &Array, tolerance: Tolerance) -> Result<Array> {
        self.isclose(other, tolerance)?.all(())
    }

    /// Whether shapes and all elements are equal, whatever the types: a bool of no axes.
    ///
    /// ```
    /// use hesper::array;
    /// assert!(array![1, 2].array_equal(&array![1.0, 2.0], false)?.to_bools()?[0]);
    /// assert!(!array![1, 2].array_equal(&array![[1, 2]], false)?.to_bools()?[0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn array_equal(&self, other: &Array, equal_nan: bool) -> Result<Array> {
        if self.shape() != other.shape() {
            return Array::scalar(0.0, Dtype::Bool);
        }
        let equal = self.equal(other)?;
        if !equal_nan {
            return equal.all(());
        }
        equal.logical_or(self.isnan()?.logical_and(other.isnan()?)?)?.all(())
    }
}

reader!("where", One(read_where));
fn read_where(replay: &Replay<'_>) -> Result<Array> {
    let [condition, if_true, if_false] = replay.inputs()?;
    select(condition, if_true, if_false)
}
