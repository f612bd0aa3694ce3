//! Memory in use, and its limits.
//!
//! Counters sum over all devices that the process has opened. Limits are those of the default device.

use hesper::placement;
use hesper_runtime::{Counters, Runtime};
use pyo3::prelude::*;

use crate::args::Unsigned;
use crate::error::{raise, usable};
use crate::waiting;

fn total(count: impl Fn(Counters) -> usize) -> PyResult<usize> {
    usable()?;
    Ok(placement::opened().iter().map(|runtime| count(runtime.counters())).sum())
}

fn default_runtime() -> PyResult<Runtime> {
    placement::default_device().runtime().map_err(raise)
}

/// Bytes held by arrays and by work under way.
///
/// Examples
/// --------
/// >>> mx.get_active_memory() >= 0
/// True
#[pyfunction]
fn get_active_memory() -> PyResult<usize> {
    total(|counters| counters.active)
}

/// The most bytes that were held at once since the start or the last ``reset_peak_memory``.
///
/// Examples
/// --------
/// >>> mx.get_peak_memory() >= 0
/// True
#[pyfunction]
fn get_peak_memory() -> PyResult<usize> {
    total(|counters| counters.peak)
}

/// Bytes kept for reuse.
///
/// Examples
/// --------
/// >>> mx.get_cache_memory() >= 0
/// True
#[pyfunction]
fn get_cache_memory() -> PyResult<usize> {
    total(|counters| counters.cached)
}

/// Set the count of ``get_peak_memory`` to zero; the next allocation counts again.
///
/// Examples
/// --------
/// >>> mx.reset_peak_memory()
#[pyfunction]
fn reset_peak_memory() -> PyResult<()> {
    usable()?;
    placement::opened().iter().for_each(Runtime::reset_peak);
    Ok(())
}

/// Free the memory that is cached for reuse.
///
/// Examples
/// --------
/// >>> mx.clear_cache()
#[pyfunction]
fn clear_cache(py: Python<'_>) -> PyResult<()> {
    usable()?;
    waiting::detached(py, || placement::opened().iter().for_each(Runtime::clear_cache));
    Ok(())
}

/// Set how many bytes each open device may cache for reuse; returns the previous limit of the default device.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> limit = mx.set_cache_limit(1 << 30)
#[pyfunction]
fn set_cache_limit(py: Python<'_>, limit: Unsigned) -> PyResult<usize> {
    usable()?;
    let (runtime, limit) = (default_runtime()?, limit.0 as usize);
    Ok(waiting::detached(py, || {
        let before = runtime.set_cache_limit(limit);
        placement::opened().iter().for_each(|runtime| {
            runtime.set_cache_limit(limit);
        });
        before
    }))
}

/// Set a guideline for the bytes that arrays use on the default device; returns the previous one.
///
/// An allocation above it first frees cached memory and waits for the work in flight, and then goes on.
/// ``set_hard_memory_limit`` sets a limit that no allocation exceeds.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> limit = mx.set_memory_limit(1 << 30)
#[pyfunction]
fn set_memory_limit(limit: Unsigned) -> PyResult<usize> {
    Ok(default_runtime()?.set_soft_memory_limit(limit.0 as usize))
}

/// The guideline for the bytes that arrays use on the default device.
///
/// Examples
/// --------
/// >>> mx.get_memory_limit() > 0
/// True
#[pyfunction]
fn get_memory_limit() -> PyResult<usize> {
    Ok(default_runtime()?.soft_memory_limit())
}

/// Set how many bytes the default device may allocate; returns the previous limit.
///
/// An allocation that cannot be made within it is a ``RuntimeError``. At first it is the memory of the
/// device.
///
/// Parameters
/// ----------
/// limit : int
///
/// Examples
/// --------
/// >>> limit = mx.set_hard_memory_limit(1 << 30)
/// >>> mx.set_hard_memory_limit(limit) == 1 << 30
/// True
#[pyfunction]
fn set_hard_memory_limit(limit: Unsigned) -> PyResult<usize> {
    Ok(default_runtime()?.set_memory_limit(limit.0 as usize))
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
    m.add_function(wrap_pyfunction!(set_hard_memory_limit, m)?)
}
