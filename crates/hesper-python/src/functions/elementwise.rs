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
        unary { $($(#[doc = $udoc:literal])+ $($uname:ident),+ = $umethod:ident, $uarg:literal, $uout:literal;)* }
        binary { $($(#[doc = $bdoc:literal])+ $($bname:ident),+ = $bmethod:ident, $barg:literal, $bout:literal;)* }
    ) => {
        $(table!(@unary [$($udoc)+] [$($uname)+] $umethod [$uarg $uout]);)*
        $(table!(@binary [$($bdoc)+] [$($bname)+] $bmethod [$barg $bout]);)*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $($(m.add_function(wrap_pyfunction!($uname, m)?)?;)+)*
            $($(m.add_function(wrap_pyfunction!($bname, m)?)?;)+)*
            Ok(())
        }
    };
    (@unary $docs:tt [$($name:ident)+] $method:ident $example:tt) => { $(table!(@one $docs $name $method $example);)+ };
    (@one [$($doc:literal)+] $name:ident $method:ident [$arg:literal $out:literal]) => {
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
        ///
        /// Examples
        /// --------
        #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
        #[doc = $out]
        #[pyfunction]
        #[pyo3(signature = (a, stream = None))]
        fn $name(a: Value, stream: Option<On>) -> PyResult<PyArray> {
            unary_on(a, stream, Array::$method)
        }
    };
    (@binary $docs:tt [$($name:ident)+] $method:ident $example:tt) => { $(table!(@two $docs $name $method $example);)+ };
    (@two [$($doc:literal)+] $name:ident $method:ident [$arg:literal $out:literal]) => {
        $(#[doc = $doc])+
        ///
        /// Shapes are broadcast, types promoted; a Python number takes the type of the other operand.
        ///
        /// Parameters
        /// ----------
        /// a, b : array or number
        /// stream : Stream or Device, optional
        ///
        /// Returns
        /// -------
        /// array
        ///
        /// Examples
        /// --------
        #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
        #[doc = $out]
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
        abs = abs, "mx.array([-1.5, 2.0])", "array([1.5, 2], dtype=float32)";
        /// The inverse cosine.
        arccos, acos = arccos, "mx.array([0.0, 0.5])", "array([1.5708, 1.0472], dtype=float32)";
        /// The inverse hyperbolic cosine.
        arccosh, acosh = arccosh, "mx.array([1.0, 2.0])", "array([0, 1.31696], dtype=float32)";
        /// The inverse sine.
        arcsin, asin = arcsin, "mx.array([0.0, 0.5])", "array([0, 0.523599], dtype=float32)";
        /// The inverse hyperbolic sine.
        arcsinh, asinh = arcsinh, "mx.array([0.0, 0.5])", "array([0, 0.481212], dtype=float32)";
        /// The inverse tangent.
        arctan, atan = arctan, "mx.array([0.0, 0.5])", "array([0, 0.463648], dtype=float32)";
        /// The inverse hyperbolic tangent.
        arctanh, atanh = arctanh, "mx.array([0.0, 0.5])", "array([0, 0.549306], dtype=float32)";
        /// All bits turned over.
        bitwise_invert = bitwise_invert, "mx.array([0, 5])", "array([-1, -6], dtype=int32)";
        /// Rounded up.
        ceil = ceil, "mx.array([0.5, 1.0])", "array([1, 1], dtype=float32)";
        /// The complex conjugate.
        conjugate, conj = conjugate, "mx.array([1 + 2j])", "array([1-2j], dtype=complex64)";
        /// The cosine.
        cos = cos, "mx.array([0.0, 0.5])", "array([1, 0.877583], dtype=float32)";
        /// The hyperbolic cosine.
        cosh = cosh, "mx.array([0.0, 0.5])", "array([1, 1.12763], dtype=float32)";
        /// Radians as degrees.
        degrees = degrees, "mx.array([0.0, mx.pi])", "array([0, 180], dtype=float32)";
        /// The error function.
        erf = erf, "mx.array([0.5])", "array([0.5205], dtype=float32)";
        /// The inverse of the error function.
        erfinv = erfinv, "mx.array([0.0, 0.5])", "array([0, 0.476936], dtype=float32)";
        /// The exponential.
        exp = exp, "mx.array([0.0, 0.5])", "array([1, 1.64872], dtype=float32)";
        /// The exponential less one, exact near zero.
        expm1 = expm1, "mx.array([0.0, 0.5])", "array([0, 0.648721], dtype=float32)";
        /// Rounded down.
        floor = floor, "mx.array([-0.5, 1.5])", "array([-1, 1], dtype=float32)";
        /// The imaginary part.
        imag = imag, "mx.array([1 + 2j])", "array([2], dtype=float32)";
        /// Whether elements are finite.
        isfinite = isfinite, "mx.array([1.0, mx.inf])", "array([True, False], dtype=bool)";
        /// Whether elements are infinite.
        isinf = isinf, "mx.array([1.0, mx.inf])", "array([False, True], dtype=bool)";
        /// Whether elements are negative infinity.
        isneginf = isneginf, "mx.array([1.0, -mx.inf])", "array([False, True], dtype=bool)";
        /// Whether elements are positive infinity.
        isposinf = isposinf, "mx.array([1.0, mx.inf])", "array([False, True], dtype=bool)";
        /// Whether elements are NaN.
        isnan = isnan, "mx.array([1.0, mx.nan])", "array([False, True], dtype=bool)";
        /// The natural logarithm.
        log = log, "mx.array([1.0, mx.e])", "array([0, 1], dtype=float32)";
        /// The logarithm to base 10.
        log10 = log10, "mx.array([1.0, 100.0])", "array([0, 2], dtype=float32)";
        /// The natural logarithm of one more, exact near zero.
        log1p = log1p, "mx.array([0.0, 0.5])", "array([0, 0.405465], dtype=float32)";
        /// The logarithm to base 2.
        log2 = log2, "mx.array([2.0, 8.0])", "array([1, 3], dtype=float32)";
        /// Logical not.
        logical_not = logical_not, "mx.array([True, False])", "array([False, True], dtype=bool)";
        /// The negative.
        negative = negative, "mx.array([1, -2])", "array([-1, 2], dtype=int32)";
        /// The number itself.
        positive = positive, "mx.array([1, -2])", "array([1, -2], dtype=int32)";
        /// Degrees as radians.
        radians = radians, "mx.array([0.0, 180.0])", "array([0, 3.14159], dtype=float32)";
        /// The real part.
        real = real, "mx.array([1 + 2j])", "array([1], dtype=float32)";
        /// One over the number.
        reciprocal = reciprocal, "mx.array([2.0, 4.0])", "array([0.5, 0.25], dtype=float32)";
        /// One over the square root.
        rsqrt = rsqrt, "mx.array([4.0, 16.0])", "array([0.5, 0.25], dtype=float32)";
        /// The logistic function.
        sigmoid = sigmoid, "mx.array([0.0, 0.5])", "array([0.5, 0.622459], dtype=float32)";
        /// -1, 0 or 1.
        sign = sign, "mx.array([-2, 0, 3])", "array([-1, 0, 1], dtype=int32)";
        /// The sine.
        sin = sin, "mx.array([0.0, 0.5])", "array([0, 0.479426], dtype=float32)";
        /// The hyperbolic sine.
        sinh = sinh, "mx.array([0.0, 0.5])", "array([0, 0.521095], dtype=float32)";
        /// The square root.
        sqrt = sqrt, "mx.array([4.0, 9.0])", "array([2, 3], dtype=float32)";
        /// The square.
        square = square, "mx.array([2, 3])", "array([4, 9], dtype=int32)";
        /// The tangent.
        tan = tan, "mx.array([0.0, 0.5])", "array([0, 0.546302], dtype=float32)";
        /// The hyperbolic tangent.
        tanh = tanh, "mx.array([0.0, 0.5])", "array([0, 0.462117], dtype=float32)";
        /// Rounded towards zero.
        trunc = trunc, "mx.array([-1.5, 1.5])", "array([-1, 1], dtype=float32)";
    }
    binary {
        /// The sum.
        add = add, "mx.array([7, 4]), mx.array([2, 4])", "array([9, 8], dtype=int32)";
        /// The angle of the point (b, a).
        arctan2, atan2 = arctan2, "mx.array([7, 4]), mx.array([2, 4])", "array([1.2925, 0.785398], dtype=float32)";
        /// Bitwise and.
        bitwise_and = bitwise_and, "mx.array([6, 3]), 2", "array([2, 2], dtype=int32)";
        /// Bitwise or.
        bitwise_or = bitwise_or, "mx.array([6, 3]), 1", "array([7, 3], dtype=int32)";
        /// Bitwise exclusive or.
        bitwise_xor = bitwise_xor, "mx.array([6, 3]), 2", "array([4, 1], dtype=int32)";
        /// The quotient; of integers as ``float32``.
        divide = divide, "mx.array([7, 4]), mx.array([2, 4])", "array([3.5, 1], dtype=float32)";
        /// Whether elements are equal.
        equal = equal, "mx.array([7, 4]), mx.array([2, 4])", "array([False, True], dtype=bool)";
        /// The quotient, rounded down.
        floor_divide = floor_divide, "mx.array([7, 4]), mx.array([2, 4])", "array([3, 1], dtype=int32)";
        /// Whether elements of the first are greater.
        greater = greater, "mx.array([7, 4]), mx.array([2, 4])", "array([True, False], dtype=bool)";
        /// Whether elements of the first are greater or equal.
        greater_equal = greater_equal, "mx.array([7, 4]), mx.array([2, 4])", "array([True, True], dtype=bool)";
        /// Bits shifted to the left.
        left_shift, bitwise_left_shift = left_shift, "mx.array([1, 3]), 2", "array([4, 12], dtype=int32)";
        /// Whether elements of the first are less.
        less = less, "mx.array([7, 4]), mx.array([2, 4])", "array([False, False], dtype=bool)";
        /// Whether elements of the first are less or equal.
        less_equal = less_equal, "mx.array([7, 4]), mx.array([2, 4])", "array([False, True], dtype=bool)";
        /// The logarithm of the sum of exponentials.
        logaddexp = logaddexp, "mx.array([7, 4]), mx.array([2, 4])", "array([7.00672, 4.69315], dtype=float32)";
        /// Logical and.
        logical_and = logical_and, "mx.array([True, False]), True", "array([True, False], dtype=bool)";
        /// Logical or.
        logical_or = logical_or, "mx.array([True, False]), False", "array([True, False], dtype=bool)";
        /// Logical exclusive or.
        logical_xor = logical_xor, "mx.array([True, False]), True", "array([False, True], dtype=bool)";
        /// The larger of two; NaN if either is.
        maximum = maximum, "mx.array([7, 4]), mx.array([2, 4])", "array([7, 4], dtype=int32)";
        /// The smaller of two; NaN if either is.
        minimum = minimum, "mx.array([7, 4]), mx.array([2, 4])", "array([2, 4], dtype=int32)";
        /// The product.
        multiply = multiply, "mx.array([7, 4]), mx.array([2, 4])", "array([14, 16], dtype=int32)";
        /// Whether elements differ.
        not_equal = not_equal, "mx.array([7, 4]), mx.array([2, 4])", "array([True, False], dtype=bool)";
        /// The power.
        power, pow = power, "mx.array([7, 4]), mx.array([2, 4])", "array([49, 256], dtype=int32)";
        /// The remainder, with the sign of the divisor.
        remainder = remainder, "mx.array([7, 4]), mx.array([2, 4])", "array([1, 0], dtype=int32)";
        /// Bits shifted to the right.
        right_shift, bitwise_right_shift = right_shift, "mx.array([8, 3]), 1", "array([4, 1], dtype=int32)";
        /// The difference.
        subtract = subtract, "mx.array([7, 4]), mx.array([2, 4])", "array([5, 0], dtype=int32)";
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
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.matmul(mx.array([[1.0, 2.0]]), mx.array([3.0, 4.0]))
/// array([11], dtype=float32)
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
        return Err(PyValueError::new_err("[clip] cannot clip without bounds; give a_min or a_max"));
    }
    let bound = |bound: Option<Value>| bound.map(|bound| bound.beside_array(&a)).transpose();
    let (low, high) = (bound(a_min)?, bound(a_max)?);
    array_on(stream, || a.clip(low.as_ref(), high.as_ref()))
}

/// Quotient, rounded down, and remainder.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.divmod(mx.array([7]), 2)
/// [array([3], dtype=int32), array([1], dtype=int32)]
#[pyfunction]
#[pyo3(signature = (a, b, stream = None))]
fn divmod(a: Value, b: Value, stream: Option<On>) -> PyResult<Vec<PyArray>> {
    let (a, b) = Value::pair(a, b)?;
    let (quotient, remainder) = on(stream, || a.divmod(&b))?;
    Ok(vec![PyArray::new(quotient), PyArray::new(remainder)])
}

/// Rounded to a number of decimals; halves go to the even neighbour.
///
/// Parameters
/// ----------
/// a : array
/// decimals : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.round(mx.array([0.5, 1.5, 2.25]))
/// array([0, 2, 2], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, decimals = 0, stream = None))]
fn round(a: Value, decimals: i32, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.round(decimals))
}

/// Replace NaN and infinities by numbers; by default NaN by zero, infinities by the largest finite ones.
///
/// Parameters
/// ----------
/// a : array
/// nan : float
/// posinf : float, optional
/// neginf : float, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.nan_to_num(mx.array([mx.nan, 1.0]))
/// array([0, 1], dtype=float32)
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
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// rtol : float
/// atol : float
/// equal_nan : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.isclose(mx.array([1.0, 2.0]), mx.array([1.0, 2.1]))
/// array([True, False], dtype=bool)
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
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// rtol : float
/// atol : float
/// equal_nan : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.allclose(mx.array([1.0]), mx.array([1.0]))
/// array(True, dtype=bool)
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
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// equal_nan : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.array_equal(mx.array([1, 2]), mx.array([1, 2]))
/// array(True, dtype=bool)
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
