//! From Python's objects to arrays: numbers, nested lists, anything with a buffer.

use std::ffi::{CStr, c_char};

use half::{bf16, f16};
use hesper::{Array, Category, Dtype};
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{ffi, intern};

use super::{Value, needs_type};
use crate::dlpack;
use crate::error::raise;
use crate::handle::PyArray;

/// The largest number of axes of nested lists; deeper lists usually contain themselves.
const MAX_AXES: usize = 64;

/// Whether an object is a list or tuple.
pub fn is_container(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()
}

/// Whether an object is an array of ours, or says itself how it becomes one.
pub fn is_own(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.is_instance_of::<PyArray>() || object.hasattr(intern!(object.py(), "__mlx_array__"))?)
}

/// An array from any object that holds numbers.
pub fn array(object: &Bound<'_, PyAny>, dtype: Option<Dtype>) -> PyResult<Array> {
    if let Ok(array) = object.cast::<PyArray>() {
        let array = array.get().value();
        return dtype.map_or(Ok(array.clone()), |dtype| array.astype(dtype)).map_err(raise);
    }
    if let Some(number) = Value::number(object)? {
        return scalar(number, dtype);
    }
    if is_container(object) {
        return nested(object, dtype);
    }
    let array = foreign(object)?;
    // Double precision only on request.
    array.astype(dtype.unwrap_or(dlpack::narrow(array.dtype()))).map_err(raise)
}

fn scalar(number: Value, dtype: Option<Dtype>) -> PyResult<Array> {
    let Some(dtype) = dtype else { return number.alone() };
    let mut numbers = Numbers::of(&number);
    numbers.push(&number);
    numbers.into_array(Some(dtype), &[])
}

/// Elements of a list in the narrowest kind that holds them all.
enum Numbers {
    Bools(Vec<bool>),
    Ints(Vec<i128>),
    Floats(Vec<f64>),
    Complexes(Vec<[f64; 2]>),
}

impl Numbers {
    /// An empty list of the kind of a number.
    fn of(number: &Value) -> Numbers {
        match number {
            Value::Int(_) | Value::Big(_) => Numbers::Ints(Vec::new()),
            Value::Float(_) => Numbers::Floats(Vec::new()),
            Value::Complex(_) => Numbers::Complexes(Vec::new()),
            Value::Bool(_) | Value::Array(_) | Value::Foreign(_) => Numbers::Bools(Vec::new()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Numbers::Bools(_) => 0,
            Numbers::Ints(_) => 1,
            Numbers::Floats(_) => 2,
            Numbers::Complexes(_) => 3,
        }
    }

    /// The same elements in the next wider kind.
    fn widen(self) -> Numbers {
        match self {
            Numbers::Bools(list) => Numbers::Ints(list.into_iter().map(i128::from).collect()),
            Numbers::Ints(list) => Numbers::Floats(list.into_iter().map(|value| value as f64).collect()),
            Numbers::Floats(list) => Numbers::Complexes(list.into_iter().map(|value| [value, 0.0]).collect()),
            complexes => complexes,
        }
    }

    fn push(&mut self, number: &Value) {
        let wanted = Numbers::of(number).rank();
        while self.rank() < wanted {
            *self = std::mem::replace(self, Numbers::Bools(Vec::new())).widen();
        }
        match (self, number) {
            (Numbers::Bools(list), Value::Bool(value)) => list.push(*value),
            (Numbers::Ints(list), Value::Bool(value)) => list.push(i128::from(*value)),
            (Numbers::Ints(list), Value::Int(value)) => list.push(i128::from(*value)),
            (Numbers::Ints(list), Value::Big(value)) => list.push(i128::from(*value)),
            (Numbers::Floats(list), number) => list.push(real(number)),
            (Numbers::Complexes(list), Value::Complex(value)) => list.push(*value),
            (Numbers::Complexes(list), number) => list.push([real(number), 0.0]),
            _ => {}
        }
    }

    fn into_array(self, dtype: Option<Dtype>, shape: &[usize]) -> PyResult<Array> {
        if let (Numbers::Ints(list), None) = (&self, dtype)
            && let Some(value) = list.iter().find(|value| i64::try_from(**value).is_err())
        {
            return Err(needs_type(value));
        }
        let dtype = dtype.unwrap_or_else(|| match &self {
            Numbers::Bools(_) => Dtype::Bool,
            Numbers::Ints(list) if list.iter().all(|value| i32::try_from(*value).is_ok()) => Dtype::Int32,
            Numbers::Ints(_) => Dtype::Int64,
            Numbers::Floats(_) => Dtype::Float32,
            Numbers::Complexes(_) => Dtype::Complex64,
        });
        let mut bytes = Vec::new();
        match self {
            Numbers::Bools(list) => store(
                &mut bytes,
                dtype,
                list.iter().map(|value| (f64::from(u8::from(*value)), i128::from(*value))),
            ),
            Numbers::Ints(list) => store(&mut bytes, dtype, list.iter().map(|value| (*value as f64, *value))),
            Numbers::Floats(list) => {
                store(&mut bytes, dtype, list.iter().map(|value| (*value, *value as i128)))
            }
            Numbers::Complexes(list) if dtype == Dtype::Complex64 => {
                bytes.extend(list.iter().flatten().flat_map(|part| (*part as f32).to_ne_bytes()));
            }
            Numbers::Complexes(list) if dtype == Dtype::Complex128 => {
                bytes.extend(list.iter().flatten().flat_map(|part| part.to_ne_bytes()));
            }
            Numbers::Complexes(list) => {
                store(&mut bytes, dtype, list.iter().map(|value| (value[0], value[0] as i128)));
            }
        }
        Array::from_bytes(&bytes, dtype, shape).map_err(raise)
    }
}

fn real(number: &Value) -> f64 {
    match number {
        Value::Bool(value) => f64::from(u8::from(*value)),
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Big(value) => *value as f64,
        Value::Complex(value) => value[0],
        Value::Array(_) | Value::Foreign(_) => 0.0,
    }
}

/// Stores numbers, given both as a float and as an integer, as elements of a type.
fn store(bytes: &mut Vec<u8>, dtype: Dtype, numbers: impl Iterator<Item = (f64, i128)>) {
    macro_rules! each {
        (|$float:pat_param, $int:pat_param| $value:expr) => {
            numbers.for_each(|($float, $int)| bytes.extend_from_slice(&$value.to_ne_bytes()))
        };
    }
    match dtype {
        Dtype::Bool => each!(|float, _| u8::from(float != 0.0)),
        Dtype::Uint8 | Dtype::Int8 => each!(|_, int| (int as u8)),
        Dtype::Uint16 | Dtype::Int16 => each!(|_, int| (int as u16)),
        Dtype::Uint32 | Dtype::Int32 => each!(|_, int| (int as u32)),
        Dtype::Uint64 | Dtype::Int64 => each!(|_, int| (int as u64)),
        Dtype::Float16 => each!(|float, _| f16::from_f64(float)),
        Dtype::Bfloat16 => each!(|float, _| bf16::from_f32(float as f32)),
        Dtype::Float32 => each!(|float, _| (float as f32)),
        Dtype::Float64 => each!(|float, _| float),
        Dtype::Complex64 => numbers.for_each(|(float, _)| {
            bytes.extend_from_slice(&(float as f32).to_ne_bytes());
            bytes.extend_from_slice(&0f32.to_ne_bytes());
        }),
        Dtype::Complex128 => numbers.for_each(|(float, _)| {
            bytes.extend_from_slice(&float.to_ne_bytes());
            bytes.extend_from_slice(&0f64.to_ne_bytes());
        }),
    }
}

/// An array from nested lists or tuples of numbers, or of arrays.
fn nested(object: &Bound<'_, PyAny>, dtype: Option<Dtype>) -> PyResult<Array> {
    let mut shape = Vec::new();
    let mut at = object.clone();
    let mut leaf = None;
    while is_container(&at) {
        if shape.len() == MAX_AXES {
            return Err(PyValueError::new_err(format!(
                "cannot make an array of lists nested more than {MAX_AXES} deep"
            )));
        }
        let length = at.len()?;
        shape.push(length);
        if length == 0 {
            break;
        }
        at = at.get_item(0)?;
        leaf = Some(at.clone());
    }
    if leaf.is_some_and(|leaf| leaf.is_instance_of::<PyArray>()) || holds_array(object, shape.len())? {
        return stacked(object, dtype);
    }
    let mut numbers = Numbers::Bools(Vec::new());
    collect(object, &shape, &mut numbers)?;
    let empty = shape.contains(&0);
    numbers.into_array(dtype.or(empty.then_some(Dtype::Float32)), &shape)
}

/// Whether some element of the nested lists is an array.
fn holds_array(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
    if depth == 0 || !is_container(object) {
        return Ok(object.is_instance_of::<PyArray>());
    }
    if depth == 1 {
        // Numbers are the common case, and by far the most elements.
        return Ok(items(object)?.any(|item| item.is_ok_and(|item| item.is_instance_of::<PyArray>())));
    }
    for item in items(object)? {
        if holds_array(&item?, depth - 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn items<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Box<dyn Iterator<Item = PyResult<Bound<'py, PyAny>>> + 'py>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Box::new(list.clone().into_iter().map(Ok)));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(Box::new(tuple.clone().into_iter().map(Ok)));
    }
    Ok(Box::new(object.try_iter()?))
}

/// The numbers of nested lists that must have the given shape.
fn collect(object: &Bound<'_, PyAny>, shape: &[usize], numbers: &mut Numbers) -> PyResult<()> {
    let [length, rest @ ..] = shape else {
        if is_container(object) {
            return Err(PyValueError::new_err(
                "cannot make an array of ragged lists: a list stands where others have a number",
            ));
        }
        return match Value::number(object)? {
            Some(number) => {
                numbers.push(&number);
                Ok(())
            }
            None => Err(invalid(object)),
        };
    };
    if !is_container(object) {
        return Err(PyValueError::new_err(
            "cannot make an array of ragged lists: a number stands where others have a list",
        ));
    }
    let found = object.len()?;
    if found != *length {
        return Err(PyValueError::new_err(format!(
            "cannot make an array of ragged lists: their lengths are {length} and {found}"
        )));
    }
    if rest.is_empty() {
        return leaves(object, numbers);
    }
    items(object)?.try_for_each(|item| collect(&item?, rest, numbers))
}

/// The numbers of a list that has no lists in it.
fn leaves(object: &Bound<'_, PyAny>, numbers: &mut Numbers) -> PyResult<()> {
    for item in items(object)? {
        let item = item?;
        // Try the type of the elements so far first.
        match numbers {
            Numbers::Floats(list) if item.is_exact_instance_of::<PyFloat>() => {
                list.push(item.extract()?);
                continue;
            }
            Numbers::Ints(list) if item.is_exact_instance_of::<PyInt>() => {
                if let Ok(value) = item.extract::<i64>() {
                    list.push(i128::from(value));
                    continue;
                }
            }
            _ => {}
        }
        collect(&item, &[], numbers)?;
    }
    Ok(())
}

/// An array from lists that have arrays among their elements: all elements, stacked.
fn stacked(object: &Bound<'_, PyAny>, dtype: Option<Dtype>) -> PyResult<Array> {
    fn parts(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Vec<Array>> {
        if depth == MAX_AXES {
            return Err(PyValueError::new_err(format!(
                "cannot make an array of lists nested more than {MAX_AXES} deep"
            )));
        }
        items(object)?
            .map(|item| {
                let item = item?;
                if is_container(&item) { stack(&parts(&item, depth + 1)?) } else { array(&item, None) }
            })
            .collect()
    }
    let array = stack(&parts(object, 0)?)?;
    dtype.map_or(Ok(array.clone()), |dtype| array.astype(dtype)).map_err(raise)
}

/// Arrays of one shape as one array with another axis in front.
fn stack(parts: &[Array]) -> PyResult<Array> {
    let Some(first) = parts.first() else {
        return Array::from_bytes(&[], Dtype::Float32, &[0]).map_err(raise);
    };
    if let Some(other) = parts.iter().find(|part| part.shape() != first.shape()) {
        let shapes = format!("{:?} and {:?}", first.shape(), other.shape());
        return Err(PyValueError::new_err(format!("cannot stack arrays of different shapes: {shapes}")));
    }
    hesper::stack(parts, 0).map_err(raise)
}

fn invalid(object: &Bound<'_, PyAny>) -> PyErr {
    match object.get_type().name() {
        Ok(name) => PyValueError::new_err(format!(
            "cannot make an array of a {name}; expected numbers, sequences of them, or arrays"
        )),
        Err(error) => error,
    }
}

/// An array from an object of another library: by its own conversion, its buffer, or NumPy's protocol.
fn foreign(object: &Bound<'_, PyAny>) -> PyResult<Array> {
    let py = object.py();
    if object.is_none() {
        return Err(PyTypeError::new_err(
            "cannot make an array of None; expected numbers, sequences of them, or arrays",
        ));
    }
    if object.is_instance_of::<PyString>() {
        return Err(invalid(object));
    }
    if let Some(convert) = object.getattr_opt(intern!(py, "__mlx_array__"))? {
        let made = convert.call0()?;
        return match made.cast::<PyArray>() {
            Ok(array) => Ok(array.get().value()),
            Err(_) => Err(PyTypeError::new_err("cannot make an array: __mlx_array__ did not return one")),
        };
    }
    let name = dtype_name(object)?.unwrap_or_default();
    if name.starts_with("datetime64") || name.starts_with("timedelta64") {
        // Their buffers say that they hold bytes.
        return Err(PyValueError::new_err(format!("cannot make an array of elements of the type {name}")));
    }
    // An extension type that NumPy does not describe in buffers.
    if name == "bfloat16" {
        let bits = object.call_method1(intern!(py, "view"), ("uint16",))?;
        let bits = from_buffer(&bits)?;
        return bits
            .read_bytes(|bytes| Array::from_bytes(bytes, Dtype::Bfloat16, bits.shape()))
            .and_then(|array| array)
            .map_err(raise);
    }
    // SAFETY: only asks whether the object's type has the slots of the buffer protocol.
    if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
        return from_buffer(object);
    }
    if object.hasattr(intern!(py, "__dlpack__"))? {
        return dlpack::import(object, None);
    }
    if let Some(convert) = object.getattr_opt(intern!(py, "__array__"))? {
        return from_buffer(&convert.call0()?);
    }
    Err(invalid(object))
}

/// The name of the element type of an array of NumPy, or of an object like it.
fn dtype_name(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let Some(dtype) = object.getattr_opt(intern!(object.py(), "dtype"))? else { return Ok(None) };
    let Some(name) = dtype.getattr_opt(intern!(object.py(), "name"))? else { return Ok(None) };
    Ok(name.extract().ok())
}

/// A buffer that is released when dropped. Only used while the interpreter's lock is held.
struct Held(Box<ffi::Py_buffer>);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the view was filled by PyObject_GetBuffer and is released once, with the lock held.
        unsafe { ffi::PyBuffer_Release(&mut *self.0) };
    }
}

/// An array with a copy of an object's buffer.
fn from_buffer(object: &Bound<'_, PyAny>) -> PyResult<Array> {
    let py = object.py();
    let mut view = Box::new(ffi::Py_buffer::new());
    let flags = ffi::PyBUF_FORMAT | ffi::PyBUF_STRIDES;
    // SAFETY: the view is a valid, zeroed structure that does not move while it is held.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let mut held = Held(view);
    let view = &mut held.0;
    let format = if view.format.is_null() {
        c"B"
    } else {
        // SAFETY: a format that is not null ends with a zero byte and lives as long as the view.
        unsafe { CStr::from_ptr(view.format) }
    };
    let (Ok(rank), Ok(len)) = (usize::try_from(view.ndim), usize::try_from(view.len)) else {
        return Err(PyValueError::new_err("cannot make an array of a buffer with a negative length"));
    };
    let shape: Vec<usize> = if rank == 0 || view.shape.is_null() {
        Vec::new()
    } else {
        // SAFETY: with PyBUF_STRIDES, `shape` has `ndim` entries.
        unsafe { std::slice::from_raw_parts(view.shape, rank) }.iter().map(|axis| *axis as usize).collect()
    };
    let element = element_type(format, view.itemsize as usize).ok_or_else(|| {
        PyValueError::new_err(format!("cannot make an array of elements with the format {format:?}"))
    })?;
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return Err(PyMemoryError::new_err(format!("cannot copy {len} bytes: out of memory")));
    }
    bytes.resize(len, 0u8);
    // SAFETY: `bytes` has the length of the whole view.
    let copied =
        unsafe { ffi::PyBuffer_ToContiguous(bytes.as_mut_ptr().cast(), &**view, view.len, b'C' as c_char) };
    if copied != 0 {
        return Err(PyErr::fetch(py));
    }
    Array::from_bytes(&bytes, element, &shape).map_err(raise)
}

fn element_type(format: &CStr, size: usize) -> Option<Dtype> {
    let text = format.to_str().ok()?;
    let text =
        text.strip_prefix(['@', '=', if cfg!(target_endian = "little") { '<' } else { '>' }]).unwrap_or(text);
    let kind = match text {
        "?" => return Some(Dtype::Bool),
        "e" => return Some(Dtype::Float16),
        "bfloat16" => return Some(Dtype::Bfloat16),
        "f" => return Some(Dtype::Float32),
        "d" => return Some(Dtype::Float64),
        "Zf" => return Some(Dtype::Complex64),
        "Zd" => return Some(Dtype::Complex128),
        "b" | "h" | "i" | "l" | "q" | "n" => Category::Signed,
        "B" | "H" | "I" | "L" | "Q" | "N" | "c" => Category::Unsigned,
        _ => return None,
    };
    Dtype::ALL.into_iter().find(|dtype| dtype.is(kind) && dtype.size() == size)
}
