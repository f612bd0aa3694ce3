//! The module `linalg`.

use hesper::{Array, linalg as algebra};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::over;
use crate::args::{Axes, On, array_on, int, on};
use crate::handle::PyArray;
use crate::steps;

type Pair = (PyArray, PyArray);
type Triple = (PyArray, PyArray, PyArray);

fn pair_on(stream: Option<On>, build: impl FnOnce() -> hesper::Result<(Array, Array)>) -> PyResult<Pair> {
    on(stream, build).map(|(a, b)| (PyArray::new(a), PyArray::new(b)))
}

fn triple_on(
    stream: Option<On>,
    build: impl FnOnce() -> hesper::Result<(Array, Array, Array)>,
) -> PyResult<Triple> {
    on(stream, build).map(|(a, b, c)| (PyArray::new(a), PyArray::new(b), PyArray::new(c)))
}

/// Functions of matrices without further arguments: documentation, name, number of results, and whether
/// MLX has other steps for it.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $name:ident: $on:ident -> $result:ty $(, $steps:ident)?;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> result = mx.linalg.", stringify!($name), "(mx.eye(2))")]
            #[pyfunction]
            #[pyo3(signature = (a, *, stream = None))]
            fn $name(a: PyArray, stream: Option<On>) -> PyResult<$result> {
                let a = a.value();
                $on(stream, || {
                    $(if let (true, Some(found)) = ($steps::described(), $steps::linalg::$name(&a)?) {
                        return Ok(found);
                    })?
                    algebra::$name(&a)
                })
            }
        )*

        fn register_table(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

table! {
    /// The inverses of square matrices.
    inv: array_on -> PyArray;
    /// The pseudo-inverses of matrices.
    pinv: array_on -> PyArray, steps;
    /// The determinants of square matrices.
    det: array_on -> PyArray, steps;
    /// The eigenvalues of square matrices, complex.
    eigvals: array_on -> PyArray;
    /// Orthonormal columns and upper triangular matrices.
    qr: pair_on -> Pair;
    /// The eigenvalues and eigenvectors of square matrices, complex.
    eig: pair_on -> Pair;
    /// The signs of determinants and the logarithms of their absolute values.
    slogdet: pair_on -> Pair, steps;
    /// Lower and upper factors in one matrix, and row exchanges.
    lu_factor: pair_on -> Pair;
    /// Where rows have gone, lower factors and upper factors: ``L[P, :] @ U`` is the matrix.
    lu: triple_on -> Triple;
}

/// Functions of matrices of which one triangle is looked at.
macro_rules! triangular {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {
        $(
            $(#[doc = $doc])+
            ///
            /// Examples
            /// --------
            #[doc = concat!(">>> result = mx.linalg.", stringify!($name), "(mx.eye(2))")]
            #[pyfunction]
            #[pyo3(signature = (a, upper = false, *, stream = None))]
            fn $name(a: PyArray, upper: bool, stream: Option<On>) -> PyResult<PyArray> {
                let a = a.value();
                array_on(stream, || algebra::$name(&a, upper))
            }
        )*

        fn register_triangular(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)*
            Ok(())
        }
    };
}

triangular! {
    /// The inverses of triangular matrices.
    tri_inv;
    /// The Cholesky factors of matrices.
    cholesky;
    /// The inverses of matrices, given their Cholesky factors.
    cholesky_inv;
}

/// Whether the upper triangle is named.
fn is_upper(op: &str, name: &str) -> PyResult<bool> {
    match name {
        "L" | "l" => Ok(false),
        "U" | "u" => Ok(true),
        _ => Err(PyValueError::new_err(format!("[linalg::{op}] unknown UPLO {name:?}; use 'L' or 'U'"))),
    }
}

/// The eigenvalues and eigenvectors of symmetric matrices.
///
/// Examples
/// --------
/// >>> mx.linalg.eigh(mx.eye(2))[0]
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, UPLO = "L", *, stream = None))]
#[allow(non_snake_case, reason = "the argument's name is part of the interface")]
fn eigh(a: PyArray, UPLO: &str, stream: Option<On>) -> PyResult<Pair> {
    let (a, upper) = (a.value(), is_upper("eigh", UPLO)?);
    pair_on(stream, || algebra::eigh(&a, upper))
}

/// The eigenvalues of symmetric matrices.
///
/// Examples
/// --------
/// >>> mx.linalg.eigvalsh(mx.eye(2))
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, UPLO = "L", *, stream = None))]
#[allow(non_snake_case, reason = "the argument's name is part of the interface")]
fn eigvalsh(a: PyArray, UPLO: &str, stream: Option<On>) -> PyResult<PyArray> {
    let (a, upper) = (a.value(), is_upper("eigvalsh", UPLO)?);
    array_on(stream, || algebra::eigvalsh(&a, upper))
}

/// The singular value decomposition: left vectors, values, right vectors; or the values alone.
///
/// Examples
/// --------
/// >>> mx.linalg.svd(mx.eye(2), compute_uv=False)
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, compute_uv = true, *, stream = None))]
fn svd<'py>(
    py: Python<'py>,
    a: PyArray,
    compute_uv: bool,
    stream: Option<On>,
) -> PyResult<Bound<'py, PyAny>> {
    let a = a.value();
    if compute_uv {
        return Ok(triple_on(stream, || algebra::svd(&a))?.into_pyobject(py)?.into_any());
    }
    Ok(array_on(stream, || algebra::singular_values(&a))?.into_pyobject(py)?.into_any())
}

/// The solutions of ``a x = b``.
///
/// Examples
/// --------
/// >>> mx.linalg.solve(mx.array([[2.0, 0.0], [0.0, 4.0]]), mx.array([2.0, 4.0]))
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, b, *, stream = None))]
fn solve(a: PyArray, b: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || algebra::solve(&a, &b))
}

/// The solutions of ``a x = b`` for triangular ``a``.
///
/// Examples
/// --------
/// >>> mx.linalg.solve_triangular(mx.array([[2.0, 0.0], [0.0, 4.0]]), mx.array([2.0, 4.0]))
/// array([1, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, b, *, upper = false, stream = None))]
fn solve_triangular(a: PyArray, b: PyArray, upper: bool, stream: Option<On>) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || {
        steps::or_else(
            || steps::linalg::solve_triangular(&a, &b, upper).map(Some),
            || algebra::solve_triangular(&a, &b, upper),
        )
    })
}

/// The cross products of vectors of two or three elements along an axis.
///
/// Examples
/// --------
/// >>> mx.linalg.cross(mx.array([1.0, 0.0, 0.0]), mx.array([0.0, 1.0, 0.0]))
/// array([0, 0, 1], dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, b, axis = -1, *, stream = None), text_signature = "(a, b, axis=-1, *, stream=None)")]
fn cross(
    a: PyArray,
    b: PyArray,
    #[pyo3(from_py_with = int)] axis: isize,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let (a, b) = (a.value(), b.value());
    array_on(stream, || {
        steps::or_else(|| steps::linalg::cross(&a, &b, axis), || algebra::cross(&a, &b, axis))
    })
}

/// The norm of vectors or matrices.
///
/// Examples
/// --------
/// >>> mx.linalg.norm(mx.array([3.0, 4.0]))
/// array(5, dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, ord = None, axis = None, keepdims = false, *, stream = None))]
fn norm(
    a: PyArray,
    ord: Option<&Bound<'_, PyAny>>,
    axis: Option<Axes>,
    keepdims: bool,
    stream: Option<On>,
) -> PyResult<PyArray> {
    let kind = match ord {
        None => algebra::Norm::Euclidean,
        Some(ord) => match ord.extract::<f64>() {
            Ok(order) => algebra::Norm::Order(order),
            Err(_) => match ord.extract::<String>()?.as_str() {
                "fro" | "f" => algebra::Norm::Frobenius,
                "nuc" => algebra::Norm::Nuclear,
                "inf" => algebra::Norm::Order(f64::INFINITY),
                "-inf" => algebra::Norm::Order(f64::NEG_INFINITY),
                other => {
                    let what = format!("[linalg::norm] unknown ord {other:?}");
                    return Err(PyValueError::new_err(what));
                }
            },
        },
    };
    let a = a.value();
    let all = ord.is_none() && axis.is_none();
    // Of real numbers the second order is the Euclidean norm.
    let vectors = axis.as_ref().map_or(a.ndim() == 1, |Axes(axes)| axes.len() == 1);
    let second = matches!(kind, algebra::Norm::Order(order) if order == 2.0);
    let real = steps::described() && second && vectors && a.dtype().is(hesper::Category::Floating);
    let kind = if real { algebra::Norm::Euclidean } else { kind };
    array_on(stream, || {
        steps::or_else(
            || if all { steps::linalg::norm_of_all(&a, keepdims) } else { Ok(None) },
            || algebra::norm(&a, kind, over(axis, keepdims)),
        )
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let linalg = PyModule::new(m.py(), "linalg")?;
    register_table(&linalg)?;
    register_triangular(&linalg)?;
    linalg.add_function(wrap_pyfunction!(eigh, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(eigvalsh, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(svd, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(solve, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(solve_triangular, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(cross, &linalg)?)?;
    linalg.add_function(wrap_pyfunction!(norm, &linalg)?)?;
    m.add_submodule(&linalg)
}
