//! The module `fast`: functions with implementations of their own, and custom kernels.

use hesper::fast;
use pyo3::prelude::*;

use crate::args::{On, array_on};
use crate::array::PyArray;

/// Rows divided by the root of their mean square, times a weight.
///
/// Parameters
/// ----------
/// x : array
/// weight : array
/// eps : float
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fast.rms_norm(mx.array([3.0, 4.0]), None, 0.0)
/// array([0.848528, 1.13137], dtype=float32)
#[pyfunction]
#[pyo3(signature = (x, weight, eps, *, stream = None))]
fn rms_norm(x: PyArray, weight: Option<PyArray>, eps: f32, stream: Option<On>) -> PyResult<PyArray> {
    let (x, weight) = (x.value(), weight.map(|weight| weight.value()));
    array_on(stream, || fast::rms_norm(&x, weight.as_ref(), eps))
}

/// Rows with mean zero and variance one, times a weight, plus a bias.
///
/// Parameters
/// ----------
/// x : array
/// weight : array
/// bias : array, optional
/// eps : float
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fast.layer_norm(mx.array([1.0, 3.0]), None, None, 0.0)
/// array([-1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (x, weight, bias, eps, *, stream = None))]
fn layer_norm(
    x: PyArray,
    weight: Option<PyArray>,
    bias: Option<PyArray>,
    eps: f32,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (x, weight, bias) = (x.value(), weight.map(|weight| weight.value()), bias.map(|bias| bias.value()));
    array_on(stream, || fast::layer_norm(&x, weight.as_ref(), bias.as_ref(), eps))
}

/// The cross entropy of logits and the indices of the right classes.
///
/// Parameters
/// ----------
/// logits : array
/// targets : array
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.fast.cross_entropy(mx.array([[0.0, 0.0]]), mx.array([1]))
/// array([0.693147], dtype=float32)
#[pyfunction]
#[pyo3(signature = (logits, targets, *, stream = None))]
fn cross_entropy(logits: PyArray, targets: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let (logits, targets) = (logits.value(), targets.value());
    array_on(stream, || fast::cross_entropy(&logits, &targets))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let fast = PyModule::new(m.py(), "fast")?;
    crate::kernel::register(&fast)?;
    fast.add_function(wrap_pyfunction!(rms_norm, &fast)?)?;
    fast.add_function(wrap_pyfunction!(layer_norm, &fast)?)?;
    fast.add_function(wrap_pyfunction!(cross_entropy, &fast)?)?;
    m.add_submodule(&fast)
}
