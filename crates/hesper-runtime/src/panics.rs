//! Panics of users' code: native commands, watches, hooks, destructors of captured values.
//!
//! Unwinding stops where users' code was called from. It becomes the fault of what that code was there for, and never
//! ends a thread of a device or leaves a submission unfinished.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic is an error with its message.
pub(crate) fn catch<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let text = message(&*payload);
        discard(payload);
        text
    })
}

/// Drops a value of a user's; a panic of its destructor ends here.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload may panic when it is dropped, and so may the payload of that panic.
        std::mem::forget(payload);
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_string())
}
