//! Tests that switch or count what the process has one of (fusion, fallbacks, commands, memory, the random
//! key, running transformations): one at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod golden;
mod reference;
mod sim;
mod table;

mod fast_path;
mod inspect;
mod metal;
mod movement;
mod patterns;
mod producer_fusion;
mod random;
mod retry;
mod slots;
mod step_order;
mod third_backend;
mod written_kernels;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by a test while it runs.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
