//! Element-wise functions.

use hesper::Array;
use pyo3::prelude::*;

use crate::args::{On, Value, array_on};
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
        #[pyo3(signature = (a, /, *, stream = None))]
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
        #[pyo3(signature = (a, b, /, *, stream = None))]
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
        /// The inverse sine.
        arcsin, asin = arcsin;
        /// The inverse tangent.
        arctan, atan = arctan;
        /// Rounded up.
        ceil = ceil;
        /// The cosine.
        cos = cos;
        /// The hyperbolic cosine.
        cosh = cosh;
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
        /// Whether elements are finite.
        isfinite = isfinite;
        /// Whether elements are infinite.
        isinf = isinf;
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
    }
    binary {
        /// The sum.
        add = add;
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
        /// Logical and.
        logical_and = logical_and;
        /// Logical or.
        logical_or = logical_or;
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
    let mut a = a.alone()?;
    if a_min.is_none() && a_max.is_none() {
        return Err(pyo3::exceptions::PyValueError::new_err(
            "[clip] At most one of a_min and a_max may be None.",
        ));
    }
    let bound = |bound: Option<Value>| match bound {
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(number) => number.beside(a.dtype()).map(Some),
        None => Ok(None),
    };
    let (low, high) = (bound(a_min)?, bound(a_max)?);
    array_on(stream, || {
        if let Some(low) = &low {
            a = a.maximum(low)?;
        }
        if let Some(high) = &high {
            a = a.minimum(high)?;
        }
        Ok(a)
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    m.add_function(wrap_pyfunction!(select, m)?)?;
    m.add_function(wrap_pyfunction!(matmul, m)?)?;
    m.add_function(wrap_pyfunction!(clip, m)?)
}
