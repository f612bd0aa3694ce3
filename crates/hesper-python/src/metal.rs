//! What `mx.metal` asks of a GPU with Metal: residency, captures, properties.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hesper::backend::Backend;
use hesper::metal::{Capture, MetalBackend, MetalShared, device_of};
use hesper::placement::Device;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::args::Unsigned;

/// The capture that runs.
static CAPTURE: Mutex<Option<Capture>> = Mutex::new(None);

/// The GPU with Metal, if there is one that can be opened.
fn metal() -> Option<Arc<MetalShared>> {
    if MetalBackend.device_count() == 0 {
        return None;
    }
    device_of(&Device::Gpu(0).runtime().ok()?)
}

/// Whether there is a GPU with Metal. Opens nothing where there is none.
#[pyfunction]
fn _has_metal() -> bool {
    metal().is_some()
}

/// Starts a capture of all GPU work.
#[pyfunction]
fn _start_capture(path: &str) -> PyResult<()> {
    let Some(metal) = metal() else { return Ok(()) };
    let capture =
        metal.capture(Path::new(path)).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    *CAPTURE.lock().unwrap_or_else(PoisonError::into_inner) = Some(capture);
    Ok(())
}

/// Ends the capture.
#[pyfunction]
fn _stop_capture() {
    let capture = CAPTURE.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(capture);
}

/// Sets how many bytes a GPU with Metal keeps resident, and returns the former limit: 0 at first, and without
/// such a GPU or before macOS 15.
///
/// Parameters
/// ----------
/// limit : int
///     At most ``max_recommended_working_set_size`` of ``mx.device_info()``.
///
/// Examples
/// --------
/// >>> mx.set_wired_limit(0)
/// 0
#[pyfunction]
fn set_wired_limit(limit: Unsigned) -> PyResult<usize> {
    let Some(metal) = metal() else { return Ok(0) };
    let most = metal.properties().recommended_working_set;
    if limit.0 as usize > most {
        return Err(PyValueError::new_err(format!(
            "[set_wired_limit] cannot keep {} bytes resident: the GPU recommends at most {most}",
            limit.0
        )));
    }
    Ok(metal.set_wired_limit(limit.0 as usize).unwrap_or(0))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_has_metal, m)?)?;
    m.add_function(wrap_pyfunction!(_start_capture, m)?)?;
    m.add_function(wrap_pyfunction!(_stop_capture, m)?)?;
    m.add_function(wrap_pyfunction!(set_wired_limit, m)?)
}
