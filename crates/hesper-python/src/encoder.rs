//! A thread that plans and encodes what ``async_eval`` starts, so that the caller builds its next graph
//! meanwhile.
//!
//! A graph is handed over if it will be computed by a GPU and if the one before it took long: handing over a
//! short one takes longer than encoding it. Nothing depends on the order in which graphs are encoded: a
//! thread that needs an array of a queued graph encodes that graph.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hesper::Array;
use pyo3::prelude::*;

use crate::started::remember_started;
use crate::{device, waiting};

/// Graphs that take longer to encode are handed over.
const LONG: Duration = Duration::from_micros(300);
/// Most graphs in the queue. Beyond that the caller encodes the graph, so a program that never waits does not
/// fill the memory.
const MAX_QUEUED: usize = 4;

/// Whether the last graph took long.
static LAST_WAS_LONG: AtomicBool = AtomicBool::new(false);
/// Set by tests: graphs are handed over on every device, however short they are.
static ALWAYS: AtomicBool = AtomicBool::new(false);

struct Queue {
    thread: Option<Sender<Vec<Array>>>,
    /// Graphs that were handed over and are not encoded yet.
    length: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { thread: None, length: 0 });
/// Notified when a graph is encoded.
static ENCODED: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `encode` and remembers whether it took long.
pub fn timed<T>(encode: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = encode();
    LAST_WAS_LONG.store(begun.elapsed() > LONG, Ordering::Relaxed);
    result
}

/// Starts computing arrays. Errors are reported later: by ``synchronize``, and when an array that they
/// concern is used.
fn encode(arrays: &[Array]) {
    let started = timed(|| hesper::async_eval(arrays));
    remember_started(arrays, started);
}

/// Counts a graph as encoded, also if that panicked.
struct Encoded;

impl Drop for Encoded {
    fn drop(&mut self) {
        queue().length -= 1;
        ENCODED.notify_all();
    }
}

fn start() -> Option<Sender<Vec<Array>>> {
    let (sender, graphs) = channel::<Vec<Array>>();
    let run = move || {
        for arrays in graphs {
            let _encoded = Encoded;
            if !waiting::is_ending() {
                let _ = hesper_runtime::panics::catch(|| encode(&arrays));
            }
            drop(arrays);
        }
    };
    thread::Builder::new().name("hesper-encode".into()).spawn(run).ok().map(|_| sender)
}

/// Hands arrays over to the thread that encodes. Gives them back if the caller has to encode them.
pub fn hand_over(arrays: Vec<Array>) -> Result<(), Vec<Array>> {
    let always = ALWAYS.load(Ordering::Relaxed);
    if !always && (device::on_host() || !LAST_WAS_LONG.load(Ordering::Relaxed)) {
        return Err(arrays);
    }
    let mut queue = queue();
    if queue.length >= MAX_QUEUED || waiting::is_ending() {
        return Err(arrays);
    }
    if queue.thread.is_none() {
        queue.thread = start();
    }
    let Some(thread) = &queue.thread else { return Err(arrays) };
    match thread.send(arrays) {
        Ok(()) => {
            queue.length += 1;
            Ok(())
        }
        Err(refused) => {
            queue.thread = None;
            Err(refused.0)
        }
    }
}

/// Waits until everything that was handed over is encoded.
pub fn drain() {
    let mut queue = queue();
    while queue.length > 0 {
        queue = ENCODED.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Called when the interpreter ends, which drops what is in the queue: waits for the graph that is being
/// encoded, for at most `patience`.
pub fn end(patience: Duration) {
    let limit = Instant::now() + patience;
    let mut queue = queue();
    while queue.length > 0 {
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        queue = ENCODED.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Called in the child after a fork: the thread does not exist here. Another thread may have held the lock.
pub fn forked() {
    if let Ok(mut queue) = QUEUE.try_lock() {
        std::mem::forget(queue.thread.take());
        queue.length = 0;
    }
}

/// Hands graphs over on every device, however short they are.
#[pyfunction]
fn _encode_apart(always: bool) {
    ALWAYS.store(always, Ordering::Relaxed);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_encode_apart, m)?)
}
