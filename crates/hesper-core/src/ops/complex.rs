//! Complex numbers inside of kernels: vectors of two float32 or float64, real part first.
//!
//! Products and exponentials are computed in the type of the parts. What would overflow or cancel there
//! (quotients, roots, logarithms, inverse functions) is computed in float64 and rounded once; the formulas
//! for the inverse functions are those that keep signs on branch cuts. Infinite and NaN parts give what C
//! (Annex G) says.

use hesper_kernel::ir::{BinaryOp, Builder, CmpOp, Scalar, Type, UnaryOp, ValueId};

use crate::Dtype;

/// Real and imaginary part.
#[derive(Clone, Copy)]
pub struct Pair {
    pub re: ValueId,
    pub im: ValueId,
}

/// The parts of a complex number.
pub fn parts(b: &mut Builder, z: ValueId) -> Pair {
    Pair { re: b.extract(z, 0), im: b.extract(z, 1) }
}

/// A complex number of its parts.
pub fn join(b: &mut Builder, z: Pair) -> ValueId {
    b.compose(&[z.re, z.im])
}

/// The parts as float64.
fn wide(b: &mut Builder, z: ValueId) -> Pair {
    let Pair { re, im } = parts(b, z);
    Pair { re: b.convert(re, Scalar::F64), im: b.convert(im, Scalar::F64) }
}

/// A complex number of float64 parts, of the type of `like`.
fn narrow(b: &mut Builder, z: Pair, like: ValueId) -> ValueId {
    let scalar = b.ty(like).scalar().unwrap_or(Scalar::F32);
    let (re, im) = (b.convert(z.re, scalar), b.convert(z.im, scalar));
    b.compose(&[re, im])
}

fn neg(b: &mut Builder, x: ValueId) -> ValueId {
    b.unary(UnaryOp::Neg, x)
}

fn scaled(b: &mut Builder, x: ValueId, factor: f64) -> ValueId {
    let factor = b.number(b.ty(x), factor);
    b.mul(x, factor)
}

fn is_zero(b: &mut Builder, x: ValueId) -> ValueId {
    let zero = b.number(b.ty(x), 0.0);
    b.compare(CmpOp::Eq, x, zero)
}

/// Whether the parts are float64: squares and absolute values of them may be out of float64's range.
fn is_double(b: &Builder, z: ValueId) -> bool {
    b.ty(z).scalar() == Some(Scalar::F64)
}

/// The number, or a quarter of it where its absolute value may be out of range, and whether it is a quarter.
fn quartered(b: &mut Builder, z: Pair) -> (Pair, ValueId) {
    let ty = b.ty(z.re);
    let limit = if ty == Type::F64 { f64::MAX / 4.0 } else { f64::from(f32::MAX / 4.0) };
    let (re, im) = (b.unary(UnaryOp::Abs, z.re), b.unary(UnaryOp::Abs, z.im));
    let size = b.binary(BinaryOp::MaxNan, re, im);
    let limit = b.number(ty, limit);
    let huge = b.compare(CmpOp::Gt, size, limit);
    let (quarter, one) = (b.number(ty, 0.25), b.number(ty, 1.0));
    let factor = b.select(huge, quarter, one);
    (Pair { re: b.mul(z.re, factor), im: b.mul(z.im, factor) }, huge)
}

/// Whether a test holds for either part.
fn either(b: &mut Builder, test: UnaryOp, z: Pair) -> ValueId {
    let (re, im) = (b.unary(test, z.re), b.unary(test, z.im));
    b.binary(BinaryOp::Or, re, im)
}

/// The direction of a number with an infinite part: each infinite part as one, the other as zero, with their
/// signs.
fn direction(b: &mut Builder, z: Pair) -> Pair {
    let mut unit = |x: ValueId| {
        let infinite = b.unary(UnaryOp::IsInf, x);
        let (one, zero) = (b.f64(1.0), b.f64(0.0));
        let size = b.select(infinite, one, zero);
        b.binary(BinaryOp::CopySign, size, x)
    };
    Pair { re: unit(z.re), im: unit(z.im) }
}

/// The angle of a number with an infinite part, without its sign: NaN if the other part is.
fn infinite_angle(b: &mut Builder, z: Pair) -> ValueId {
    let unit = direction(b, z);
    let height = b.unary(UnaryOp::Abs, unit.im);
    let angle = b.binary(BinaryOp::Atan2, height, unit.re);
    let nan = either(b, UnaryOp::IsNan, z);
    let none = b.f64(f64::NAN);
    b.select(nan, none, angle)
}

/// Comparison: equality of both parts; order by real, then by imaginary part.
pub fn compare(b: &mut Builder, op: CmpOp, x: ValueId, y: ValueId) -> ValueId {
    let (x, y) = (parts(b, x), parts(b, y));
    let (re, im) = (b.compare(op, x.re, y.re), b.compare(op, x.im, y.im));
    let strict = match op {
        CmpOp::Eq => return b.binary(BinaryOp::And, re, im),
        CmpOp::Ne => return b.binary(BinaryOp::Or, re, im),
        CmpOp::Lt | CmpOp::Le => CmpOp::Lt,
        CmpOp::Gt | CmpOp::Ge => CmpOp::Gt,
    };
    let (first, tied) = (b.compare(strict, x.re, y.re), b.compare(CmpOp::Eq, x.re, y.re));
    let second = b.binary(BinaryOp::And, tied, im);
    b.binary(BinaryOp::Or, first, second)
}

/// Whether either part is NaN.
pub fn is_nan(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    either(b, UnaryOp::IsNan, z)
}

/// The product.
pub fn multiply(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let (x, y) = (parts(b, x), parts(b, y));
    let product = multiply_parts(b, x, y);
    join(b, product)
}

fn multiply_parts(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    let (rr, ii) = (b.mul(x.re, y.re), b.mul(x.im, y.im));
    let (ri, ir) = (b.mul(x.re, y.im), b.mul(x.im, y.re));
    Pair { re: b.sub(rr, ii), im: b.add(ri, ir) }
}

/// The quotient.
pub fn divide(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let (like, x, y) = (x, wide(b, x), wide(b, y));
    let quotient = divide_parts(b, x, y);
    narrow(b, quotient, like)
}

fn divide_parts(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    // Divided by the larger part first: its square may be out of range.
    let (re, im) = (b.unary(UnaryOp::Abs, y.re), b.unary(UnaryOp::Abs, y.im));
    let size = b.binary(BinaryOp::MaxNan, re, im);
    let (finite, vanishes, one) = (b.unary(UnaryOp::IsFinite, size), is_zero(b, size), b.f64(1.0));
    let size = b.select(vanishes, one, size);
    let size = b.select(finite, size, one);
    let (x, y) = (over(b, x, size), over(b, y, size));
    let conjugate = Pair { re: y.re, im: neg(b, y.im) };
    let top = multiply_parts(b, x, conjugate);
    let bottom = squared(b, y);
    let quotient = Pair { re: b.div(top.re, bottom), im: b.div(top.im, bottom) };
    // Both parts are NaN although a zero or an infinite part determines the quotient.
    let (re, im) = (b.unary(UnaryOp::IsNan, quotient.re), b.unary(UnaryOp::IsNan, quotient.im));
    let lost = b.binary(BinaryOp::And, re, im);
    let (x_infinite, y_infinite) = (either(b, UnaryOp::IsInf, x), either(b, UnaryOp::IsInf, y));
    let (x_nan, y_nan) = (either(b, UnaryOp::IsNan, x), either(b, UnaryOp::IsNan, y));
    let x_special = b.binary(BinaryOp::Or, x_infinite, x_nan);
    let y_special = b.binary(BinaryOp::Or, y_infinite, y_nan);
    let (infinity, zero) = (b.f64(f64::INFINITY), b.f64(0.0));
    let unit = direction(b, x);
    let turned = multiply_parts(b, unit, conjugate);
    let large = Pair { re: b.mul(turned.re, infinity), im: b.mul(turned.im, infinity) };
    let unit = direction(b, conjugate);
    let turned = multiply_parts(b, x, unit);
    let small = Pair { re: b.mul(turned.re, zero), im: b.mul(turned.im, zero) };
    let pole = b.binary(BinaryOp::CopySign, infinity, y.re);
    let limit = Pair { re: b.mul(x.re, pole), im: b.mul(x.im, pole) };
    let infinite = select(b, y_special, quotient, large);
    let vanishing = select(b, x_special, quotient, small);
    let determined = select(b, x_infinite, infinite, quotient);
    let determined = select(b, y_infinite, vanishing, determined);
    let by_zero = is_zero(b, bottom);
    let determined = select(b, by_zero, limit, determined);
    select(b, lost, determined, quotient)
}

/// Both parts divided by a number.
fn over(b: &mut Builder, z: Pair, by: ValueId) -> Pair {
    Pair { re: b.div(z.re, by), im: b.div(z.im, by) }
}

fn select(b: &mut Builder, condition: ValueId, one: Pair, other: Pair) -> Pair {
    Pair { re: b.select(condition, one.re, other.re), im: b.select(condition, one.im, other.im) }
}

/// The square of the absolute value.
fn squared(b: &mut Builder, z: Pair) -> ValueId {
    let (rr, ii) = (b.mul(z.re, z.re), b.mul(z.im, z.im));
    b.add(rr, ii)
}

/// The reciprocal.
pub fn reciprocal(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let one = Pair { re: b.f64(1.0), im: b.f64(0.0) };
    let result = divide_parts(b, one, z);
    narrow(b, result, like)
}

/// The absolute value, of the type of the parts.
pub fn abs(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    b.binary(BinaryOp::Hypot, z.re, z.im)
}

/// The number divided by its absolute value; zero for zero.
pub fn sign(b: &mut Builder, z: ValueId) -> ValueId {
    let p = parts(b, z);
    let (p, _) = quartered(b, p);
    let length = b.binary(BinaryOp::Hypot, p.re, p.im);
    let vanishes = is_zero(b, length);
    let result = over(b, p, length);
    let result = join(b, result);
    b.select(vanishes, z, result)
}

/// Applies a function of real numbers to both parts.
pub fn both(b: &mut Builder, op: UnaryOp, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let result = Pair { re: b.unary(op, z.re), im: b.unary(op, z.im) };
    join(b, result)
}

/// The conjugate.
pub fn conjugate(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let result = Pair { re: z.re, im: neg(b, z.im) };
    join(b, result)
}

/// The square root.
pub fn sqrt(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let root = sqrt_parts(b, z, is_double(b, like));
    narrow(b, root, like)
}

fn sqrt_parts(b: &mut Builder, z: Pair, double: bool) -> Pair {
    if !double {
        return sqrt_in_range(b, z);
    }
    let (z, huge) = quartered(b, z);
    let root = sqrt_in_range(b, z);
    let (one, two) = (b.f64(1.0), b.f64(2.0));
    let factor = b.select(huge, two, one);
    Pair { re: b.mul(root.re, factor), im: b.mul(root.im, factor) }
}

fn sqrt_in_range(b: &mut Builder, z: Pair) -> Pair {
    // With t = sqrt((|z| + |re|) / 2) the parts are t and im / 2t, or the other way round.
    let length = b.binary(BinaryOp::Hypot, z.re, z.im);
    let size = b.unary(UnaryOp::Abs, z.re);
    let (first, second) = (scaled(b, length, 0.5), scaled(b, size, 0.5));
    let half = b.add(first, second);
    let t = b.unary(UnaryOp::Sqrt, half);
    let twice = b.add(t, t);
    let height = b.unary(UnaryOp::Abs, z.im);
    let quotient = b.div(height, twice);
    let zero = b.f64(0.0);
    let vanishes = is_zero(b, t);
    let other = b.select(vanishes, zero, quotient);
    let right = b.compare(CmpOp::Ge, z.re, zero);
    let im = b.select(right, other, t);
    let root = Pair { re: b.select(right, t, other), im: b.binary(BinaryOp::CopySign, im, z.im) };
    // An infinite imaginary part makes both infinite; an infinite real part the part that it determines.
    let (wide, high) = (b.unary(UnaryOp::IsInf, z.re), b.unary(UnaryOp::IsInf, z.im));
    let wide_right = b.binary(BinaryOp::And, wide, right);
    let re = b.select(wide_right, z.re, root.re);
    let far = b.select(right, root.im, size);
    let far = b.binary(BinaryOp::CopySign, far, z.im);
    let im = b.select(wide, far, root.im);
    let infinity = b.f64(f64::INFINITY);
    Pair { re: b.select(high, infinity, re), im: b.select(high, z.im, im) }
}

/// One over the square root.
pub fn rsqrt(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let root = sqrt_parts(b, z, is_double(b, like));
    let one = Pair { re: b.f64(1.0), im: b.f64(0.0) };
    let result = divide_parts(b, one, root);
    narrow(b, result, like)
}

/// The exponential.
pub fn exp(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let result = exp_parts(b, z);
    join(b, result)
}

fn exp_parts(b: &mut Builder, z: Pair) -> Pair {
    let size = b.unary(UnaryOp::Exp, z.re);
    let (cos, sin) = (b.unary(UnaryOp::Cos, z.im), b.unary(UnaryOp::Sin, z.im));
    let (re, im) = (b.mul(size, cos), b.mul(size, sin));
    // The size decides if it is infinite or zero and there is no angle; a real number stays real.
    let infinite = b.unary(UnaryOp::IsInf, z.re);
    let lost = b.unary(UnaryOp::IsNan, re);
    let limit = b.binary(BinaryOp::And, infinite, lost);
    let re = b.select(limit, size, re);
    let vanishes = is_zero(b, size);
    let none = b.binary(BinaryOp::And, limit, vanishes);
    let im = b.select(none, size, im);
    let real = is_zero(b, z.im);
    Pair { re, im: b.select(real, z.im, im) }
}

/// The exponential less one: `expm1(re) cos(im) - 2 sin^2(im / 2)` where the real part is small.
pub fn expm1(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let Pair { re, im } = exp_parts(b, z);
    let one = b.number(b.ty(re), 1.0);
    let far = b.sub(re, one);
    let (small, cos) = (b.unary(UnaryOp::Expm1, z.re), b.unary(UnaryOp::Cos, z.im));
    let half = scaled(b, z.im, 0.5);
    let sin = b.unary(UnaryOp::Sin, half);
    let square = b.mul(sin, sin);
    let (product, twice) = (b.mul(small, cos), b.add(square, square));
    let near = b.sub(product, twice);
    // Zero has no sign: the array API standard asks for `0 + 0j` of both zeros.
    let zero = b.number(b.ty(near), 0.0);
    let near = b.add(near, zero);
    let size = b.unary(UnaryOp::Abs, z.re);
    let is_far = b.compare(CmpOp::Gt, size, one);
    let re = b.select(is_far, far, near);
    join(b, Pair { re, im })
}

/// The natural logarithm, divided by that of a base.
pub fn log(b: &mut Builder, z: ValueId, divisor: f64) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let result = log_parts(b, z, is_double(b, like));
    let divisor = b.f64(divisor);
    let result = over(b, result, divisor);
    narrow(b, result, like)
}

fn log_parts(b: &mut Builder, z: Pair, double: bool) -> Pair {
    let far = if double {
        let (part, huge) = quartered(b, z);
        let length = b.binary(BinaryOp::Hypot, part.re, part.im);
        let (log, four, zero) = (b.unary(UnaryOp::Log, length), b.f64(4.0_f64.ln()), b.f64(0.0));
        let rest = b.select(huge, four, zero);
        b.add(log, rest)
    } else {
        let length = b.binary(BinaryOp::Hypot, z.re, z.im);
        b.unary(UnaryOp::Log, length)
    };
    let far = b.add(far, far);
    // Next to one: log1p of what the square is above one, computed without cancellation from the larger part.
    let one = b.f64(1.0);
    let (re, im) = (b.unary(UnaryOp::Abs, z.re), b.unary(UnaryOp::Abs, z.im));
    let (high, low) = (b.binary(BinaryOp::MaxNan, re, im), b.binary(BinaryOp::MinNan, re, im));
    let (below, above) = (b.sub(high, one), b.add(high, one));
    let (product, rest) = (b.mul(below, above), b.mul(low, low));
    let excess = b.add(product, rest);
    let near = b.unary(UnaryOp::Log1p, excess);
    let distance = b.unary(UnaryOp::Abs, excess);
    let half = b.f64(0.5);
    let is_near = b.compare(CmpOp::Lt, distance, half);
    let log = b.select(is_near, near, far);
    let (infinite, infinity) = (either(b, UnaryOp::IsInf, z), b.f64(f64::INFINITY));
    let log = b.select(infinite, infinity, log);
    Pair { re: b.mul(log, half), im: b.binary(BinaryOp::Atan2, z.im, z.re) }
}

/// `log(1 + z)`.
pub fn log1p(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let one = b.f64(1.0);
    let moved = Pair { re: b.add(z.re, one), im: z.im };
    let result = log_parts(b, moved, is_double(b, like));
    // The square less one is re (2 + re) + im^2, exact for small numbers.
    let two = b.f64(2.0);
    let sum = b.add(z.re, two);
    let (product, height) = (b.mul(z.re, sum), b.mul(z.im, z.im));
    let excess = b.add(product, height);
    let log = b.unary(UnaryOp::Log1p, excess);
    let near = scaled(b, log, 0.5);
    let distance = b.unary(UnaryOp::Abs, excess);
    let half = b.f64(0.5);
    let is_near = b.compare(CmpOp::Lt, distance, half);
    let result = Pair { re: b.select(is_near, near, result.re), im: result.im };
    narrow(b, result, like)
}

/// The power.
pub fn power(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let (like, base, exponent) = (x, wide(b, x), wide(b, y));
    let log = log_parts(b, base, is_double(b, like));
    let product = multiply_parts(b, log, exponent);
    let result = exp_parts(b, product);
    let result = narrow(b, result, like);
    // Zero to a positive power is zero, to the power zero one.
    let zero = b.f64(0.0);
    let (re, im) = (b.compare(CmpOp::Eq, base.re, zero), b.compare(CmpOp::Eq, base.im, zero));
    let of_zero = b.binary(BinaryOp::And, re, im);
    let positive = b.compare(CmpOp::Gt, exponent.re, zero);
    let vanishes = b.binary(BinaryOp::And, of_zero, positive);
    let (re, im) = (b.compare(CmpOp::Eq, exponent.re, zero), b.compare(CmpOp::Eq, exponent.im, zero));
    let to_zero = b.binary(BinaryOp::And, re, im);
    let (none, unit) = (Pair { re: zero, im: zero }, Pair { re: b.f64(1.0), im: zero });
    let (none, unit) = (narrow(b, none, like), narrow(b, unit, like));
    let result = b.select(vanishes, none, result);
    b.select(to_zero, unit, result)
}

/// The logarithm of the sum of exponentials.
pub fn logaddexp(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    let greater = compare(b, CmpOp::Gt, x, y);
    let (high, low) = (b.select(greater, x, y), b.select(greater, y, x));
    let (like, high, low) = (x, wide(b, high), wide(b, low));
    let difference = Pair { re: b.sub(low.re, high.re), im: b.sub(low.im, high.im) };
    let small = exp_parts(b, difference);
    let one = b.f64(1.0);
    let sum = Pair { re: b.add(small.re, one), im: small.im };
    let log = log_parts(b, sum, is_double(b, like));
    let result = Pair { re: b.add(high.re, log.re), im: b.add(high.im, log.im) };
    let infinite = b.unary(UnaryOp::IsInf, high.re);
    let result =
        Pair { re: b.select(infinite, high.re, result.re), im: b.select(infinite, high.im, result.im) };
    narrow(b, result, like)
}

/// Sine, cosine, hyperbolic sine and cosine are products of a function of the real and one of the imaginary
/// part.
pub fn sin(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let re = product(b, (UnaryOp::Sin, z.re), (UnaryOp::Cosh, z.im), false);
    let im = product(b, (UnaryOp::Cos, z.re), (UnaryOp::Sinh, z.im), true);
    join(b, Pair { re, im })
}

/// `cosh(i z)`.
pub fn cos(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let turned = Pair { re: neg(b, z.im), im: z.re };
    cosh_parts(b, turned)
}

pub fn sinh(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    let re = product(b, (UnaryOp::Cos, z.im), (UnaryOp::Sinh, z.re), true);
    let im = product(b, (UnaryOp::Sin, z.im), (UnaryOp::Cosh, z.re), false);
    join(b, Pair { re, im })
}

pub fn cosh(b: &mut Builder, z: ValueId) -> ValueId {
    let z = parts(b, z);
    cosh_parts(b, z)
}

fn cosh_parts(b: &mut Builder, z: Pair) -> ValueId {
    let re = product(b, (UnaryOp::Cos, z.im), (UnaryOp::Cosh, z.re), true);
    let im = product(b, (UnaryOp::Sin, z.im), (UnaryOp::Sinh, z.re), false);
    join(b, Pair { re, im })
}

/// A circular function of one part times a hyperbolic one of the other. A factor of zero makes a product of
/// zero, with the sign of both factors where they have one. In one of the two parts an infinite hyperbolic
/// function stays infinite without an angle, and a zero keeps its sign.
fn product(
    b: &mut Builder,
    circular: (UnaryOp, ValueId),
    hyperbolic: (UnaryOp, ValueId),
    stays: bool,
) -> ValueId {
    let (c, h) = (b.unary(circular.0, circular.1), b.unary(hyperbolic.0, hyperbolic.1));
    let product = b.mul(c, h);
    let (c_zero, h_zero) = (is_zero(b, c), is_zero(b, h));
    let (zero, one) = (b.number(b.ty(h), 0.0), b.number(b.ty(h), 1.0));
    let sign = b.binary(BinaryOp::CopySign, one, h);
    let (signed, overflows) = (b.mul(c, sign), b.unary(UnaryOp::IsInf, h));
    let signed = b.select(overflows, signed, c);
    let limit = b.select(c_zero, signed, product);
    let limit = b.select(h_zero, if stays { h } else { zero }, limit);
    let limit = if stays {
        let (infinite, size) = (b.unary(UnaryOp::IsInf, hyperbolic.1), b.unary(UnaryOp::Abs, h));
        b.select(infinite, size, limit)
    } else {
        limit
    };
    let lost = b.unary(UnaryOp::IsNan, product);
    b.select(lost, limit, product)
}

/// The tangent: `-i tanh(i z)`.
pub fn tan(b: &mut Builder, z: ValueId) -> ValueId {
    turned(b, z, |b, z, _| tanh_parts(b, z))
}

/// The hyperbolic tangent.
pub fn tanh(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let result = tanh_parts(b, z);
    narrow(b, result, like)
}

/// `(sinh a cosh a + i sin b cos b) / (sinh^2 a + cos^2 b)`. From 350 on the real part is one and the
/// square of the hyperbolic sine out of range.
fn tanh_parts(b: &mut Builder, z: Pair) -> Pair {
    let (low, high) = (b.f64(-350.0), b.f64(350.0));
    let a = b.binary(BinaryOp::MaxNan, z.re, low);
    let a = b.binary(BinaryOp::MinNan, a, high);
    let (sinh, cosh) = (b.unary(UnaryOp::Sinh, a), b.unary(UnaryOp::Cosh, a));
    let (sin, cos) = (b.unary(UnaryOp::Sin, z.im), b.unary(UnaryOp::Cos, z.im));
    let (top, side) = (b.mul(sinh, cosh), b.mul(sin, cos));
    let bottom = squared(b, Pair { re: sinh, im: cos });
    let (re, im) = (b.div(top, bottom), b.div(side, bottom));
    // At infinity the imaginary part is zero, with the sign of the sine of twice the angle where there is
    // one. The functions of real and imaginary numbers are real and imaginary.
    let (infinite, one, zero) = (b.unary(UnaryOp::IsInf, z.re), b.f64(1.0), b.f64(0.0));
    let limit = b.binary(BinaryOp::CopySign, one, z.re);
    let re = b.select(infinite, limit, re);
    let no_angle = b.unary(UnaryOp::IsNan, side);
    let sign = b.select(no_angle, z.im, side);
    let limit = b.binary(BinaryOp::CopySign, zero, sign);
    let im = b.select(infinite, limit, im);
    let (no_width, no_height) = (is_zero(b, z.re), is_zero(b, z.im));
    Pair { re: b.select(no_width, z.re, re), im: b.select(no_height, z.im, im) }
}

/// `-i f(i z)`: what makes circular functions of hyperbolic ones, and the reverse.
fn turned(b: &mut Builder, z: ValueId, f: fn(&mut Builder, Pair, bool) -> Pair) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let turned = Pair { re: neg(b, z.im), im: z.re };
    let Pair { re, im } = f(b, turned, is_double(b, like));
    let result = Pair { re: im, im: neg(b, re) };
    narrow(b, result, like)
}

/// The square roots of `1 - z` and `1 + z`.
fn roots(b: &mut Builder, z: Pair, double: bool) -> (Pair, Pair) {
    let one = b.f64(1.0);
    let below = Pair { re: b.sub(one, z.re), im: neg(b, z.im) };
    let above = Pair { re: b.add(one, z.re), im: z.im };
    (sqrt_parts(b, below, double), sqrt_parts(b, above, double))
}

/// The inverse hyperbolic sine of a part of a product, which is out of range next to the largest numbers.
fn arcsinh_of_product(b: &mut Builder, part: fn(Pair) -> ValueId, x: Pair, y: Pair, double: bool) -> ValueId {
    let product = multiply_parts(b, x, y);
    let near = b.unary(UnaryOp::Asinh, part(product));
    if !double {
        return near;
    }
    let quarter = quarter_of_product(b, x, y);
    let quarter = part(quarter);
    let (far, four) = (b.unary(UnaryOp::Asinh, quarter), b.f64(4.0_f64.ln()));
    let rest = b.binary(BinaryOp::CopySign, four, quarter);
    let far = b.add(far, rest);
    let (size, limit) = (b.unary(UnaryOp::Abs, quarter), b.f64(f64::MAX / 16.0));
    let huge = b.compare(CmpOp::Gt, size, limit);
    b.select(huge, far, near)
}

fn quarter_of_product(b: &mut Builder, x: Pair, y: Pair) -> Pair {
    let mut halved = |z: Pair| Pair { re: scaled(b, z.re, 0.5), im: scaled(b, z.im, 0.5) };
    let (x, y) = (halved(x), halved(y));
    multiply_parts(b, x, y)
}

fn arcsin_parts(b: &mut Builder, z: Pair, double: bool) -> Pair {
    let (below, above) = roots(b, z, double);
    let product = multiply_parts(b, below, above);
    let (side, product) = if double {
        let (part, huge) = quartered(b, z);
        let quarter = quarter_of_product(b, below, above);
        (part.re, select(b, huge, quarter, product))
    } else {
        (z.re, product)
    };
    let conjugate = Pair { re: below.re, im: neg(b, below.im) };
    let im = arcsinh_of_product(b, |product| product.im, conjugate, above, double);
    let finite = Pair { re: b.binary(BinaryOp::Atan2, side, product.re), im };
    let (size, infinity) = (b.unary(UnaryOp::Abs, z.im), b.f64(f64::INFINITY));
    let angle = infinite_angle(b, Pair { re: size, im: z.re });
    let limit = Pair {
        re: b.binary(BinaryOp::CopySign, angle, z.re),
        im: b.binary(BinaryOp::CopySign, infinity, z.im),
    };
    let infinite = either(b, UnaryOp::IsInf, z);
    let result = select(b, infinite, limit, finite);
    let imaginary = is_zero(b, z.re);
    Pair { re: b.select(imaginary, z.re, result.re), im: result.im }
}

/// The inverse sine.
pub fn arcsin(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let result = arcsin_parts(b, z, is_double(b, like));
    narrow(b, result, like)
}

/// The inverse hyperbolic sine.
pub fn arcsinh(b: &mut Builder, z: ValueId) -> ValueId {
    turned(b, z, arcsin_parts)
}

/// The inverse cosine.
pub fn arccos(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let double = is_double(b, like);
    let (below, above) = roots(b, z, double);
    let angle = b.binary(BinaryOp::Atan2, below.re, above.re);
    let conjugate = Pair { re: above.re, im: neg(b, above.im) };
    let im = arcsinh_of_product(b, |product| product.im, conjugate, below, double);
    let finite = Pair { re: b.add(angle, angle), im };
    let (down, infinity) = (neg(b, z.im), b.f64(f64::INFINITY));
    let limit = Pair { re: infinite_angle(b, z), im: b.binary(BinaryOp::CopySign, infinity, down) };
    let infinite = either(b, UnaryOp::IsInf, z);
    let result = select(b, infinite, limit, finite);
    let (imaginary, right) = (is_zero(b, z.re), b.f64(std::f64::consts::FRAC_PI_2));
    let result = Pair { re: b.select(imaginary, right, result.re), im: result.im };
    narrow(b, result, like)
}

/// The inverse hyperbolic cosine.
pub fn arccosh(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let one = b.f64(1.0);
    let below = Pair { re: b.sub(z.re, one), im: z.im };
    let above = Pair { re: b.add(z.re, one), im: z.im };
    let double = is_double(b, like);
    let (below, above) = (sqrt_parts(b, below, double), sqrt_parts(b, above, double));
    let conjugate = Pair { re: below.re, im: neg(b, below.im) };
    let re = arcsinh_of_product(b, |product| product.re, conjugate, above, double);
    let angle = b.binary(BinaryOp::Atan2, below.im, above.re);
    let finite = Pair { re, im: b.add(angle, angle) };
    let angle = infinite_angle(b, z);
    let limit = Pair { re: b.f64(f64::INFINITY), im: b.binary(BinaryOp::CopySign, angle, z.im) };
    let infinite = either(b, UnaryOp::IsInf, z);
    let result = select(b, infinite, limit, finite);
    let (imaginary, right) = (is_zero(b, z.re), b.f64(std::f64::consts::FRAC_PI_2));
    let right = b.binary(BinaryOp::CopySign, right, z.im);
    let result = Pair { re: result.re, im: b.select(imaginary, right, result.im) };
    narrow(b, result, like)
}

fn arctanh_parts(b: &mut Builder, z: Pair, double: bool) -> Pair {
    // Of the absolute real part, as the logarithm of small numbers loses digits.
    let (one, size) = (b.f64(1.0), b.unary(UnaryOp::Abs, z.re));
    let (below, above) = (b.sub(one, size), b.add(one, size));
    let bottom = squared(b, Pair { re: below, im: z.im });
    let four = scaled(b, size, 4.0);
    let ratio = b.div(four, bottom);
    let log = b.unary(UnaryOp::Log1p, ratio);
    let (product, height) = (b.mul(below, above), b.mul(z.im, z.im));
    let width = b.sub(product, height);
    let twice = b.add(z.im, z.im);
    let angle = b.binary(BinaryOp::Atan2, twice, width);
    let size = scaled(b, log, 0.25);
    let angle = scaled(b, angle, 0.5);
    let (zero, right) = (b.f64(0.0), b.f64(std::f64::consts::FRAC_PI_2));
    let no_angle = b.unary(UnaryOp::IsNan, z.im);
    let right = b.binary(BinaryOp::CopySign, right, z.im);
    let (size, angle) = if double { arctanh_out_of_range(b, z, (size, angle), right) } else { (size, angle) };
    let finite = Pair { re: b.binary(BinaryOp::CopySign, size, z.re), im: angle };
    let limit = Pair { re: b.binary(BinaryOp::CopySign, zero, z.re), im: b.select(no_angle, z.im, right) };
    let infinite = either(b, UnaryOp::IsInf, z);
    let result = select(b, infinite, limit, finite);
    let imaginary = is_zero(b, z.re);
    Pair { re: b.select(imaginary, z.re, result.re), im: result.im }
}

/// The inverse hyperbolic tangent where squares of parts are out of range, or else what is given: `(log 2 -
/// log |im|) / 2` next to the poles, and `1 / z` with a right angle far away.
fn arctanh_out_of_range(
    b: &mut Builder,
    z: Pair,
    (size, angle): (ValueId, ValueId),
    right: ValueId,
) -> (ValueId, ValueId) {
    let (re, im) = (b.unary(UnaryOp::Abs, z.re), b.unary(UnaryOp::Abs, z.im));
    let (one, small, large) = (b.f64(1.0), b.f64(2.0_f64.powi(-500)), b.f64(2.0_f64.powi(500)));
    let (on_line, close) = (b.compare(CmpOp::Eq, re, one), b.compare(CmpOp::Lt, im, small));
    let at_pole = b.binary(BinaryOp::And, on_line, close);
    let (log, two) = (b.unary(UnaryOp::Log, im), b.f64(std::f64::consts::LN_2));
    let near = b.sub(two, log);
    let near = scaled(b, near, 0.5);
    let far = b.binary(BinaryOp::MaxNan, re, im);
    let is_far = b.compare(CmpOp::Gt, far, large);
    let unit = Pair { re: one, im: b.f64(0.0) };
    let inverse = divide_parts(b, unit, Pair { re, im });
    let size = b.select(at_pole, near, size);
    (b.select(is_far, inverse.re, size), b.select(is_far, right, angle))
}

/// The inverse hyperbolic tangent.
pub fn arctanh(b: &mut Builder, z: ValueId) -> ValueId {
    let (like, z) = (z, wide(b, z));
    let result = arctanh_parts(b, z, is_double(b, like));
    narrow(b, result, like)
}

/// The inverse tangent.
pub fn arctan(b: &mut Builder, z: ValueId) -> ValueId {
    turned(b, z, arctanh_parts)
}

/// A value as a complex number of parts of a type.
pub fn from_real(b: &mut Builder, x: ValueId, scalar: Scalar) -> ValueId {
    let re = b.convert(x, scalar);
    let im = b.number(Type::Scalar(scalar), 0.0);
    b.compose(&[re, im])
}

/// A complex number with parts of another type.
pub fn convert(b: &mut Builder, z: ValueId, scalar: Scalar) -> ValueId {
    let Pair { re, im } = parts(b, z);
    let (re, im) = (b.convert(re, scalar), b.convert(im, scalar));
    b.compose(&[re, im])
}

/// A complex number as a real one: the real part, or whether it is not zero.
pub fn to_real(b: &mut Builder, z: ValueId, scalar: Scalar) -> ValueId {
    let Pair { re, im } = parts(b, z);
    if scalar != Scalar::Bool {
        return b.convert(re, scalar);
    }
    let (re, im) = (b.convert(re, Scalar::Bool), b.convert(im, Scalar::Bool));
    b.binary(BinaryOp::Or, re, im)
}

/// A complex number of its eight bytes as one word, the real part in the lower half.
pub fn from_bits(b: &mut Builder, bits: ValueId) -> ValueId {
    let half = b.u64(32);
    let upper = b.binary(BinaryOp::Shr, bits, half);
    let (re, im) = (b.convert(bits, Scalar::U32), b.convert(upper, Scalar::U32));
    let (re, im) = (b.bitcast(re, Type::F32), b.bitcast(im, Type::F32));
    b.compose(&[re, im])
}

/// A complex number's eight bytes as one word.
pub fn to_bits(b: &mut Builder, z: ValueId) -> ValueId {
    let Pair { re, im } = parts(b, z);
    let (re, im) = (b.bitcast(re, Type::U32), b.bitcast(im, Type::U32));
    let (re, im) = (b.convert(re, Scalar::U64), b.convert(im, Scalar::U64));
    let half = b.u64(32);
    let upper = b.binary(BinaryOp::Shl, im, half);
    b.binary(BinaryOp::Or, re, upper)
}

/// A complex number of two float64 in memory; both of its loads or stores are next to each other.
pub fn load_double(b: &mut Builder, pointer: ValueId, index: ValueId) -> ValueId {
    let [re, im] = double_places(b, index).map(|at| b.load_index(pointer, at, Type::Scalar(Scalar::F64)));
    b.compose(&[re, im])
}

/// Stores a complex number as two float64.
pub fn store_double(b: &mut Builder, pointer: ValueId, index: ValueId, z: ValueId) {
    let Pair { re, im } = parts(b, z);
    let [first, second] = double_places(b, index);
    b.store_index(pointer, first, re);
    b.store_index(pointer, second, im);
}

fn double_places(b: &mut Builder, index: ValueId) -> [ValueId; 2] {
    let one = b.i64(1);
    let first = b.add(index, index);
    [first, b.add(first, one)]
}

/// The type of the parts of complex numbers in kernels.
pub fn part(dtype: Dtype) -> Scalar {
    if dtype == Dtype::Complex128 { Scalar::F64 } else { Scalar::F32 }
}
