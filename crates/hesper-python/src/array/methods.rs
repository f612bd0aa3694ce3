//! Methods of `array` that are functions of the module too, other than those in tables of ops.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::{Axes, On, array_on, int, on, spread};
use crate::dtype::PyDtype;
use crate::functions::axes_of;
use crate::functions::elementwise::rounded;
use crate::functions::movement::{Cuts, split_along};
use crate::handle::PyArray;
use crate::steps;

#[pymethods]
impl PyArray {
    /// The same elements in another shape, given as a tuple or as separate arguments.
    #[pyo3(signature = (*shape, stream = None))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>, stream: Option<On>) -> PyResult<PyArray> {
        let (own, shape) = (self.value(), spread(shape)?);
        array_on(stream, || {
            steps::or_else(|| steps::movement::reshape(&own, &shape), || own.reshape_literal(&shape))
        })
    }

    /// The axes in another order, given as a tuple or as separate arguments; by default reversed.
    #[pyo3(signature = (*axes, stream = None))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>, stream: Option<On>) -> PyResult<PyArray> {
        let (own, axes) = (self.value(), spread(axes)?);
        array_on(stream, || if axes.is_empty() { own.t() } else { own.transpose(&axes) })
    }

    /// See the function ``round``.
    #[pyo3(signature = (decimals = 0, *, stream = None))]
    fn round(&self, #[pyo3(from_py_with = int)] decimals: isize, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || rounded(&own, decimals as i32))
    }

    /// See the function ``split``.
    #[pyo3(signature = (indices_or_sections, axis = 0, *, stream = None))]
    fn split(
        &self,
        indices_or_sections: Cuts,
        #[pyo3(from_py_with = int)] axis: isize,
        stream: Option<On>,
    ) -> PyResult<Vec<PyArray>> {
        let own = self.value();
        let parts = on(stream, || split_along(&own, &indices_or_sections, axis))?;
        Ok(parts.into_iter().map(PyArray::new).collect())
    }

    /// See the function ``view``.
    #[pyo3(signature = (dtype, *, stream = None))]
    fn view(&self, dtype: PyDtype, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.view(dtype.0))
    }

    /// See the function ``diag``.
    #[pyo3(signature = (k = 0, *, stream = None))]
    fn diag(&self, #[pyo3(from_py_with = int)] k: isize, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.diag(k))
    }

    /// See the function ``diagonal``.
    #[pyo3(signature = (offset = 0, axis1 = 0, axis2 = 1, stream = None))]
    fn diagonal(
        &self,
        #[pyo3(from_py_with = int)] offset: isize,
        #[pyo3(from_py_with = int)] axis1: isize,
        #[pyo3(from_py_with = int)] axis2: isize,
        stream: Option<On>,
    ) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.diagonal(offset, axis1, axis2))
    }

    /// See the function ``flatten``.
    #[pyo3(signature = (start_axis = 0, end_axis = -1, *, stream = None),
    text_signature = "($self, start_axis=0, end_axis=-1, *, stream=None)")]
    fn flatten(
        &self,
        #[pyo3(from_py_with = int)] start_axis: isize,
        #[pyo3(from_py_with = int)] end_axis: isize,
        stream: Option<On>,
    ) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.flatten(start_axis, end_axis))
    }

    /// See the function ``squeeze``.
    #[pyo3(signature = (axis = None, *, stream = None))]
    fn squeeze(&self, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        let axes = axes_of(&axis);
        array_on(stream, || steps::or_else(|| steps::movement::squeeze(&own, axes), || own.squeeze(axes)))
    }

    /// See the function ``swapaxes``.
    #[pyo3(signature = (axis1, axis2, *, stream = None))]
    fn swapaxes(
        &self,
        #[pyo3(from_py_with = int)] axis1: isize,
        #[pyo3(from_py_with = int)] axis2: isize,
        stream: Option<On>,
    ) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.swapaxes(axis1, axis2))
    }

    /// See the function ``moveaxis``.
    #[pyo3(signature = (source, destination, *, stream = None))]
    fn moveaxis(
        &self,
        #[pyo3(from_py_with = int)] source: isize,
        #[pyo3(from_py_with = int)] destination: isize,
        stream: Option<On>,
    ) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || {
            let described = || steps::movement::moveaxis(&own, source, destination);
            steps::or_else(described, || own.moveaxis(source, destination))
        })
    }
}
