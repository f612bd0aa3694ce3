//! Calls of user functions: a panic becomes an error.

use hesper_runtime::panics;

use crate::error::{Error, Result};

/// Calls a user function. A panic becomes an error that names the function as `what`. Unwinding leaves the
/// scopes and streams that the function had entered.
pub(crate) fn guarded<R, E: From<Error>>(what: &str, f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    panics::catch(f).unwrap_or_else(|message| Err(Error::Panicked { what: what.into(), message }.into()))
}
