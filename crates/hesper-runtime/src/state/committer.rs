//! The thread that submits.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// Its address identifies the thread. It has no destructor, so it is valid while a thread ends.
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

/// An identifier of the current thread, unique among live threads.
fn this_thread() -> usize {
    THREAD.with(|mark| mark as *const Cell<u8> as usize)
}

/// The thread that submits closed submissions of a runtime; 0 if there is none.
#[derive(Debug, Default)]
pub(crate) struct Committer(AtomicUsize);

/// Marks the current thread as submitting. It holds the lock `commit`.
pub(crate) struct Committing<'a>(&'a Committer);

impl Committer {
    /// Whether the current thread is submitting.
    pub(crate) fn is_current(&self) -> bool {
        // The tasks of the model checker share one thread.
        !cfg!(hesper_model) && self.0.load(Ordering::Relaxed) == this_thread()
    }

    pub(crate) fn enter(&self) -> Committing<'_> {
        self.0.store(this_thread(), Ordering::Relaxed);
        Committing(self)
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}
