//! Sorting and searching.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, types::PyTuple};

use crate::args::{Count, On, Value, array_on, int, on};
use crate::handle::PyArray;

/// An axis argument whose default is the last axis, and which may be None for the flattened array.
macro_rules! sorts {
    ($($(#[doc = $doc:literal])+ $name:ident($($more:ident: $type:ty),*) $text:literal, $arg:literal, $out:literal;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Along an axis, by default the last; with None, of the flattened array.
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> mx.", stringify!($name), "(", $arg, ")")]
            #[doc = $out]
            #[pyfunction]
            #[pyo3(signature = (a, /, $($more,)* axis = -1, *, stream = None), text_signature = $text)]
            fn $name(
                a: PyArray,
                $(#[pyo3(from_py_with = int)] $more: $type,)*
                #[pyo3(from_py_with = int)] axis: Option<isize>,
                stream: Option<On>,
            ) -> PyResult<PyArray> {
                let a = a.value();
                array_on(stream, || a.$name($($more.into(),)* axis))
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

sorts! {
    /// The elements in order.
    sort() "(a, /, axis=-1, *, stream=None)", "mx.array([3, 1, 2])", "array([1, 2, 3], dtype=int32)";
    /// The places of the elements in order.
    argsort() "(a, /, axis=-1, *, stream=None)", "mx.array([3, 1, 2])", "array([1, 2, 0], dtype=uint32)";
    /// The elements with the `kth` at its place, smaller ones before it.
    partition(kth: isize) "(a, /, kth, axis=-1, *, stream=None)", "mx.array([3, 1, 2]), 1", "array([1, 2, 3], dtype=int32)";
    /// The places of the elements with the `kth` at its place, smaller ones before it.
    argpartition(kth: isize) "(a, /, kth, axis=-1, *, stream=None)", "mx.array([3, 1, 2]), 1", "array([1, 2, 0], dtype=uint32)";
    /// The `k` largest elements, in no order.
    topk(k: Count) "(a, /, k, axis=-1, *, stream=None)", "mx.array([3, 1, 2]), 1", "array([3], dtype=int32)";
}

/// Where values would be inserted in a sorted vector.
///
/// Parameters
/// ----------
/// sorted_sequence : array
/// values : array or number
/// side : str
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.searchsorted(mx.array([1, 3, 5]), mx.array([3, 4]))
/// array([1, 2], dtype=uint32)
#[pyfunction]
#[pyo3(signature = (sorted_sequence, values, /, side = "left", *, stream = None))]
fn searchsorted(
    sorted_sequence: PyArray,
    values: PyArray,
    side: &str,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let right = match side {
        "left" => false,
        "right" => true,
        _ => {
            return Err(PyValueError::new_err(format!(
                "[searchsorted] unknown side {side:?}; use 'left' or 'right'"
            )));
        }
    };
    let sequence = sorted_sequence.value();
    let values = values.value();
    array_on(stream, || sequence.searchsorted(&values, right))
}

/// The first `size` of the sorted distinct elements, padded if there are fewer.
///
/// Parameters
/// ----------
/// a : array
/// size : int
/// return_index : bool
/// return_inverse : bool
/// return_counts : bool
/// fill_value : number, optional
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.unique(mx.array([3, 1, 3]), size=2)
/// array([1, 3], dtype=int32)
#[pyfunction]
#[pyo3(signature = (a, /, size, return_index = false, return_inverse = false, return_counts = false,
    fill_value = None, *, stream = None))]
fn unique<'py>(
    py: Python<'py>,
    a: PyArray,
    size: Count,
    return_index: bool,
    return_inverse: bool,
    return_counts: bool,
    fill_value: Option<Value>,
    stream: Option<On>,
) -> PyResult<Bound<'py, PyAny>> {
    let a = a.value();
    let fill = fill_value.map(|value| value.beside_array(&a)).transpose()?;
    let found = on(stream, || a.unique(size.0, fill.as_ref()))?;
    let mut parts = vec![PyArray::new(found.values)];
    let more = [(return_index, found.index), (return_inverse, found.inverse), (return_counts, found.counts)];
    parts.extend(more.into_iter().filter(|(wanted, _)| *wanted).map(|(_, array)| PyArray::new(array)));
    match parts.len() {
        1 => parts.pop().into_bound_py_any(py),
        _ => PyTuple::new(py, parts).map(Bound::into_any),
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    register_table(m)?;
    m.add_function(wrap_pyfunction!(searchsorted, m)?)?;
    m.add_function(wrap_pyfunction!(unique, m)?)
}
