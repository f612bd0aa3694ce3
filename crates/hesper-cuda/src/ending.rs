//! The end of the process.
//!
//! When a process ends, the driver takes its contexts apart while threads may still be calling it, and a thread that it
//! finds inside dies with the process. So every call of the driver is made [inside](enter) of a gate. At the end
//! the gate is closed: no thread comes in any more, and those that are in come out, which takes as long as the work that
//! they wait for. A handler of the C library's does so before the driver's own. Libraries that are loaded later have
//! handlers that come before it, so whoever knows that the process is about to end says so [himself](end).

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{CudaError, Result};

/// How long the end waits for threads that call the driver.
const PATIENCE: Duration = Duration::from_secs(60);

static CLOSED: AtomicBool = AtomicBool::new(false);
/// How many threads are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread ends the process.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    /// Of the C library: `handler` is called by `exit`, before those that were given earlier.
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Being inside, until it is dropped.
pub(crate) struct Inside(PhantomData<*const ()>);

/// Comes in. Once the gate is closed, threads stay here for good, except for the one that ends the process.
pub(crate) fn enter() -> Result<Inside> {
    // A thread whose own values are going has no depth any more: it comes in on its own account.
    let outermost = DEPTH.try_with(|depth| depth.replace(depth.get() + 1) == 0).unwrap_or(true);
    if outermost {
        INSIDE.fetch_add(1, Ordering::SeqCst);
    }
    let inside = Inside(PhantomData);
    if outermost && CLOSED.load(Ordering::SeqCst) {
        drop(inside);
        if ENDS.try_with(Cell::get).unwrap_or(true) {
            return Err(CudaError::Ending);
        }
        loop {
            thread::park();
        }
    }
    Ok(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        let outermost = DEPTH
            .try_with(|depth| {
                depth.set(depth.get().saturating_sub(1));
                depth.get() == 0
            })
            .unwrap_or(true);
        if outermost {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Has the gate closed at the end of the process. The driver must be loaded: handlers run from the last to the first.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function of the program.
        unsafe { atexit(close) };
    });
}

/// The same, before the handlers of libraries that were loaded since.
pub(crate) fn watch_again() {
    // SAFETY: the handler is a plain function of the program.
    unsafe { atexit(close) };
}

extern "C" fn close() {
    end();
}

/// Says that the process is about to end: from now on no thread calls the driver. Waits until those that do are done
/// with it; what was not launched yet is not launched any more.
pub fn end() {
    ENDS.with(|ends| ends.set(true));
    CLOSED.store(true, Ordering::SeqCst);
    let own = usize::from(DEPTH.with(Cell::get) > 0);
    let begun = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > own && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_once_however_deep_it_is_inside() {
        let outer = enter().unwrap();
        let inner = enter().unwrap();
        assert!(INSIDE.load(Ordering::SeqCst) >= 1);
        assert_eq!(DEPTH.with(Cell::get), 2);
        drop(inner);
        assert_eq!(DEPTH.with(Cell::get), 1);
        drop(outer);
        assert_eq!(DEPTH.with(Cell::get), 0);
    }
}
