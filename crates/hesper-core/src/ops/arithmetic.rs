//! Arithmetic, element by element: the table of ops with two operands, and what is composed of them.
//!
//! Integers wrap. Division of integers by zero gives zero, and leaves the dividend as remainder.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, Scalar, UnaryOp, ValueId};

use super::complex;
use super::elementwise::Factor::{self, If, MinusOne, One, Times, Unless};
use super::elementwise::define_ops;
use super::logic::select;
use crate::Category;
use crate::error::Result;
use crate::graph::Array;
use crate::ops::source::stop_gradient;
use crate::scalar::Operand;

/// What a value's type means for arithmetic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Bool,
    Integer,
    Float,
    Complex,
}

/// What kind of number a value is.
pub fn number(b: &Builder, x: ValueId) -> Number {
    let ty = b.ty(x);
    match ty.scalar() {
        _ if ty.is_vec() => Number::Complex,
        Some(Scalar::Bool) => Number::Bool,
        Some(Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64) => Number::Float,
        _ => Number::Integer,
    }
}

/// Bools add as "or" and multiply as "and"; everything else as numbers, complex ones by parts.
fn arithmetic(b: &mut Builder, op: BinaryOp, on_bool: BinaryOp, x: ValueId, y: ValueId) -> ValueId {
    let is_bool = number(b, x) == Number::Bool;
    b.binary(if is_bool { on_bool } else { op }, x, y)
}

/// The extreme of two; NaN if either is. Complex numbers are ordered by real, then by imaginary part.
fn extreme(
    b: &mut Builder,
    op: BinaryOp,
    on_bool: BinaryOp,
    order: CmpOp,
    x: ValueId,
    y: ValueId,
) -> ValueId {
    if number(b, x) != Number::Complex {
        return arithmetic(b, op, on_bool, x, y);
    }
    let before = complex::compare(b, order, x, y);
    let nan = complex::is_nan(b, x);
    let first = b.binary(BinaryOp::Or, before, nan);
    b.select(first, x, y)
}

/// The divisor with zeros replaced by ones, and whether it was zero.
fn nonzero(b: &mut Builder, y: ValueId) -> (ValueId, ValueId) {
    let ty = b.ty(y);
    let (zero, one) = (b.number(ty, 0.0), b.number(ty, 1.0));
    let is_zero = b.compare(CmpOp::Eq, y, zero);
    (b.select(is_zero, one, y), is_zero)
}

/// Whether a remainder has to move by one divisor, to get the divisor's sign.
fn other_sign(b: &mut Builder, rest: ValueId, y: ValueId) -> ValueId {
    let zero = b.number(b.ty(y), 0.0);
    let some = b.compare(CmpOp::Ne, rest, zero);
    let (rest_below, y_below) = (b.compare(CmpOp::Lt, rest, zero), b.compare(CmpOp::Lt, y, zero));
    let differ = b.binary(BinaryOp::Xor, rest_below, y_below);
    b.binary(BinaryOp::And, some, differ)
}

fn floor_divide(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    match number(b, x) {
        Number::Bool => b.binary(BinaryOp::And, x, y),
        Number::Complex => complex::divide(b, x, y),
        Number::Float => {
            let quotient = b.div(x, y);
            b.unary(UnaryOp::Floor, quotient)
        }
        Number::Integer => {
            let (divisor, is_zero) = nonzero(b, y);
            let quotient = floored(b, x, divisor);
            let zero = b.number(b.ty(x), 0.0);
            b.select(is_zero, zero, quotient)
        }
    }
}

/// The quotient of integers, rounded down. Those of up to 16 bits are divided as floats that hold them
/// exactly: a quotient is further from the next integer than the float's rounding, and floats divide in
/// vectors.
fn floored(b: &mut Builder, x: ValueId, divisor: ValueId) -> ValueId {
    let own = b.ty(x).scalar().unwrap_or(Scalar::I64);
    if own.bits() >= 32 {
        let quotient = b.div(x, divisor);
        if own.is_unsigned_int() {
            return quotient;
        }
        let taken = b.mul(quotient, divisor);
        let rest = b.sub(x, taken);
        let moved = other_sign(b, rest, divisor);
        let one = b.number(b.ty(x), 1.0);
        let below = b.sub(quotient, one);
        return b.select(moved, below, quotient);
    }
    let (dividend, by) = (b.convert(x, Scalar::F32), b.convert(divisor, Scalar::F32));
    let quotient = b.div(dividend, by);
    let quotient = b.unary(UnaryOp::Floor, quotient);
    let quotient = b.convert(quotient, own);
    if own.is_unsigned_int() {
        return quotient;
    }
    // The least integer over -1 wraps.
    let minus_one = b.number(b.ty(x), -1.0);
    let negates = b.compare(CmpOp::Eq, divisor, minus_one);
    let negative = b.unary(UnaryOp::Neg, x);
    b.select(negates, negative, quotient)
}

fn remainder(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    match number(b, x) {
        Number::Bool => {
            let not = b.unary(UnaryOp::Not, y);
            b.binary(BinaryOp::And, x, not)
        }
        Number::Integer => {
            let (divisor, is_zero) = nonzero(b, y);
            let quotient = floored(b, x, divisor);
            let taken = b.mul(quotient, divisor);
            let rest = b.sub(x, taken);
            b.select(is_zero, x, rest)
        }
        Number::Float | Number::Complex => {
            let rest = b.binary(BinaryOp::Rem, x, y);
            let moved = other_sign(b, rest, y);
            let sum = b.add(rest, y);
            let (zero, signed) = (b.number(b.ty(x), 0.0), b.binary(BinaryOp::CopySign, rest, y));
            let divides = b.compare(CmpOp::Eq, rest, zero);
            let rest = b.select(divides, signed, rest);
            b.select(moved, sum, rest)
        }
    }
}

fn power(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    match number(b, x) {
        Number::Bool => {
            let not = b.unary(UnaryOp::Not, y);
            b.binary(BinaryOp::Or, x, not)
        }
        Number::Float => b.binary(BinaryOp::Pow, x, y),
        Number::Complex => complex::power(b, x, y),
        Number::Integer => integer_power(b, x, y),
    }
}

/// By squaring, bit by bit of the exponent; wraps. A negative exponent gives zero.
fn integer_power(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let ty = b.ty(x);
    let bits = ty.scalar().map_or(64, Scalar::bits);
    let (zero, one) = (b.number(ty, 0.0), b.number(ty, 1.0));
    let (mut product, mut base, mut rest) = (one, x, y);
    for bit in 0..bits {
        let last = b.binary(BinaryOp::And, rest, one);
        let odd = b.compare(CmpOp::Ne, last, zero);
        let taken = b.mul(product, base);
        product = b.select(odd, taken, product);
        if bit + 1 < bits {
            base = b.mul(base, base);
            rest = b.binary(BinaryOp::Shr, rest, one);
        }
    }
    let negative = b.compare(CmpOp::Lt, y, zero);
    b.select(negative, zero, product)
}

fn logaddexp(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    if number(b, x) == Number::Complex {
        return complex::logaddexp(b, x, y);
    }
    let (high, low) = (b.binary(BinaryOp::MaxNan, x, y), b.binary(BinaryOp::MinNan, x, y));
    // Equal infinities have no difference; the larger is the answer, as it is beside -inf.
    let infinite = b.unary(UnaryOp::IsInf, high);
    let below = b.unary(UnaryOp::IsInf, low);
    let either = b.binary(BinaryOp::Or, infinite, below);
    let difference = b.sub(low, high);
    let small = b.unary(UnaryOp::Exp, difference);
    let log = b.unary(UnaryOp::Log1p, small);
    let sum = b.add(high, log);
    b.select(either, high, sum)
}

/// By the base: the exponent times the next lower power. By the exponent: the power times the logarithm of
/// the base, which is left out where the base is zero.
fn power_derivative(x: &[Array], out: &Array, at: usize) -> Result<Factor> {
    let (base, exponent) = (&x[0], &x[1]);
    Ok(Times(if at == 0 {
        exponent.multiply(base.power(exponent.subtract(1)?)?)?
    } else {
        let zero = Array::scalar(0.0, base.dtype())?;
        out.multiply(select(&base.equal(&zero)?, &zero, &base.log()?)?)?
    }))
}

/// The derivative of a maximum or minimum, from where it is the first operand. That is known from the result,
/// so the operand need not be kept: the product in front of an activation stores nothing but its result.
fn first_is(first: Array, at: usize) -> Result<Factor> {
    Ok(if at == 0 { If(first) } else { Unless(first) })
}

/// The table of arithmetic ops. [`elementwise`](super::elementwise) explains an entry.
#[doc(hidden)]
#[macro_export]
macro_rules! arithmetic_ops {
    ($callback:ident) => { $callback! {
    /// The sum, element by element.
    add(other): Same = |b, x, y| arithmetic(b, BinaryOp::Add, BinaryOp::Or, x, y)
        => |_, _, _| Ok(One);
        rust "array![7, 4].add(array![2, 4])" => "array([9, 8], dtype=int32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([9, 8], dtype=int32)";
        cases [Real, Real] [Integer, Count] [Complex, Complex];
    /// The difference, element by element.
    subtract(other): Same = |b, x, y| arithmetic(b, BinaryOp::Sub, BinaryOp::Xor, x, y)
        => |_, _, at| Ok(if at == 0 { One } else { MinusOne });
        rust "array![7, 4].subtract(array![[2], [4]])" => "array([[5, 2],\n       [3, 0]], dtype=int32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([5, 0], dtype=int32)";
        cases [Real, Real] [Integer, Count] [Complex, Complex];
    /// The product, element by element.
    multiply(other): Same = |b, x, y| match number(b, x) {
        Number::Complex => complex::multiply(b, x, y),
        _ => arithmetic(b, BinaryOp::Mul, BinaryOp::And, x, y),
    }
        => |x, _, at| Ok(Times(x[1 - at].clone()));
        rust "array![7, 4].multiply(0.5)" => "array([3.5, 2], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([14, 16], dtype=int32)";
        cases [Real, Real] [Integer, Count] [Complex, ComplexRight];
    /// The quotient, element by element; of integers as float32.
    divide(other): Inexact = |b, x, y| match number(b, x) {
        Number::Complex => complex::divide(b, x, y),
        _ => b.div(x, y),
    }
        => |x, out, at| Ok(Times(if at == 0 { x[1].reciprocal()? } else { out.divide(&x[1])?.negative()? }));
        rust "array![7, 4].divide(array![2, 0])" => "array([3.5, inf], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([3.5, 1], dtype=float32)";
        cases [Real, Positive] [Integer, Count] [Complex, ComplexRight];
    /// The quotient rounded down. Integers stay integers; by zero they give zero.
    floor_divide(other): Same = |b, x, y| floor_divide(b, x, y);
        rust "array![7, -7].floor_divide(2)" => "array([3, -4], dtype=int32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([3, 1], dtype=int32)";
        cases [Real, Positive] [Integer, Count];
    /// The remainder, with the sign of the divisor. Integers divided by zero are left as they are.
    remainder(other): Real = |b, x, y| remainder(b, x, y)
        => |x, _, at| Ok(if at == 0 { One } else { Times(x[0].floor_divide(&x[1])?.negative()?) });
        rust "array![7, -7].remainder(3)" => "array([1, 2], dtype=int32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([1, 0], dtype=int32)";
        cases [Real, Positive] [Integer, Count];
    /// The larger of two, element by element; NaN if either is.
    maximum(other): Same = |b, x, y| extreme(b, BinaryOp::MaxNan, BinaryOp::Or, CmpOp::Gt, x, y)
        => |x, out, at| first_is(out.greater(&x[1])?, at);
        rust "array![-1.0, 2.0].maximum(0.0)" => "array([0, 2], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([7, 4], dtype=int32)";
        cases [Real, Real] [Integer, Count];
    /// The smaller of two, element by element; NaN if either is.
    minimum(other): Same = |b, x, y| extreme(b, BinaryOp::MinNan, BinaryOp::And, CmpOp::Lt, x, y)
        => |x, out, at| first_is(out.less(&x[1])?, at);
        rust "array![7, 4].minimum(array![2, 9])" => "array([2, 4], dtype=int32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([2, 4], dtype=int32)";
        cases [Real, Real] [Integer, Count];
    /// The power, element by element. Integers stay integers: they wrap, and give zero for a negative
    /// exponent.
    power | pow(other): Same = |b, x, y| power(b, x, y)
        => power_derivative;
        rust "array![2.0, 9.0].power(array![3.0, 0.5])" => "array([8, 3], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([49, 256], dtype=int32)";
        cases [Positive, Real] [Integer, Count] [ComplexRight, Complex];
    /// The angle of the point whose height is the first operand and whose width is the second.
    arctan2 | atan2(other): RealInexact = |b, x, y| b.binary(BinaryOp::Atan2, x, y)
        => |x, _, at| {
            let square = x[0].square()?.add(x[1].square()?)?;
            let other = if at == 0 { x[1].clone() } else { x[0].negative()? };
            Ok(Times(other.divide(square)?))
        };
        rust "array![1.0, -1.0].arctan2(array![0.0, -1.0])" => "array([1.5708, -2.35619], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([1.2925, 0.785398], dtype=float32)";
        cases [Real, Positive];
    /// The logarithm of the sum of exponentials, without overflow.
    logaddexp(other): Inexact = |b, x, y| logaddexp(b, x, y)
        => |x, out, at| Ok(Times(match out.dtype().is(Category::Complex) {
            true => x[at].subtract(out)?.exp()?,
            false => x[at].subtract(&x[1 - at])?.sigmoid()?,
        }));
        rust "array![1000.0].logaddexp(1000.0)" => "array([1000.69], dtype=float32)";
        python "mx.array([7, 4]), mx.array([2, 4])" => "array([7.00672, 4.69315], dtype=float32)";
        cases [Real, Real] [ComplexRight, Complex];
    } };
}
arithmetic_ops!(define_ops);

impl Array {
    /// The quotient rounded down, and the remainder; both are constants to derivatives.
    ///
    /// ```
    /// use hesper::array;
    /// let (quotient, rest) = array![7, -7].divmod(3)?;
    /// assert_eq!((quotient.to_vec::<i32>()?, rest.to_vec::<i32>()?), (vec![2, -3], vec![1, 2]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn divmod(&self, other: impl Into<Operand>) -> Result<(Array, Array)> {
        let other = other.into().beside(self)?;
        // Asked first: it refuses complex numbers.
        let rest = self.remainder(&other)?;
        Ok((stop_gradient(&self.floor_divide(&other)?)?, stop_gradient(&rest)?))
    }

    /// The elements moved between bounds, where there are any. An upper bound below the lower one wins.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_slice(&[-2.0f32, 0.5, 7.0]);
    /// assert_eq!(x.clip(Some(0.0), Some(1.0))?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn clip<L: Into<Operand>, H: Into<Operand>>(&self, low: Option<L>, high: Option<H>) -> Result<Array> {
        let raised = match low {
            Some(low) => self.maximum(low)?,
            None => self.clone(),
        };
        match high {
            Some(high) => raised.minimum(high),
            None => Ok(raised),
        }
    }
}
