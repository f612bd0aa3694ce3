//! Tests that seed the random key, switch fusion, or limit and measure the memory of the process: one at a
//! time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod decode_step;
mod training;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by a test while it runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
