//! Reductions.

use hesper::Array;
use pyo3::prelude::*;

use super::axes_of;
use crate::args::{Axes, Count, On, array_on, on};
use crate::array::PyArray;
use crate::dtype::PyDtype;

type Reduction = fn(&Array, Option<&[isize]>, bool) -> hesper::Result<Array>;

fn reduce_on(
    a: PyArray,
    axis: Option<Axes>,
    keepdims: bool,
    stream: Option<On>,
    f: Reduction,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || f(&a, axes_of(&axis), keepdims))
}

/// Functions over axes: documentation, Python's name, the array's method.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $name:ident = $method:ident, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Parameters
            /// ----------
            /// a : array
            /// axis : int or sequence of int, optional
            ///     The axes to go over; by default all.
            /// keepdims : bool
            ///     Whether those axes stay, with length one.
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
            #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
            fn $name(a: PyArray, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
                reduce_on(a, axis, keepdims, stream, Array::$method)
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

table! {
    /// Whether all elements are true.
    all = all, "mx.array([True, False])", "array(False, dtype=bool)";
    /// Whether any element is true.
    any = any, "mx.array([True, False])", "array(True, dtype=bool)";
    /// The logarithm of the sum of exponentials.
    logsumexp = logsumexp, "mx.array([0.0, 0.0])", "array(0.693147, dtype=float32)";
    /// The largest element.
    max = max, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([3, 4], dtype=float32)";
    /// The mean.
    mean = mean, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([2, 3], dtype=float32)";
    /// The median.
    median = median, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([2, 3], dtype=float32)";
    /// The smallest element.
    min = min, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([1, 2], dtype=float32)";
    /// The product.
    prod = prod, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([3, 8], dtype=float32)";
    /// The sum. Bools and small integers are summed as ``int32`` or ``uint32``.
    sum = sum, "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0", "array([4, 6], dtype=float32)";
}

/// The smallest and the largest element.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// keepdims : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.minmax(mx.array([3, 1, 2]))
/// (array(1, dtype=int32), array(3, dtype=int32))
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
fn minmax(
    a: PyArray,
    axis: Option<Axes>,
    keepdims: bool,
    stream: Option<On>,
) -> PyResult<(PyArray, PyArray)> {
    let a = a.value();
    let (low, high) = on(stream, || a.minmax(axes_of(&axis), keepdims))?;
    Ok((PyArray::new(low), PyArray::new(high)))
}

/// How many elements are not zero.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// keepdims : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.count_nonzero(mx.array([0, 1, 2]))
/// array(2, dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
fn count_nonzero(a: PyArray, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
    reduce_on(a, axis, keepdims, stream, Array::count_nonzero)
}

/// The variance, with the divisor ``N - ddof`` for ``N`` elements.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// keepdims : bool
/// ddof : int
/// correction : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.var(mx.array([1.0, 3.0]))
/// array(1, dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, keepdims = false, ddof = 0, *, correction = None, stream = None))]
fn var(
    a: PyArray,
    axis: Option<Axes>,
    keepdims: bool,
    ddof: isize,
    correction: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.var(axes_of(&axis), keepdims, correction.unwrap_or(ddof)))
}

/// The standard deviation, with the divisor ``N - ddof`` for ``N`` elements.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// keepdims : bool
/// ddof : int
/// correction : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.std(mx.array([1.0, 3.0]))
/// array(1, dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, keepdims = false, ddof = 0, *, correction = None, stream = None))]
fn std(
    a: PyArray,
    axis: Option<Axes>,
    keepdims: bool,
    ddof: isize,
    correction: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.std(axes_of(&axis), keepdims, correction.unwrap_or(ddof)))
}

/// Exponentials divided by their sum over axes, by default over all.
///
/// `precise` computes half-precision numbers in single precision.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// precise : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.softmax(mx.array([0.0, 0.0]))
/// array([0.5, 0.5], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, *, precise = false, stream = None))]
fn softmax(a: PyArray, axis: Option<Axes>, precise: bool, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.softmax(axes_of(&axis), precise))
}

/// Functions that return indices: documentation, Python's name, the array's method.
macro_rules! places {
    ($($(#[doc = $doc:literal])+ $name:ident, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Along an axis; by default in the flattened array.
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
            #[doc = $out]
            #[pyfunction]
            #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
            fn $name(a: PyArray, axis: Option<isize>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
                let a = a.value();
                array_on(stream, || a.$name(axis, keepdims))
            }
        )*

        fn register_places(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

places! {
    /// The place of the largest element.
    argmax, "mx.array([1, 3, 2])", "array(1, dtype=uint32)";
    /// The place of the smallest element.
    argmin, "mx.array([1, 3, 2])", "array(0, dtype=uint32)";
}

/// Running reductions: documentation, Python's names, the array's method.
macro_rules! scans {
    ($($(#[doc = $doc:literal])+ $method:ident, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Parameters
            /// ----------
            /// a : array
            /// axis : int, optional
            ///     By default the array is flattened.
            /// reverse : bool
            ///     Whether to begin at the end.
            /// inclusive : bool
            ///     Whether each result includes the element at its place.
            /// dtype : Dtype, optional
            ///     What elements are converted to first.
            /// stream : Stream or Device, optional
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($method), "(", $arg, ")")]
            #[doc = $out]
            #[pyfunction]
            #[pyo3(signature = (a, /, axis = None, *, reverse = false, inclusive = true, dtype = None, stream = None))]
            fn $method(
                a: PyArray,
                axis: Option<isize>,
                reverse: bool,
                inclusive: bool,
                dtype: Option<PyDtype>,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let a = a.value();
                array_on(stream, || {
                    let a = dtype.map_or_else(|| Ok(a.clone()), |dtype| a.astype(dtype.0))?;
                    a.$method(axis, reverse, inclusive)
                })
            }
        )*

        fn register_scans(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($method, m)?)?;)*
            Ok(())
        }
    };
}

scans! {
    /// The running maximum.
    cummax, "mx.array([1.0, 3.0, 2.0])", "array([1, 3, 3], dtype=float32)";
    /// The running minimum.
    cummin, "mx.array([1.0, 3.0, 2.0])", "array([1, 1, 1], dtype=float32)";
    /// The running product.
    cumprod, "mx.array([1.0, 3.0, 2.0])", "array([1, 3, 6], dtype=float32)";
    /// The running sum.
    cumsum, "mx.array([1.0, 3.0, 2.0])", "array([1, 4, 6], dtype=float32)";
    /// The running logarithm of the sum of exponentials.
    logcumsumexp, "mx.array([1.0, 3.0, 2.0])", "array([1, 3.12693, 3.40761], dtype=float32)";
}

/// Differences of neighbours along an axis, `n` times.
///
/// Parameters
/// ----------
/// a : array
/// n : int
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.diff(mx.array([1, 4, 9]))
/// array([3, 5], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, n = Count(1), axis = -1, *, stream = None),
    text_signature = "(a, /, n=1, axis=-1, *, stream=None)")]
fn diff(a: PyArray, n: Count, axis: isize, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.diff(n.0, axis))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    register_places(m)?;
    register_scans(m)?;
    m.add("cumulative_sum", m.getattr("cumsum")?)?;
    m.add("cumulative_prod", m.getattr("cumprod")?)?;
    m.add_function(wrap_pyfunction!(minmax, m)?)?;
    m.add_function(wrap_pyfunction!(count_nonzero, m)?)?;
    m.add_function(wrap_pyfunction!(var, m)?)?;
    m.add_function(wrap_pyfunction!(self::std, m)?)?;
    m.add_function(wrap_pyfunction!(softmax, m)?)?;
    m.add_function(wrap_pyfunction!(diff, m)?)
}
