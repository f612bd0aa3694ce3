//! Panics of user code: native commands, watches, hooks, destructors of captured values.
//!
//! A caller of user code stops the unwinding and turns the panic into an error, so that a panic never ends a
//! device thread or leaves a submission unfinished.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic becomes an error with its message.
pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let text = message(&*payload);
        discard(payload);
        text
    })
}

/// Drops a value and ignores a panic of its destructor.
pub fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // Dropping this payload may panic again.
        std::mem::forget(payload);
    }
}

/// The message of a panic.
pub fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}
