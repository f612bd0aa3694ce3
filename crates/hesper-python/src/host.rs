//! From arrays to Python's objects: numbers and nested lists.

use half::{bf16, f16};
use hesper::{Array, Dtype, HostArray};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList};

use crate::format::complex;
use crate::waiting::evaluated;

/// An element as a Python object.
pub fn number(py: Python<'_>, dtype: Dtype, bytes: &[u8]) -> PyResult<Py<PyAny>> {
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_ne_bytes(
                bytes
                    .try_into()
                    .map_err(|_| PyValueError::new_err("cannot read an element: it has the wrong size"))?,
            )
        };
    }
    match dtype {
        Dtype::Bool => (read!(u8) != 0).into_py_any(py),
        Dtype::Uint8 => read!(u8).into_py_any(py),
        Dtype::Uint16 => read!(u16).into_py_any(py),
        Dtype::Uint32 => read!(u32).into_py_any(py),
        Dtype::Uint64 => read!(u64).into_py_any(py),
        Dtype::Int8 => read!(i8).into_py_any(py),
        Dtype::Int16 => read!(i16).into_py_any(py),
        Dtype::Int32 => read!(i32).into_py_any(py),
        Dtype::Int64 => read!(i64).into_py_any(py),
        Dtype::Float16 => read!(f16).to_f64().into_py_any(py),
        Dtype::Bfloat16 => read!(bf16).to_f64().into_py_any(py),
        Dtype::Float32 => read!(f32).into_py_any(py),
        Dtype::Float64 => read!(f64).into_py_any(py),
        Dtype::Complex64 | Dtype::Complex128 => {
            let [re, im] = complex(bytes);
            PyComplex::from_doubles(py, re, im).into_py_any(py)
        }
    }
}

/// The elements as nested lists; a number if the array has no axes.
pub fn to_list(py: Python<'_>, host: &HostArray) -> PyResult<Py<PyAny>> {
    fn level(py: Python<'_>, host: &HostArray, axis: usize, moved: isize) -> PyResult<Py<PyAny>> {
        let Some(length) = host.shape().get(axis) else {
            return number(py, host.dtype(), host.element(moved));
        };
        let stride = host.strides()[axis];
        let list = PyList::empty(py);
        for at in 0..*length as isize {
            list.append(level(py, host, axis + 1, moved + at * stride)?)?;
        }
        list.into_py_any(py)
    }
    level(py, host, 0, 0)
}

/// The only element of an array.
pub fn item(py: Python<'_>, array: &Array) -> PyResult<Py<PyAny>> {
    if array.size() != 1 {
        let what = format!(
            "cannot convert an array of shape {:?} to a Python number: it must have one element",
            array.shape()
        );
        return Err(PyValueError::new_err(what));
    }
    let host = evaluated(py, array)?;
    number(py, host.dtype(), host.element(0))
}
