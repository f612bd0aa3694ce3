//! Functions that make arrays from numbers.

use hesper::{Array, Category, Dtype};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::args::{Lengths, On, Value, array_on, on};
use crate::array::{PyArray, convert};
use crate::dtype::PyDtype;

/// An array of a shape that holds one number everywhere, in memory of one element.
fn filled(number: f64, dtype: Dtype, shape: &[usize], stream: Option<On>) -> PyResult<PyArray> {
    array_on(stream, || Array::scalar(number, dtype)?.broadcast_to(shape))
}

/// Arrays of one number, of a given shape and of the shape of another array.
macro_rules! constants {
    ($($(#[doc = $doc:literal])+ $name:ident, $(#[doc = $like_doc:literal])+ $like:ident = $number:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Parameters
            /// ----------
            /// shape : int or sequence of int
            /// dtype : Dtype, optional
            ///     By default ``float32``.
            /// stream : Stream or Device, optional
            #[pyfunction]
            #[pyo3(signature = (shape, dtype = None, *, stream = None))]
            fn $name(shape: Lengths, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
                filled($number, dtype.map_or(Dtype::Float32, |dtype| dtype.0), &shape.0, stream)
            }

            $(#[doc = $like_doc])+
            #[pyfunction]
            #[pyo3(signature = (a, /, dtype = None, *, stream = None))]
            fn $like(a: PyArray, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
                let a = a.value();
                filled($number, dtype.map_or(a.dtype(), |dtype| dtype.0), a.shape(), stream)
            }
        )*

        fn register_constants(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;
            m.add_function(wrap_pyfunction!($like, m)?)?;)*
            Ok(())
        }
    };
}

constants! {
    /// An array of zeros.
    zeros,
    /// Zeros in the shape and type of an array.
    zeros_like = 0.0;
    /// An array of ones.
    ones,
    /// Ones in the shape and type of an array.
    ones_like = 1.0;
    /// An array whose elements do not matter.
    empty,
    /// An array like another whose elements do not matter.
    empty_like = 0.0;
}

/// An array of a shape with the given value everywhere, or an array stretched to the shape.
///
/// Examples
/// --------
/// >>> mx.full((2,), 7)
/// array([7, 7], dtype=int32)
#[pyfunction]
#[pyo3(signature = (shape, vals, dtype = None, *, stream = None))]
fn full(shape: Lengths, vals: Value, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    let value = vals.alone()?;
    array_on(stream, || value.astype(dtype.map_or(value.dtype(), |dtype| dtype.0))?.broadcast_to(&shape.0))
}

/// The given value everywhere, in the shape and type of an array.
#[pyfunction]
#[pyo3(signature = (a, /, vals, dtype = None, *, stream = None))]
fn full_like(a: PyArray, vals: Value, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    let (a, value) = (a.value(), vals.alone()?);
    array_on(stream, || value.astype(dtype.map_or(a.dtype(), |dtype| dtype.0))?.broadcast_to(a.shape()))
}

/// Numbers from `start` to below `stop`, `step` apart; ``arange(stop)`` starts at zero.
///
/// Integers make ``int32``, floats ``float32``, unless `dtype` says otherwise.
///
/// Examples
/// --------
/// >>> mx.arange(3)
/// array([0, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (start, stop = None, step = None, dtype = None, *, stream = None))]
fn arange(
    start: Value,
    stop: Option<Value>,
    step: Option<Value>,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (start, stop) = match stop {
        Some(stop) => (start, stop),
        None => (Value::Int(0), start),
    };
    let step = step.unwrap_or(Value::Int(1));
    let whole = [&start, &stop, &step].iter().all(|value| matches!(value, Value::Int(_) | Value::Bool(_)));
    let number = |value: &Value| match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        Value::Bool(value) => Ok(f64::from(u8::from(*value))),
        _ => Err(pyo3::exceptions::PyTypeError::new_err("arange takes integers and floats")),
    };
    let (start, stop, step) = (number(&start)?, number(&stop)?, number(&step)?);
    let dtype = dtype.map_or(if whole { Dtype::Int32 } else { Dtype::Float32 }, |dtype| dtype.0);
    let count = ((stop - start) / step).ceil();
    if start.is_nan() || stop.is_nan() || step.is_nan() || count.is_nan() {
        return Err(PyValueError::new_err("[arange] Cannot compute length."));
    }
    if count > i32::MAX as f64 {
        return Err(PyValueError::new_err("[arange] Maximum size exceeded."));
    }
    if dtype == Dtype::Bool {
        return Err(PyValueError::new_err("[arange] Does not support bool."));
    }
    let count = count.max(0.0) as usize;
    // Integers step by whole numbers, whatever the arguments were.
    let whole = dtype.is(Category::Integer);
    let (start, step) =
        if whole { (start.trunc(), (start + step).trunc() - start.trunc()) } else { (start, step) };
    on(stream, || {
        if whole {
            let numbers: Vec<i64> = (0..count as i64).map(|at| start as i64 + at * step as i64).collect();
            Array::try_from_slice(&numbers, &[count])?.astype(dtype)
        } else {
            let numbers: Vec<f64> = (0..count).map(|at| start + at as f64 * step).collect();
            Array::try_from_slice(&numbers, &[count])?.astype(dtype)
        }
    })
    .map(PyArray::new)
}

/// An array from any object that holds numbers; an array stays as it is unless its type must change.
#[pyfunction]
#[pyo3(signature = (a, dtype = None, *, copy = None))]
fn asarray(a: &Bound<'_, PyAny>, dtype: Option<PyDtype>, copy: Option<bool>) -> PyResult<PyArray> {
    if copy == Some(false) && !a.is_instance_of::<PyArray>() {
        return Err(PyValueError::new_err("[asarray] Unable to avoid a copy."));
    }
    convert::array(a, dtype.map(|dtype| dtype.0)).map(PyArray::new)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_constants(m)?;
    m.add_function(wrap_pyfunction!(full, m)?)?;
    m.add_function(wrap_pyfunction!(full_like, m)?)?;
    m.add_function(wrap_pyfunction!(arange, m)?)?;
    m.add_function(wrap_pyfunction!(asarray, m)?)
}
