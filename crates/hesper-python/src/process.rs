//! What happens when the process forks, and when the interpreter ends.

use pyo3::prelude::*;

use crate::{encoder, engine, waiting};

/// Called in the child after a fork.
#[pyfunction]
fn _forked() {
    waiting::forked();
    engine::forked();
    encoder::forked();
}

/// Called when the interpreter is about to end.
#[pyfunction]
fn _ending(py: Python<'_>) {
    waiting::end(py);
    if !hesper_runtime::fork::is_forked() {
        py.detach(|| {
            encoder::end(waiting::PATIENCE);
            hesper::cuda::end_of_process();
        });
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_forked, m)?)?;
    let ending = wrap_pyfunction!(_ending, m)?;
    m.py().import("atexit")?.call_method1("register", (ending,)).map(|_| ())
}
