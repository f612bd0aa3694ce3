//! Functions that look at the same elements in another shape or order.

use hesper::{Array, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use crate::args::{Axes, Ints, Lengths, On, Value, array_on, lengths};
use crate::array::PyArray;
use crate::dtype::PyDtype;
use crate::error::raise;

type Order = SmallVec<[isize; 6]>;

/// An axis counted from the front.
fn axis_of(op: &str, axis: isize, rank: usize) -> PyResult<usize> {
    let place = if axis < 0 { axis.saturating_add(rank as isize) } else { axis };
    match usize::try_from(place) {
        Ok(place) if place < rank => Ok(place),
        _ => Err(raise(Error::Axis { op: op.into(), axis, rank })),
    }
}

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
    array_on(stream, || a.reshape(&shape.0))
}

/// The axes in another order; by default reversed.
#[pyfunction]
#[pyo3(signature = (a, /, axes = None, *, stream = None))]
fn transpose(a: PyArray, axes: Option<Ints>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || axes.map_or_else(|| a.t(), |axes| a.transpose(&axes.0)))
}

/// The axes in another order.
#[pyfunction]
#[pyo3(signature = (a, /, axes = None, *, stream = None))]
fn permute_dims(a: PyArray, axes: Option<Ints>, stream: Option<On>) -> PyResult<PyArray> {
    transpose(a, axes, stream)
}

/// The array stretched to a shape that it broadcasts to.
#[pyfunction]
#[pyo3(signature = (a, /, shape, *, stream = None))]
fn broadcast_to(a: Value, shape: Lengths, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.alone()?;
    array_on(stream, || a.broadcast_to(&shape.0))
}

/// The shape that shapes broadcast to.
#[pyfunction]
#[pyo3(signature = (*shapes))]
fn broadcast_shapes<'py>(shapes: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    if shapes.is_empty() {
        return Err(PyValueError::new_err("[broadcast_shapes] Must provide at least one shape."));
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
                    let what = format!("[broadcast_shapes] Shapes {shapes:?} cannot be broadcast.");
                    return Err(PyValueError::new_err(what));
                }
            };
        }
    }
    Ok(common)
}

/// Arrays stretched to the shape that they broadcast to together.
#[pyfunction]
#[pyo3(signature = (*arrays, stream = None))]
fn broadcast_arrays<'py>(arrays: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyTuple>> {
    let list: Vec<Array> =
        arrays.iter().map(|array| array.extract::<Value>()?.alone()).collect::<PyResult<_>>()?;
    let shapes: Vec<SmallVec<[usize; 6]>> = list.iter().map(|array| array.shape().into()).collect();
    let shape = common_shape(&shapes)?;
    let stretched = crate::args::on(stream, || {
        list.iter().map(|array| array.broadcast_to(&shape)).collect::<hesper::Result<Vec<_>>>()
    })?;
    PyTuple::new(arrays.py(), stretched.into_iter().map(PyArray::new))
}

pub fn flatten_array(a: &Array, start: isize, end: isize, stream: Option<On>) -> PyResult<PyArray> {
    if a.ndim() == 0 {
        return array_on(stream, || a.reshape(&[1]));
    }
    let rank = a.ndim() as isize;
    let place = |axis: isize| if axis < 0 { axis.saturating_add(rank) } else { axis };
    // Axes beyond the ends are moved to them, as long as they are on the right side.
    let (first, last) = (place(start).max(0), place(end).min(rank - 1));
    if first >= rank || last < 0 {
        let axis = if first >= rank { start } else { end };
        return Err(raise(Error::Axis { op: "flatten".into(), axis, rank: a.ndim() }));
    }
    if last < first {
        return Err(PyValueError::new_err("[flatten] start_axis must be less than or equal to end_axis"));
    }
    let (first, last) = (first as usize, last as usize);
    let shape: Order = (0..a.ndim())
        .filter(|axis| *axis <= first || *axis > last)
        .map(|axis| {
            if axis == first {
                a.shape()[first..=last].iter().product::<usize>() as isize
            } else {
                a.shape()[axis] as isize
            }
        })
        .collect();
    array_on(stream, || a.reshape(&shape))
}

/// Neighbouring axes as one; by default all.
#[pyfunction]
#[pyo3(signature = (a, /, start_axis = 0, end_axis = -1, *, stream = None))]
fn flatten(a: PyArray, start_axis: isize, end_axis: isize, stream: Option<On>) -> PyResult<PyArray> {
    flatten_array(&a.value(), start_axis, end_axis, stream)
}

/// One axis as several, of the given lengths; one may be -1.
#[pyfunction]
#[pyo3(signature = (a, /, axis, shape, *, stream = None))]
fn unflatten(a: PyArray, axis: isize, shape: Ints, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let at = axis_of("unflatten", axis, a.ndim())?;
    if shape.0.is_empty() {
        return Err(PyValueError::new_err("[unflatten] Shape to unflatten to cannot be empty."));
    }
    let length = a.shape()[at];
    let known: usize = shape.0.iter().filter(|axis| **axis >= 0).map(|axis| *axis as usize).product();
    let open = shape.0.iter().filter(|axis| **axis < 0).count();
    let fits = match open {
        0 => known == length,
        1 => known > 0 && length.is_multiple_of(known),
        _ => false,
    };
    if !fits {
        let what =
            format!("[unflatten] Cannot unflatten axis {axis} of size {length} into {:?}.", &shape.0[..]);
        return Err(PyValueError::new_err(what));
    }
    let inner = shape.0.iter().map(|axis| if *axis < 0 { (length / known) as isize } else { *axis });
    let own = |range: std::ops::Range<usize>| a.shape()[range].iter().map(|axis| *axis as isize);
    let target: Order = own(0..at).chain(inner).chain(own(at + 1..a.ndim())).collect();
    array_on(stream, || a.reshape(&target))
}

pub fn squeeze_array(a: &Array, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    let gone: SmallVec<[usize; 6]> = match &axis {
        None => (0..a.ndim()).filter(|axis| a.shape()[*axis] == 1).collect(),
        Some(Axes(axes)) => {
            axes.iter().map(|axis| axis_of("squeeze", *axis, a.ndim())).collect::<PyResult<_>>()?
        }
    };
    for (at, axis) in gone.iter().enumerate() {
        if a.shape()[*axis] != 1 {
            let what = format!(
                "[squeeze] Cannot squeeze axis {axis} with size {} which is not equal to 1.",
                a.shape()[*axis]
            );
            return Err(PyValueError::new_err(what));
        }
        if gone[..at].contains(axis) {
            return Err(PyValueError::new_err("[squeeze] Received duplicate axes."));
        }
    }
    let shape: Order =
        (0..a.ndim()).filter(|axis| !gone.contains(axis)).map(|axis| a.shape()[axis] as isize).collect();
    array_on(stream, || a.reshape(&shape))
}

/// Axes of length one taken away; by default all of them.
#[pyfunction]
#[pyo3(signature = (a, /, axis = None, *, stream = None))]
fn squeeze(a: PyArray, axis: Option<Axes>, stream: Option<On>) -> PyResult<PyArray> {
    squeeze_array(&a.value(), axis, stream)
}

/// New axes of length one at the given places of the result.
#[pyfunction]
#[pyo3(signature = (a, /, axis, *, stream = None))]
fn expand_dims(a: PyArray, axis: Axes, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    let rank = a.ndim() + axis.0.len();
    let new: SmallVec<[usize; 6]> =
        axis.0.iter().map(|axis| axis_of("expand_dims", *axis, rank)).collect::<PyResult<_>>()?;
    if new.iter().enumerate().any(|(at, axis)| new[..at].contains(axis)) {
        return Err(PyValueError::new_err("[expand_dims] Received duplicate axes."));
    }
    let mut own = a.shape().iter();
    let shape: Order = (0..rank)
        .map(|axis| if new.contains(&axis) { 1 } else { own.next().map_or(1, |axis| *axis as isize) })
        .collect();
    array_on(stream, || a.reshape(&shape))
}

pub fn swapped(a: &Array, axis1: isize, axis2: isize, stream: Option<On>) -> PyResult<PyArray> {
    let (one, other) = (axis_of("swapaxes", axis1, a.ndim())?, axis_of("swapaxes", axis2, a.ndim())?);
    let mut order: Order = (0..a.ndim() as isize).collect();
    order.swap(one, other);
    array_on(stream, || a.transpose(&order))
}

/// Two axes exchanged.
#[pyfunction]
#[pyo3(signature = (a, /, axis1, axis2, *, stream = None))]
fn swapaxes(a: PyArray, axis1: isize, axis2: isize, stream: Option<On>) -> PyResult<PyArray> {
    swapped(&a.value(), axis1, axis2, stream)
}

pub fn moved(a: &Array, source: isize, destination: isize, stream: Option<On>) -> PyResult<PyArray> {
    let (from, to) = (axis_of("moveaxis", source, a.ndim())?, axis_of("moveaxis", destination, a.ndim())?);
    let mut order: Order = (0..a.ndim() as isize).collect();
    let axis = order.remove(from);
    order.insert(to, axis);
    array_on(stream, || a.transpose(&order))
}

/// An axis moved to another place; the others keep their order.
#[pyfunction]
#[pyo3(signature = (a, /, source, destination, *, stream = None))]
fn moveaxis(a: PyArray, source: isize, destination: isize, stream: Option<On>) -> PyResult<PyArray> {
    moved(&a.value(), source, destination, stream)
}

/// The array in memory that lies row by row.
#[pyfunction]
#[pyo3(signature = (a, /, allow_col_major = false, *, stream = None))]
fn contiguous(a: PyArray, allow_col_major: bool, stream: Option<On>) -> PyResult<PyArray> {
    // Row by row serves those who would take columns, too.
    let _ = allow_col_major;
    let a = a.value();
    array_on(stream, || a.contiguous())
}

/// The array with its elements converted to another type.
#[pyfunction]
#[pyo3(signature = (a, dtype, /, *, stream = None))]
fn astype(a: PyArray, dtype: PyDtype, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.astype(dtype.0))
}

/// Arrays with at least `rank` axes: `place` says where new ones go.
fn at_least<'py>(
    arrays: &Bound<'py, PyTuple>,
    stream: Option<On>,
    shape: fn(&[usize]) -> Order,
) -> PyResult<Bound<'py, PyAny>> {
    use pyo3::IntoPyObjectExt;
    let py = arrays.py();
    let list: Vec<Array> =
        arrays.iter().map(|array| array.extract::<Value>()?.alone()).collect::<PyResult<_>>()?;
    let mut made = crate::args::on(stream, || {
        list.iter().map(|array| array.reshape(&shape(array.shape()))).collect::<hesper::Result<Vec<_>>>()
    })?;
    match (made.len(), made.pop()) {
        (1, Some(one)) => PyArray::new(one).into_bound_py_any(py),
        (_, last) => {
            made.extend(last);
            made.into_iter().map(PyArray::new).collect::<Vec<_>>().into_bound_py_any(py)
        }
    }
}

/// Arrays with at least one axis.
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_1d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    at_least(arys, stream, |shape| match *shape {
        [] => smallvec::smallvec![1],
        _ => signed(shape),
    })
}

/// Arrays with at least two axes.
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_2d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    at_least(arys, stream, |shape| match *shape {
        [] => smallvec::smallvec![1, 1],
        [a] => smallvec::smallvec![1, a as isize],
        _ => signed(shape),
    })
}

/// Arrays with at least three axes.
#[pyfunction]
#[pyo3(signature = (*arys, stream = None))]
fn atleast_3d<'py>(arys: &Bound<'py, PyTuple>, stream: Option<On>) -> PyResult<Bound<'py, PyAny>> {
    at_least(arys, stream, |shape| match *shape {
        [] => smallvec::smallvec![1, 1, 1],
        [a] => smallvec::smallvec![1, a as isize, 1],
        [a, b] => smallvec::smallvec![a as isize, b as isize, 1],
        _ => signed(shape),
    })
}

fn signed(shape: &[usize]) -> Order {
    shape.iter().map(|axis| *axis as isize).collect()
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
    m.add_function(wrap_pyfunction!(contiguous, m)?)?;
    m.add_function(wrap_pyfunction!(astype, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_1d, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_2d, m)?)?;
    m.add_function(wrap_pyfunction!(atleast_3d, m)?)
}
