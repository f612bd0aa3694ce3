//! DLPack: memory exchanged with other libraries.
//!
//! An exported array shares its memory, marked read-only, because arrays are values; consumers of a protocol
//! version without that mark get a copy. An imported tensor is copied: "read-only" binds the consumer, not
//! the producer. It is shared if the producer made a copy for this purpose, or if the caller promises with
//! ``copy=False`` that it is not written. Imported memory is released through a queue that a thread with the
//! interpreter's lock drains, so a worker that drops an array never takes that lock.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use hesper::{Array, Dtype, HostArray};
use hesper_runtime::HostMemory;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};

use crate::error::{raise, usable};
use crate::handle::PyArray;
use crate::waiting::{self, computed, evaluated};

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: ElementType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Plain {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

fn code(dtype: Dtype) -> ElementType {
    let code = match dtype {
        Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => 0,
        Dtype::Uint8 | Dtype::Uint16 | Dtype::Uint32 | Dtype::Uint64 => 1,
        Dtype::Float16 | Dtype::Float32 | Dtype::Float64 => 2,
        Dtype::Bfloat16 => 4,
        Dtype::Complex64 | Dtype::Complex128 => 5,
        Dtype::Bool => 6,
    };
    ElementType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

fn dtype_of(element: ElementType) -> PyResult<Dtype> {
    let same = |dtype: &Dtype| {
        let own = code(*dtype);
        (own.code, own.bits) == (element.code, element.bits) && element.lanes == 1
    };
    Dtype::ALL.into_iter().find(same).ok_or_else(|| {
        let ElementType { code, bits, lanes } = element;
        PyValueError::new_err(format!(
            "[from_dlpack] cannot import elements with type code {code}, {bits} bits and {lanes} lanes"
        ))
    })
}

/// The memory that an exported capsule owns.
struct Given {
    host: HostArray,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Given {
    fn new(host: HostArray) -> Box<Given> {
        let shape = host.shape().iter().map(|axis| *axis as i64).collect();
        let strides = host.strides().iter().map(|stride| *stride as i64).collect();
        Box::new(Given { host, shape, strides })
    }

    fn tensor(&mut self) -> Tensor {
        Tensor {
            data: self.host.as_ptr().cast_mut().cast(),
            device: Device { kind: CPU, id: 0 },
            ndim: self.shape.len() as i32,
            dtype: code(self.host.dtype()),
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        }
    }
}

unsafe extern "C" fn drop_plain(tensor: *mut Plain) {
    // SAFETY: called once, by the last owner, with a leaked box; its context is a `Given`.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.context.cast::<Given>()));
    }
}

unsafe extern "C" fn drop_versioned(tensor: *mut Versioned) {
    // SAFETY: as above.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.context.cast::<Given>()));
    }
}

/// Destroys a capsule whose tensor was not consumed.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once with a capsule of ours; a consumer renames the capsule when
    // it takes the tensor, and then the deleter is its own affair.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            drop_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            drop_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

fn capsule<'py>(py: Python<'py>, pointer: *mut c_void, name: &CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer is not null, the name is static, the destructor knows both names.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(drop_capsule));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

#[pymethods]
impl PyArray {
    /// The array for another library, as a DLPack capsule.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The host has no streams that a consumer could name.
        let _ = stream;
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err(
                "cannot export an array to another device than the host, (1, 0)",
            ));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let copy = copy.unwrap_or(!versioned);
        let array = self.value();
        let array = if copy { private(py, &array)? } else { array };
        let mut given = Given::new(evaluated(py, &array)?);
        let tensor = given.tensor();
        let context = Box::into_raw(given).cast();
        if versioned {
            let flags = if copy { COPIED } else { READ_ONLY };
            let deleter = Some(drop_versioned as unsafe extern "C" fn(*mut Versioned));
            let managed = Versioned { major: 1, minor: 0, context, deleter, flags, tensor };
            return capsule(py, Box::into_raw(Box::new(managed)).cast(), VERSIONED);
        }
        let deleter = Some(drop_plain as unsafe extern "C" fn(*mut Plain));
        capsule(py, Box::into_raw(Box::new(Plain { tensor, context, deleter })).cast(), PLAIN)
    }

    /// The type and number of the device that ``__dlpack__`` exports to: the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }
}

/// A copy of an array with no other owner.
fn private(py: Python<'_>, array: &Array) -> PyResult<Array> {
    computed(py, vec![array.clone()])?;
    waiting::detached(py, || array.read_bytes(|bytes| Array::from_bytes(bytes, array.dtype(), array.shape())))
        .and_then(|copy| copy)
        .map_err(raise)
}

/// A tensor of another library.
enum ForeignTensor {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: the tensor is plain memory and its deleter is only called with the interpreter's lock held.
unsafe impl Send for ForeignTensor {}
// SAFETY: as above.
unsafe impl Sync for ForeignTensor {}

impl ForeignTensor {
    fn tensor(&self) -> Tensor {
        // SAFETY: the producer keeps the tensor until its deleter is called.
        unsafe {
            match self {
                ForeignTensor::Plain(tensor) => tensor.as_ref().tensor,
                ForeignTensor::Versioned(tensor) => tensor.as_ref().tensor,
            }
        }
    }

    fn is_copied(&self) -> bool {
        match self {
            ForeignTensor::Plain(_) => false,
            // SAFETY: as above.
            ForeignTensor::Versioned(tensor) => unsafe { tensor.as_ref().flags & COPIED != 0 },
        }
    }

    /// Releases the tensor. A deleter may run Python code: its exceptions go to `sys.unraisablehook`.
    fn release(self, py: Python<'_>) {
        self.call_deleter();
        if let Some(error) = PyErr::take(py) {
            error.write_unraisable(py, None);
        }
    }

    fn call_deleter(self) {
        // SAFETY: called once for each tensor, which is not used afterwards.
        unsafe {
            match self {
                ForeignTensor::Plain(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
                ForeignTensor::Versioned(tensor) => {
                    if let Some(deleter) = tensor.as_ref().deleter {
                        deleter(tensor.as_ptr());
                    }
                }
            }
        }
    }
}

/// Tensors without arrays, until a thread with the interpreter's lock releases them.
static OVER: Mutex<Vec<ForeignTensor>> = Mutex::new(Vec::new());

/// Releases these tensors. The interpreter's lock is held; `OVER` is not locked while a deleter runs.
pub fn release_over(py: Python<'_>) {
    // In a forked process the lock may be that of a thread that does not exist.
    if hesper_runtime::fork::is_forked() {
        return;
    }
    let over = std::mem::take(&mut *OVER.lock().unwrap_or_else(PoisonError::into_inner));
    over.into_iter().for_each(|taken| taken.release(py));
}

extern "C" fn release_soon(_: *mut c_void) -> c_int {
    // SAFETY: the interpreter makes pending calls with its lock held.
    release_over(unsafe { Python::assume_attached() });
    0
}

/// Memory of another library under an array of ours.
struct Adopted {
    taken: Option<ForeignTensor>,
    address: *const u8,
    len: usize,
}

// SAFETY: a borrow of plain bytes that are not written; the owner is released through the queue.
unsafe impl Send for Adopted {}
// SAFETY: as above.
unsafe impl Sync for Adopted {}

// SAFETY: the bytes stay in place until the tensor is released, and its owner or the caller has promised not
// to write them.
unsafe impl HostMemory for Adopted {
    fn bytes(&self) -> &[u8] {
        // SAFETY: address and length are those of the tensor that is held.
        unsafe { std::slice::from_raw_parts(self.address, self.len) }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        // A forked child leaves the tensors to the parent.
        if hesper_runtime::fork::is_forked() {
            return;
        }
        waiting::unless_ending(|| {
            OVER.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
            // SAFETY: may be called by any thread, without the interpreter's lock, while there is an
            // interpreter. If its queue is full, the next import empties ours.
            unsafe { ffi::Py_AddPendingCall(Some(release_soon), std::ptr::null_mut()) };
        });
    }
}

/// The capsule of an object that speaks DLPack.
fn ask<'py>(object: &Bound<'py, PyAny>, copy: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let Some(method) = object.getattr_opt(intern!(py, "__dlpack__"))? else {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "[from_dlpack] cannot import a {name}: it has no __dlpack__"
        )));
    };
    let arguments = PyDict::new(py);
    arguments.set_item("max_version", (1, 0))?;
    if let Some(copy) = copy {
        arguments.set_item("copy", copy)?;
    }
    match method.call((), Some(&arguments)) {
        // Producers of the first version of the protocol take no arguments.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => method.call0(),
        // "Cannot without a copy" has an exception of its own in the protocol.
        Err(error) if copy == Some(false) && error.is_instance_of::<PyValueError>(py) => {
            let refused = PyBufferError::new_err(error.value(py).to_string());
            refused.set_cause(py, Some(error));
            Err(refused)
        }
        other => other,
    }
}

/// Takes the tensor out of a capsule.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<ForeignTensor> {
    let Ok(capsule) = capsule.cast::<PyCapsule>() else {
        return Err(PyTypeError::new_err("[from_dlpack] cannot import: __dlpack__ did not return a capsule"));
    };
    let pointer = capsule.as_ptr();
    // SAFETY: the names are those of the protocol; renaming the capsule takes the tensor from it.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
            let tensor = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr()).cast::<Versioned>();
            if let Some(tensor) = NonNull::new(tensor) {
                if tensor.as_ref().major > 1 {
                    return Err(PyBufferError::new_err(
                        "[from_dlpack] cannot import a tensor of DLPack 2 or later",
                    ));
                }
                ffi::PyCapsule_SetName(pointer, c"used_dltensor_versioned".as_ptr());
                return Ok(ForeignTensor::Versioned(tensor));
            }
        }
        if ffi::PyCapsule_IsValid(pointer, PLAIN.as_ptr()) == 1 {
            let tensor = ffi::PyCapsule_GetPointer(pointer, PLAIN.as_ptr()).cast::<Plain>();
            if let Some(tensor) = NonNull::new(tensor) {
                ffi::PyCapsule_SetName(pointer, c"used_dltensor".as_ptr());
                return Ok(ForeignTensor::Plain(tensor));
            }
        }
    }
    Err(PyValueError::new_err(
        "[from_dlpack] cannot import: the capsule has no tensor, or was imported already",
    ))
}

/// An array from an object that speaks DLPack.
pub fn import(object: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Array> {
    let py = object.py();
    release_over(py);
    let taken = take(&ask(object, copy)?)?;
    let made = build(&taken, copy);
    match made {
        Ok(Built::Copied(array)) => {
            taken.release(py);
            Ok(array)
        }
        Ok(Built::Adopts { dtype, shape, address, len }) => {
            let owner = Adopted { taken: Some(taken), address, len };
            Array::adopt(owner, "a DLPack tensor", dtype, &shape).map_err(raise)
        }
        Err(error) => {
            taken.release(py);
            Err(error)
        }
    }
}

/// The largest number of axes of an imported tensor.
const MAX_AXES: usize = 64;

fn invalid(what: String) -> PyErr {
    PyValueError::new_err(format!("[from_dlpack] cannot import a tensor with {what}"))
}

enum Built {
    Copied(Array),
    Adopts { dtype: Dtype, shape: Vec<usize>, address: *const u8, len: usize },
}

fn build(taken: &ForeignTensor, copy: Option<bool>) -> PyResult<Built> {
    let tensor = taken.tensor();
    if tensor.device.kind != CPU {
        let what = format!(
            "[from_dlpack] cannot import memory of device type {}; copy it to the host",
            tensor.device.kind
        );
        return Err(PyValueError::new_err(what));
    }
    let rank = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MAX_AXES);
    let rank = rank.ok_or_else(|| invalid(format!("{} axes", tensor.ndim)))?;
    let dtype = dtype_of(tensor.dtype)?;
    let lengths: &[i64] = match rank {
        0 => &[],
        _ if tensor.shape.is_null() => return Err(invalid("no shape".into())),
        // SAFETY: a tensor has as many lengths as axes.
        _ => unsafe { std::slice::from_raw_parts(tensor.shape, rank) },
    };
    let width = tensor.dtype.bits as usize / 8;
    let shape: Option<Vec<usize>> = lengths.iter().map(|axis| usize::try_from(*axis).ok()).collect();
    let shape = shape.ok_or_else(|| invalid(format!("shape {lengths:?}")))?;
    let size = shape.iter().try_fold(1usize, |size, axis| size.checked_mul(*axis));
    let fits = |size: &usize| size.checked_mul(width).is_some_and(|bytes| bytes <= isize::MAX as usize);
    let size = size.filter(fits).ok_or_else(|| invalid(format!("shape {lengths:?}")))?;
    if size == 0 {
        return Array::from_bytes(&[], dtype, &shape).map(Built::Copied).map_err(raise);
    }
    let mut rows = vec![1i64; rank];
    for axis in (1..rank).rev() {
        rows[axis - 1] = rows[axis].saturating_mul(shape[axis] as i64);
    }
    let strides: Vec<i64> = if tensor.strides.is_null() || rank == 0 {
        rows.clone()
    } else {
        // SAFETY: strides that are there are as many as axes.
        unsafe { std::slice::from_raw_parts(tensor.strides, rank) }.to_vec()
    };
    if tensor.data.is_null() {
        return Err(invalid("no memory".into()));
    }
    // SAFETY: the tensor's first element is this far from its data.
    let start = unsafe { tensor.data.cast::<u8>().byte_add(tensor.byte_offset as usize) };
    let in_rows = size == 1 || shape.iter().zip(&strides).zip(&rows).all(|((n, a), b)| *n == 1 || a == b);
    let aligned = (start as usize).is_multiple_of(dtype.size());
    let unchanged = in_rows && aligned;
    // Memory that the producer copied for this purpose has no other owner.
    if unchanged && (copy == Some(false) || (copy.is_none() && taken.is_copied())) {
        return Ok(Built::Adopts { dtype, shape, address: start, len: size * width });
    }
    if copy == Some(false) {
        let why =
            if in_rows { "its address is not aligned to its elements" } else { "it is not row-contiguous" };
        return Err(PyBufferError::new_err(format!(
            "[from_dlpack] cannot share the memory of a tensor: {why}; use copy=None or copy=True"
        )));
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(size * width).is_err() {
        let text = format!("[from_dlpack] cannot copy a tensor of {size} elements: out of memory");
        return Err(PyMemoryError::new_err(text));
    }
    if in_rows {
        // SAFETY: row-contiguous elements are one range of memory.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, size * width) });
    } else {
        let mut at = vec![0usize; rank];
        for _ in 0..size {
            let moved: i64 = at.iter().zip(&strides).map(|(at, stride)| *at as i64 * stride).sum();
            // SAFETY: indices below the lengths, so the element is one of the tensor's.
            let element =
                unsafe { std::slice::from_raw_parts(start.offset(moved as isize * width as isize), width) };
            bytes.extend_from_slice(element);
            for axis in (0..rank).rev() {
                at[axis] += 1;
                if at[axis] < shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
    Array::from_bytes(&bytes, dtype, &shape).map(Built::Copied).map_err(raise)
}

/// An array from an object of another library that speaks DLPack.
///
/// Parameters
/// ----------
/// x : object with ``__dlpack__``
/// copy : bool, optional
///     By default memory is copied, unless its producer has copied it for this purpose. With ``False`` it is
///     shared and must not be written; ``BufferError`` is raised where that is not possible. With ``True`` it
///     is copied. Double precision is converted to single precision, which copies.
///
/// Returns
/// -------
/// array
///
/// Examples
/// --------
/// >>> mx.from_dlpack(numpy.arange(3, dtype="int32"))
/// array([0, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (x, /, *, copy = None))]
fn from_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyArray> {
    usable()?;
    let array = import(x, copy)?;
    let narrow = narrow(array.dtype());
    if narrow != array.dtype() && copy == Some(false) {
        return Err(PyBufferError::new_err(
            "[from_dlpack] cannot share the memory of a tensor: its elements have to be converted; use copy=None or \
             copy=True",
        ));
    }
    array.astype(narrow).map(PyArray::new).map_err(raise)
}

/// The type of single precision for one of double precision, which programs get only on request.
pub fn narrow(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Float64 => Dtype::Float32,
        Dtype::Complex128 => Dtype::Complex64,
        other => other,
    }
}

/// The same with elements of any precision as they are.
#[pyfunction]
#[pyo3(signature = (x, copy))]
fn _import_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<PyArray> {
    usable()?;
    import(x, copy).map(PyArray::new)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_import_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
