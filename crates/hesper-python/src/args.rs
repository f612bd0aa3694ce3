//! Arguments of functions: arrays and numbers, shapes, axes, streams.
//!
//! Every type here converts one kind of argument, so that a function's signature states its arguments and its
//! body starts with Rust values.

pub mod convert;

use hesper::{Array, Category, Dtype, Operand};
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyList, PySequence, PyString, PyTuple};
use smallvec::{SmallVec, smallvec};

use crate::device;
pub use crate::device::On;
use crate::error::{raise, usable};
use crate::handle::PyArray;

/// An array, or a number that takes the type of the other operand.
pub enum Value {
    /// An array, or what converts to one by its own method.
    Array(Array),
    /// An array from another library.
    Foreign(Array),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer that only ``uint64`` holds.
    Big(u64),
    /// A floating-point number.
    Float(f64),
    /// A complex number.
    Complex([f64; 2]),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Value {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(Value::Array(array.get().value()));
        }
        if let Some(number) = Value::number(&object)? {
            return Ok(number);
        }
        if object.is_none() {
            return Err(PyTypeError::new_err("expected an array or a number, not None"));
        }
        if convert::is_container(&object) {
            let name = object.get_type().name()?;
            return Err(PyValueError::new_err(format!(
                "cannot convert a {name} to an array here; expected an array or a number"
            )));
        }
        if let Some(number) = Value::like_number(&object)? {
            return Ok(number);
        }
        let array = convert::array(&object, None)?;
        Ok(if convert::is_own(&object)? { Value::Array(array) } else { Value::Foreign(array) })
    }
}

impl Value {
    /// The object as a number, if it is one.
    pub fn number(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
        Ok(Some(if object.is_instance_of::<PyFloat>() {
            Value::Float(object.extract()?)
        } else if object.is_instance_of::<PyBool>() {
            Value::Bool(object.extract()?)
        } else if object.is_instance_of::<PyInt>() {
            match object.extract::<i64>() {
                Ok(value) => Value::Int(value),
                Err(_) => Value::Big(object.extract::<u64>().map_err(|_| {
                    PyRuntimeError::new_err(format!(
                        "cannot convert the integer {object}: it has more than 64 bits"
                    ))
                })?),
            }
        } else if let Ok(complex) = object.cast::<PyComplex>() {
            use pyo3::types::PyComplexMethods;
            Value::Complex([complex.real(), complex.imag()])
        } else {
            return Ok(None);
        }))
    }

    /// The object as a number, if it is one or [converts to one](Value::like_number).
    pub fn any_number(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
        match Value::number(object)? {
            None => Value::like_number(object),
            found => Ok(found),
        }
    }

    /// An object that is no number, but converts to one by a method, as a complex number: `Decimal`,
    /// `Fraction`.
    pub fn like_number(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
        let py = object.py();
        let holds_elements =
            [intern!(py, "__mlx_array__"), intern!(py, "__array__"), intern!(py, "__dlpack__")];
        for name in holds_elements {
            if object.hasattr(name)? {
                return Ok(None);
            }
        }
        // A class has the methods of its objects as attributes.
        let kind = object.get_type();
        if kind.hasattr(intern!(py, "__complex__"))? {
            return Value::number(&object.call_method0(intern!(py, "__complex__"))?);
        }
        if kind.hasattr(intern!(py, "__float__"))? || kind.hasattr(intern!(py, "__index__"))? {
            return Ok(Some(Value::Complex([object.extract()?, 0.0])));
        }
        Ok(None)
    }

    /// The value as an array of its own type.
    pub fn alone(self) -> PyResult<Array> {
        match self {
            Value::Array(array) | Value::Foreign(array) => Ok(array),
            Value::Bool(value) => Array::scalar(f64::from(u8::from(value)), Dtype::Bool),
            Value::Int(value) if i32::try_from(value).is_ok() => Array::integer(value, Dtype::Int32),
            Value::Int(value) => Array::integer(value, Dtype::Int64),
            Value::Float(value) => Array::scalar(value, Dtype::Float32),
            Value::Big(value) => return Err(needs_type(value)),
            Value::Complex(parts) => Array::complex(parts, Dtype::Complex64),
        }
        .map_err(raise)
    }

    /// The value as an operand: a number as it is, the rest as an array of its own type.
    pub fn operand(self) -> PyResult<Operand> {
        Ok(match self {
            Value::Int(value) => Operand::Int(value),
            Value::Float(value) => Operand::Float(value),
            other => Operand::Array(other.alone()?),
        })
    }

    /// The value as the other operand of an array of a type: a number takes that type where it can.
    pub fn beside(self, theirs: Dtype) -> PyResult<Array> {
        match self {
            Value::Bool(value) => Array::scalar(f64::from(u8::from(value)), theirs).map_err(raise),
            Value::Foreign(array) => array.astype(theirs).map_err(raise),
            Value::Int(value) if theirs == Dtype::Bool => Array::integer(value, Dtype::Int32).map_err(raise),
            Value::Int(value) => {
                if theirs.is(Category::Integer) && !fits(value, theirs) {
                    let what = format!("cannot convert {value} to {theirs}: it would overflow");
                    return Err(PyValueError::new_err(what));
                }
                Array::integer(value, theirs).map_err(raise)
            }
            Value::Big(value) if theirs.is(Category::Inexact) => {
                Array::scalar(value as f64, theirs).map_err(raise)
            }
            Value::Big(value) if theirs == Dtype::Uint64 => {
                Array::integer(value as i64, theirs).map_err(raise)
            }
            Value::Big(value) => {
                let what = format!("cannot convert {value} to {theirs}: it would overflow");
                Err(PyValueError::new_err(what))
            }
            Value::Float(value) if theirs.is(Category::Inexact) => {
                Array::scalar(value, theirs).map_err(raise)
            }
            Value::Complex(parts) => Array::complex(parts, theirs.complex()).map_err(raise),
            other => other.alone(),
        }
    }

    /// Two values as arrays.
    pub fn pair(a: Value, b: Value) -> PyResult<(Array, Array)> {
        match (a, b) {
            (Value::Array(a), b) => {
                let b = b.beside_array(&a)?;
                Ok((a, b))
            }
            (a, Value::Array(b)) => Ok((a.beside(b.dtype())?, b)),
            (a, b) => Ok((a.alone()?, b.alone()?)),
        }
    }

    /// The value as the other operand of an array.
    pub fn beside_array(self, other: &Array) -> PyResult<Array> {
        match self {
            Value::Array(array) => Ok(array),
            number => number.beside(other.dtype()),
        }
    }
}

/// The error for an integer that the default types do not hold.
pub fn needs_type(value: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("cannot convert the integer {value} without a type; use uint64"))
}

fn fits(value: i64, dtype: Dtype) -> bool {
    match dtype {
        Dtype::Uint8 => u8::try_from(value).is_ok(),
        Dtype::Uint16 => u16::try_from(value).is_ok(),
        Dtype::Uint32 => u32::try_from(value).is_ok(),
        Dtype::Int8 => i8::try_from(value).is_ok(),
        Dtype::Int16 => i16::try_from(value).is_ok(),
        Dtype::Int32 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// An argument that is an integer of 32 bits, or may be `None` instead; anything else is of the wrong type.
pub trait FromInt: Sized {
    /// The value of the object.
    fn from_int(object: &Bound<'_, PyAny>) -> PyResult<Self>;
}

impl FromInt for isize {
    fn from_int(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match i32::try_from(integer(object)?) {
            Ok(value) => Ok(value as isize),
            Err(_) => Err(PyTypeError::new_err(format!("expected an integer of 32 bits, not {object}"))),
        }
    }
}

impl FromInt for Option<isize> {
    fn from_int(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_none() { Ok(None) } else { isize::from_int(object).map(Some) }
    }
}

impl FromInt for Count {
    fn from_int(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let count = isize::from_int(object)?;
        let negative = |_| PyValueError::new_err(format!("expected a non-negative integer, not {count}"));
        usize::try_from(count).map(Count).map_err(negative)
    }
}

/// Converts an argument that is an integer, such as an axis.
pub fn int<T: FromInt>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    T::from_int(object)
}

/// Converts an argument that is a number; anything else is of the wrong type, also an array of several
/// elements.
pub fn real(object: &Bound<'_, PyAny>) -> PyResult<f64> {
    object.extract().map_err(|_| match object.get_type().name() {
        Ok(name) => PyTypeError::new_err(format!("expected a number, not {name}")),
        Err(error) => error,
    })
}

/// An integer of 64 bits; a larger one is of the wrong type.
fn integer(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    object.extract::<isize>().map_err(|error| match error.is_instance_of::<PyOverflowError>(object.py()) {
        true => PyTypeError::new_err(format!("expected an integer of 64 bits, not {object}")),
        false => error,
    })
}

/// Integers: one, or a sequence of them, each read by `one`.
fn integers(
    object: &Bound<'_, PyAny>,
    alone: bool,
    one: impl Fn(&Bound<'_, PyAny>) -> PyResult<isize>,
) -> PyResult<SmallVec<[isize; 6]>> {
    let one = |item: &Bound<'_, PyAny>| -> PyResult<isize> {
        if !item.is_exact_instance_of::<PyInt>() && item.is_instance_of::<PyFloat>() {
            let name = item.get_type().name()?;
            return Err(PyTypeError::new_err(format!("expected an integer, not {name}")));
        }
        one(item)
    };
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|item| one(&item)).collect();
    }
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| one(&item)).collect();
    }
    if object.is_instance_of::<PyInt>() {
        if alone {
            return Ok(smallvec![one(object)?]);
        }
    } else if is_sequence(object)? {
        return object.try_iter()?.map(|item| one(&item?)).collect();
    } else if alone && object.hasattr(intern!(object.py(), "__index__"))? {
        return Ok(smallvec![one(object)?]);
    }
    let name = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "expected {}a sequence of integers, not {name}",
        if alone { "an integer or " } else { "" }
    )))
}

/// Whether an object is a sequence of numbers: not text, and not an array without axes.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(array.get().value().ndim() > 0);
    }
    let text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    Ok(!text && (object.cast::<PySequence>().is_ok() || object.hasattr("__array__")? && object.len().is_ok()))
}

/// A sequence of integers, as for `reshape`.
pub struct Ints(pub SmallVec<[isize; 6]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Ints {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        integers(&object, false, integer).map(Ints)
    }
}

/// An integer or a sequence of integers: axes.
pub struct Axes(pub SmallVec<[isize; 6]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Axes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        integers(&object, true, isize::from_int).map(Axes)
    }
}

/// How many of something: an integer that must not be negative.
#[derive(Clone, Copy)]
pub struct Count(pub usize);

impl From<Count> for usize {
    fn from(Count(count): Count) -> usize {
        count
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        int(&object)
    }
}

/// An integer of 64 bits that is not negative; anything else is of the wrong type.
#[derive(Clone, Copy)]
pub struct Unsigned(pub u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Unsigned {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Unsigned).map_err(|_| {
            PyTypeError::new_err(format!("expected an integer from 0 to 2^64 - 1, not {}", object.to_owned()))
        })
    }
}

/// A shape: one length, or a sequence of them, none negative.
pub struct Lengths(pub SmallVec<[usize; 6]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Lengths {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        lengths(&integers(&object, true, integer)?).map(Lengths)
    }
}

/// A shape that is a sequence of lengths, none negative.
#[derive(Default)]
pub struct Sizes(pub SmallVec<[usize; 6]>);

impl<'a, 'py> FromPyObject<'a, 'py> for Sizes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        lengths(&Ints::extract(object)?.0).map(Sizes)
    }
}

/// A shape from integers that must not be negative.
pub fn lengths(shape: &[isize]) -> PyResult<SmallVec<[usize; 6]>> {
    let negative =
        || PyValueError::new_err(format!("cannot use the shape {shape:?}: an axis has a negative length"));
    shape.iter().map(|axis| usize::try_from(*axis).map_err(|_| negative())).collect()
}

/// The integers of a method that takes them one by one or as one sequence, as `a.reshape(2, 3)`.
pub fn spread(arguments: &Bound<'_, PyTuple>) -> PyResult<SmallVec<[isize; 6]>> {
    if arguments.len() == 1 {
        return integers(&arguments.get_item(0)?, true, integer);
    }
    integers(arguments.as_any(), true, integer)
}

/// A list of arrays.
pub struct Arrays(pub Vec<Array>);

impl<'a, 'py> FromPyObject<'a, 'py> for Arrays {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyArray>() {
            // An array is the list of its rows.
            let rows = array.get().value();
            if rows.ndim() == 0 {
                return Err(PyTypeError::new_err("expected a list of arrays, not an array without axes"));
            }
            return rows.unstack(0).map(Arrays).map_err(raise);
        }
        let list = object.try_iter()?.map(|item| Ok(item?.extract::<PyArray>()?.value()));
        list.collect::<PyResult<_>>().map(Arrays)
    }
}

/// An argument with a default value, for which None does not stand.
pub enum Given<'py> {
    Default,
    Object(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Given<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Err(PyTypeError::new_err(
                "expected a value, not None; leave the argument out for its default",
            ));
        }
        Ok(Given::Object(object.to_owned()))
    }
}

/// An error if an argument is no function.
pub fn callable(fun: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if fun.is_callable() {
        return Ok(());
    }
    let name = fun.get_type().name()?;
    Err(PyTypeError::new_err(format!("[{what}] expected a function, not {name}")))
}

/// Builds something on the stream that the call or the current scope names.
pub fn on<R>(stream: Option<On>, build: impl FnOnce() -> hesper::Result<R>) -> PyResult<R> {
    usable()?;
    match stream {
        Some(On(stream)) => hesper::placement::with_stream(&stream, build),
        None => device::in_scope(build),
    }
    .map_err(raise)
}

/// The same for one array.
pub fn array_on(stream: Option<On>, build: impl FnOnce() -> hesper::Result<Array>) -> PyResult<PyArray> {
    on(stream, build).map(PyArray::new)
}
