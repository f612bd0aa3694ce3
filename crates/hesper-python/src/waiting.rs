//! Waiting for the device without the interpreter's lock, in a way that Ctrl-C can end.
//!
//! Only Python's main thread handles signals. For a long wait it starts a helper thread that waits, and polls
//! for signals meanwhile; an interrupted computation runs to its end. A wait that is known to be short is
//! done in place, and so is one for a GPU if the last wait was short: switching threads would take longer.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SendError, Sender, channel, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hesper::{Array, HostArray};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::device;
use crate::error::{raise, usable};

/// Waits that end sooner than this are short.
const SHORT: Duration = Duration::from_millis(10);
/// How often the main thread polls for signals.
const LOOK: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this is the thread that handles signals.
    static MAIN: Cell<bool> = const { Cell::new(false) };
    /// What a signal's handler raised inside of [`throttled`].
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}
/// Whether the main thread's last wait was short.
static LAST_WAS_SHORT: AtomicBool = AtomicBool::new(false);

/// Set when the interpreter is about to end: from then on threads must not acquire its lock.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The number of threads that are about to reacquire the interpreter's lock.
static RETURNING: AtomicUsize = AtomicUsize::new(0);
/// How long the end of the interpreter waits for those.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the interpreter is about to end.
pub fn is_ending() -> bool {
    ENDING.load(Ordering::SeqCst)
}

/// Runs something without the interpreter's lock.
///
/// A thread that asks for the lock of an interpreter that ends is unwound by it, which native code does
/// not survive. So when the end has begun, a thread that comes back stays here instead.
pub fn detached<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(|| {
        let result = f();
        come_back();
        result
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Runs something with the interpreter's lock inside of what runs without it.
pub fn attached<T>(f: impl FnOnce(Python<'_>) -> T) -> T {
    come_back();
    Python::attach(|py| {
        RETURNING.fetch_sub(1, Ordering::SeqCst);
        f(py)
    })
}

/// Counts a thread as one that is about to acquire the interpreter's lock; blocks forever if the interpreter
/// ends.
fn come_back() {
    RETURNING.fetch_add(1, Ordering::SeqCst);
    if is_ending() && !on_main_thread() {
        RETURNING.fetch_sub(1, Ordering::SeqCst);
        loop {
            thread::park();
        }
    }
}

/// Calls `f` unless the interpreter is about to end; it does not end meanwhile. For threads without its lock.
pub fn unless_ending(f: impl FnOnce()) {
    RETURNING.fetch_add(1, Ordering::SeqCst);
    if !is_ending() {
        f();
    }
    RETURNING.fetch_sub(1, Ordering::SeqCst);
}

/// Called in the child after a fork: its one thread is the main thread, and no thread is about to return.
pub fn forked() {
    RETURNING.store(0, Ordering::SeqCst);
    // Its thread does not exist here.
    std::mem::forget(idle().take());
    MAIN.with(|main| main.set(true));
}

/// Called when the interpreter is about to end.
pub fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    // Threads that were about to acquire the lock get it now, and block at their next call.
    let begun = Instant::now();
    while RETURNING.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        py.detach(|| thread::sleep(Duration::from_millis(1)));
    }
}

fn on_main_thread() -> bool {
    MAIN.with(Cell::get)
}

/// Whether arrays can be waited for in place.
pub fn is_quick(arrays: &[Array]) -> bool {
    if device::on_host() { hesper::is_quick(arrays) } else { last_was_short() }
}

/// Whether the device is a GPU and the last wait was short, so the next one is done in place.
pub fn last_was_short() -> bool {
    !device::on_host() && LAST_WAS_SHORT.load(Ordering::Relaxed)
}

/// Runs something that may wait, without the interpreter's lock. `quick` says whether the wait is done in
/// place.
pub fn wait<T, F>(py: Python<'_>, quick: bool, f: F) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    if !on_main_thread() {
        return Ok(detached(py, f));
    }
    let started = Instant::now();
    let result = if quick {
        let result = detached(py, f);
        py.check_signals()?;
        result
    } else {
        interruptible(py, f)?
    };
    LAST_WAS_SHORT.store(started.elapsed() < SHORT, Ordering::Relaxed);
    Ok(result)
}

/// Runs something that waits only while too much is in flight, without the interpreter's lock. An interrupt
/// ends that wait, not `f`; it is returned with `f`'s result.
pub fn throttled<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> (T, PyResult<()>) {
    if !on_main_thread() {
        return (detached(py, f), Ok(()));
    }
    let result = detached(py, || hesper_runtime::interruptible(is_interrupted, f));
    (result, INTERRUPT.take().map_or(Ok(()), Err))
}

/// Whether a signal's handler has raised an exception, which is kept for the caller.
fn is_interrupted() -> bool {
    let raised = attached(|py| py.check_signals().err());
    INTERRUPT.with_borrow_mut(|interrupt| {
        *interrupt = interrupt.take().or(raised);
        interrupt.is_some()
    })
}

/// The work of a helper thread.
type Job = Box<dyn FnOnce() + Send>;

/// The helper of the last wait, if it was not interrupted.
static IDLE: Mutex<Option<Sender<Job>>> = Mutex::new(None);

fn idle() -> MutexGuard<'static, Option<Sender<Job>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs work on the idle helper, or on a new one.
fn help(job: Job) -> PyResult<Sender<Job>> {
    let Some(helper) = idle().take() else { return start(job) };
    match helper.send(job) {
        Ok(()) => Ok(helper),
        Err(SendError(job)) => start(job),
    }
}

fn start(job: Job) -> PyResult<Sender<Job>> {
    let (helper, jobs) = channel::<Job>();
    let spawned = thread::Builder::new().name("hesper-wait".into()).spawn(move || {
        job();
        jobs.into_iter().for_each(|job| job());
    });
    match spawned {
        Ok(_) => Ok(helper),
        Err(error) => Err(PyRuntimeError::new_err(format!("cannot start a thread to wait with: {error}"))),
    }
}

fn interruptible<T: Send + 'static>(py: Python<'_>, f: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (send, receive) = sync_channel(1);
    let mut receive = Some(receive);
    // The result of an interrupted wait has no receiver.
    let helper = help(Box::new(move || send.send(f()).unwrap_or_default()))?;
    loop {
        // The receiver is not Sync, so it is moved out and back.
        let receiver = receive.take();
        let (received, receiver) = detached(py, move || {
            let received = receiver.as_ref().map(|receiver| receiver.recv_timeout(LOOK));
            (received.unwrap_or(Err(RecvTimeoutError::Disconnected)), receiver)
        });
        receive = receiver;
        match received {
            Ok(result) => {
                *idle() = Some(helper);
                py.check_signals()?;
                return Ok(result);
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("cannot wait for the device: the waiting thread failed"));
            }
        }
    }
}

/// Evaluates arrays; an interrupt ends the wait.
pub fn computed(py: Python<'_>, arrays: Vec<Array>) -> PyResult<()> {
    usable()?;
    let quick = is_quick(&arrays);
    wait(py, quick, move || hesper::eval(&arrays))?.map_err(raise)
}

/// Evaluates an array without the interpreter's lock and returns its elements.
pub fn evaluated(py: Python<'_>, array: &Array) -> PyResult<HostArray> {
    usable()?;
    let array = array.clone();
    let quick = is_quick(std::slice::from_ref(&array));
    wait(py, quick, move || array.host_kept())?.map_err(raise)
}

/// Called by the thread that imports the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let threading = m.py().import("threading")?;
    let main = threading.call_method0("main_thread")?;
    let is_main = threading.call_method0("current_thread")?.is(&main);
    MAIN.with(|main| main.set(is_main));
    Ok(())
}
