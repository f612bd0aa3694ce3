//! Element-wise functions.

use hesper::{Array, Category, Dtype, Tolerance};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::tables;
use crate::args::{On, Value, array_on, int, on};
use crate::handle::PyArray;
use crate::steps;

fn unary_on(a: Value, stream: Option<On>, f: fn(&Array) -> hesper::Result<Array>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || f(&a))
}

fn binary_on(
    a: Value,
    b: Value,
    stream: Option<On>,
    name: &str,
    f: fn(&Array, &Array) -> hesper::Result<Array>,
) -> PyResult<PyArray> {
    // An integer beside an array is a truth value here, of whatever size.
    let truth = |value: Value| match value {
        Value::Int(number) if name.starts_with("logical") => Value::Bool(number != 0),
        other => other,
    };
    let (a, b) = match name.starts_with("logical") && steps::described() {
        // MLX converts numbers of their own types.
        true => (a.alone()?, b.alone()?),
        false => Value::pair(truth(a), truth(b))?,
    };
    array_on(stream, || f(&a, &b))
}

/// The functions and methods of a table of ops; `hesper_core::ops::elementwise` explains an entry.
macro_rules! define_functions {
    ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($($other:ident),*): $types:ident
        = |$($x:ident),+| $body:expr $(=> $derivative:expr)?;
        rust $example:literal => $shown:literal;
        $(python $args:literal => $result:literal $(, method $method:ident)?;)?
        cases $([$($domain:ident),+])+;)*) => {
        $(define_functions!(
            @op [$($doc)+] $name [$name $($alias)*] [$($other)*] $([$args $result] $($method)?)?
        );)*

        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(define_functions!(@register m [$name $($alias)*] $($args)?);)*
            Ok(())
        }
    };
    (@op $docs:tt $op:ident $names:tt $others:tt) => {};
    (@op $docs:tt $op:ident [$($name:ident)+] $others:tt $example:tt $($method:ident)?) => {
        $(define_functions!(@function $docs $op $name $others $example);)+
        $(define_functions!(@method $op $method $others);)?
    };
    (@function [$($doc:literal)+] $op:ident $name:ident [] [$args:literal $result:literal]) => {
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
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, stream = None))]
        fn $name(a: Value, stream: Option<On>) -> PyResult<PyArray> {
            unary_on(a, stream, Array::$op)
        }
    };
    (@function [$($doc:literal)+] $op:ident $name:ident [$other:ident] [$args:literal $result:literal]) => {
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
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, b, stream = None))]
        fn $name(a: Value, b: Value, stream: Option<On>) -> PyResult<PyArray> {
            binary_on(a, b, stream, stringify!($op), |a, b| a.$op(b))
        }
    };
    (@method $op:ident $method:ident []) => {
        #[pymethods]
        impl PyArray {
            #[doc = concat!("See the function ``", stringify!($method), "``.")]
            #[pyo3(signature = (*, stream = None))]
            fn $method(&self, stream: Option<On>) -> PyResult<PyArray> {
                let own = self.value();
                array_on(stream, || own.$op())
            }
        }
    };
    (@register $m:ident $names:tt) => {};
    (@register $m:ident [$($name:ident)+] $args:literal) => {
        $($m.add_function(wrap_pyfunction!($name, $m)?)?;)+
    };
}

tables!(arithmetic_ops arithmetic, function_ops functions, logic_ops logic);

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
fn clip(a: PyArray, a_min: Option<Value>, a_max: Option<Value>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
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
fn round(a: Value, #[pyo3(from_py_with = int)] decimals: isize, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || rounded(&a, decimals as i32))
}

/// Rounded to decimals. Floats of up to 32 bits are multiplied by the inverse power of ten, so that they have
/// MLX's last bits.
pub fn rounded(x: &Array, decimals: i32) -> hesper::Result<Array> {
    let exact = !x.dtype().is(Category::Inexact) || x.dtype().real() == Dtype::Float64;
    if decimals == 0 || exact {
        return x.round(decimals);
    }
    let scale = |decimals: i32| 10f64.powi(decimals);
    x.multiply(scale(decimals))?.rint()?.multiply(scale(decimals.saturating_neg()))
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
    a: PyArray,
    b: PyArray,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    let tolerance = Tolerance { relative: rtol, absolute: atol, equal_nan };
    array_on(stream, || {
        steps::or_else(|| steps::logic::isclose(&a, &b, tolerance), || a.isclose(&b, tolerance))
    })
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
    a: PyArray,
    b: PyArray,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    let tolerance = Tolerance { relative: rtol, absolute: atol, equal_nan };
    array_on(stream, || {
        let described = || steps::logic::isclose(&a, &b, tolerance)?.map(|close| close.all(())).transpose();
        steps::or_else(described, || a.allclose(&b, tolerance))
    })
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
    array_on(stream, || {
        let described = || steps::logic::array_equal(&a, &b, equal_nan);
        steps::or_else(described, || a.array_equal(&b, equal_nan))
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_tables(m)?;
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
