//! The native half of the Python package `hesper`.
//!
//! The module is `hesper._core`; `hesper.core` re-exports it. This crate converts between Python objects and
//! [`hesper::Array`]s and adds no semantics: functions follow from the tables of ops or are written out
//! ([`functions`]), over the same helpers for arguments ([`args`]). The interpreter's lock is released while
//! arrays are evaluated or waited for, and it is never acquired while another lock is held.

mod args;
mod array;
mod compile;
mod cuda_kernel;
mod custom;
mod device;
mod dlpack;
mod dtype;
mod encoder;
mod engine;
mod enumeration;
mod error;
mod eval;
mod export;
mod fast;
mod format;
mod functions;
mod handle;
mod host;
mod kernel;
mod layer;
mod lent;
mod lm;
mod memory;
mod metal;
mod options;
mod primitives;
mod process;
mod started;
mod steps;
mod transform;
mod tree;
mod waiting;

use pyo3::prelude::*;

/// Arrays, functions on them, and custom kernels.
#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    dtype::register(m)?;
    device::register(m)?;
    array::register(m)?;
    encoder::register(m)?;
    eval::register(m)?;
    memory::register(m)?;
    metal::register(m)?;
    options::register(m)?;
    transform::register(m)?;
    custom::register(m)?;
    compile::register(m)?;
    export::register(m)?;
    waiting::register(m)?;
    process::register(m)?;
    functions::register(m)?;
    fast::register(m)?;
    layer::register(m)?;
    lm::register(m)?;
    engine::register(m)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("pi", std::f64::consts::PI)?;
    m.add("e", std::f64::consts::E)?;
    m.add("euler_gamma", 0.577_215_664_901_532_9)?;
    m.add("inf", f64::INFINITY)?;
    m.add("nan", f64::NAN)?;
    m.add("newaxis", m.py().None())
}
