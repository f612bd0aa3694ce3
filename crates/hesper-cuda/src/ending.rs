//! The end of the process, and what a forked process inherits.
//!
//! When a process ends, the driver takes its contexts apart while threads may still be calling it, and a thread that it
//! finds inside dies with the process. So every call of the driver is made [inside](enter) of a gate. At the end
//! the gate is closed: no thread comes in any more, and those that are in come out, which takes as long as the work that
//! they wait for. A handler of the C library's does so before the driver's own. Libraries that are loaded later have
//! handlers that come before it, so whoever knows that the process is about to end says so [himself](end).
//!
//! Who comes to a closed gate depends on what for:
//!
//! | who | what happens |
//! |---|---|
//! | the thread that ends the process | an error: its destructors go on |
//! | a [thread of the device](own_thread) | an error: the work that it holds fails, and nobody waits for it in vain |
//! | a destructor ([`enter_to_release`]) | an error: what it would give back goes with the process |
//! | any other thread | it stays there: the process ends under it |
//!
//! A forked process has neither the driver's state nor the device's threads. There the gate gives an error to everybody,
//! and the end waits for nobody.

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
static FORKED: AtomicBool = AtomicBool::new(false);
/// How many threads are inside.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread gets an error from a closed gate: it ends the process, or is the device's own.
    static GETS_ERRORS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    /// Of the C library: `handler` is called by `exit`, before those that were given earlier.
    fn atexit(handler: extern "C" fn()) -> c_int;
    /// Of the C library: `child` is called in each forked process.
    #[cfg(unix)]
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Being inside, until it is dropped.
pub(crate) struct Inside(PhantomData<*const ()>);

/// Comes in. At a closed gate see the module's table.
pub(crate) fn enter() -> Result<Inside> {
    match come_in() {
        Err(CudaError::Ending) if !GETS_ERRORS.try_with(Cell::get).unwrap_or(true) => loop {
            thread::park();
        },
        outcome => outcome,
    }
}

/// Comes in to give something back; a closed gate is an error on every thread.
pub(crate) fn enter_to_release() -> Result<Inside> {
    come_in()
}

fn come_in() -> Result<Inside> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CudaError::Forked);
    }
    // A thread whose own values are going has no depth any more: it comes in on its own account.
    let outermost = DEPTH.try_with(|depth| depth.replace(depth.get() + 1) == 0).unwrap_or(true);
    if outermost {
        INSIDE.fetch_add(1, Ordering::SeqCst);
    }
    let inside = Inside(PhantomData);
    if outermost && CLOSED.load(Ordering::SeqCst) {
        return Err(CudaError::Ending);
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

/// Says that the current thread is one of a device's own.
pub(crate) fn own_thread() {
    let _ = GETS_ERRORS.try_with(|errors| errors.set(true));
}

/// Whether the gate is closed: threads of the process may stay at it for good.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst)
}

/// Whether this is a process that was forked after a device had been opened.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Has the gate closed at the end of the process, and in forked ones. The driver must be loaded: handlers run from the
/// last to the first.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are plain functions of the program.
        unsafe {
            atexit(close);
            #[cfg(unix)]
            pthread_atfork(None, None, Some(forked));
        }
    });
}

/// The same, before the handlers of libraries that were loaded since.
pub(crate) fn watch_again() {
    // SAFETY: the handler is a plain function of the program.
    unsafe { atexit(close) };
}

/// The same once, after the first work of a library: that may have registered more handlers.
pub(crate) fn watch_after_first(first: &Once) {
    first.call_once(watch_again);
}

extern "C" fn close() {
    end();
}

/// The child of a fork has one thread; those that were inside are the parent's.
#[cfg(unix)]
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Says that the process is about to end: from now on no thread calls the driver. Waits until those that do are done
/// with it; what was not launched yet is not launched any more.
pub fn end() {
    if is_forked() {
        return;
    }
    let _ = GETS_ERRORS.try_with(|errors| errors.set(true));
    CLOSED.store(true, Ordering::SeqCst);
    let own = usize::from(DEPTH.try_with(Cell::get).unwrap_or(0) > 0);
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

    /// Runs one of this module's ignored tests in a process of its own: the gate is the process's.
    fn in_child(name: &str) {
        let program = std::env::current_exe().unwrap();
        let child = std::process::Command::new(program)
            .args(["--ignored", "--exact", &format!("ending::tests::{name}")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success() && text.contains("1 passed"), "{}: {text}", child.status);
    }

    #[test]
    fn a_closed_gate_stops_users_and_lets_destructors_and_device_threads_go_on() {
        in_child("closed_gate");
    }

    #[test]
    #[ignore = "closes the gate of its process; run by the test above"]
    fn closed_gate() {
        let (sender, receiver) = std::sync::mpsc::channel();
        end();
        assert!(matches!(enter(), Err(CudaError::Ending)), "the thread that ends");
        assert!(matches!(enter_to_release(), Err(CudaError::Ending)));
        let (device, release) = (sender.clone(), sender.clone());
        thread::spawn(move || {
            own_thread();
            device.send(("device", matches!(enter(), Err(CudaError::Ending)))).unwrap();
        });
        thread::spawn(move || {
            release.send(("release", matches!(enter_to_release(), Err(CudaError::Ending)))).unwrap();
        });
        thread::spawn(move || {
            let _ = enter();
            sender.send(("user", false)).unwrap();
        });
        let mut told: Vec<_> =
            std::iter::from_fn(|| receiver.recv_timeout(Duration::from_millis(500)).ok()).collect();
        told.sort_unstable();
        assert_eq!(told, [("device", true), ("release", true)]);
        assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_process_gets_errors_and_its_end_waits_for_nobody() {
        in_child("forked_gate");
    }

    #[cfg(unix)]
    #[test]
    #[ignore = "marks its process as forked; run by the test above"]
    fn forked_gate() {
        let parents = enter().unwrap();
        forked();
        assert!(matches!(enter(), Err(CudaError::Forked)));
        assert!(matches!(enter_to_release(), Err(CudaError::Forked)));
        let begun = Instant::now();
        thread::spawn(end).join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "waited for a thread of the parent");
        drop(parents);
    }
}
