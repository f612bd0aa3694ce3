//! The Python object that holds an array.
//!
//! It is a slot for an [`Array`], because Python lets programs change an array object (`a += 1`, `a[0] = 2`).
//! A change stores another array in the slot: graphs that were built before hold the previous array and do
//! not see the change. While other libraries have the elements as memory that they may write, the slot has
//! the [`Lent`] memory, and each use takes the elements as they are then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hesper::{Array, HostArray};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::lent::Lent;
use crate::waiting::{detached, evaluated};

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
    slot: Mutex<Slot>,
}

enum Slot {
    Array(Array),
    Lent(Arc<Lent>),
}

impl PyArray {
    pub fn new(array: Array) -> Self {
        PyArray { slot: Mutex::new(Slot::Array(array)) }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array in the slot.
    pub fn value(&self) -> Array {
        match &*self.slot() {
            Slot::Array(array) => array.clone(),
            Slot::Lent(lent) => lent.current(),
        }
    }

    /// An array of the shape and type of that in the slot; its elements may be lent.
    pub fn described(&self) -> Array {
        match &*self.slot() {
            Slot::Array(array) => array.clone(),
            Slot::Lent(lent) => lent.described().clone(),
        }
    }

    /// Stores another array in the slot.
    pub fn replace(&self, array: Array) {
        let old = std::mem::replace(&mut *self.slot(), Slot::Array(array));
        drop(old);
    }

    /// The elements as memory that may be written, or as they are if they may not be.
    pub fn lend(&self, py: Python<'_>) -> PyResult<Result<Arc<Lent>, HostArray>> {
        let array = match &*self.slot() {
            Slot::Array(array) => array.clone(),
            Slot::Lent(lent) => return Ok(Ok(lent.clone())),
        };
        let elements = evaluated(py, &array)?;
        if !Lent::fits(&elements) {
            return Ok(Err(elements));
        }
        drop((elements, array));
        // Commands in progress may still use the memory. Whoever waits for the slot with the interpreter's
        // lock goes on before this thread asks for that lock.
        let lent = detached(py, || {
            let mut slot = self.slot();
            let lent = match &mut *slot {
                Slot::Array(array) => Arc::new(Lent::new(array)?),
                Slot::Lent(lent) => lent.clone(),
            };
            *slot = Slot::Lent(lent.clone());
            Ok(lent)
        });
        lent.map(Ok)
    }

    /// Takes lent memory back if nobody has it any more.
    pub fn settle(&self, lent: Arc<Lent>) {
        let mut slot = self.slot();
        let own = matches!(&*slot, Slot::Lent(own) if Arc::ptr_eq(own, &lent));
        // One is the slot's, and one this call's.
        if own && Arc::strong_count(&lent) == 2 {
            *slot = Slot::Array(lent.described().clone());
            if let Some(lent) = Arc::into_inner(lent) {
                *slot = Slot::Array(lent.finish());
            }
        }
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
