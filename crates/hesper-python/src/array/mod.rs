//! The class `array`: its methods, operators and protocols.

mod buffer;
mod class;
mod index;
mod methods;
mod operators;

use pyo3::prelude::*;

use crate::dlpack;
use crate::handle::PyArray;

pub use operators::product;

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyArray>()?;
    dlpack::register(m)?;
    m.add_class::<index::ArrayAt>()?;
    m.add_class::<class::ArrayIterator>()
}
