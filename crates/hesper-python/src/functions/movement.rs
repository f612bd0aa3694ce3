//! Functions that join, cut, repeat and pick elements.

use hesper::{Array, Operand, Pad, Split};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::axes_of;
use crate::args::{Arrays, Axes, Count, Ints, Lengths, On, Sizes, Value, array_on, int, on};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::steps;
use crate::steps::pad::Around;

/// Where to split: a number of parts, or the places of the cuts.
pub enum Cuts {
    Sections(usize),
    Places(Ints),
}

impl Cuts {
    pub fn as_split(&self) -> Split<'_> {
        match self {
            Cuts::Sections(count) => Split::Sections(*count),
            Cuts::Places(Ints(places)) => Split::Indices(places),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Cuts {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyInt>() {
            let negative = |_| PyValueError::new_err("[split] cannot split into a negative number of parts");
            return object.extract().map(Cuts::Sections).map_err(negative);
        }
        // A number of another library is a count, too.
        match Ints::extract(object) {
            Err(error) => object.extract().map(Cuts::Sections).map_err(|_| error),
            places => places.map(Cuts::Places),
        }
    }
}

/// Arrays joined along an axis that they have; with None, flattened first.
///
/// Parameters
/// ----------
/// arrays : sequence of array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.concatenate([mx.array([1]), mx.array([2, 3])])
/// array([1, 2, 3], dtype=int32)
#[pyfunction]
#[pyo3(signature = (arrays, axis = 0, *, stream = None))]
fn concatenate(
    arrays: Arrays,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    array_on(stream, || match axis {
        Some(axis) => hesper::concatenate(&arrays.0, axis),
        None => {
            let flat =
                arrays.0.iter().map(|array| array.flatten(0, -1)).collect::<hesper::Result<Vec<_>>>()?;
            hesper::concatenate(&flat, 0)
        }
    })
}

/// Arrays joined along an axis that they have; with None, flattened first.
///
/// Parameters
/// ----------
/// arrays : sequence of array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.concat([mx.array([1]), mx.array([2, 3])])
/// array([1, 2, 3], dtype=int32)
#[pyfunction]
#[pyo3(signature = (arrays, axis = 0, *, stream = None))]
fn concat(
    arrays: Arrays,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    concatenate(arrays, axis, stream)
}

/// Arrays of one shape joined along a new axis.
///
/// Parameters
/// ----------
/// arrays : sequence of array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.stack([mx.array([1, 2]), mx.array([3, 4])]).shape
/// (2, 2)
#[pyfunction]
#[pyo3(signature = (arrays, axis = 0, *, stream = None))]
fn stack(
    arrays: Arrays,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    array_on(stream, || hesper::stack(&arrays.0, axis.unwrap_or(0)))
}

/// Split an array along an axis, into equal parts or at indices.
///
/// Parameters
/// ----------
/// a : array
/// indices_or_sections : int or sequence of int
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.split(mx.array([1, 2, 3, 4]), 2)
/// [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]
#[pyfunction]
#[pyo3(signature = (a, /, indices_or_sections, axis = 0, *, stream = None))]
fn split(
    a: PyArray,
    indices_or_sections: Cuts,
    #[pyo3(from_py_with = int)] axis: isize,
    stream: Option<On>,
) -> PyResult<Vec<PyArray>> {
    let a = a.value();
    let parts = on(stream, || split_along(&a, &indices_or_sections, axis))?;
    Ok(parts.into_iter().map(PyArray::new).collect())
}

/// The parts of an array along an axis.
pub fn split_along(a: &Array, cuts: &Cuts, axis: isize) -> hesper::Result<Vec<Array>> {
    steps::or_else(|| steps::movement::split(a, cuts.as_split(), axis), || a.split(cuts.as_split(), axis))
}

/// The parts of an array along an axis, which they lose.
///
/// Parameters
/// ----------
/// x : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.unstack(mx.array([1, 2]))
/// (array(1, dtype=int32), array(2, dtype=int32))
#[pyfunction]
#[pyo3(signature = (x, /, *, axis = 0, stream = None))]
fn unstack<'py>(
    py: Python<'py>,
    x: PyArray,
    #[pyo3(from_py_with = int)] axis: isize,
    stream: Option<On>,
) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
    let x = x.value();
    let parts = on(stream, || steps::or_else(|| steps::movement::unstack(&x, axis), || x.unstack(axis)))?;
    pyo3::types::PyTuple::new(py, parts.into_iter().map(PyArray::new))
}

/// An array repeated along its axes.
///
/// Parameters
/// ----------
/// a : array
/// reps : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.tile(mx.array([1, 2]), 2)
/// array([1, 2, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, reps, /, *, stream = None))]
fn tile(a: PyArray, reps: Lengths, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.tile(&reps.0))
}

/// Elements repeated along an axis; with None, of the flattened array.
///
/// Parameters
/// ----------
/// array : array
/// repeats : int
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.repeat(mx.array([1, 2]), 2)
/// array([1, 1, 2, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (array, repeats, axis = None, *, stream = None))]
fn repeat(
    array: PyArray,
    repeats: Count,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = array.value();
    array_on(stream, || {
        let described = || if axis.is_some() { steps::movement::repeat(&a, repeats.0) } else { Ok(None) };
        steps::or_else(described, || a.repeat(repeats.0, axis))
    })
}

/// Elements moved along axes; those that leave one end come in at the other.
///
/// Parameters
/// ----------
/// a : array
/// shift : int or sequence of int
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.roll(mx.array([1, 2, 3]), 1)
/// array([3, 1, 2], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, shift, axis = None, *, stream = None))]
fn roll(
    a: PyArray,
    mut shift: Axes,
    axis: Option<&Bound<'_, PyAny>>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    // Several steps along one axis are one.
    if axis.is_some_and(|axis| axis.extract::<isize>().is_ok()) {
        shift.0 = smallvec::smallvec![shift.0.iter().fold(0, |sum: isize, step| sum.saturating_add(*step))];
    }
    let axis = axis.map(|axis| axis.extract::<Axes>()).transpose()?;
    array_on(stream, || {
        let axes = axes_of(&axis);
        steps::or_else(|| steps::movement::roll(&a, &shift.0, axes), || a.roll(&shift.0, axes))
    })
}

/// Elements in reverse order along axes; by default all.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.flip(mx.array([1, 2, 3]))
/// array([3, 2, 1], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, *, stream = None))]
fn flip(a: PyArray, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.flip(axes_of(&axis)))
}

/// Elements put around an array.
///
/// Parameters
/// ----------
/// a : array
/// pad_width : int, (before, after) or a list of pairs
/// mode : 'constant', 'edge', 'reflect' or 'symmetric'
/// constant_values : array or number
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.pad(mx.array([1, 2]), 1)
/// array([0, 1, 2, 0], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, pad_width, mode = "constant", constant_values = None, *, stream = None),
    text_signature = "(a, pad_width, mode='constant', constant_values=0, *, stream=None)")]
fn pad(
    a: PyArray,
    pad_width: &Bound<'_, PyAny>,
    mode: &str,
    constant_values: Option<Value>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    let widths = pad_widths(pad_width, a.ndim())?;
    let mode = match mode {
        "constant" => {
            let value = constant_values.unwrap_or(Value::Int(0)).beside_array(&a)?;
            Pad::Constant(value.into())
        }
        "edge" => Pad::Edge,
        "reflect" => Pad::Reflect,
        "symmetric" => Pad::Symmetric,
        _ => {
            return Err(PyValueError::new_err(format!(
                "[pad] unknown mode {mode:?}; use constant, edge, reflect or symmetric"
            )));
        }
    };
    array_on(stream, || {
        let described = || match &mode {
            Pad::Edge => steps::pad::around(&a, &widths, Around::Edge),
            Pad::Reflect => steps::pad::around(&a, &widths, Around::Reflected),
            Pad::Symmetric => steps::pad::around(&a, &widths, Around::Mirrored),
            Pad::Constant(Operand::Array(value)) => steps::movement::pad(&a, &widths, value),
            _ => Ok(None),
        };
        steps::or_else(described, || a.pad(&widths, &mode))
    })
}

fn pad_widths(object: &Bound<'_, PyAny>, rank: usize) -> PyResult<Vec<(usize, usize)>> {
    let negative = || PyValueError::new_err("[pad] cannot pad by a negative width");
    let width = |value: isize| usize::try_from(value).map_err(|_| negative());
    if let Ok(Axes(ints)) = object.extract::<Axes>() {
        return match ints[..] {
            [one] => Ok(vec![(width(one)?, width(one)?); rank]),
            [before, after] => Ok(vec![(width(before)?, width(after)?); rank]),
            [] => Err(PyValueError::new_err(format!("[pad] cannot pad {rank} axes by no widths"))),
            _ => Err(PyTypeError::new_err(format!(
                "[pad] expected pad_width to be one or two integers, or pairs of them, not {} integers",
                ints.len()
            ))),
        };
    }
    let mut widths = Vec::new();
    for item in object.try_iter()? {
        let Ints(pair) = item?.extract()?;
        match pair[..] {
            [before, after] => widths.push((width(before)?, width(after)?)),
            _ => return Err(PyTypeError::new_err("[pad] expected pad_width to be pairs of integers")),
        }
    }
    if let ([one], true) = (&widths[..], rank != 1) {
        return Ok(vec![*one; rank]);
    }
    Ok(widths)
}

/// Elements at indices along an axis; with None, of the flattened array.
///
/// Parameters
/// ----------
/// a : array
/// indices : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.take(mx.array([5, 6, 7]), mx.array([2, 0]))
/// array([7, 5], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, indices, axis = None, *, stream = None))]
fn take(
    a: PyArray,
    indices: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let mut number = None;
    let indices = match indices.cast::<PyArray>() {
        Ok(indices) => indices.get().value(),
        Err(_) => match Value::number(indices)? {
            Some(Value::Bool(at)) => Value::Int(at.into()).alone()?,
            Some(Value::Int(at)) => {
                check_index(&a.value(), at, axis)?;
                number = Some(at);
                Value::Int(at).alone()?
            }
            _ => return Err(PyTypeError::new_err("[take] expected indices to be an array or an integer")),
        },
    };
    let a = a.value();
    array_on(stream, || {
        let described = || number.map_or(Ok(None), |at| steps::movement::take(&a, at, axis));
        steps::or_else(described, || a.take(&indices, axis))
    })
}

/// Whether a number is an index along an axis, or of any element. An axis that is none is refused elsewhere.
fn check_index(a: &Array, at: i64, axis: Option<isize>) -> PyResult<()> {
    let length = match axis {
        None => a.size(),
        Some(axis) => {
            let axis = if axis < 0 { axis + a.ndim() as isize } else { axis };
            match usize::try_from(axis).ok().and_then(|axis| a.shape().get(axis).copied()) {
                Some(length) => length,
                None => return Ok(()),
            }
        }
    };
    if (-(length as i64)..length as i64).contains(&at) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("[take] index {at} is out of bounds for {length} elements")))
}

/// Elements at indices along an axis, position by position.
///
/// Parameters
/// ----------
/// a : array
/// indices : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.take_along_axis(mx.array([5, 6, 7]), mx.array([2, 0]), axis=0)
/// array([7, 5], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, indices, axis = -1, *, stream = None),
    text_signature = "(a, /, indices, axis=-1, *, stream=None)")]
fn take_along_axis(
    a: PyArray,
    indices: PyArray,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, indices) = (a.value(), indices.value());
    array_on(stream, || a.take_along_axis(&indices, axis))
}

/// The array with values put at indices along an axis, position by position.
///
/// Parameters
/// ----------
/// a : array
/// indices : array
/// values : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.put_along_axis(mx.array([5, 6, 7]), mx.array([1]), mx.array([0]), axis=0)
/// array([5, 0, 7], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, indices, values, axis = None, *, stream = None))]
fn put_along_axis(
    a: PyArray,
    indices: PyArray,
    values: PyArray,
    #[pyo3(from_py_with = int)] axis: Option<isize>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, indices, mut values) = (a.value(), indices.value(), values.value());
    array_on(stream, || {
        // For the array as one row, values may have other axes than the indices.
        if axis.is_none() && values.size() == indices.size() {
            let shape: Vec<isize> = indices.shape().iter().map(|length| *length as isize).collect();
            values = values.reshape(&shape)?;
        }
        a.put_along_axis(&indices, &values, axis)
    })
}

/// A diagonal of two axes, as the last axis.
///
/// Parameters
/// ----------
/// a : array
/// offset : int
/// axis1 : int
/// axis2 : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.diagonal(mx.array([[1, 2], [3, 4]]))
/// array([1, 4], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, offset = 0, axis1 = 0, axis2 = 1, stream = None))]
fn diagonal(
    a: PyArray,
    #[pyo3(from_py_with = int)] offset: isize,
    #[pyo3(from_py_with = int)] axis1: isize,
    #[pyo3(from_py_with = int)] axis2: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.diagonal(offset, axis1, axis2))
}

/// The diagonal of a matrix, or a matrix with a diagonal.
///
/// Parameters
/// ----------
/// a : array
/// k : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.diag(mx.array([[1, 2], [3, 4]]))
/// array([1, 4], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, k = 0, *, stream = None))]
fn diag(a: PyArray, #[pyo3(from_py_with = int)] k: isize, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.diag(k))
}

/// The sum of a diagonal.
///
/// Parameters
/// ----------
/// a : array
/// offset : int
/// axis1 : int
/// axis2 : int
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.trace(mx.array([[1, 2], [3, 4]]))
/// array(5, dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, offset = 0, axis1 = 0, axis2 = 1, dtype = None, *, stream = None))]
fn trace(
    a: PyArray,
    #[pyo3(from_py_with = int)] offset: isize,
    #[pyo3(from_py_with = int)] axis1: isize,
    #[pyo3(from_py_with = int)] axis2: isize,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.trace(offset, axis1, axis2, dtype.map(|dtype| dtype.0)))
}

/// The same bytes as elements of another type.
///
/// Parameters
/// ----------
/// a : array
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.view(mx.array([1.0]), mx.int32)
/// array([1065353216], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, dtype, stream = None))]
fn view(a: Value, dtype: PyDtype, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.view(dtype.0))
}

/// The array's memory in another shape with other strides.
///
/// Parameters
/// ----------
/// a : array
/// shape : int or sequence of int
/// strides : sequence of int, optional
/// offset : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.as_strided(mx.array([1, 2, 3]), (2, 2), (1, 1)).tolist()
/// [[1, 2], [2, 3]]
#[pyfunction]
#[pyo3(signature = (a, /, shape = None, strides = None, offset = 0, *, stream = None))]
fn as_strided(
    a: PyArray,
    shape: Option<Lengths>,
    strides: Option<Ints>,
    offset: usize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    let shape = shape.map_or_else(|| a.shape().into(), |Lengths(shape)| shape);
    let strides = strides.map_or_else(
        || {
            let mut strides: smallvec::SmallVec<[isize; 6]> = smallvec::smallvec![1; shape.len()];
            for axis in (1..shape.len()).rev() {
                strides[axis - 1] = strides[axis].saturating_mul(shape[axis] as isize);
            }
            strides
        },
        |Ints(strides)| strides,
    );
    array_on(stream, || a.as_strided(&shape, &strides, offset))
}

/// A slice of fixed size whose start is an array.
///
/// Parameters
/// ----------
/// a : array
/// start_indices : array
/// axes : sequence of int
/// slice_size : sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.slice(mx.array([1, 2, 3]), mx.array([1]), (0,), (2,))
/// array([2, 3], dtype=int32)
#[pyfunction]
#[pyo3(name = "slice", signature = (a, start_indices, axes, slice_size, *, stream = None))]
fn slice_at(
    a: PyArray,
    start_indices: PyArray,
    axes: Ints,
    slice_size: Sizes,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, start) = (a.value(), start_indices.value());
    array_on(stream, || a.dynamic_slice(&start, &axes.0, &slice_size.0))
}

/// The array with a slice replaced whose start is an array.
///
/// Parameters
/// ----------
/// a : array
/// update : array
/// start_indices : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.slice_update(mx.array([1, 2, 3]), mx.array([9]), mx.array([1]), (0,))
/// array([1, 9, 3], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, update, start_indices, axes, *, stream = None))]
fn slice_update(
    a: PyArray,
    update: PyArray,
    start_indices: PyArray,
    axes: Ints,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, update, start) = (a.value(), update.value(), start_indices.value());
    array_on(stream, || a.dynamic_slice_update(&update, &start, &axes.0))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(concatenate, m)?)?;
    m.add_function(wrap_pyfunction!(concat, m)?)?;
    m.add_function(wrap_pyfunction!(stack, m)?)?;
    m.add_function(wrap_pyfunction!(split, m)?)?;
    m.add_function(wrap_pyfunction!(unstack, m)?)?;
    m.add_function(wrap_pyfunction!(tile, m)?)?;
    m.add_function(wrap_pyfunction!(repeat, m)?)?;
    m.add_function(wrap_pyfunction!(roll, m)?)?;
    m.add_function(wrap_pyfunction!(flip, m)?)?;
    m.add_function(wrap_pyfunction!(pad, m)?)?;
    m.add_function(wrap_pyfunction!(take, m)?)?;
    m.add_function(wrap_pyfunction!(take_along_axis, m)?)?;
    m.add_function(wrap_pyfunction!(put_along_axis, m)?)?;
    m.add_function(wrap_pyfunction!(diagonal, m)?)?;
    m.add_function(wrap_pyfunction!(diag, m)?)?;
    m.add_function(wrap_pyfunction!(trace, m)?)?;
    m.add_function(wrap_pyfunction!(view, m)?)?;
    m.add_function(wrap_pyfunction!(as_strided, m)?)?;
    m.add_function(wrap_pyfunction!(slice_at, m)?)?;
    m.add_function(wrap_pyfunction!(slice_update, m)?)
}
