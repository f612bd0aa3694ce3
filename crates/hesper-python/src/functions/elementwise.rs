//! Element-wise functions.

use hesper::{Array, Tolerance};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::args::{On, Value, array_on, on};
use crate::array::PyArray;

fn unary_on(a: Value, stream: Option<On>, f: fn(&Array) -> hesper::Result<Array>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || f(&a))
}

fn binary_on(
    a: Value,
    b: Value,
    stream: Option<On>,
    f: fn(&Array, &Array) -> hesper::Result<Array>,
) -> PyResult<PyArray> {
    let (a, b) = Value::pair(a, b)?;
    array_on(stream, || f(&a, &b))
}

/// Functions of one array and of two: documentation, Python's names, the array's method.
macro_rules! table {
    (
        unary { $($(#[doc = $udoc:literal])+ $($uname:ident),+ = $umethod:ident;)* }
        binary { $($(#[doc = $bdoc:literal])+ $($bname:ident),+ = $bmethod:ident;)* }
    ) => {
        $(table!(@unary [$($udoc)+] [$($uname)+] $umethod);)*
        $(table!(@binary [$($bdoc)+] [$($bname)+] $bmethod);)*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $($(m.add_function(wrap_pyfunction!($uname, m)?)?;)+)*
            $($(m.add_function(wrap_pyfunction!($bname, m)?)?;)+)*
            Ok(())
        }
    };
    (@unary $docs:tt [$($name:ident)+] $method:ident) => { $(table!(@one $docs $name $method);)+ };
    (@one [$($doc:literal)+] $name:ident $method:ident) => {
        $(#[doc = $doc])+
        ///
        /// Parameters
        /// ----------
        /// a : array or number
        /// stream : Stream or Device, optional
        ///
        /// Returns
        /// -------
        /// array
        #[pyfunction]
        #[pyo3(signature = (a, stream = None))]
        fn $name(a: Value, stream: Option<On>) -> PyResult<PyArray> {
            unary_on(a, stream, Array::$method)
        }
    };
    (@binary $docs:tt [$($name:ident)+] $method:ident) => { $(table!(@two $docs $name $method);)+ };
    (@two [$($doc:literal)+] $name:ident $method:ident) => {
        $(#[doc = $doc])+
        ///
        /// Shapes are broadcast, types promoted; a plain number takes the type of the
        /// array beside it.
        ///
        /// Parameters
        /// ----------
        /// a, b : array or number
        /// stream : Stream or Device, optional
        ///
        /// Returns
        /// -------
        /// array
        #[pyfunction]
        #[pyo3(signature = (a, b, stream = None))]
        fn $name(a: Value, b: Value, stream: Option<On>) -> PyResult<PyArray> {
            binary_on(a, b, stream, |a, b| a.$method(b))
        }
    };
}

table! {
    unary {
        /// The absolute value.
        abs = abs;
        /// The inverse cosine.
        arccos, acos = arccos;
        /// The inverse hyperbolic cosine.
        arccosh, acosh = arccosh;
        /// The inverse sine.
        arcsin, asin = arcsin;
        /// The inverse hyperbolic sine.
        arcsinh, asinh = arcsinh;
        /// The inverse tangent.
        arctan, atan = arctan;
        /// The inverse hyperbolic tangent.
        arctanh, atanh = arctanh;
        /// All bits turned over.
        bitwise_invert = bitwise_invert;
        /// Rounded up.
        ceil = ceil;
        /// The complex conjugate.
        conjugate, conj = conjugate;
        /// The cosine.
        cos = cos;
        /// The hyperbolic cosine.
        cosh = cosh;
        /// Radians as degrees.
        degrees = degrees;
        /// The error function.
        erf = erf;
        /// The inverse of the error function.
        erfinv = erfinv;
        /// The exponential.
        exp = exp;
        /// The exponential less one, exact near zero.
        expm1 = expm1;
        /// Rounded down.
        floor = floor;
        /// The imaginary part.
        imag = imag;
        /// Whether elements are finite.
        isfinite = isfinite;
        /// Whether elements are infinite.
        isinf = isinf;
        /// Whether elements are negative infinity.
        isneginf = isneginf;
        /// Whether elements are positive infinity.
        isposinf = isposinf;
        /// Whether elements are NaN.
        isnan = isnan;
        /// The natural logarithm.
        log = log;
        /// The logarithm to base 10.
        log10 = log10;
        /// The natural logarithm of one more, exact near zero.
        log1p = log1p;
        /// The logarithm to base 2.
        log2 = log2;
        /// Logical not.
        logical_not = logical_not;
        /// The negative.
        negative = negative;
        /// The number itself.
        positive = positive;
        /// Degrees as radians.
        radians = radians;
        /// The real part.
        real = real;
        /// One over the number.
        reciprocal = reciprocal;
        /// One over the square root.
        rsqrt = rsqrt;
        /// The logistic function.
        sigmoid = sigmoid;
        /// -1, 0 or 1.
        sign = sign;
        /// The sine.
        sin = sin;
        /// The hyperbolic sine.
        sinh = sinh;
        /// The square root.
        sqrt = sqrt;
        /// The square.
        square = square;
        /// The tangent.
        tan = tan;
        /// The hyperbolic tangent.
        tanh = tanh;
        /// Rounded towards zero.
        trunc = trunc;
    }
    binary {
        /// The sum.
        add = add;
        /// The angle of the point (b, a).
        arctan2, atan2 = arctan2;
        /// Bitwise and.
        bitwise_and = bitwise_and;
        /// Bitwise or.
        bitwise_or = bitwise_or;
        /// Bitwise exclusive or.
        bitwise_xor = bitwise_xor;
        /// The quotient; of integers as ``float32``.
        divide = divide;
        /// Whether elements are equal.
        equal = equal;
        /// The quotient, rounded down.
        floor_divide = floor_divide;
        /// Whether elements of the first are greater.
        greater = greater;
        /// Whether elements of the first are greater or equal.
        greater_equal = greater_equal;
        /// Bits shifted to the left.
        left_shift, bitwise_left_shift = left_shift;
        /// Whether elements of the first are less.
        less = less;
        /// Whether elements of the first are less or equal.
        less_equal = less_equal;
        /// The logarithm of the sum of exponentials.
        logaddexp = logaddexp;
        /// Logical and.
        logical_and = logical_and;
        /// Logical or.
        logical_or = logical_or;
        /// Logical exclusive or.
        logical_xor = logical_xor;
        /// The larger of two; NaN if either is.
        maximum = maximum;
        /// The smaller of two; NaN if either is.
        minimum = minimum;
        /// The product.
        multiply = multiply;
        /// Whether elements differ.
        not_equal = not_equal;
        /// The power.
        power, pow = power;
        /// The remainder, with the sign of the divisor.
        remainder = remainder;
        /// Bits shifted to the right.
        right_shift, bitwise_right_shift = right_shift;
        /// The difference.
        subtract = subtract;
    }
}

/// Elements of `x` where `condition` holds, else of `y`.
///
/// Examples
/// --------
/// >>> mx.where(mx.array([True, False]), 1, 2)
/// array([1, 2], dtype=int32)
#[pyfunction]
#[pyo3(name = "where", signature = (condition, x, y, /, *, stream = None))]
fn select(condition: Value, x: Value, y: Value, stream: Option<On>) -> PyResult<PyArray> {
    let condition = condition.alone()?;
    let (x, y) = Value::pair(x, y)?;
    array_on(stream, || hesper::select(&condition, &x, &y))
}

/// The matrix product over the last two axes; the others broadcast.
///
/// A vector counts as a row on the left and as a column on the right.
#[pyfunction]
#[pyo3(signature = (a, b, /, *, stream = None))]
fn matmul(a: PyArray, b: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || a.matmul(&b))
}

/// Elements limited to a range; a bound may be None.
///
/// Examples
/// --------
/// >>> mx.clip(mx.array([-1, 5]), 0, 3)
/// array([0, 3], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, a_min, a_max, *, stream = None))]
fn clip(a: Value, a_min: Option<Value>, a_max: Option<Value>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    if a_min.is_none() && a_max.is_none() {
        return Err(PyValueError::new_err("[clip] At most one of a_min and a_max may be None."));
    }
    let bound = |bound: Option<Value>| bound.map(|bound| bound.beside_array(&a)).transpose();
    let (low, high) = (bound(a_min)?, bound(a_max)?);
    array_on(stream, || a.clip(low.as_ref(), high.as_ref()))
}

/// Quotient, rounded down, and remainder.
#[pyfunction]
#[pyo3(signature = (a, b, stream = None))]
fn divmod(a: Value, b: Value, stream: Option<On>) -> PyResult<Vec<PyArray>> {
    let (a, b) = Value::pair(a, b)?;
    let (quotient, remainder) = on(stream, || a.divmod(&b))?;
    Ok(vec![PyArray::new(quotient), PyArray::new(remainder)])
}

/// Rounded to a number of decimals; halves go to the even neighbour.
#[pyfunction]
#[pyo3(signature = (a, /, decimals = 0, stream = None))]
fn round(a: Value, decimals: i32, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.round(decimals))
}

/// Numbers in the place of NaN and of infinities; by default those of largest magnitude.
#[pyfunction]
#[pyo3(signature = (a, nan = 0.0, posinf = None, neginf = None, *, stream = None))]
fn nan_to_num(
    a: Value,
    nan: f64,
    posinf: Option<f64>,
    neginf: Option<f64>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.nan_to_num(nan, posinf, neginf))
}

/// Whether elements are close: ``abs(a - b) <= atol + rtol * abs(b)``.
#[pyfunction]
#[pyo3(signature = (a, b, /, rtol = 1e-5, atol = 1e-8, *, equal_nan = false, stream = None))]
fn isclose(
    a: Value,
    b: Value,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = Value::pair(a, b)?;
    array_on(stream, || a.isclose(&b, Tolerance { relative: rtol, absolute: atol, equal_nan }))
}

/// Whether all elements are close; see ``isclose``.
#[pyfunction]
#[pyo3(signature = (a, b, /, rtol = 1e-5, atol = 1e-8, *, equal_nan = false, stream = None))]
fn allclose(
    a: Value,
    b: Value,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = Value::pair(a, b)?;
    array_on(stream, || a.allclose(&b, Tolerance { relative: rtol, absolute: atol, equal_nan }))
}

/// Whether two arrays have one shape and equal elements.
#[pyfunction]
#[pyo3(signature = (a, b, equal_nan = false, stream = None))]
fn array_equal(a: Value, b: Value, equal_nan: bool, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = Value::pair(a, b)?;
    array_on(stream, || a.array_equal(&b, equal_nan))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    m.add_function(wrap_pyfunction!(select, m)?)?;
    m.add_function(wrap_pyfunction!(matmul, m)?)?;
    m.add_function(wrap_pyfunction!(divmod, m)?)?;
    m.add_function(wrap_pyfunction!(round, m)?)?;
    m.add_function(wrap_pyfunction!(nan_to_num, m)?)?;
    m.add_function(wrap_pyfunction!(isclose, m)?)?;
    m.add_function(wrap_pyfunction!(allclose, m)?)?;
    m.add_function(wrap_pyfunction!(array_equal, m)?)?;
    m.add_function(wrap_pyfunction!(clip, m)?)
}
