//! Calls of users' functions: a panic in one is the error of the call that was made.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// Calls a function of the user's. A panic becomes an error that names `what` was called; scopes and streams that the
/// function had entered are left on the way.
pub(crate) fn guarded<R, E: From<Error>>(what: &str, f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(payload) => {
            let message = message(&*payload);
            // Its destructor is the user's, too, and may panic again.
            std::mem::forget(payload);
            Err(Error::Panicked { what: what.into(), message }.into())
        }
    }
}

/// The words of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "its value is no text".into()
    }
}
