//! Functions of one number, element by element: the table, and what is composed of it.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, UnaryOp, ValueId};

use super::arithmetic::{Number, number};
use super::complex;
use super::elementwise::Factor::{Conjugate, MinusOne, One, Part, Times, Zero};
use super::elementwise::define_ops;
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::Array;
use crate::scalar::Operand;

/// A function of floats that complex numbers have too.
fn of(b: &mut Builder, op: UnaryOp, on_complex: fn(&mut Builder, ValueId) -> ValueId, x: ValueId) -> ValueId {
    if number(b, x) == Number::Complex { on_complex(b, x) } else { b.unary(op, x) }
}

/// Rounds floats; integers and bools are round.
fn rounded(b: &mut Builder, op: UnaryOp, x: ValueId) -> ValueId {
    match number(b, x) {
        Number::Float => b.unary(op, x),
        Number::Complex => complex::both(b, op, x),
        Number::Integer | Number::Bool => x,
    }
}

/// The real or the imaginary part.
fn part(b: &mut Builder, x: ValueId, imaginary: bool) -> ValueId {
    match (number(b, x), imaginary) {
        (Number::Complex, false) => complex::parts(b, x).re,
        (Number::Complex, true) => complex::parts(b, x).im,
        (_, false) => x,
        (_, true) => b.number(b.ty(x), 0.0),
    }
}

fn is_complex(x: &[Array]) -> bool {
    x[0].dtype().is(Category::Complex)
}

fn one_minus_square(x: &Array) -> Result<Array> {
    x.square()?.negative()?.add(1)
}

/// The table of functions of one number. [`elementwise`](super::elementwise) explains an entry.
#[doc(hidden)]
#[macro_export]
macro_rules! function_ops {
    ($callback:ident) => { $callback! {
    /// The negative.
    negative(): Number = |b, x| match number(b, x) {
        Number::Complex => complex::both(b, UnaryOp::Neg, x),
        _ => b.unary(UnaryOp::Neg, x),
    }
        => |_, _, _| Ok(MinusOne);
        rust "array![1, -2].negative()" => "array([-1, 2], dtype=int32)";
        python "mx.array([1, -2])" => "array([-1, 2], dtype=int32)";
        cases [Real] [Integer] [Complex];
    /// The absolute value; of complex numbers as the type of their parts.
    abs(): Part = |b, x| match number(b, x) {
        Number::Complex => complex::abs(b, x),
        Number::Bool => x,
        _ => b.unary(UnaryOp::Abs, x),
    }
        => |x, _, _| { let sign = x[0].sign()?; Ok(if is_complex(x) { Part(sign) } else { Times(sign) }) };
        rust "Array::complex([3.0, -4.0], Dtype::Complex64)?.abs()" => "array(5, dtype=float32)";
        python "mx.array([-1.5, 2.0])" => "array([1.5, 2], dtype=float32)", method abs;
        cases [Real] [Integer] [Complex];
    /// -1, 0 or 1; complex numbers are divided by their absolute value.
    sign(): Same = |b, x| match number(b, x) {
        Number::Complex => complex::sign(b, x),
        Number::Bool => x,
        _ => b.unary(UnaryOp::Sign, x),
    };
        rust "array![-2.5, 0.0, 3.0].sign()" => "array([-1, 0, 1], dtype=float32)";
        python "mx.array([-2, 0, 3])" => "array([-1, 0, 1], dtype=int32)";
        cases [Real] [Integer];
    /// The square.
    square(): Same = |b, x| match number(b, x) {
        Number::Complex => complex::multiply(b, x, x),
        Number::Bool => x,
        _ => b.mul(x, x),
    }
        => |x, _, _| Ok(Times(x[0].multiply(2)?));
        rust "array![2, -3].square()" => "array([4, 9], dtype=int32)";
        python "mx.array([2, 3])" => "array([4, 9], dtype=int32)", method square;
        cases [Real] [Integer] [Complex];
    /// One over the number.
    reciprocal(): Inexact = |b, x| match number(b, x) {
        Number::Complex => complex::reciprocal(b, x),
        _ => {
            let one = b.number(b.ty(x), 1.0);
            b.div(one, x)
        }
    }
        => |_, out, _| Ok(Times(out.square()?.negative()?));
        rust "array![2, 4].reciprocal()" => "array([0.5, 0.25], dtype=float32)";
        python "mx.array([2.0, 4.0])" => "array([0.5, 0.25], dtype=float32)", method reciprocal;
        cases [Positive] [ComplexRight];
    /// The square root.
    sqrt(): Inexact = |b, x| of(b, UnaryOp::Sqrt, complex::sqrt, x)
        => |_, out, _| Ok(Times(out.reciprocal()?.multiply(0.5)?));
        rust "array![4, 2].sqrt()" => "array([2, 1.41421], dtype=float32)";
        python "mx.array([4.0, 9.0])" => "array([2, 3], dtype=float32)", method sqrt;
        cases [Positive] [ComplexRight];
    /// One over the square root.
    rsqrt(): Inexact = |b, x| of(b, UnaryOp::Rsqrt, complex::rsqrt, x)
        => |x, out, _| Ok(Times(out.divide(&x[0])?.multiply(-0.5)?));
        rust "array![4.0, 16.0].rsqrt()" => "array([0.5, 0.25], dtype=float32)";
        python "mx.array([4.0, 16.0])" => "array([0.5, 0.25], dtype=float32)", method rsqrt;
        cases [Positive] [ComplexRight];
    /// The exponential.
    exp(): Inexact = |b, x| of(b, UnaryOp::Exp, complex::exp, x)
        => |_, out, _| Ok(Times(out.clone()));
        rust "array![0.0, 1.0].exp()" => "array([1, 2.71828], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([1, 1.64872], dtype=float32)", method exp;
        cases [Real] [Complex];
    /// The exponential less one, exact near zero.
    expm1(): Inexact = |b, x| of(b, UnaryOp::Expm1, complex::expm1, x)
        => |x, _, _| Ok(Times(x[0].exp()?));
        rust "array![0.0, 1e-6].expm1()" => "array([0, 1e-06], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.648721], dtype=float32)";
        cases [Real] [Complex];
    /// The natural logarithm.
    log(): Inexact = |b, x| of(b, UnaryOp::Log, |b, z| complex::log(b, z, 1.0), x)
        => |x, _, _| Ok(Times(x[0].reciprocal()?));
        rust "array![1.0, 0.0].log()" => "array([0, -inf], dtype=float32)";
        python "mx.array([1.0, mx.e])" => "array([0, 1], dtype=float32)", method log;
        cases [Positive] [ComplexRight];
    /// The logarithm to base 2.
    log2(): Inexact = |b, x| of(b, UnaryOp::Log2, |b, z| complex::log(b, z, std::f64::consts::LN_2), x)
        => |x, _, _| Ok(Times(x[0].multiply(std::f64::consts::LN_2)?.reciprocal()?));
        rust "array![8, 1024].log2()" => "array([3, 10], dtype=float32)";
        python "mx.array([2.0, 8.0])" => "array([1, 3], dtype=float32)", method log2;
        cases [Positive] [ComplexRight];
    /// The logarithm to base 10.
    log10(): Inexact = |b, x| of(b, UnaryOp::Log10, |b, z| complex::log(b, z, std::f64::consts::LN_10), x)
        => |x, _, _| Ok(Times(x[0].multiply(std::f64::consts::LN_10)?.reciprocal()?));
        rust "array![1.0, 0.01].log10()" => "array([0, -2], dtype=float32)";
        python "mx.array([1.0, 100.0])" => "array([0, 2], dtype=float32)", method log10;
        cases [Positive] [ComplexRight];
    /// The natural logarithm of one more, exact near zero.
    log1p(): Inexact = |b, x| of(b, UnaryOp::Log1p, complex::log1p, x)
        => |x, _, _| Ok(Times(x[0].add(1)?.reciprocal()?));
        rust "array![0.0, 1e-6].log1p()" => "array([0, 1e-06], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.405465], dtype=float32)", method log1p;
        cases [Positive] [ComplexRight];
    /// The sine.
    sin(): Inexact = |b, x| of(b, UnaryOp::Sin, complex::sin, x)
        => |x, _, _| Ok(Times(x[0].cos()?));
        rust "array![0.0, 0.5].sin()" => "array([0, 0.479426], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.479426], dtype=float32)", method sin;
        cases [Real] [Complex];
    /// The cosine.
    cos(): Inexact = |b, x| of(b, UnaryOp::Cos, complex::cos, x)
        => |x, _, _| Ok(Times(x[0].sin()?.negative()?));
        rust "array![0.0, 0.5].cos()" => "array([1, 0.877583], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([1, 0.877583], dtype=float32)", method cos;
        cases [Real] [Complex];
    /// The tangent.
    tan(): Inexact = |b, x| of(b, UnaryOp::Tan, complex::tan, x)
        => |_, out, _| Ok(Times(out.square()?.add(1)?));
        rust "array![0.0, 0.5].tan()" => "array([0, 0.546302], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.546302], dtype=float32)";
        cases [Real] [Complex];
    /// The inverse sine.
    arcsin | asin(): Inexact = |b, x| of(b, UnaryOp::Asin, complex::arcsin, x)
        => |x, _, _| Ok(Times(one_minus_square(&x[0])?.rsqrt()?));
        rust "array![0.5, 1.0].arcsin()" => "array([0.523599, 1.5708], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.523599], dtype=float32)";
        cases [Unit] [Complex];
    /// The inverse cosine.
    arccos | acos(): Inexact = |b, x| of(b, UnaryOp::Acos, complex::arccos, x)
        => |x, _, _| Ok(Times(one_minus_square(&x[0])?.rsqrt()?.negative()?));
        rust "array![0.5, 1.0].arccos()" => "array([1.0472, 0], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([1.5708, 1.0472], dtype=float32)";
        cases [Unit] [Complex];
    /// The inverse tangent.
    arctan | atan(): Inexact = |b, x| of(b, UnaryOp::Atan, complex::arctan, x)
        => |x, _, _| Ok(Times(x[0].square()?.add(1)?.reciprocal()?));
        rust "array![0.0, 1.0].arctan()" => "array([0, 0.785398], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.463648], dtype=float32)";
        cases [Real] [ComplexRight];
    /// The hyperbolic sine.
    sinh(): Inexact = |b, x| of(b, UnaryOp::Sinh, complex::sinh, x)
        => |x, _, _| Ok(Times(x[0].cosh()?));
        rust "array![0.0, 0.5].sinh()" => "array([0, 0.521095], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.521095], dtype=float32)";
        cases [Real] [Complex];
    /// The hyperbolic cosine.
    cosh(): Inexact = |b, x| of(b, UnaryOp::Cosh, complex::cosh, x)
        => |x, _, _| Ok(Times(x[0].sinh()?));
        rust "array![0.0, 0.5].cosh()" => "array([1, 1.12763], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([1, 1.12763], dtype=float32)";
        cases [Real] [Complex];
    /// The hyperbolic tangent.
    tanh(): Inexact = |b, x| of(b, UnaryOp::Tanh, complex::tanh, x)
        => |_, out, _| Ok(Times(one_minus_square(out)?));
        rust "array![0.5, 100.0].tanh()" => "array([0.462117, 1], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.462117], dtype=float32)";
        cases [Real] [Complex];
    /// The inverse hyperbolic sine.
    arcsinh | asinh(): Inexact = |b, x| of(b, UnaryOp::Asinh, complex::arcsinh, x)
        => |x, _, _| Ok(Times(x[0].square()?.add(1)?.rsqrt()?));
        rust "array![0.0, 0.5].arcsinh()" => "array([0, 0.481212], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.481212], dtype=float32)";
        cases [Real] [ComplexRight];
    /// The inverse hyperbolic cosine.
    arccosh | acosh(): Inexact = |b, x| of(b, UnaryOp::Acosh, complex::arccosh, x)
        => |x, _, _| Ok(Times(x[0].subtract(1)?.rsqrt()?.multiply(x[0].add(1)?.rsqrt()?)?));
        rust "array![1.0, 2.0].arccosh()" => "array([0, 1.31696], dtype=float32)";
        python "mx.array([1.0, 2.0])" => "array([0, 1.31696], dtype=float32)";
        cases [AboveOne] [Complex];
    /// The inverse hyperbolic tangent.
    arctanh | atanh(): Inexact = |b, x| of(b, UnaryOp::Atanh, complex::arctanh, x)
        => |x, _, _| Ok(Times(one_minus_square(&x[0])?.reciprocal()?));
        rust "array![0.5, 1.0].arctanh()" => "array([0.549306, inf], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.549306], dtype=float32)";
        cases [Unit] [Complex];
    /// The error function.
    erf(): RealInexact = |b, x| b.unary(UnaryOp::Erf, x)
        => |x, _, _| Ok(Times(x[0].square()?.negative()?.exp()?.multiply(std::f64::consts::FRAC_2_SQRT_PI)?));
        rust "array![0.0, 0.5].erf()" => "array([0, 0.5205], dtype=float32)";
        python "mx.array([0.5])" => "array([0.5205], dtype=float32)";
        cases [Real];
    /// The inverse of the error function.
    erfinv(): RealInexact = |b, x| b.unary(UnaryOp::ErfInv, x)
        => |_, out, _| Ok(Times(out.square()?.exp()?.divide(std::f64::consts::FRAC_2_SQRT_PI)?));
        rust "array![0.5, 1.0].erfinv()" => "array([0.476936, inf], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0, 0.476936], dtype=float32)";
        cases [Unit];
    /// The logistic function.
    sigmoid(): RealInexact = |b, x| b.unary(UnaryOp::Sigmoid, x)
        => |_, out, _| Ok(Times(out.subtract(out.square()?)?));
        rust "array![0.0, -100.0].sigmoid()" => "array([0.5, 3.78351e-44], dtype=float32)";
        python "mx.array([0.0, 0.5])" => "array([0.5, 0.622459], dtype=float32)";
        cases [Real];
    /// Rounded down.
    floor(): Real = |b, x| rounded(b, UnaryOp::Floor, x);
        rust "array![-0.5, 1.5].floor()" => "array([-1, 1], dtype=float32)";
        python "mx.array([-0.5, 1.5])" => "array([-1, 1], dtype=float32)";
        cases [Wide] [Integer];
    /// Rounded up.
    ceil(): Real = |b, x| rounded(b, UnaryOp::Ceil, x);
        rust "array![0.5, 1.0].ceil()" => "array([1, 1], dtype=float32)";
        python "mx.array([0.5, 1.0])" => "array([1, 1], dtype=float32)";
        cases [Wide] [Integer];
    /// Rounded towards zero.
    trunc(): Real = |b, x| rounded(b, UnaryOp::Trunc, x);
        rust "array![-1.5, 1.5].trunc()" => "array([-1, 1], dtype=float32)";
        python "mx.array([-1.5, 1.5])" => "array([-1, 1], dtype=float32)";
        cases [Wide] [Integer];
    /// Rounded to the nearest integer, halves to even.
    rint(): Same = |b, x| rounded(b, UnaryOp::Rint, x);
        rust "array![0.5, 1.5, 2.5].rint()" => "array([0, 2, 2], dtype=float32)";
        cases [Wide] [Integer] [Complex];
    /// The complex conjugate; other numbers as they are.
    conjugate | conj(): Same = |b, x| match number(b, x) {
        Number::Complex => complex::conjugate(b, x),
        _ => x,
    }
        => |_, _, _| Ok(Conjugate);
        rust "Array::complex([3.0, -4.0], Dtype::Complex64)?.conjugate()" => "array(3+4j, dtype=complex64)";
        python "mx.array([1 + 2j])" => "array([1-2j], dtype=complex64)", method conj;
        cases [Real] [Complex];
    /// The real part; other numbers as they are.
    real(): Part = |b, x| part(b, x, false)
        => |x, _, _| Ok(if is_complex(x) { Part(Array::scalar(1.0, x[0].dtype())?) } else { One });
        rust "Array::complex([3.0, -4.0], Dtype::Complex64)?.real()" => "array(3, dtype=float32)";
        python "mx.array([1 + 2j])" => "array([1], dtype=float32)";
        cases [Real] [Complex];
    /// The imaginary part; zero for other numbers.
    imag(): Part = |b, x| part(b, x, true)
        => |x, _, _| Ok(if is_complex(x) { Part(Operand::Complex([0.0, 1.0]).beside(&x[0])?) } else { Zero });
        rust "Array::complex([3.0, -4.0], Dtype::Complex64)?.imag()" => "array(-4, dtype=float32)";
        python "mx.array([1 + 2j])" => "array([2], dtype=float32)";
        cases [Real] [Complex];
    /// The number itself.
    positive(): composed = |x| Ok(x.clone());
        rust "array![1, -2].positive()" => "array([1, -2], dtype=int32)";
        python "mx.array([1, -2])" => "array([1, -2], dtype=int32)";
        cases [Real] [Integer];
    /// Radians as degrees.
    degrees(): composed = |x| x.astype(x.dtype().to_inexact())?.multiply(180.0 / std::f64::consts::PI);
        rust "array![0.0, std::f32::consts::PI].degrees()" => "array([0, 180], dtype=float32)";
        python "mx.array([0.0, mx.pi])" => "array([0, 180], dtype=float32)";
        cases [Real] [Integer];
    /// Degrees as radians.
    radians(): composed = |x| x.astype(x.dtype().to_inexact())?.multiply(std::f64::consts::PI / 180.0);
        rust "array![0, 180].radians()" => "array([0, 3.14159], dtype=float32)";
        python "mx.array([0.0, 180.0])" => "array([0, 3.14159], dtype=float32)";
        cases [Real] [Integer];
    } };
}
function_ops!(define_ops);

impl Array {
    /// Rounded to a number of decimals (negative: to tens, hundreds, ...), halves to even. Integers stay
    /// integers.
    ///
    /// ```
    /// use hesper::Array;
    /// assert_eq!(Array::from_slice(&[1.26f32, 12.5]).round(1)?.to_vec::<f32>()?, [1.3, 12.5]);
    /// assert_eq!(Array::from_slice(&[125i32, 7]).round(-1)?.to_vec::<i32>()?, [120, 10]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn round(&self, decimals: i32) -> Result<Array> {
        let exact = !self.dtype().is(Category::Inexact);
        if decimals == 0 || (exact && decimals > 0) {
            return self.rint();
        }
        let scale = 10f64.powi(decimals.saturating_abs());
        let x = self.astype(self.dtype().to_inexact())?;
        let rounded = if decimals > 0 {
            x.multiply(scale)?.rint()?.divide(scale)?
        } else {
            x.divide(scale)?.rint()?.multiply(scale)?
        };
        rounded.astype(self.dtype())
    }

    /// NaN replaced by `nan`, infinities by `posinf` and `neginf`, or by the largest and smallest finite
    /// numbers of the type.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    /// assert_eq!(x.nan_to_num(0.0, Some(9.0), None)?.to_vec::<f32>()?, [0.0, 9.0, f32::MIN]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Array> {
        let largest = match self.dtype() {
            Dtype::Float16 => f64::from(half::f16::MAX),
            Dtype::Bfloat16 => f64::from(half::bf16::MAX),
            Dtype::Float32 => f64::from(f32::MAX),
            Dtype::Float64 => f64::MAX,
            Dtype::Complex64 | Dtype::Complex128 => {
                let what = "not defined for an array".into();
                return Err(Error::Type { op: "nan_to_num".into(), what, dtype: self.dtype() });
            }
            _ => return Ok(self.clone()),
        };
        let number = |value: f64| Array::scalar(value, self.dtype());
        let finite = super::logic::select(&self.isnan()?, &number(nan)?, self)?;
        let above = number(posinf.unwrap_or(largest))?;
        let finite = super::logic::select(&self.isposinf()?, &above, &finite)?;
        super::logic::select(&self.isneginf()?, &number(neginf.unwrap_or(-largest))?, &finite)
    }
}

/// Whether a float is an infinity of one sign.
pub fn infinity(b: &mut Builder, x: ValueId, sign: f64) -> ValueId {
    match number(b, x) {
        Number::Float => {
            let infinity = b.number(b.ty(x), sign * f64::INFINITY);
            b.compare(CmpOp::Eq, x, infinity)
        }
        Number::Complex => {
            // Equal to an infinite real number.
            let z = complex::parts(b, x);
            let zero = b.number(b.ty(z.im), 0.0);
            let (re, im) = (infinity(b, z.re, sign), b.compare(CmpOp::Eq, z.im, zero));
            b.binary(BinaryOp::And, re, im)
        }
        Number::Integer | Number::Bool => b.bool(false),
    }
}
