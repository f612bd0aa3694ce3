//! The functions of the module, one file for each kind.
//!
//! Element-wise functions, reductions and scans follow from the tables of ops in `hesper-core`: macros here
//! define their signatures, convert the arguments and build on the right stream. A function with a signature
//! of its own is written out.

mod conv;
mod create;
pub mod elementwise;
mod fft;
pub mod io;
mod linalg;
pub mod movement;
mod product;
pub mod quant;
pub mod random;
mod reduce;
pub mod shape;
mod sort;

use pyo3::prelude::*;

use crate::args::Axes;

/// Instantiates tables of ops with the macro `define_functions`, each in a module because each has a
/// `register`.
macro_rules! tables {
    ($($table:ident $module:ident),+) => {
        $(#[allow(unsafe_op_in_unsafe_fn, reason = "what PyO3 generates for methods that a macro writes")]
        mod $module {
            use super::*;
            hesper::$table!(define_functions);
        })+

        fn register_tables(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $($module::register(m)?;)+
            Ok(())
        }
    };
}
use tables;

/// The axes of a reduction as the array library takes them.
pub fn axes_of(axis: &Option<Axes>) -> Option<&[isize]> {
    axis.as_ref().map(|Axes(axes)| &axes[..])
}

/// The axes of a reduction, and whether they are kept.
pub fn over(axis: Option<Axes>, keepdims: bool) -> hesper::Axes {
    hesper::axes(axis.map(|Axes(axes)| axes)).keepdims_if(keepdims)
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
