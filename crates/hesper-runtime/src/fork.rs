//! Forked processes.
//!
//! A forked process has a copy of its parent's memory and only the thread that called `fork`. The device
//! threads do not exist, and a lock that another thread held stays locked. So a process that was forked from
//! one with an open runtime refuses every call before it takes a lock, and its destructors leak.
//!
//! Device crates call [`forked`] in the child.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

static OPENED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Records that a runtime was opened.
pub(crate) fn opened() {
    OPENED.store(true, Ordering::Relaxed);
}

/// Records that this process has just been forked. Safe in a handler of `pthread_atfork`.
pub fn forked() {
    if OPENED.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

/// Whether this process was forked from one with an open runtime.
#[inline]
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Fails in a process that was forked from one with an open runtime.
#[inline]
pub fn check() -> Result<()> {
    if is_forked() { Err(Error::Forked) } else { Ok(()) }
}
