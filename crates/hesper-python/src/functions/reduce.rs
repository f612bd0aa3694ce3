//! Reductions.

use hesper::Array;
use pyo3::prelude::*;

use super::axes_of;
use crate::args::{Axes, On, array_on};
use crate::array::PyArray;

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
    ($($(#[doc = $doc:literal])+ $name:ident = $method:ident;)*) => {
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
            #[pyfunction]
            #[pyo3(signature = (a, /, axis = None, keepdims = false, *, stream = None))]
            fn $name(a: PyArray, axis: Option<Axes>, keepdims: bool, stream: Option<On>) -> PyResult<PyArray> {
                reduce_on(a, axis, keepdims, stream, Array::$method)
            }
        )*

        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

table! {
    /// The sum. Bools and small integers are summed as ``int32`` or ``uint32``.
    sum = sum;
    /// The mean.
    mean = mean;
    /// The largest element.
    max = max;
    /// The smallest element.
    min = min;
}
