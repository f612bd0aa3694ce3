//! Process exit and forked processes.
//!
//! At exit the driver destroys its contexts while threads may still be calling it, and such a thread crashes
//! the process. So every driver call is made inside of a gate ([`enter`]). At exit the gate is closed: no
//! thread enters any more, and exit waits for the threads inside, which takes as long as the work that they
//! wait for. An exit handler of the C library closes it. Handlers run in the reverse order of their
//! registration, and libraries register theirs at any time, the compiler during a compilation. So the handler
//! is registered again after each library's first use, and, on Linux, once more when the main thread exits:
//! its thread-locals are destroyed before the first handler runs. A program in which another thread calls
//! `exit` calls [`shut_down`] before.
//!
//! At a closed gate:
//!
//! | thread | outcome |
//! |---|---|
//! | the exiting thread | an error, so that its destructors continue |
//! | a [device thread](mark_device_thread) | an error, so that the work it holds fails and its waiters wake |
//! | a destructor ([`enter_to_release`]) | an error: the process frees the resource |
//! | any other thread | it blocks until the process has exited |
//!
//! A forked process has neither the driver's state nor the device threads. There the gate always returns an
//! error, and exit does not wait.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{CudaError, Result};

/// The longest time that exit waits for threads inside of the gate.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

static CLOSED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
/// The number of threads inside of the gate.
static THREADS_INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How deeply this thread is nested inside of the gate.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread gets an error at a closed gate: the exiting thread and device threads.
    static ERRORS_WHEN_CLOSED: Cell<bool> = const { Cell::new(false) };
    /// Registers the exit handler again when the main thread exits.
    static MAIN_THREAD_EXIT: MainThreadExit = const { MainThreadExit };
}

/// Its destructor runs when a thread ends, on the main thread at the start of `exit`.
struct MainThreadExit;

impl Drop for MainThreadExit {
    fn drop(&mut self) {
        if is_main_thread() {
            register_again();
        }
    }
}

/// Makes the exit of this thread register the handler again if it is the main thread.
fn watch_main_thread() {
    let _ = MAIN_THREAD_EXIT.try_with(|_| ());
}

/// Whether this is the thread that the process began with.
#[cfg(target_os = "linux")]
fn is_main_thread() -> bool {
    // SAFETY: both calls only return numbers.
    unsafe { libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) }
}

/// Elsewhere thread-locals of the main thread are not known to be destroyed before handlers run.
#[cfg(not(target_os = "linux"))]
fn is_main_thread() -> bool {
    false
}

unsafe extern "C" {
    /// `exit` calls `handler` before handlers that were registered earlier.
    fn atexit(handler: extern "C" fn()) -> c_int;
    /// The child of a fork calls `child`.
    #[cfg(unix)]
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Holds the gate open for the current thread.
pub(crate) struct DriverGuard(PhantomData<*const ()>);

/// Enters the gate; see the module for a closed one.
pub(crate) fn enter() -> Result<DriverGuard> {
    match try_enter() {
        Err(CudaError::ShuttingDown) if !ERRORS_WHEN_CLOSED.try_with(Cell::get).unwrap_or(true) => loop {
            thread::park();
        },
        outcome => outcome,
    }
}

/// Enters the gate to release a resource; a closed gate is an error on every thread.
pub(crate) fn enter_to_release() -> Result<DriverGuard> {
    try_enter()
}

fn try_enter() -> Result<DriverGuard> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CudaError::Forked);
    }
    // A thread that destroys its thread-locals has lost its depth: count it again.
    let outermost = DEPTH.try_with(|depth| depth.replace(depth.get() + 1) == 0).unwrap_or(true);
    if outermost {
        watch_main_thread();
        THREADS_INSIDE.fetch_add(1, Ordering::SeqCst);
    }
    let inside = DriverGuard(PhantomData);
    if outermost && CLOSED.load(Ordering::SeqCst) {
        return Err(CudaError::ShuttingDown);
    }
    Ok(inside)
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        let outermost = DEPTH
            .try_with(|depth| {
                depth.set(depth.get().saturating_sub(1));
                depth.get() == 0
            })
            .unwrap_or(true);
        if outermost {
            THREADS_INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Marks the current thread as a device thread.
pub(crate) fn mark_device_thread() {
    let _ = ERRORS_WHEN_CLOSED.try_with(|errors| errors.set(true));
}

/// Whether the gate is closed, so that threads may block at it forever.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst)
}

/// Whether this process was forked after a device had been opened.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Registers the exit handler and the fork handler. The driver must be loaded before: handlers run in reverse
/// order of registration.
pub(crate) fn register() {
    watch_main_thread();
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are plain functions.
        unsafe {
            atexit(close);
            #[cfg(unix)]
            pthread_atfork(None, None, Some(forked));
        }
    });
}

/// Registers the exit handler again, to run before the handlers of libraries that were loaded since.
pub(crate) fn register_again() {
    // SAFETY: the handler is a plain function.
    unsafe { atexit(close) };
}

/// Registers the exit handler again after the first call of a library, which may register handlers of its
/// own.
pub(crate) fn register_again_once(first: &Once) {
    first.call_once(register_again);
}

extern "C" fn close() {
    shut_down();
}

/// The child of a fork has one thread; the threads inside of the gate are those of the parent.
#[cfg(unix)]
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Closes the gate before process exit and waits for the threads inside. Submissions that are not launched
/// yet are not launched.
pub fn shut_down() {
    if is_forked() {
        return;
    }
    let _ = ERRORS_WHEN_CLOSED.try_with(|errors| errors.set(true));
    CLOSED.store(true, Ordering::SeqCst);
    let own = usize::from(DEPTH.try_with(Cell::get).unwrap_or(0) > 0);
    let begun = Instant::now();
    while THREADS_INSIDE.load(Ordering::SeqCst) > own && begun.elapsed() < EXIT_TIMEOUT {
        thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_once_however_deeply_it_is_nested() {
        let outer = enter().unwrap();
        let inner = enter().unwrap();
        assert!(THREADS_INSIDE.load(Ordering::SeqCst) >= 1);
        assert_eq!(DEPTH.with(Cell::get), 2);
        drop(inner);
        assert_eq!(DEPTH.with(Cell::get), 1);
        drop(outer);
        assert_eq!(DEPTH.with(Cell::get), 0);
    }

    /// Runs an ignored test of this module in a process of its own, since the gate is process-wide.
    fn in_child(name: &str) {
        let program = std::env::current_exe().unwrap();
        let child = std::process::Command::new(program)
            .args(["--ignored", "--exact", &format!("shutdown::tests::{name}")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success() && text.contains("1 passed"), "{}: {text}", child.status);
    }

    #[test]
    fn a_closed_gate_blocks_users_and_fails_destructors_and_device_threads() {
        in_child("closed_gate");
    }

    #[test]
    #[ignore = "closes the gate of its process; run by the test above"]
    fn closed_gate() {
        let (sender, receiver) = std::sync::mpsc::channel();
        shut_down();
        assert!(matches!(enter(), Err(CudaError::ShuttingDown)), "the thread that ends");
        assert!(matches!(enter_to_release(), Err(CudaError::ShuttingDown)));
        let (device, release) = (sender.clone(), sender.clone());
        thread::spawn(move || {
            mark_device_thread();
            device.send(("device", matches!(enter(), Err(CudaError::ShuttingDown)))).unwrap();
        });
        thread::spawn(move || {
            release.send(("release", matches!(enter_to_release(), Err(CudaError::ShuttingDown)))).unwrap();
        });
        thread::spawn(move || {
            let _ = enter();
            sender.send(("user", false)).unwrap();
        });
        let mut reported: Vec<_> =
            std::iter::from_fn(|| receiver.recv_timeout(Duration::from_millis(500)).ok()).collect();
        reported.sort_unstable();
        assert_eq!(reported, [("device", true), ("release", true)]);
        assert_eq!(THREADS_INSIDE.load(Ordering::SeqCst), 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_forked_process_gets_errors_and_its_exit_does_not_wait() {
        in_child("forked_gate");
    }

    #[cfg(unix)]
    #[test]
    #[ignore = "marks its process as forked; run by the test above"]
    fn forked_gate() {
        let parent = enter().unwrap();
        forked();
        assert!(matches!(enter(), Err(CudaError::Forked)));
        assert!(matches!(enter_to_release(), Err(CudaError::Forked)));
        let begun = Instant::now();
        thread::spawn(shut_down).join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "waited for a thread of the parent");
        drop(parent);
    }
}
