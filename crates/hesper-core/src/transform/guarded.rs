//! Calls of users' functions: a panic in one is the error of the call that was made.

use hesper_runtime::panics;

use crate::error::{Error, Result};

/// Calls a function of the user's. A panic becomes an error that names `what` was called; scopes and streams that the
/// function had entered are left on the way.
pub(crate) fn guarded<R, E: From<Error>>(what: &str, f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    panics::catch(f).unwrap_or_else(|message| Err(Error::Panicked { what: what.into(), message }.into()))
}
