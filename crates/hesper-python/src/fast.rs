//! The module `fast`: functions with implementations of their own, and custom kernels.

use hesper::Array;
use hesper::fast::{self, AttentionMask, Offset};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;

use crate::args::{On, array_on, int, on};
use crate::handle::PyArray;

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

/// Pairs of features turned by their position times a frequency.
///
/// Examples
/// --------
/// >>> mx.fast.rope(mx.ones((1, 1, 2, 4)), 4, traditional=False, base=10000.0, scale=1.0, offset=0).shape
/// (1, 1, 2, 4)
#[pyfunction]
#[pyo3(signature = (a, dims, *, traditional, base, scale, offset, freqs = None, stream = None))]
fn rope(
    a: PyArray,
    #[pyo3(from_py_with = int)] dims: isize,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    offset: &Bound<'_, PyAny>,
    freqs: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let offset: Offset = match offset.cast::<PyArray>() {
        Ok(offset) => offset.get().value().into(),
        Err(_) if offset.is_instance_of::<PyFloat>() => {
            return Err(PyValueError::new_err(format!(
                "[rope] cannot use the offset {offset}; it must be an integer"
            )));
        }
        Err(_) => offset.extract::<i32>()?.into(),
    };
    let dims = usize::try_from(dims).map_err(|_| {
        PyValueError::new_err(format!("[rope] cannot rotate {dims} features; dims must be positive"))
    })?;
    let (a, freqs) = (a.value(), freqs.map(|freqs| freqs.value()));
    array_on(stream, || fast::rope(&a, dims, traditional, base, scale, offset, freqs.as_ref()))
}

/// A mask argument: none, the name of a mask, or an array.
enum MaskArgument {
    All,
    Causal,
    Array(Array),
}

impl MaskArgument {
    fn of(mask: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(mask) = mask else { return Ok(MaskArgument::All) };
        if let Ok(name) = mask.extract::<String>() {
            return match name.as_str() {
                "causal" => Ok(MaskArgument::Causal),
                "" => Ok(MaskArgument::All),
                _ => Err(PyValueError::new_err(format!(
                    "[scaled_dot_product_attention] unknown mask '{name}'; use 'causal' or an array"
                ))),
            };
        }
        match mask.cast::<PyArray>() {
            Ok(mask) => Ok(MaskArgument::Array(mask.get().value())),
            Err(_) => {
                let name = mask.get_type().name()?;
                Err(PyTypeError::new_err(format!("mask: expected None, a string or an array, not {name}")))
            }
        }
    }
}

/// Attention: the values, weighed by the softmax of the products of queries and keys.
///
/// Examples
/// --------
/// >>> mx.fast.scaled_dot_product_attention(mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 3, 4)), mx.ones((1, 1, 3, 4)), scale=0.5).shape
/// (1, 1, 2, 4)
#[pyfunction]
#[pyo3(signature = (q, k, v, *, scale, mask = None, sinks = None, force_fused = false, stream = None))]
fn scaled_dot_product_attention(
    q: PyArray,
    k: PyArray,
    v: PyArray,
    scale: f32,
    mask: Option<&Bound<'_, PyAny>>,
    sinks: Option<PyArray>,
    force_fused: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    // The scores are never built, asked for or not.
    let _ = force_fused;
    let mask = MaskArgument::of(mask)?;
    let mask = match &mask {
        MaskArgument::All => AttentionMask::None,
        MaskArgument::Causal => AttentionMask::Causal,
        MaskArgument::Array(mask) => AttentionMask::Array(mask),
    };
    let (q, k, v, sinks) = (q.value(), k.value(), v.value(), sinks.map(|sinks| sinks.value()));
    array_on(stream, || fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, sinks.as_ref()))
}

/// The gated delta rule, applied to all steps of sequences: the outputs and the last state.
///
/// Examples
/// --------
/// >>> [part.shape for part in mx.fast.gated_delta_update(mx.ones((1, 2, 1, 32)), mx.ones((1, 2, 1, 32)), mx.ones((1, 2, 1, 16)), mx.ones((1, 2, 1)), mx.ones((1, 2, 1)))]
/// [(1, 2, 1, 16), (1, 1, 16, 32)]
#[pyfunction]
#[pyo3(signature = (q, k, v, gamma, beta, initial_state = None, mask = None, stream = None))]
fn gated_delta_update(
    q: PyArray,
    k: PyArray,
    v: PyArray,
    gamma: PyArray,
    beta: PyArray,
    initial_state: Option<PyArray>,
    mask: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<Vec<PyArray>> {
    let (q, k, v, gamma, beta) = (q.value(), k.value(), v.value(), gamma.value(), beta.value());
    let (state, mask) = (initial_state.map(|state| state.value()), mask.map(|mask| mask.value()));
    let (answers, state) =
        on(stream, || fast::gated_delta_update(&q, &k, &v, &gamma, &beta, state.as_ref(), mask.as_ref()))?;
    Ok(vec![PyArray::new(answers), PyArray::new(state)])
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let fast = PyModule::new(m.py(), "fast")?;
    crate::kernel::register(&fast)?;
    crate::cuda_kernel::register(&fast)?;
    fast.add_function(wrap_pyfunction!(rms_norm, &fast)?)?;
    fast.add_function(wrap_pyfunction!(layer_norm, &fast)?)?;
    fast.add_function(wrap_pyfunction!(cross_entropy, &fast)?)?;
    fast.add_function(wrap_pyfunction!(rope, &fast)?)?;
    fast.add_function(wrap_pyfunction!(scaled_dot_product_attention, &fast)?)?;
    fast.add_function(wrap_pyfunction!(gated_delta_update, &fast)?)?;
    m.add_submodule(&fast)
}
