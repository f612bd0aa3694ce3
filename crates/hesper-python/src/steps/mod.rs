//! Functions as the steps that MLX has for them, for graphs that a callback receives.
//!
//! Hesper computes some functions with other ops than MLX. While `export_function` traces a function for a
//! callback, the functions of Python build their graph here instead. The graph is read and never computed, so
//! that only its structure matters. `None` stands for a case that MLX has no steps of its own for.

pub mod create;
pub mod index;
pub mod linalg;
pub mod logic;
pub mod movement;
pub mod pad;
pub mod product;
pub mod quant;
pub mod random;
pub mod reduce;
pub mod transform;

use std::cell::Cell;

use hesper::transform::is_varied;
use hesper::{Array, Dtype};

use crate::primitives::{Argument, Primitive};

thread_local! {
    static DESCRIBED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread traces a function for a callback.
pub fn described() -> bool {
    DESCRIBED.get()
}

/// A trace for a callback, until it is dropped.
pub struct Describing(bool);

impl Describing {
    pub fn start() -> Self {
        Describing(DESCRIBED.replace(true))
    }
}

impl Drop for Describing {
    fn drop(&mut self) {
        DESCRIBED.set(self.0);
    }
}

/// The steps of a function while a trace is described, or the function itself.
pub fn or_else<T>(
    steps: impl FnOnce() -> hesper::Result<Option<T>>,
    own: impl FnOnce() -> hesper::Result<T>,
) -> hesper::Result<T> {
    match described().then(steps) {
        Some(Ok(Some(found))) => Ok(found),
        // An error of the steps is one of the function, or there is nothing to describe.
        _ => own(),
    }
}

/// An error unless one of the arrays is part of a trace: others are computed, and may be read, so the ops of
/// Hesper build them.
pub fn check_traced(arrays: &[&Array]) -> hesper::Result<()> {
    if arrays.iter().any(|array| is_varied(std::slice::from_ref(*array))) {
        return Ok(());
    }
    Err(hesper::Error::value("export_function", "the arrays are no part of a trace"))
}

/// A primitive of traced arrays by its name, with one output.
pub fn traced_step(
    name: &str,
    arguments: Vec<Argument>,
    inputs: &[&Array],
    shape: &[usize],
    dtype: Dtype,
) -> hesper::Result<Array> {
    check_traced(inputs)?;
    step(name, arguments, inputs, shape, dtype)
}

/// A primitive by its name, with one output.
pub fn step(
    name: &str,
    arguments: Vec<Argument>,
    inputs: &[&Array],
    shape: &[usize],
    dtype: Dtype,
) -> hesper::Result<Array> {
    let inputs: Vec<Array> = inputs.iter().map(|one| (*one).clone()).collect();
    let primitive =
        Primitive { name: name.into(), arguments, inputs: Vec::new(), outputs: Vec::new(), fixed: true };
    Ok(primitive.describe(&inputs, &[(shape, dtype)])?.remove(0))
}
