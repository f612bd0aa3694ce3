//! Products of arrays.

use hesper::Array;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::args::{Axes, Count, Given, On, array_on, int};
use crate::handle::PyArray;
use crate::steps;

/// Products of two arrays without further arguments.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $name:ident, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
            #[doc = $out]
            #[pyfunction]
            #[pyo3(signature = (a, b, /, *, stream = None))]
            fn $name(a: PyArray, b: PyArray, stream: Option<On>) -> PyResult<PyArray> {
                let (a, b) = (a.value(), b.value());
                array_on(stream, || a.$name(&b))
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

table! {
    /// The sum of products over the last axes.
    inner, "mx.array([1.0, 2.0]), mx.array([3.0, 4.0])", "array(11, dtype=float32)";
    /// The products of all pairs of elements.
    outer, "mx.array([2.0]), mx.array([3.0, 4.0])", "array([[6, 8]], dtype=float32)";
}

/// The Kronecker product.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.kron(mx.array([1, 2]), mx.array([1, 10]))
/// array([1, 10, 2, 20], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, b, *, stream = None))]
fn kron(a: PyArray, b: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || a.kron(&b))
}

/// The sum of products along an axis.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// axis : int, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.vecdot(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
/// array(11, dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, b, /, axis = -1, *, stream = None),
    text_signature = "(a, b, /, axis=-1, *, stream=None)")]
fn vecdot(
    a: PyArray,
    b: PyArray,
    #[pyo3(from_py_with = int)] axis: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || a.vecdot(&b, axis))
}

/// The sum of products over axes: the last of `a` and the first of `b`, or two lists of axes.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// axes : int or sequence of int
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.tensordot(mx.ones((2, 3)), mx.ones((3, 4)), 1).shape
/// (2, 4)
#[pyfunction]
#[pyo3(signature = (a, b, /, axes = Given::Default, *, stream = None),
    text_signature = "(a, b, /, axes=2, *, stream=None)")]
fn tensordot(a: PyArray, b: PyArray, axes: Given<'_>, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    let (left, right) = match axes {
        Given::Object(axes) if !axes.is_instance_of::<PyInt>() => {
            let Ok((Axes(left), Axes(right))) = axes.extract::<(Axes, Axes)>() else {
                let (Axes(left), Axes(right)) = (axes.get_item(0)?.extract()?, axes.get_item(1)?.extract()?);
                return array_on(stream, || a.tensordot(&b, &left, &right));
            };
            (left, right)
        }
        count => {
            let count: isize = match count {
                Given::Default => 2,
                Given::Object(count) => count.extract()?,
            };
            if count < 0 || count > a.ndim().min(b.ndim()) as isize {
                let what = format!(
                    "[tensordot] cannot contract {count} axes of shapes {:?} and {:?}",
                    a.shape(),
                    b.shape()
                );
                return Err(PyValueError::new_err(what));
            }
            ((-count..0).collect(), (0..count).collect())
        }
    };
    array_on(stream, || a.tensordot(&b, &left, &right))
}

/// ``beta * c + alpha * (a @ b)``.
///
/// Parameters
/// ----------
/// c : array
/// a : array
/// b : array
/// alpha : float
/// beta : float
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.addmm(mx.array([[1.0]]), mx.array([[2.0]]), mx.array([[3.0]]))
/// array([[7]], dtype=float32)
#[pyfunction]
#[pyo3(signature = (c, a, b, /, alpha = 1.0, beta = 1.0, *, stream = None))]
fn addmm(c: PyArray, a: PyArray, b: PyArray, alpha: f32, beta: f32, stream: Option<On>) -> PyResult<PyArray> {
    let (c, a, b) = (c.value(), a.value(), b.value());
    array_on(stream, || c.addmm(&a, &b, alpha, beta))
}

/// Sums of products as a text of indices says: ``einsum("ij,jk->ik", a, b)``.
///
/// Parameters
/// ----------
/// subscripts : str
/// operands : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.einsum("ij,j->i", mx.array([[1.0, 2.0]]), mx.array([3.0, 4.0]))
/// array([11], dtype=float32)
#[pyfunction]
#[pyo3(signature = (subscripts, *operands, stream = None))]
fn einsum(subscripts: &str, operands: Vec<PyArray>, stream: Option<On>) -> PyResult<PyArray> {
    let operands: Vec<Array> = operands.iter().map(PyArray::value).collect();
    let operands: Vec<&Array> = operands.iter().collect();
    array_on(stream, || hesper::einsum(subscripts, &operands))
}

/// In which order ``einsum`` multiplies, and a report on it.
///
/// Parameters
/// ----------
/// subscripts : str
/// operands : array
///
/// Examples
/// --------
/// >>> mx.einsum_path("ij,jk->ik", mx.ones((2, 3)), mx.ones((3, 4)))[0]
/// [(0, 1)]
#[pyfunction]
#[pyo3(signature = (subscripts, *operands))]
fn einsum_path<'py>(
    py: Python<'py>,
    subscripts: &str,
    operands: Vec<PyArray>,
) -> PyResult<(Vec<Bound<'py, PyTuple>>, String)> {
    let operands: Vec<Array> = operands.iter().map(PyArray::value).collect();
    let operands: Vec<&Array> = operands.iter().collect();
    let (path, report) = hesper::einsum_path(subscripts, &operands).map_err(crate::error::raise)?;
    let path = path.into_iter().map(|step| PyTuple::new(py, step)).collect::<PyResult<_>>()?;
    Ok((path, report))
}

/// Matrix products of chosen matrices of two batches.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// lhs_indices : array, optional
/// rhs_indices : array, optional
/// sorted_indices : bool
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.gather_mm(mx.ones((2, 1, 3)), mx.ones((2, 3, 1)), mx.array([0]), mx.array([1])).shape
/// (1, 1, 1)
#[pyfunction]
#[pyo3(signature = (a, b, /, lhs_indices = None, rhs_indices = None, *, sorted_indices = false, stream = None))]
fn gather_mm(
    a: PyArray,
    b: PyArray,
    lhs_indices: Option<PyArray>,
    rhs_indices: Option<PyArray>,
    sorted_indices: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    let (left, right) = (lhs_indices.map(|list| list.value()), rhs_indices.map(|list| list.value()));
    array_on(stream, || {
        let product = a.gather_mm(&b, left.as_ref(), right.as_ref())?;
        // Indices in order change the speed on some devices, never the result.
        steps::product::chosen(product, [&a, &b], [left.as_ref(), right.as_ref()], sorted_indices)
    })
}

/// Matrix products over segments of the inner axis.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// segments : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.segmented_mm(mx.ones((2, 4)), mx.ones((4, 2)), mx.array([[0, 2], [2, 4]], mx.uint32)).shape
/// (2, 2, 2)
#[pyfunction]
#[pyo3(signature = (a, b, /, segments, *, stream = None))]
fn segmented_mm(a: PyArray, b: PyArray, segments: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b, segments) = (a.value(), b.value(), segments.value());
    array_on(stream, || a.segmented_mm(&b, &segments))
}

/// A matrix product of which blocks are masked.
///
/// Parameters
/// ----------
/// a : array
/// b : array
/// block_size : int
/// mask_out : array, optional
/// mask_lhs : array, optional
/// mask_rhs : array, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.block_masked_mm(mx.ones((32, 32)), mx.ones((32, 32)), 32).shape
/// (32, 32)
#[pyfunction]
#[pyo3(signature = (a, b, /, block_size = Count(64), mask_out = None, mask_lhs = None, mask_rhs = None, *, stream = None),
    text_signature = "(a, b, /, block_size=64, mask_out=None, mask_lhs=None, mask_rhs=None, *, stream=None)")]
fn block_masked_mm(
    a: PyArray,
    b: PyArray,
    block_size: Count,
    mask_out: Option<PyArray>,
    mask_lhs: Option<PyArray>,
    mask_rhs: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    let [out, left, right] = [mask_out, mask_lhs, mask_rhs].map(|mask| mask.map(|mask| mask.value()));
    let masks = [out.as_ref(), left.as_ref(), right.as_ref()];
    array_on(stream, || {
        let product = || a.block_masked_mm(&b, block_size.0, masks[0], masks[1], masks[2]);
        steps::or_else(|| steps::product::masked(&a, &b, block_size.0, masks, product()?), product)
    })
}

/// The Walsh-Hadamard transform of the last axis, scaled by one over the root of its length by default.
///
/// Parameters
/// ----------
/// a : array
/// scale : float, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.hadamard_transform(mx.array([1.0, 0.0]), scale=1.0)
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, scale = None, stream = None))]
fn hadamard_transform(a: PyArray, scale: Option<f32>, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || a.hadamard_transform(scale))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    m.add_function(wrap_pyfunction!(kron, m)?)?;
    m.add_function(wrap_pyfunction!(vecdot, m)?)?;
    m.add_function(wrap_pyfunction!(tensordot, m)?)?;
    m.add_function(wrap_pyfunction!(addmm, m)?)?;
    m.add_function(wrap_pyfunction!(einsum, m)?)?;
    m.add_function(wrap_pyfunction!(einsum_path, m)?)?;
    m.add_function(wrap_pyfunction!(gather_mm, m)?)?;
    m.add_function(wrap_pyfunction!(segmented_mm, m)?)?;
    m.add_function(wrap_pyfunction!(block_masked_mm, m)?)?;
    m.add_function(wrap_pyfunction!(hadamard_transform, m)?)
}
