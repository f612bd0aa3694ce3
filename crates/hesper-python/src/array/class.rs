//! Construction, properties and Python's protocols of `array`.

use hesper::{Array, Category};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::index;
use crate::args::{On, array_on, convert};
use crate::device::PyDevice;
use crate::dtype::{self, PyDtype};
use crate::error::{raise, usable};
use crate::handle::PyArray;
use crate::host::to_list;
use crate::waiting::{self, computed, evaluated};
use crate::{format, host, steps};

/// The state of a pickled array: bytes, element type, shape.
type Parts = (Py<PyBytes>, Py<PyDtype>, Vec<usize>);

#[pymethods]
impl PyArray {
    #[new]
    #[pyo3(signature = (val, dtype = None))]
    fn construct(val: &Bound<'_, PyAny>, dtype: Option<PyDtype>) -> PyResult<Self> {
        usable()?;
        convert::array(val, dtype.map(|dtype| dtype.0)).map(PyArray::new)
    }

    /// The lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.described().shape())
    }

    /// The type of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<Py<PyDtype>> {
        dtype::object(py, self.described().dtype())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.described().ndim()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.described().size()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.described().nbytes()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.described().dtype().size()
    }

    /// The array with its axes in reverse order.
    #[getter(T)]
    fn reversed_axes(&self) -> PyResult<PyArray> {
        let own = self.value();
        array_on(None, || own.t())
    }

    /// The array with its last two axes exchanged.
    #[getter(mT)]
    fn transposed_matrices(&self) -> PyResult<PyArray> {
        crate::functions::shape::transposed_matrices(&self.value(), None)
    }

    /// The device that the array is computed on.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice::of_stream(self.value().stream())
    }

    /// The array on another device.
    ///
    /// Parameters
    /// ----------
    /// device : Device
    /// stream : Stream, optional
    ///     A stream of the device; its default stream if there is none.
    #[pyo3(signature = (device, /, *, stream = None))]
    fn to_device(&self, device: PyDevice, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        if stream.is_none() && PyDevice::of_stream(own.stream()) == device {
            return Ok(PyArray::new(own));
        }
        let stream = stream.map_or_else(|| device.on("to_device"), Ok)?;
        array_on(Some(stream), || own.contiguous())
    }

    /// The real parts.
    #[getter]
    fn real(&self) -> PyResult<PyArray> {
        let own = self.value();
        array_on(None, || own.real())
    }

    /// The imaginary parts.
    #[getter]
    fn imag(&self) -> PyResult<PyArray> {
        let own = self.value();
        array_on(None, || own.imag())
    }

    /// The one element as a Python number.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        host::item(py, &self.value())
    }

    /// The elements as nested lists; a number if the array has no axes.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_list(py, &evaluated(py, &self.value())?)
    }

    /// The array with its elements converted to another type.
    #[pyo3(signature = (dtype, stream = None))]
    fn astype(&self, dtype: PyDtype, stream: Option<On>) -> PyResult<PyArray> {
        let own = self.value();
        array_on(stream, || own.astype(dtype.0))
    }

    /// The array as a NumPy array: a copy, or a view with `copy=False`.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let numpy = py.import("numpy")?;
        let view = numpy.call_method1("asarray", (pyo3::types::PyMemoryView::from(slf.as_any())?,))?;
        let arguments = PyDict::new(py);
        arguments.set_item("dtype", dtype)?;
        match copy {
            None | Some(true) => arguments.set_item("copy", true)?,
            Some(false) => arguments.set_item("copy", false)?,
        }
        numpy.getattr("array")?.call((view,), Some(&arguments))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.item(py)?.bind(py).is_truthy()
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        py.get_type::<pyo3::types::PyInt>().call1((self.item(py)?,)).map(Bound::unbind)
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.item(py)?.bind(py).extract()
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.get_type::<pyo3::types::PyComplex>().call1((self.item(py)?,))
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let own = self.value();
        if own.ndim() != 0 || !own.dtype().is(Category::Integer) {
            return Err(PyTypeError::new_err(
                "cannot use the array as an index: it must be an integer array without axes",
            ));
        }
        host::item(py, &own)
    }

    fn __len__(&self) -> PyResult<usize> {
        let own = self.described();
        own.shape()
            .first()
            .copied()
            .ok_or_else(|| PyTypeError::new_err("cannot take the len() of an array without axes"))
    }

    fn __iter__(&self) -> PyResult<ArrayIterator> {
        let array = self.value();
        if array.ndim() == 0 {
            return Err(PyTypeError::new_err("cannot iterate over an array without axes"));
        }
        let described = || steps::movement::unstack(&array, 0).map(Some);
        let rows = crate::args::on(None, || steps::or_else(described, || Ok(None)))?;
        Ok(ArrayIterator { array, rows, at: std::sync::atomic::AtomicUsize::new(0) })
    }

    fn __reversed__(&self) -> PyResult<ArrayIterator> {
        let own = self.value();
        let array = crate::args::on(None, || own.flip(0))?;
        Ok(ArrayIterator { array, rows: None, at: std::sync::atomic::AtomicUsize::new(0) })
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        // By identity, as for any object that may change.
        (slf.as_ptr() as usize >> 4) as isize
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format::text(&evaluated(py, &self.value())?))
    }

    fn __format__(slf: &Bound<'_, Self>, spec: &str) -> PyResult<String> {
        let py = slf.py();
        if slf.get().value().ndim() > 0 {
            if spec.is_empty() {
                return slf.get().__repr__(py);
            }
            return Err(PyTypeError::new_err(format!(
                "cannot format an array with axes as {spec:?}; format its elements, or str(array)"
            )));
        }
        slf.get().item(py)?.bind(py).call_method1("__format__", (spec,))?.extract()
    }

    fn __bytes__(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        let own = self.value();
        computed(py, vec![own.clone()])?;
        let bytes = waiting::detached(py, || own.read_bytes(<[u8]>::to_vec)).map_err(raise)?;
        Ok(PyBytes::new(py, &bytes).unbind())
    }

    fn __copy__(&self) -> PyArray {
        PyArray::new(self.value())
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyArray {
        PyArray::new(self.value())
    }

    fn __getstate__(&self, py: Python<'_>) -> PyResult<Parts> {
        Ok((self.__bytes__(py)?, self.dtype(py)?, self.value().shape().to_vec()))
    }

    fn __setstate__(&self, state: (Vec<u8>, PyDtype, Vec<usize>)) -> PyResult<()> {
        let (bytes, dtype, shape) = state;
        self.replace(Array::from_bytes(&bytes, dtype.0, &shape).map_err(raise)?);
        Ok(())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (bool,), Parts)> {
        let state = slf.get().__getstate__(slf.py())?;
        Ok((slf.get_type().into_any(), (false,), state))
    }

    /// The namespace of the array API standard: ``hesper.array_api``.
    #[pyo3(signature = (*, api_version = None))]
    fn __array_namespace__<'py>(
        &self,
        py: Python<'py>,
        api_version: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const VERSIONS: [&str; 4] = ["2021.12", "2022.12", "2023.12", "2024.12"];
        if let Some(version) = api_version.filter(|version| !VERSIONS.contains(version)) {
            return Err(PyValueError::new_err(format!(
                "cannot follow version {version} of the array API standard; choose one of {}",
                VERSIONS.join(", ")
            )));
        }
        py.import("hesper.array_api")?.into_bound_py_any(py)
    }
}

/// Iterates over the first axis of an array.
#[pyclass(module = "hesper.core", frozen)]
pub struct ArrayIterator {
    array: Array,
    /// The rows of a trace that is described.
    rows: Option<Vec<Array>>,
    at: std::sync::atomic::AtomicUsize,
}

#[pymethods]
impl ArrayIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyArray>> {
        let at = self.at.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if at >= self.array.shape()[0] {
            return Ok(None);
        }
        if let Some(row) = self.rows.as_ref().and_then(|rows| rows.get(at)) {
            return Ok(Some(PyArray::new(row.clone())));
        }
        match index::get(&self.array, &at.into_bound_py_any(py)?) {
            Err(error) if error.is_instance_of::<PyIndexError>(py) => Ok(None),
            other => other.map(|array| Some(PyArray::new(array))),
        }
    }
}
