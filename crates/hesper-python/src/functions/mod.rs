//! The functions of the module, one file for each kind.
//!
//! Most are rows of a table: a documentation line, the Python name, the method of [`hesper::Array`]. The
//! table's macro defines the signature, converts the arguments and builds on the right stream. Adding a
//! function is adding its row; a function with a signature of its own is written out.

mod conv;
mod create;
mod elementwise;
mod fft;
pub mod io;
mod linalg;
pub mod movement;
mod product;
mod quant;
pub mod random;
mod reduce;
pub mod shape;
mod sort;

use pyo3::prelude::*;

use crate::args::Axes;

/// The axes of a reduction as the array library takes them.
pub fn axes_of(axis: &Option<Axes>) -> Option<&[isize]> {
    axis.as_ref().map(|Axes(axes)| &axes[..])
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    elementwise::register(m)?;
    reduce::register(m)?;
    shape::register(m)?;
    create::register(m)?;
    movement::register(m)?;
    conv::register(m)?;
    product::register(m)?;
    quant::register(m)?;
    sort::register(m)?;
    fft::register(m)?;
    io::register(m)?;
    linalg::register(m)?;
    random::register(m)
}
