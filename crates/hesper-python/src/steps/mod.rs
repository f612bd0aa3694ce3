//! Functions as the steps that MLX has for them, for graphs that a callback receives.
//!
//! Hesper computes some functions with other ops than MLX. While `export_function` traces a function for a
//! callback, the functions of Python build their graph here instead. The graph is read and never computed, so
//! that only its structure matters. `None` stands for a case that MLX has no steps of its own for.

pub mod index;
pub mod linalg;
pub mod pad;
pub mod quant;
pub mod random;
pub mod reduce;

use std::cell::Cell;

use hesper::{Array, Dtype};

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
    match described().then(steps).transpose()?.flatten() {
        Some(found) => Ok(found),
        None => own(),
    }
}

/// Samples between two numbers, each a weighted sum of them.
pub fn linspace(start: f64, stop: f64, count: usize, dtype: Dtype) -> hesper::Result<Option<Array>> {
    if count < 2 {
        return Ok(None);
    }
    let wide = Dtype::Float32;
    let number = |value: f64| Array::scalar(value, wide);
    let share = Array::arange(0..count as i64, Some(wide))?.divide(number(count as f64 - 1.0)?)?;
    let before = number(1.0)?.subtract(&share)?.multiply(number(start)?)?;
    before.add(share.multiply(number(stop)?)?)?.astype(dtype).map(Some)
}
