//! Memory in use, and its limits.

use hesper::place;
use pyo3::prelude::*;

use crate::waiting;

/// Bytes held by arrays and by work under way.
///
/// Examples
/// --------
/// >>> mx.get_active_memory() >= 0
/// True
#[pyfunction]
fn get_active_memory() -> usize {
    place::cpu().counters().active
}

/// The most bytes that were held at once since the start or the last ``reset_peak_memory``.
///
/// Examples
/// --------
/// >>> mx.get_peak_memory() >= 0
/// True
#[pyfunction]
fn get_peak_memory() -> usize {
    place::cpu().counters().peak
}

/// Bytes kept for reuse.
///
/// Examples
/// --------
/// >>> mx.get_cache_memory() >= 0
/// True
#[pyfunction]
fn get_cache_memory() -> usize {
    place::cpu().counters().cached
}

/// Lets the count of ``get_peak_memory`` begin again.
///
/// Examples
/// --------
/// >>> mx.reset_peak_memory()
#[pyfunction]
fn reset_peak_memory() {
    place::cpu().reset_peak();
}

/// Gives back the memory that is kept for reuse.
///
/// Examples
/// --------
/// >>> mx.clear_cache()
#[pyfunction]
fn clear_cache(py: Python<'_>) {
    waiting::detached(py, || place::cpu().clear_cache());
}

/// Sets how many bytes may be kept for reuse; gives the former limit.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> limit = mx.set_cache_limit(1 << 30)
#[pyfunction]
fn set_cache_limit(py: Python<'_>, limit: usize) -> usize {
    waiting::detached(py, || place::cpu().set_cache_limit(limit))
}

/// Sets how many bytes arrays may hold; gives the former limit.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> limit = mx.set_memory_limit(1 << 30)
#[pyfunction]
fn set_memory_limit(limit: usize) -> usize {
    place::cpu().set_memory_limit(limit)
}

/// How many bytes arrays may hold.
///
/// Examples
/// --------
/// >>> mx.get_memory_limit() > 0
/// True
#[pyfunction]
fn get_memory_limit() -> usize {
    place::cpu().memory_limit()
}

/// Sets how many bytes a GPU keeps resident; there is none, and the former limit is 0.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> mx.set_wired_limit(0)
/// 0
#[pyfunction]
fn set_wired_limit(limit: usize) -> usize {
    let _ = limit;
    0
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(get_active_memory, m)?)?;
    m.add_function(wrap_pyfunction!(get_peak_memory, m)?)?;
    m.add_function(wrap_pyfunction!(get_cache_memory, m)?)?;
    m.add_function(wrap_pyfunction!(reset_peak_memory, m)?)?;
    m.add_function(wrap_pyfunction!(clear_cache, m)?)?;
    m.add_function(wrap_pyfunction!(set_cache_limit, m)?)?;
    m.add_function(wrap_pyfunction!(set_memory_limit, m)?)?;
    m.add_function(wrap_pyfunction!(get_memory_limit, m)?)?;
    m.add_function(wrap_pyfunction!(set_wired_limit, m)?)
}
