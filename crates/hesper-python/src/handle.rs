//! The Python object that holds an array.
//!
//! It is a slot for an [`Array`], because Python lets programs change an array object (`a += 1`, `a[0] =
//! 2`). A change stores another array in the slot: graphs that were built before hold the previous array and
//! do not see the change.

use std::sync::{Mutex, PoisonError};

use hesper::Array;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// An N-dimensional array.
///
/// Parameters
/// ----------
/// val : scalar, list, tuple, array or any object with a buffer
///     The elements.
/// dtype : Dtype, optional
///     The type of its elements. Default: ``bool_`` for bools, ``int32`` for integers,
///     ``float32`` for floats, ``complex64`` for complex numbers.
///
/// Examples
/// --------
/// >>> mx.array([1, 2, 3])
/// array([1, 2, 3], dtype=int32)
#[pyclass(name = "array", module = "hesper.core", frozen, weakref, subclass, skip_from_py_object)]
pub struct PyArray {
    slot: Mutex<Array>,
}

impl PyArray {
    pub fn new(array: Array) -> Self {
        PyArray { slot: Mutex::new(array) }
    }

    /// The array in the slot.
    pub fn value(&self) -> Array {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores another array in the slot.
    pub fn replace(&self, array: Array) {
        let old = std::mem::replace(&mut *self.slot.lock().unwrap_or_else(PoisonError::into_inner), array);
        drop(old);
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyArray {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(PyArray::new(array.get().value()));
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected an array, not {name}")))
    }
}
