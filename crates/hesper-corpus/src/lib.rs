//! A corpus of custom kernels of the kinds people write for `mx.fast.metal_kernel`.
//!
//! Every [`Case`] is one call: kernel text, inputs, template arguments, grid and threadgroup, together with a
//! plain reference that computes in `f64` from inputs already rounded to their dtype. The crate knows no
//! executor: anything that can run a kernel implements [`Executor`] and is judged by [`run_cases`].
//! [`invalid_cases`] are kernels that must be refused, with where and why.
//!
//! ```
//! let report = hesper_corpus::run_cases(&hesper_corpus::cases()[..1], &mut |case: &hesper_corpus::Case| {
//!     Err(format!("nothing runs {}", case.name))
//! });
//! assert!(!report.is_clean());
//! ```

mod array;
mod case;
mod data;
mod invalid;
mod runner;

mod attention;
mod bits;
mod elementwise;
mod image;
mod language;
mod library;
mod matmul;
mod network;
mod norm;
pub mod outside;
mod quant;
mod recurrent;
mod reduce;
mod shuffle;
mod threads;

#[cfg(test)]
mod tests;

pub use array::{Array, DType, decode_floats, decode_ints, row_major};
pub use case::{Case, Expected, Input, OutputSpec, TemplateArg, Tolerance};
pub use invalid::{Fault, InvalidCase, Phase, SourcePart, invalid_cases};
pub use runner::{Executor, Report, run_cases};

/// The name and the text of a kernel file.
macro_rules! kernel {
    ($name:literal) => {
        ($name, include_str!(concat!("../kernels/", $name, ".metal")))
    };
}

/// The text of a header file.
macro_rules! header {
    ($name:literal) => {
        include_str!(concat!("../kernels/", $name, ".h.metal"))
    };
}

pub(crate) use {header, kernel};

/// Every valid case.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    elementwise::add(&mut all);
    norm::add(&mut all);
    reduce::add(&mut all);
    matmul::add(&mut all);
    quant::add(&mut all);
    attention::add(&mut all);
    attention::add_fused(&mut all);
    recurrent::add(&mut all);
    network::add(&mut all);
    image::add(&mut all);
    bits::add(&mut all);
    shuffle::add(&mut all);
    language::add(&mut all);
    threads::add(&mut all);
    library::add(&mut all);
    all
}
