//! How arrays are printed: options for the process, and for a scope.

use std::sync::atomic::{AtomicI32, Ordering};

use pyo3::prelude::*;

use crate::format::PRECISION;

/// How arrays are printed.
///
/// Parameters
/// ----------
/// precision : int
///     Decimals of floating-point numbers; -1 for six significant digits.
#[pyclass(module = "hesper.core")]
struct PrintOptions {
    /// Decimals of floating-point numbers; -1 for six significant digits.
    #[pyo3(get, set)]
    precision: i32,
}

#[pymethods]
impl PrintOptions {
    #[new]
    #[pyo3(signature = (precision = -1), text_signature = "(precision=-1)")]
    fn new(precision: i32) -> Self {
        PrintOptions { precision }
    }

    fn __repr__(&self) -> String {
        format!("PrintOptions(precision={})", self.precision)
    }
}

/// How arrays are printed now.
///
/// Examples
/// --------
/// >>> mx.get_printoptions().precision
/// -1
#[pyfunction]
fn get_printoptions() -> PrintOptions {
    PrintOptions { precision: PRECISION.load(Ordering::Relaxed) }
}

/// Sets how arrays are printed.
///
/// Parameters
/// ----------
/// precision : int
///     Decimals of floating-point numbers; -1 for six significant digits.
///
/// Examples
/// --------
/// >>> mx.set_printoptions(precision=2)
/// >>> mx.array([0.125])
/// array([0.12], dtype=float32)
#[pyfunction]
#[pyo3(signature = (precision = -1), text_signature = "(precision=-1)")]
fn set_printoptions(precision: i32) {
    PRECISION.store(precision, Ordering::Relaxed);
}

/// The scope of print options; see ``printoptions``.
#[pyclass(module = "hesper.core", frozen)]
struct _PrintOptionsContext {
    precision: i32,
    before: AtomicI32,
}

#[pymethods]
impl _PrintOptionsContext {
    fn __enter__(&self) -> PrintOptions {
        self.before.store(PRECISION.swap(self.precision, Ordering::Relaxed), Ordering::Relaxed);
        PrintOptions { precision: self.precision }
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        PRECISION.store(self.before.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Prints arrays with other options in a ``with`` block.
///
/// Parameters
/// ----------
/// precision : int
///     Decimals of floating-point numbers; -1 for six significant digits.
///
/// Examples
/// --------
/// >>> with mx.printoptions(precision=1):
/// ...     print(mx.array([0.25]))
/// array([0.2], dtype=float32)
#[pyfunction]
#[pyo3(signature = (precision = -1), text_signature = "(precision=-1)")]
fn printoptions(precision: i32) -> _PrintOptionsContext {
    _PrintOptionsContext { precision, before: AtomicI32::new(-1) }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PrintOptions>()?;
    m.add_class::<_PrintOptionsContext>()?;
    m.add_function(wrap_pyfunction!(get_printoptions, m)?)?;
    m.add_function(wrap_pyfunction!(set_printoptions, m)?)?;
    m.add_function(wrap_pyfunction!(printoptions, m)?)
}
