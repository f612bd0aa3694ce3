//! The buffer protocol: NumPy and others see an array's memory without a copy.
//!
//! A view may be written, and the array object has what was written (see [`Lent`]). Graphs that were built
//! before have their own elements, because arrays are values. Views of elements that share a place, and views
//! that ask for rows of an array that is not laid out so, are read-only: they hold a guard on the memory,
//! which stays in place and unchanged while the view lives.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use hesper::shape::is_row_major;
use hesper::{Dtype, HostArray};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::handle::PyArray;
use crate::lent::Lent;
use crate::waiting::evaluated;

/// The memory that a view points into.
enum Memory {
    ReadOnly(HostArray),
    Lent(Arc<Lent>),
}

struct Export {
    memory: Memory,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// The code of an element type in struct's syntax.
fn format(dtype: Dtype) -> &'static CStr {
    match dtype {
        Dtype::Bool => c"?",
        Dtype::Uint8 => c"B",
        Dtype::Uint16 => c"H",
        Dtype::Uint32 => c"I",
        Dtype::Uint64 => c"Q",
        Dtype::Int8 => c"b",
        Dtype::Int16 => c"h",
        Dtype::Int32 => c"i",
        Dtype::Int64 => c"q",
        Dtype::Float16 => c"e",
        Dtype::Float32 => c"f",
        Dtype::Float64 => c"d",
        Dtype::Complex64 => c"Zf",
        Dtype::Complex128 => c"Zd",
        // Not a code of struct's syntax: a consumer that does not know the type refuses it.
        Dtype::Bfloat16 => c"bfloat16",
    }
}

#[pymethods]
impl PyArray {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("cannot export a buffer without a view to fill"));
        }
        // SAFETY: the caller gives a structure to fill. A view that is refused has no owner.
        unsafe { (*view).obj = ptr::null_mut() };
        let py = slf.py();
        let strided = flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES;
        let asked = |order: c_int| flags & order & !ffi::PyBUF_STRIDES != 0;
        let described = slf.get().described();
        if asked(ffi::PyBUF_F_CONTIGUOUS) && described.ndim() > 1 {
            return Err(PyBufferError::new_err(
                "cannot export a column-major buffer: views of an array are row-major",
            ));
        }
        let (dtype, nbytes, ndim) = (described.dtype(), described.nbytes(), described.ndim());
        drop(described);
        // A consumer without strides gets a row-contiguous copy.
        let in_rows =
            !strided || asked(ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_F_CONTIGUOUS | ffi::PyBUF_ANY_CONTIGUOUS);
        let fits = |shape: &[usize], strides: &[isize]| !in_rows || is_row_major(shape, strides);
        let size = dtype.size() as isize;
        let memory = match slf.get().lend(py)? {
            Ok(lent) if fits(lent.shape(), lent.strides()) => Memory::Lent(lent),
            given => {
                let elements = given.map(|lent| slf.get().settle(lent)).err();
                if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
                    return Err(PyBufferError::new_err(
                        "cannot export a writable buffer: the elements share places, or do not lie row by row",
                    ));
                }
                let elements = elements.filter(|elements| fits(elements.shape(), elements.strides()));
                Memory::ReadOnly(match elements {
                    Some(elements) => elements,
                    None => evaluated(py, &slf.get().value().contiguous().map_err(crate::error::raise)?)?,
                })
            }
        };
        let (shape, strides, data) = match &memory {
            Memory::ReadOnly(host) => (host.shape(), host.strides(), host.as_ptr().cast_mut()),
            Memory::Lent(lent) => (lent.shape(), lent.strides(), lent.pointer()),
        };
        let export = Box::new(Export {
            shape: shape.iter().map(|axis| *axis as isize).collect(),
            strides: strides.iter().map(|stride| stride * size).collect(),
            memory,
        });
        let readonly = c_int::from(matches!(export.memory, Memory::ReadOnly(_)));
        let format = format(dtype);
        let wants = |flag: c_int| flags & flag == flag;
        let export = Box::into_raw(export);
        // SAFETY: the caller gives a structure to fill; the pointers into the export live until
        // `__releasebuffer__` frees it, which the interpreter calls once for each view that was given.
        unsafe {
            (*view).obj = slf.into_any().into_ptr();
            (*view).buf = data.cast::<c_void>();
            (*view).len = nbytes as isize;
            (*view).readonly = readonly;
            (*view).itemsize = size;
            (*view).format =
                if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).ndim = ndim as c_int;
            (*view).shape = if wants(ffi::PyBUF_ND) { (*export).shape.as_mut_ptr() } else { ptr::null_mut() };
            (*view).strides = if strided { (*export).strides.as_mut_ptr() } else { ptr::null_mut() };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = export.cast::<c_void>();
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: `internal` is the export that `__getbuffer__` leaked for this view.
        let export = unsafe { Box::from_raw((*view).internal.cast::<Export>()) };
        if let Memory::Lent(lent) = export.memory {
            self.settle(lent);
        }
    }
}
