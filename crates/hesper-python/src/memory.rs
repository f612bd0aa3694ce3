//! Memory in use, and its limits.

use hesper::place;
use pyo3::prelude::*;

/// Bytes held by arrays and by work under way.
#[pyfunction]
fn get_active_memory() -> usize {
    place::cpu().counters().active
}

/// The most bytes that were held at once since the start or the last ``reset_peak_memory``.
#[pyfunction]
fn get_peak_memory() -> usize {
    place::cpu().counters().peak
}

/// Bytes kept for reuse.
#[pyfunction]
fn get_cache_memory() -> usize {
    place::cpu().counters().cached
}

/// Lets the count of ``get_peak_memory`` begin again.
#[pyfunction]
fn reset_peak_memory() {
    place::cpu().reset_peak();
}

/// Gives back the memory that is kept for reuse.
#[pyfunction]
fn clear_cache(py: Python<'_>) {
    py.detach(|| place::cpu().clear_cache());
}

/// Sets how many bytes may be kept for reuse; gives the former limit.
#[pyfunction]
fn set_cache_limit(py: Python<'_>, limit: usize) -> usize {
    py.detach(|| place::cpu().set_cache_limit(limit))
}

/// Sets how many bytes arrays may hold; gives the former limit.
#[pyfunction]
fn set_memory_limit(limit: usize) -> usize {
    place::cpu().set_memory_limit(limit)
}

/// How many bytes arrays may hold.
#[pyfunction]
fn get_memory_limit() -> usize {
    place::cpu().memory_limit()
}

/// Sets how many bytes a GPU keeps resident; there is none, and the former limit is 0.
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
