//! Tests that run one at a time, since they seed the random key, switch fusion, or limit and measure the
//! memory of the process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decode_step;
mod training;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that a test holds while it runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
