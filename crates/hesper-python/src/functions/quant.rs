//! Quantization: codes of a few bits, and products with them.

use hesper::{Array, Category, Dtype, QuantMode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::args::{Count, On, array_on, on};
use crate::dtype::PyDtype;
use crate::handle::PyArray;
use crate::steps;

/// The range of nvfp4, which a global scale refers to: the largest code times the largest scale.
const NVFP4_RANGE: f32 = 448.0 * 6.0;

pub fn mode_of(op: &str, mode: &str) -> PyResult<QuantMode> {
    mode.parse().map_err(|_| {
        PyValueError::new_err(format!(
            "[{op}] unknown quantization mode '{mode}'; use affine, mxfp4, nvfp4 or mxfp8"
        ))
    })
}

fn given(array: Option<PyArray>) -> Option<Array> {
    array.map(|array| array.value())
}

/// Refuses a global scale in another mode than nvfp4, or one that is not a float32 scalar.
fn check_global(op: &str, mode: QuantMode, scale: Option<&Array>) -> PyResult<()> {
    let Some(scale) = scale else { return Ok(()) };
    let fail = |what: String| Err(PyValueError::new_err(format!("[{op}] {what}")));
    if mode != QuantMode::Nvfp4 {
        return fail("cannot use a global scale in this mode; use nvfp4".into());
    }
    if scale.size() != 1 {
        return fail(format!("cannot use a global scale of shape {:?}; it must be a scalar", scale.shape()));
    }
    if scale.dtype() != Dtype::Float32 {
        return fail(format!("cannot use a global scale of type {}; it must be float32", scale.dtype()));
    }
    Ok(())
}

/// The array with the global scale divided out, or multiplied in again.
fn rescaled(array: &Array, scale: Option<&Array>, out: bool) -> hesper::Result<Array> {
    let Some(scale) = scale else { return Ok(array.clone()) };
    let scale = scale.reshape::<isize>(&[])?;
    let range = Array::scalar(f64::from(NVFP4_RANGE), Dtype::Float32)?;
    let factor = if out { range.divide(&scale)? } else { scale.divide(&range)? };
    array.multiply(factor.astype(array.dtype())?)
}

/// Codes, scales and, for affine ones, biases of a matrix.
///
/// Examples
/// --------
/// >>> [part.shape for part in mx.quantize(mx.ones((2, 64)))]
/// [(2, 8), (2, 1), (2, 1)]
#[pyfunction]
#[pyo3(signature = (w, /, group_size = None, bits = None, mode = "affine", *, global_scale = None,
    stream = None))]
fn quantize<'py>(
    py: Python<'py>,
    w: PyArray,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    global_scale: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<Bound<'py, PyList>> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    let (mode, scale) = (mode_of("quantize", mode)?, given(global_scale));
    check_global("quantize", mode, scale.as_ref())?;
    let w = w.value();
    let (codes, scales, biases) =
        on(stream, || rescaled(&w, scale.as_ref(), true)?.quantize(group_size, bits, mode))?;
    let parts: Vec<PyArray> = [codes, scales].into_iter().chain(biases).map(PyArray::new).collect();
    PyList::new(py, parts)
}

/// The numbers that codes stand for.
///
/// Examples
/// --------
/// >>> mx.dequantize(*mx.quantize(mx.ones((2, 64)))).shape
/// (2, 64)
#[pyfunction]
#[pyo3(signature = (w, /, scales, biases = None, group_size = None, bits = None, mode = "affine",
    global_scale = None, dtype = None, *, stream = None))]
fn dequantize(
    w: PyArray,
    scales: PyArray,
    biases: Option<PyArray>,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    global_scale: Option<PyArray>,
    dtype: Option<PyDtype>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    let (mode, scale) = (mode_of("dequantize", mode)?, given(global_scale));
    check_global("dequantize", mode, scale.as_ref())?;
    let (w, scales, biases, dtype) = (w.value(), scales.value(), given(biases), dtype.map(|dtype| dtype.0));
    // Affine codes are decoded in the type of their scales and converted then.
    let decoded = dtype.filter(|dtype| biases.is_none() || !dtype.is(Category::Floating));
    array_on(stream, || {
        if let (true, Some(biases), None) = (steps::described(), &biases, dtype)
            && let (group, bits) = (group_size.unwrap_or(64), bits.unwrap_or(4))
            && let Some(found) = steps::quant::dequantize(&w, &scales, biases, group, bits)?
        {
            return Ok(found);
        }
        let numbers = w.dequantize(&scales, biases.as_ref(), group_size, bits, mode, decoded)?;
        let numbers = rescaled(&numbers, scale.as_ref(), false)?;
        dtype.map_or_else(|| Ok(numbers.clone()), |dtype| numbers.astype(dtype))
    })
}

/// The product with a quantized matrix, or with its transpose.
///
/// Examples
/// --------
/// >>> mx.quantized_matmul(mx.ones((1, 64)), *mx.quantize(mx.ones((2, 64)))).shape
/// (1, 2)
#[pyfunction]
#[pyo3(signature = (x, w, /, scales, biases = None, transpose = true, group_size = None, bits = None,
    mode = "affine", *, stream = None))]
fn quantized_matmul(
    x: PyArray,
    w: PyArray,
    scales: PyArray,
    biases: Option<PyArray>,
    transpose: bool,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    let mode = mode_of("quantized_matmul", mode)?;
    let (x, w, scales, biases) = (x.value(), w.value(), scales.value(), given(biases));
    array_on(stream, || x.quantized_matmul(&w, &scales, biases.as_ref(), transpose, group_size, bits, mode))
}

/// Products with quantized matrices that indices choose.
///
/// Examples
/// --------
/// >>> mx.gather_qmm(mx.ones((1, 1, 64)), *mx.quantize(mx.ones((3, 2, 64))), rhs_indices=mx.array([1])).shape
/// (1, 1, 2)
#[pyfunction]
#[pyo3(signature = (x, w, /, scales, biases = None, lhs_indices = None, rhs_indices = None,
    transpose = true, group_size = None, bits = None, mode = "affine", global_scale = None, *,
    sorted_indices = false, stream = None))]
fn gather_qmm(
    x: PyArray,
    w: PyArray,
    scales: PyArray,
    biases: Option<PyArray>,
    lhs_indices: Option<PyArray>,
    rhs_indices: Option<PyArray>,
    transpose: bool,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    global_scale: Option<PyArray>,
    sorted_indices: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    let (mode, scale) = (mode_of("gather_qmm", mode)?, given(global_scale));
    check_global("gather_qmm", mode, scale.as_ref())?;
    let (x, w, scales, biases) = (x.value(), w.value(), scales.value(), given(biases));
    let (left, right) = (given(lhs_indices), given(rhs_indices));
    let (left, right) = (left.as_ref(), right.as_ref());
    array_on(stream, || {
        let products =
            x.gather_qmm(&w, &scales, biases.as_ref(), left, right, transpose, group_size, bits, mode)?;
        // Products with one matrix are found together, sorted or not.
        let products = steps::product::chosen(products, [&x, &w], [left, right], sorted_indices)?;
        rescaled(&products, scale.as_ref(), false)
    })
}

/// The product with the transpose of a matrix, both quantized.
#[pyfunction]
#[pyo3(signature = (x, w, scales = None, group_size = None, bits = None, mode = "nvfp4",
    global_scale_x = None, global_scale_w = None, *, stream = None))]
fn qqmm(
    x: PyArray,
    w: PyArray,
    scales: Option<PyArray>,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    global_scale_x: Option<PyArray>,
    global_scale_w: Option<PyArray>,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    let mode = mode_of("qqmm", mode)?;
    let (own, theirs) = (given(global_scale_x), given(global_scale_w));
    check_global("qqmm", mode, own.as_ref())?;
    check_global("qqmm", mode, theirs.as_ref())?;
    if own.is_some() != theirs.is_some() {
        let what =
            "[qqmm] cannot use one global scale alone; give global_scale_x and global_scale_w, or neither";
        return Err(PyValueError::new_err(what));
    }
    let (x, w, scales) = (x.value(), w.value(), given(scales));
    array_on(stream, || {
        // The global scale of a quantized matrix is divided out already.
        let floats = w.dtype().is(Category::Floating);
        let w = if floats { rescaled(&w, theirs.as_ref(), true)? } else { w.clone() };
        let product = rescaled(&x, own.as_ref(), true)?.qqmm(&w, scales.as_ref(), group_size, bits, mode)?;
        rescaled(&rescaled(&product, own.as_ref(), false)?, theirs.as_ref(), false)
    })
}

/// Products of matrices with the transposes of others, both quantized, and both chosen by indices.
///
/// Parameters
/// ----------
/// x : array
///     Matrices in the last two axes; they are quantized first.
/// w : array
///     Matrices, quantized if there are `scales`, else of numbers that are quantized as `x` is.
/// scales : array, optional
///     The scales of quantized matrices.
/// lhs_indices, rhs_indices : array, optional
///     Which matrices of `x` and of `w` are multiplied: flat indices of the axes before the last two. They
///     broadcast. Default: all matrices in order.
/// group_size, bits : int, optional
///     The number of elements that share a scale, and the bits of an element. Default: those of the mode.
/// mode : str
///     ``nvfp4``, ``mxfp8`` or ``mxfp4``.
/// global_scale_x, global_scale_w : array, optional
///     Global scales for ``nvfp4``; both or neither.
/// sorted_indices : bool
///     Whether indices are sorted; unused.
/// stream : Stream or Device, optional
///
/// Returns
/// -------
/// array
///
/// Examples
/// --------
/// >>> x, w = mx.ones((2, 1, 32)), mx.ones((3, 4, 32))
/// >>> mx.gather_qqmm(x, w, rhs_indices=mx.array([2, 0]), mode="mxfp8").shape
/// (2, 1, 4)
#[pyfunction]
#[pyo3(signature = (x, w, /, scales = None, lhs_indices = None, rhs_indices = None, group_size = None,
    bits = None, mode = "nvfp4", global_scale_x = None, global_scale_w = None, *, sorted_indices = false,
    stream = None))]
fn gather_qqmm(
    x: PyArray,
    w: PyArray,
    scales: Option<PyArray>,
    lhs_indices: Option<PyArray>,
    rhs_indices: Option<PyArray>,
    group_size: Option<Count>,
    bits: Option<Count>,
    mode: &str,
    global_scale_x: Option<PyArray>,
    global_scale_w: Option<PyArray>,
    sorted_indices: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (group_size, bits) = (group_size.map(usize::from), bits.map(usize::from));
    // Products with one matrix are found together, sorted or not.
    let _ = sorted_indices;
    let mode = mode_of("gather_qqmm", mode)?;
    if mode == QuantMode::Affine {
        let what = "[gather_qqmm] cannot multiply two operands in affine mode; use nvfp4 or mxfp8";
        return Err(PyValueError::new_err(what));
    }
    let (own, theirs) = (given(global_scale_x), given(global_scale_w));
    check_global("gather_qqmm", mode, own.as_ref())?;
    check_global("gather_qqmm", mode, theirs.as_ref())?;
    if own.is_some() != theirs.is_some() {
        let what = "[gather_qqmm] cannot use one global scale alone; give global_scale_x and global_scale_w, or neither";
        return Err(PyValueError::new_err(what));
    }
    let (x, w, scales) = (x.value(), w.value(), given(scales));
    let (left, right) = (given(lhs_indices), given(rhs_indices));
    array_on(stream, || {
        let (codes, scales) = match &scales {
            Some(scales) => (w.clone(), scales.clone()),
            None => {
                let (codes, scales, _) =
                    rescaled(&w, theirs.as_ref(), true)?.quantize(group_size, bits, mode)?;
                (codes, scales)
            }
        };
        let (own_codes, own_scales, _) =
            rescaled(&x, own.as_ref(), true)?.quantize(group_size, bits, mode)?;
        let x = own_codes.dequantize(&own_scales, None, group_size, bits, mode, Some(x.dtype()))?;
        let (left, right) = (left.as_ref(), right.as_ref());
        let product = x.gather_qmm(&codes, &scales, None, left, right, true, group_size, bits, mode)?;
        rescaled(&rescaled(&product, own.as_ref(), false)?, theirs.as_ref(), false)
    })
}

/// Numbers as 8-bit floats (E4M3), in bytes.
///
/// Examples
/// --------
/// >>> mx.to_fp8(mx.array([1.0, 2.5]))
/// array([56, 66], dtype=uint8)
#[pyfunction]
#[pyo3(signature = (x, *, stream = None))]
fn to_fp8(x: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let x = x.value();
    array_on(stream, || x.to_fp8())
}

/// 8-bit floats (E4M3) as numbers of another type.
///
/// Examples
/// --------
/// >>> mx.from_fp8(mx.array([56, 66], mx.uint8), mx.float32)
/// array([1, 2.5], dtype=float32)
#[pyfunction]
#[pyo3(signature = (x, dtype = None, *, stream = None), text_signature = "(x, dtype=bfloat16, *,
    stream=None)")]
fn from_fp8(x: PyArray, dtype: Option<PyDtype>, stream: Option<On>) -> PyResult<PyArray> {
    let (x, dtype) = (x.value(), dtype.map_or(Dtype::Bfloat16, |dtype| dtype.0));
    array_on(stream, || x.from_fp8(dtype))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(quantize, m)?)?;
    m.add_function(wrap_pyfunction!(dequantize, m)?)?;
    m.add_function(wrap_pyfunction!(quantized_matmul, m)?)?;
    m.add_function(wrap_pyfunction!(gather_qmm, m)?)?;
    m.add_function(wrap_pyfunction!(qqmm, m)?)?;
    m.add_function(wrap_pyfunction!(gather_qqmm, m)?)?;
    m.add_function(wrap_pyfunction!(to_fp8, m)?)?;
    m.add_function(wrap_pyfunction!(from_fp8, m)?)
}
