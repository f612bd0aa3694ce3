//! Reductions and scans.

use pyo3::prelude::*;

use hesper::axes;

use super::{over, tables};
use crate::args::{Axes, Count, On, array_on, int, on};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::steps;

/// The functions and methods of a table of reductions; `hesper_core::ops::reduce::table` explains an entry.
macro_rules! define_functions {
    ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($signature:ident) = |$($x:ident),+| $body:expr;
        rust $example:literal => $shown:literal;
        $(python $args:literal => $result:literal $(, method $method:ident)?;)?
        cases $([$domain:ident])+;)*) => {
        $(define_functions!(
            @op $signature [$($doc)+] $name [$name $($alias)*] $([$args $result] $($method)?)?
        );)*

        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(define_functions!(@register m [$name $($alias)*] $($args)?);)*
            Ok(())
        }
    };
    (@op $signature:ident $docs:tt $op:ident $names:tt) => {};
    (@op $signature:ident $docs:tt $op:ident [$($name:ident)+] $example:tt $($method:ident)?) => {
        $(define_functions!(@$signature $docs $op $name $example);)+
        $(define_functions!(@method $signature $op $method);)?
    };
    (@axes [$($doc:literal)+] $op:ident $name:ident [$args:literal $result:literal]) => {
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
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
        fn $name(a: PyArray, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
            let (a, over) = (a.value(), over(axis, keepdims));
            array_on(stream, || {
                steps::or_else(|| steps::reduce::over(stringify!($op), &a, &over), || a.$op(&over))
            })
        }
    };
    (@axis [$($doc:literal)+] $op:ident $name:ident [$args:literal $result:literal]) => {
        $(#[doc = $doc])+
        ///
        /// Along an axis; by default in the flattened array.
        ///
        /// Examples
        /// --------
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
        fn $name(
            a: PyArray,
            #[pyo3(from_py_with = int)] axis: Option<isize>,
            keepdims: bool,
            stream: Option<On>,
        ) -> PyResult<PyArray> {
            let a = a.value();
            array_on(stream, || a.$op(axes(axis).keepdims_if(keepdims)))
        }
    };
    (@spread [$($doc:literal)+] $op:ident $name:ident [$args:literal $result:literal]) => {
        $(#[doc = $doc])+
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
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, keepdims = false, ddof = 0, *, correction = None, stream = None))]
        fn $name(
            a: PyArray,
            axis: Option<Axes>,
            keepdims: bool,
            #[pyo3(from_py_with = int)] ddof: isize,
            #[pyo3(from_py_with = int)] correction: Option<isize>,
            stream: Option<On>,
        ) -> PyResult<PyArray> {
            let a = a.value();
            array_on(stream, || a.$op(over(axis, keepdims), correction.unwrap_or(ddof)))
        }
    };
    (@scan [$($doc:literal)+] $op:ident $name:ident [$args:literal $result:literal]) => {
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
        #[doc = concat!(">>> mx.", stringify!($name), "(", $args, ")")]
        #[doc = $result]
        #[pyfunction]
        #[pyo3(signature = (a, /, axis = None, *, reverse = false, inclusive = true, dtype = None, stream = None))]
        fn $name(
            a: PyArray,
            #[pyo3(from_py_with = int)] axis: Option<isize>,
            reverse: bool,
            inclusive: bool,
            dtype: Option<PyDtype>,
            stream: Option<On>,
        ) -> PyResult<PyArray> {
            let a = a.value();
            array_on(stream, || {
                let a = dtype.map_or_else(|| Ok(a.clone()), |dtype| a.astype(dtype.0))?;
                a.$op(axis, reverse, inclusive)
            })
        }
    };
    (@method axes $op:ident $method:ident) => {
        #[pymethods]
        impl PyArray {
            #[doc = concat!("See the function ``", stringify!($method), "``.")]
            #[pyo3(signature = (axis = None, keepdims = false, *, stream = None))]
            fn $method(&self, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
                let (own, over) = (self.value(), over(axis, keepdims));
                array_on(stream, || {
                    steps::or_else(|| steps::reduce::over(stringify!($op), &own, &over), || own.$op(&over))
                })
            }
        }
    };
    (@method axis $op:ident $method:ident) => {
        #[pymethods]
        impl PyArray {
            #[doc = concat!("See the function ``", stringify!($method), "``.")]
            #[pyo3(signature = (axis = None, keepdims = false, *, stream = None))]
            fn $method(
                &self,
                #[pyo3(from_py_with = int)] axis: Option<isize>,
                keepdims: bool,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let own = self.value();
                array_on(stream, || own.$op(axes(axis).keepdims_if(keepdims)))
            }
        }
    };
    (@method spread $op:ident $method:ident) => {
        #[pymethods]
        impl PyArray {
            #[doc = concat!("See the function ``", stringify!($method), "``.")]
            #[pyo3(signature = (axis = None, keepdims = false, ddof = 0, *, correction = None, stream = None))]
            fn $method(
                &self,
                axis: Option<Axes>,
                keepdims: bool,
                #[pyo3(from_py_with = int)] ddof: isize,
                #[pyo3(from_py_with = int)] correction: Option<isize>,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let own = self.value();
                array_on(stream, || own.$op(over(axis, keepdims), correction.unwrap_or(ddof)))
            }
        }
    };
    (@method scan $op:ident $method:ident) => {
        #[pymethods]
        impl PyArray {
            #[doc = concat!("See the function ``", stringify!($method), "``.")]
            #[pyo3(signature = (axis = None, *, reverse = false, inclusive = true, stream = None))]
            fn $method(
                &self,
                #[pyo3(from_py_with = int)] axis: Option<isize>,
                reverse: bool,
                inclusive: bool,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let own = self.value();
                array_on(stream, || own.$op(axis, reverse, inclusive))
            }
        }
    };
    (@register $m:ident $names:tt) => {};
    (@register $m:ident [$($name:ident)+] $args:literal) => {
        $($m.add_function(wrap_pyfunction!(self::$name, $m)?)?;)+
    };
}

tables!(reduction_ops reductions, scan_ops scans);

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
    let (low, high) = on(stream, || a.minmax(over(axis, keepdims)))?;
    Ok((PyArray::new(low), PyArray::new(high)))
}

/// Exponentials divided by their sum over axes, by default over all.
///
/// Half precision is computed in single precision, `precise` or not.
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
    let _ = precise;
    let a = a.value();
    let over = over(axis, false);
    array_on(stream, || steps::or_else(|| steps::reduce::softmax(&a, &over), || a.softmax(&over)))
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
fn diff(
    a: PyArray,
    n: Count,
    #[pyo3(from_py_with = int)] axis: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.diff(n.0, axis))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_tables(m)?;
    m.add_function(wrap_pyfunction!(minmax, m)?)?;
    m.add_function(wrap_pyfunction!(softmax, m)?)?;
    m.add_function(wrap_pyfunction!(diff, m)?)
}
