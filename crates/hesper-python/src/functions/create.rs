//! Functions that create arrays.

use hesper::{Array, Dtype, Indexing, Range};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::convert;
use crate::args::{Count, Lengths, On, Value, array_on, int, on, real};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::steps;

/// An array of a shape that holds one number everywhere.
fn filled(number: f64, dtype: Dtype, shape: &[usize], stream: Option<On>) -> PyResult<PyArray> {
    array_on(stream, || Array::full(shape, number, Some(dtype)))
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
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "((2, 3)).shape")]
            /// (2, 3)
            #[pyfunction]
            #[pyo3(signature = (shape, dtype = None, *, stream = None))]
            fn $name(shape: Lengths, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
                filled($number, dtype.map_or(Dtype::Float32, |dtype| dtype.0), &shape.0, stream)
            }

            $(#[doc = $like_doc])+
            ///
            /// Parameters
            /// ----------
            /// a : array
            /// dtype : Dtype, optional
            ///     By default that of the array.
            /// stream : Stream or Device, optional
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($like), "(mx.array([[1, 2]])).shape")]
            /// (1, 2)
            #[pyfunction]
            #[pyo3(signature = (a, /, dtype = None, *, stream = None))]
            fn $like(a: PyArray, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
                array_on(stream, || a.value().full_like($number, dtype.map(|dtype| dtype.0)))
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
    /// An array with unspecified elements.
    empty,
    /// An array of the shape and type of another, with unspecified elements.
    empty_like = 0.0;
}

/// An array of a shape, filled with a value, or with an array that is broadcast to the shape.
///
/// Examples
/// --------
/// >>> mx.full((2,), 7)
/// array([7, 7], dtype=int32)
#[pyfunction]
#[pyo3(signature = (shape, vals, dtype = None, *, stream = None))]
fn full(shape: Lengths, vals: Value, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    let value = match &dtype {
        Some(PyDtype(dtype)) => vals.beside(*dtype)?,
        None => vals.alone()?,
    };
    array_on(stream, || Array::full(&shape.0, &value, dtype.map(|dtype| dtype.0)))
}

/// An array of the shape and type of another, filled with a value.
///
/// Parameters
/// ----------
/// a : array
/// vals : array or number
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.full_like(mx.array([1, 2]), 7)
/// array([7, 7], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, vals, dtype = None, *, stream = None))]
fn full_like(a: PyArray, vals: Value, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let value = vals.beside(dtype.as_ref().map_or(a.dtype(), |dtype| dtype.0))?;
    array_on(stream, || a.full_like(&value, dtype.map(|dtype| dtype.0)))
}

/// Numbers from `start` to below `stop`, `step` apart; ``arange(stop)`` starts at zero.
///
/// The type is ``int32`` for integers and ``float32`` for floats, unless `dtype` is given.
///
/// Examples
/// --------
/// >>> mx.arange(3)
/// array([0, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (start = None, stop = None, step = None, dtype = None, *, stream = None),
    text_signature = "(start, stop=None, step=None, dtype=None, *, stream=None)")]
fn arange(
    start: Option<Number>,
    stop: Option<Number>,
    step: Option<&Bound<'_, PyAny>>,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    // In `arange(stop, step, dtype)` the type is where the step is otherwise.
    let third = step.and_then(|step| step.extract::<PyDtype>().ok()).filter(|_| dtype.is_none());
    let step = if third.is_some() { None } else { step.map(|step| step.extract::<Number>()).transpose()? };
    let (start, stop, step) = match (start, stop) {
        (Some(end), by) if third.is_some() => (None, end, by),
        (Some(start), Some(stop)) => (Some(start), stop, step),
        (Some(stop), None) | (None, Some(stop)) => (None, stop, step),
        (None, None) => return Err(PyTypeError::new_err("[arange] expected at least a stop")),
    };
    let dtype = dtype.or(third).map(|dtype| dtype.0);
    let given = [start, Some(stop), step];
    if dtype.is_none() && given.into_iter().flatten().all(|bound| matches!(bound, Number::Bool(_))) {
        return Err(PyValueError::new_err(
            "[arange] cannot count in bool; use an integer or floating point type",
        ));
    }
    let (start, step) = (start.unwrap_or(Number::Int(0)), step.unwrap_or(Number::Int(1)));
    let range = match (start.integer(), stop.integer(), step.integer()) {
        (Some(start), Some(stop), Some(step)) => Range::Int(start, stop, step),
        _ => Range::Float(start.number(), stop.number(), step.number()),
    };
    let length = (stop.number() - start.number()) / step.number();
    if length.is_finite() && length.ceil() > f64::from(i32::MAX) {
        return Err(PyValueError::new_err(format!(
            "[arange] cannot make {length} elements; the most are {}",
            i32::MAX
        )));
    }
    array_on(stream, || Array::arange(range, dtype))
}

/// A bound or the step of a range.
#[derive(Clone, Copy)]
enum Number {
    Bool(bool),
    Int(i64),
    Float(f64),
}

impl Number {
    fn integer(self) -> Option<i64> {
        match self {
            Number::Bool(value) => Some(value.into()),
            Number::Int(value) => Some(value),
            Number::Float(_) => None,
        }
    }

    fn number(self) -> f64 {
        match self {
            Number::Float(value) => value,
            other => other.integer().unwrap_or_default() as f64,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match Value::number(&object) {
            Ok(Some(Value::Bool(value))) => Ok(Number::Bool(value)),
            Ok(Some(Value::Int(value))) => Ok(Number::Int(value)),
            Ok(Some(Value::Float(value))) => Ok(Number::Float(value)),
            _ => {
                let name = object.get_type().name()?;
                Err(PyTypeError::new_err(format!("expected an integer of 64 bits or a float, not {name}")))
            }
        }
    }
}

/// Evenly spaced numbers from `start` to `stop`, which is left out if `endpoint` is false.
///
/// Parameters
/// ----------
/// start : float
/// stop : float
/// num : int
/// endpoint : bool
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.linspace(0, 1, 3)
/// array([0, 0.5, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (start, stop, num = 50, endpoint = true, dtype = None, stream = None))]
fn linspace(
    #[pyo3(from_py_with = real)] start: f64,
    #[pyo3(from_py_with = real)] stop: f64,
    #[pyo3(from_py_with = int)] num: isize,
    endpoint: bool,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let count = usize::try_from(num)
        .map_err(|_| PyValueError::new_err("[linspace] cannot make a negative number of samples"))?;
    let dtype = dtype.map_or(Dtype::Float32, |dtype| dtype.0);
    let last = if endpoint || count == 0 { stop } else { stop - (stop - start) / count as f64 };
    array_on(stream, || {
        steps::or_else(
            || steps::create::linspace(start, last, count, dtype),
            || Array::linspace(start, last, count, dtype),
        )
    })
}

/// A matrix with ones on a diagonal: the main one, or `k` columns to its right.
///
/// Parameters
/// ----------
/// n : int
/// m : int, optional
/// k : int
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.eye(3).shape
/// (3, 3)
#[pyfunction]
#[pyo3(signature = (n, m = None, k = 0, dtype = None, *, stream = None))]
fn eye(
    n: Count,
    m: Option<Count>,
    #[pyo3(from_py_with = int)] k: isize,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    array_on(stream, || Array::eye(n.0, m.unwrap_or(n).0, k, dtype.map_or(Dtype::Float32, |dtype| dtype.0)))
}

/// The square matrix with ones on its main diagonal.
///
/// Parameters
/// ----------
/// n : int
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.identity(2).tolist()
/// [[1.0, 0.0], [0.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (n, dtype = None, *, stream = None))]
fn identity(n: Count, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    array_on(stream, || Array::identity(n.0, dtype.map_or(Dtype::Float32, |dtype| dtype.0)))
}

/// A matrix with ones on and below a diagonal.
///
/// Parameters
/// ----------
/// n : int
/// m : int, optional
/// k : int
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.tri(2).tolist()
/// [[1.0, 0.0], [1.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (n, m = None, k = 0, dtype = None, *, stream = None))]
fn tri(
    #[pyo3(from_py_with = int)] n: isize,
    #[pyo3(from_py_with = int)] m: Option<isize>,
    #[pyo3(from_py_with = int)] k: isize,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    // A negative number of rows or columns is none.
    let length = |n: isize| usize::try_from(n).unwrap_or(0);
    let dtype = dtype.map_or(Dtype::Float32, |dtype| dtype.0);
    array_on(stream, || Array::tri(length(n), length(m.unwrap_or(n)), k, dtype))
}

/// The array with zeros above a diagonal.
///
/// Parameters
/// ----------
/// x : array
/// k : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.tril(mx.ones((2, 2))).tolist()
/// [[1.0, 0.0], [1.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (x, k = 0, *, stream = None))]
fn tril(x: PyArray, #[pyo3(from_py_with = int)] k: isize, stream: Option<On>) -> PyResult<PyArray> {
    let x = x.value();
    array_on(stream, || x.tril(k))
}

/// The array with zeros below a diagonal.
///
/// Parameters
/// ----------
/// x : array
/// k : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.triu(mx.ones((2, 2))).tolist()
/// [[1.0, 1.0], [0.0, 1.0]]
#[pyfunction]
#[pyo3(signature = (x, k = 0, *, stream = None))]
fn triu(x: PyArray, #[pyo3(from_py_with = int)] k: isize, stream: Option<On>) -> PyResult<PyArray> {
    let x = x.value();
    array_on(stream, || x.triu(k))
}

/// Windows of signals.
macro_rules! windows {
    ($($(#[doc = $doc:literal])+ $name:ident, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
            #[doc = $out]
            #[pyfunction]
            #[pyo3(signature = (M, *, stream = None))]
            #[allow(non_snake_case, reason = "the name of the argument in Python")]
            fn $name(#[pyo3(from_py_with = int)] M: isize, stream: Option<On>) -> PyResult<PyArray> {
                let count = M.max(0) as usize;
                array_on(stream, || {
                    steps::or_else(|| steps::create::window(stringify!($name), count), || Array::$name(count))
                })
            }
        )*

        fn register_windows(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

windows! {
    /// The Bartlett window of `M` elements.
    bartlett, "3", "array([0, 1, 0], dtype=float32)";
    /// The Blackman window of `M` elements.
    blackman, "1", "array([1], dtype=float32)";
    /// The Hamming window of `M` elements.
    hamming, "3", "array([0.08, 1, 0.08], dtype=float32)";
    /// The Hann window of `M` elements.
    hanning, "1", "array([1], dtype=float32)";
}

/// Coordinates of a grid from those of its axes.
///
/// Parameters
/// ----------
/// arrays : sequence of array
/// sparse : bool
/// indexing : str
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> [grid.tolist() for grid in mx.meshgrid(mx.array([1, 2]), mx.array([3]))]
/// [[[1, 2]], [[3, 3]]]
#[pyfunction]
#[pyo3(signature = (*arrays, sparse = false, indexing = "xy", stream = None))]
fn meshgrid<'py>(
    py: Python<'py>,
    arrays: Vec<PyArray>,
    sparse: Option<bool>,
    indexing: Option<&str>,
    stream: Option<On>,
) -> PyResult<Bound<'py, PyTuple>> {
    let indexing = match indexing {
        None | Some("xy") => Indexing::Xy,
        Some("ij") => Indexing::Ij,
        Some(_) => {
            return Err(PyValueError::new_err("[meshgrid] unknown indexing; use 'xy' or 'ij'"));
        }
    };
    let arrays: Vec<Array> = arrays.iter().map(PyArray::value).collect();
    let grids = on(stream, || hesper::meshgrid(&arrays, sparse.unwrap_or(false), indexing))?;
    PyTuple::new(py, grids.into_iter().map(PyArray::new))
}

/// An array from any object that holds numbers; an array stays as it is unless its type must change.
///
/// Parameters
/// ----------
/// a : array
/// dtype : Dtype, optional
/// copy : bool, optional
///
/// Examples
/// --------
/// >>> mx.asarray([1, 2])
/// array([1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, dtype = None, *, copy = None))]
fn asarray(a: &Bound<'_, PyAny>, dtype: Option<PyDtype>, copy: Option<bool>) -> PyResult<PyArray> {
    if copy == Some(false) {
        let adopts = dtype.is_none() && !a.is_instance_of::<PyArray>() && a.hasattr("__dlpack__")?;
        if !adopts {
            let what = "[asarray] cannot make the array without a copy; use copy=None or copy=True";
            return Err(PyValueError::new_err(what));
        }
        return crate::dlpack::import(a, copy).map(PyArray::new);
    }
    convert::array(a, dtype.map(|dtype| dtype.0)).map(PyArray::new)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_constants(m)?;
    m.add_function(wrap_pyfunction!(full, m)?)?;
    m.add_function(wrap_pyfunction!(full_like, m)?)?;
    m.add_function(wrap_pyfunction!(arange, m)?)?;
    m.add_function(wrap_pyfunction!(linspace, m)?)?;
    m.add_function(wrap_pyfunction!(eye, m)?)?;
    m.add_function(wrap_pyfunction!(identity, m)?)?;
    m.add_function(wrap_pyfunction!(tri, m)?)?;
    m.add_function(wrap_pyfunction!(tril, m)?)?;
    m.add_function(wrap_pyfunction!(triu, m)?)?;
    m.add_function(wrap_pyfunction!(meshgrid, m)?)?;
    register_windows(m)?;
    m.add_function(wrap_pyfunction!(asarray, m)?)
}
