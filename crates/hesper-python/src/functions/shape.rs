//! Functions that look at the same elements in another shape or order.

use hesper::Array;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use super::axes_of;
use crate::args::{Axes, Ints, On, Sizes, Value, array_on, int, lengths, on};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::steps;

/// The same elements, row by row, in another shape. One length may be -1: whatever is left over.
///
/// Examples
/// --------
/// >>> mx.reshape(mx.array([1, 2, 3, 4]), (2, -1)).shape
/// (2, 2)
#[pyfunction]
#[pyo3(signature = (a, /, shape, *, stream = None))]
fn reshape(a: PyArray, shape: Ints, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || {
        steps::or_else(|| steps::movement::reshape(&a, &shape.0), || a.reshape_literal(&shape.0))
    })
}

/// The axes in another order; by default reversed.
///
/// Parameters
/// ----------
/// a : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.transpose(mx.ones((2, 3))).shape
/// (3, 2)
#[pyfunction]
#[pyo3(signature = (a, /, axes = None, *, stream = None))]
fn transpose(a: PyArray, axes: Option<Ints>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || axes.map_or_else(|| a.t(), |axes| a.transpose(&axes.0)))
}

/// The axes in another order.
///
/// Parameters
/// ----------
/// a : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.permute_dims(mx.ones((2, 3, 4)), (1, 0, 2)).shape
/// (3, 2, 4)
#[pyfunction]
#[pyo3(signature = (a, /, axes = None, *, stream = None))]
fn permute_dims(a: PyArray, axes: Option<Ints>, stream: Option<On>) -> PyResult<PyArray> {
    transpose(a, axes, stream)
}

/// The array stretched to a shape that it broadcasts to.
///
/// Parameters
/// ----------
/// a : array
/// shape : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.broadcast_to(mx.array([1, 2]), (3, 2)).shape
/// (3, 2)
#[pyfunction]
#[pyo3(signature = (a, /, shape, *, stream = None))]
fn broadcast_to(a: Value, shape: Sizes, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.broadcast_to(&shape.0))
}

/// The shape that shapes broadcast to.
///
/// Parameters
/// ----------
/// shapes : sequence of int
///
/// Examples
/// --------
/// >>> mx.broadcast_shapes((2, 1), (1, 3))
/// (2, 3)
#[pyfunction]
#[pyo3(signature = (*shapes))]
fn broadcast_shapes<'py>(shapes: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    if shapes.is_empty() {
        return Err(PyValueError::new_err(
            "[broadcast_shapes] cannot broadcast nothing; give at least one shape",
        ));
    }
    let shapes_: Vec<SmallVec<[usize; 6]>> =
        shapes.iter().map(|shape| lengths(&shape.extract::<Ints>()?.0)).collect::<PyResult<_>>()?;
    PyTuple::new(shapes.py(), common_shape(&shapes_)?)
}

fn common_shape(shapes: &[SmallVec<[usize; 6]>]) -> PyResult<SmallVec<[usize; 6]>> {
    let rank = shapes.iter().map(SmallVec::len).max().unwrap_or(0);
    let mut common: SmallVec<[usize; 6]> = smallvec::smallvec![1; rank];
    for shape in shapes {
        for (own, axis) in common[rank - shape.len()..].iter_mut().zip(shape) {
            *own = match (*own, *axis) {
                (1, axis) => axis,
                (own, 1) => own,
                (own, axis) if own == axis => own,
                _ => {
                    let what = format!("[broadcast_shapes] cannot broadcast the shapes {shapes:?}");
                    return Err(PyValueError::new_err(what));
                }
            };
        }
    }
    Ok(common)
}

/// Arrays stretched to the shape that they broadcast to together.
///
/// Parameters
/// ----------
/// arrays : sequence of array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> [array.shape for array in mx.broadcast_arrays(mx.ones((2, 1)), mx.ones((3,)))]
/// [(2, 3), (2, 3)]
#[pyfunction]
#[pyo3(signature = (*arrays, stream = None))]
fn broadcast_arrays(arrays: &Bound<'_, PyTuple>, stream: Option<On>) -> PyResult<Vec<PyArray>> {
    let list: Vec<Array> =
        arrays.iter().map(|array| array.extract::<Value>()?.alone()).collect::<PyResult<_>>()?;
    let shapes: Vec<SmallVec<[usize; 6]>> = list.iter().map(|array| array.shape().into()).collect();
    let shape = common_shape(&shapes)?;
    let stretched = on(stream, || {
        list.iter().map(|array| array.broadcast_to(&shape)).collect::<hesper::Result<Vec<_>>>()
    })?;
    Ok(stretched.into_iter().map(PyArray::new).collect())
}

/// Neighbouring axes as one; by default all.
///
/// Parameters
/// ----------
/// a : array
/// start_axis : int
/// end_axis : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.flatten(mx.ones((2, 3))).shape
/// (6,)
#[pyfunction]
#[pyo3(signature = (a, /, start_axis = 0, end_axis = -1, *, stream = None),
    text_signature = "(a, /, start_axis=0, end_axis=-1, *, stream=None)")]
fn flatten(
    a: PyArray,
    #[pyo3(from_py_with = int)] start_axis: isize,
    #[pyo3(from_py_with = int)] end_axis: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.flatten(start_axis, end_axis))
}

/// One axis as several, of the given lengths; one may be -1.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// shape : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.unflatten(mx.ones((2, 6)), 1, (2, 3)).shape
/// (2, 2, 3)
#[pyfunction]
#[pyo3(signature = (a, /, axis, shape, *, stream = None))]
fn unflatten(
    a: PyArray,
    #[pyo3(from_py_with = int)] axis: isize,
    shape: Ints,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.unflatten(axis, &shape.0))
}

/// Remove axes of length one; by default all of them.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.squeeze(mx.ones((1, 3))).shape
/// (3,)
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, *, stream = None))]
fn squeeze(a: PyArray, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let axes = axes_of(&axis);
    array_on(stream, || steps::or_else(|| steps::movement::squeeze(&a, axes), || a.squeeze(axes)))
}

/// New axes of length one at the given places of the result.
///
/// Parameters
/// ----------
/// a : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.expand_dims(mx.ones((3,)), 0).shape
/// (1, 3)
#[pyfunction]
#[pyo3(signature = (a, /, axis, *, stream = None))]
fn expand_dims(a: PyArray, axis: Axes, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.expand_dims(&axis.0))
}

/// Two axes exchanged.
///
/// Parameters
/// ----------
/// a : array
/// axis1 : int
/// axis2 : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.swapaxes(mx.ones((2, 3, 4)), 0, 2).shape
/// (4, 3, 2)
#[pyfunction]
#[pyo3(signature = (a, /, axis1, axis2, *, stream = None))]
fn swapaxes(
    a: PyArray,
    #[pyo3(from_py_with = int)] axis1: isize,
    #[pyo3(from_py_with = int)] axis2: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.swapaxes(axis1, axis2))
}

/// An axis moved to another place; the others keep their order.
///
/// Parameters
/// ----------
/// a : array
/// source : int
/// destination : int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.moveaxis(mx.ones((2, 3, 4)), 0, 2).shape
/// (3, 4, 2)
#[pyfunction]
#[pyo3(signature = (a, /, source, destination, *, stream = None))]
fn moveaxis(
    a: PyArray,
    #[pyo3(from_py_with = int)] source: isize,
    #[pyo3(from_py_with = int)] destination: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || {
        let described = || steps::movement::moveaxis(&a, source, destination);
        steps::or_else(described, || a.moveaxis(source, destination))
    })
}

/// The last two axes exchanged.
///
/// Examples
/// --------
/// >>> mx.matrix_transpose(mx.ones((4, 2, 3))).shape
/// (4, 3, 2)
#[pyfunction]
#[pyo3(signature = (a, /, *, stream = None))]
fn matrix_transpose(a: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    transposed_matrices(&a.value(), stream)
}

/// An array with its last two axes exchanged.
pub fn transposed_matrices(a: &Array, stream: Option<On>) -> PyResult<PyArray> {
    if a.ndim() < 2 {
        let what = "[matrix_transpose] Input array must have at least 2 dimensions.";
        return Err(PyValueError::new_err(what));
    }
    array_on(stream, || a.swapaxes(-1, -2))
}

/// The array with row-contiguous memory.
///
/// Parameters
/// ----------
/// a : array
/// allow_col_major : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.contiguous(mx.ones((2, 3)).T).shape
/// (3, 2)
#[pyfunction]
#[pyo3(signature = (a, /, allow_col_major = false, *, stream = None))]
fn contiguous(a: PyArray, allow_col_major: bool, stream: Option<On>) -> PyResult<PyArray> {
    // Row-major is allowed in either case.
    let _ = allow_col_major;
    let a = a.value();
    array_on(stream, || a.contiguous())
}

/// The array with its elements converted to another type.
///
/// Parameters
/// ----------
/// a : array
/// dtype : Dtype, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.astype(mx.array([1.5]), mx.int32)
/// array([1], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, dtype, *, stream = None))]
fn astype(a: PyArray, dtype: PyDtype, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.astype(dtype.0))
}

/// One array for one, a list for several.
fn each<'py>(
    arrays: &Bound<'py, PyTuple>,
    stream: Option<On>,
    f: fn(&Array) -> hesper::Result<Array>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = arrays.py();
    let list: Vec<Array> =
        arrays.iter().map(|array| array.extract::<Value>()?.alone()).collect::<PyResult<_>>()?;
    let mut made = on(stream, || list.iter().map(f).collect::<hesper::Result<Vec<_>>>())?;
    match (made.len(), made.pop()) {
        (1, Some(one)) => PyArray::new(one).into_bound_py_any(py),
        (_, last) => {
            made.extend(last);
            made.into_iter().map(PyArray::new).collect::<Vec<_>>().into_bound_py_any(py)
        }
    }
}

/// Arrays with at least one axis.
///
/// Parameters
/// ----------
/// arys : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.atleast_1d(mx.array(1)).shape
/// (1,)
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_1d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    each(arys, stream, Array::atleast_1d)
}

/// Arrays with at least two axes.
///
/// Parameters
/// ----------
/// arys : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.atleast_2d(mx.array(1)).shape
/// (1, 1)
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_2d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    each(arys, stream, Array::atleast_2d)
}

/// Arrays with at least three axes.
///
/// Parameters
/// ----------
/// arys : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.atleast_3d(mx.array(1)).shape
/// (1, 1, 1)
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_3d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    each(arys, stream, Array::atleast_3d)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(reshape, m)?)?;
    m.add_function(wrap_pyfunction!(transpose, m)?)?;
    m.add_function(wrap_pyfunction!(permute_dims, m)?)?;
    m.add_function(wrap_pyfunction!(broadcast_to, m)?)?;
    m.add_function(wrap_pyfunction!(broadcast_shapes, m)?)?;
    m.add_function(wrap_pyfunction!(broadcast_arrays, m)?)?;
    m.add_function(wrap_pyfunction!(flatten, m)?)?;
    m.add_function(wrap_pyfunction!(unflatten, m)?)?;
    m.add_function(wrap_pyfunction!(squeeze, m)?)?;
    m.add_function(wrap_pyfunction!(expand_dims, m)?)?;
    m.add_function(wrap_pyfunction!(swapaxes, m)?)?;
    m.add_function(wrap_pyfunction!(moveaxis, m)?)?;
    m.add_function(wrap_pyfunction!(matrix_transpose, m)?)?;
    m.add_function(wrap_pyfunction!(contiguous, m)?)?;
    m.add_function(wrap_pyfunction!(astype, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_1d, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_2d, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_3d, m)?)
}
