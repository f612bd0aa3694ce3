//! The host: locks, and what its environment asks for.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, ignoring poison: critical sections keep their data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `HESPER_VALIDATE` asks for diagnostics.
pub(crate) fn is_validating() -> bool {
    std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0")
}
