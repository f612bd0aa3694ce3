//! Methods of `array` that are functions of the module: rows of tables.
#![allow(unsafe_op_in_unsafe_fn, reason = "what PyO3 generates for methods that a macro writes")]

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::PyArray;
use crate::args::{Axes, On, array_on, spread};
use crate::functions::{axes_of, shape};

/// Methods without arguments, and reductions.
macro_rules! methods {
    (
        unary { $($unary:ident)* }
        reduce { $($reduce:ident)* }
    ) => {
        #[pymethods]
        impl PyArray {
            $(
                #[doc = concat!("See the function ``", stringify!($unary), "``.")]
                #[pyo3(signature = (*, stream = None))]
                fn $unary(&self, stream: Option<On>) -> PyResult<PyArray> {
                    let own = self.value();
                    array_on(stream, || own.$unary())
                }
            )*
            $(
                #[doc = concat!("See the function ``", stringify!($reduce), "``.")]
                #[pyo3(signature = (axis = None, keepdims = false, *, stream = None))]
                fn $reduce(&self, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
                    let own = self.value();
                    array_on(stream, || own.$reduce(axes_of(&axis), keepdims))
                }
            )*
        }
    };
}

methods! {
    unary { abs square exp log log2 log10 log1p sin cos sqrt rsqrt }
    reduce { sum mean max min }
}

#[pymethods]
impl PyArray {
    /// The same elements in another shape, given as a tuple or as separate arguments.
    #[pyo3(signature = (*shape, stream = None))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>, stream: Option<On>) -> PyResult<PyArray> {
        let (own, shape) = (self.value(), spread(shape)?);
        array_on(stream, || own.reshape(&shape))
    }

    /// The axes in another order, given as a tuple or as separate arguments; by default reversed.
    #[pyo3(signature = (*axes, stream = None))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>, stream: Option<On>) -> PyResult<PyArray> {
        let (own, axes) = (self.value(), spread(axes)?);
        array_on(stream, || if axes.is_empty() { own.t() } else { own.transpose(&axes) })
    }

    /// See the function ``flatten``.
    #[pyo3(signature = (start_axis = 0, end_axis = -1, *, stream = None))]
    fn flatten(&self, start_axis: isize, end_axis: isize, stream: Option<On>) -> PyResult<PyArray> {
        shape::flatten_array(&self.value(), start_axis, end_axis, stream)
    }

    /// See the function ``squeeze``.
    #[pyo3(signature = (axis = None, *, stream = None))]
    fn squeeze(&self, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
        shape::squeeze_array(&self.value(), axis, stream)
    }

    /// See the function ``swapaxes``.
    #[pyo3(signature = (axis1, axis2, *, stream = None))]
    fn swapaxes(&self, axis1: isize, axis2: isize, stream: Option<On>) -> PyResult<PyArray> {
        shape::swapped(&self.value(), axis1, axis2, stream)
    }

    /// See the function ``moveaxis``.
    #[pyo3(signature = (source, destination, *, stream = None))]
    fn moveaxis(&self, source: isize, destination: isize, stream: Option<On>) -> PyResult<PyArray> {
        shape::moved(&self.value(), source, destination, stream)
    }
}
