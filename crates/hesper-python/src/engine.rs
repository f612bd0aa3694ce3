//! The engine of the server: the native half of `hesper.lm.Engine`.
//!
//! The engine has a thread of its own, which never takes the interpreter's lock. A Python thread waits for
//! events without the lock; a coroutine is woken by one notifier thread, which hands callbacks to the event
//! loops.

use std::sync::mpsc::{RecvTimeoutError, SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hesper_serve::engine::{Engine, EngineOptions};
use hesper_serve::protocol::{
    Constraint, Event, Events, Failure, FailureKind, Finish, Generator, Health, Refusal, Request,
};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

use crate::lm::{LanguageModel_, SamplingOptions, refuse};
use crate::waiting::{attached, detached, wait};

/// How often a thread that waits polls for signals.
const SIGNALS: Duration = Duration::from_millis(50);

pyo3::create_exception!(
    hesper._core,
    EngineBusy,
    PyRuntimeError,
    "The queue of an engine is full. ``args[1]`` is the time in seconds after which there is likely to be room."
);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A limit in seconds; `name` says which.
fn seconds(name: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        PyValueError::new_err(format!("{name} must be a number of seconds from 0 on, not {given}"))
    })
}

/// Options of an engine, from Python's keywords.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    kv_memory: Option<u64>,
    kv_bits: Option<usize>,
    max_running: usize,
    max_waiting: usize,
    prefix_memory: Option<u64>,
}

/// Options of a request, from Python's keywords.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RequestOptions {
    max_tokens: usize,
    sampling: SamplingOptions,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    json_schema: Option<String>,
    regex: Option<String>,
    grammar: Option<String>,
    logprobs: Option<usize>,
    priority: i32,
    timeout: Option<f64>,
    cache_prompt: bool,
}

impl RequestOptions {
    fn constraint(&self) -> PyResult<Option<Constraint>> {
        let given = [
            self.json_schema.clone().map(Constraint::JsonSchema),
            self.regex.clone().map(Constraint::Regex),
            self.grammar.clone().map(Constraint::Lark),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (one, None) => Ok(one),
            _ => Err(PyValueError::new_err(
                "a text follows one of json_schema, regex and grammar, not several",
            )),
        }
    }

    fn request(self, id: String, prompt: Vec<u32>) -> PyResult<Request> {
        Ok(Request {
            id,
            prompt,
            max_tokens: self.max_tokens,
            constraint: self.constraint()?,
            sampling: self.sampling.into(),
            stops: self.stop,
            stop_tokens: self.stop_token_ids,
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            priority: self.priority,
            deadline: self.timeout.map(|limit| seconds("timeout", limit)).transpose()?,
            tenant: 0,
            use_prefix_cache: self.cache_prompt,
            embed: None,
        })
    }
}

fn refused(refusal: Refusal) -> PyErr {
    let message = refusal.to_string();
    match refusal {
        Refusal::Invalid(_) | Refusal::TooLarge { .. } => PyValueError::new_err(message),
        Refusal::QueueFull { retry_after, .. } => EngineBusy::new_err((message, retry_after.as_secs_f64())),
        Refusal::Unavailable(_) => PyRuntimeError::new_err(message),
    }
}

fn failed(failure: Failure) -> PyErr {
    match failure.kind {
        FailureKind::Request => PyValueError::new_err(failure.message),
        FailureKind::Deadline => PyTimeoutError::new_err(failure.message),
        FailureKind::OutOfMemory => PyMemoryError::new_err(failure.message),
        FailureKind::Lost | FailureKind::Stopping | FailureKind::Internal => {
            PyRuntimeError::new_err(failure.message)
        }
    }
}

/// Generates texts for many requests at once.
#[pyclass(module = "hesper._core", frozen)]
struct Engine_(Mutex<Option<Arc<Engine>>>);

impl Engine_ {
    fn engine(&self) -> PyResult<Arc<Engine>> {
        if hesper_runtime::fork::is_forked() {
            // Its thread does not exist here, and a lock of it may be held forever.
            return Err(PyRuntimeError::new_err("cannot use an engine in a forked process: start one there"));
        }
        lock(&self.0).clone().ok_or_else(|| PyRuntimeError::new_err("cannot use the engine: it is closed"))
    }
}

#[pymethods]
impl Engine_ {
    /// Starts an engine.
    #[new]
    fn new(py: Python<'_>, model: &LanguageModel_, options: Settings) -> PyResult<Self> {
        let options = EngineOptions {
            kv_bytes: options.kv_memory,
            kv_bits: options.kv_bits,
            max_running: options.max_running,
            max_waiting: options.max_waiting,
            prefix_bytes: options.prefix_memory,
            ..EngineOptions::default()
        };
        let language = model.0.clone();
        let engine = detached(py, || Engine::start(language, options)).map_err(refuse)?;
        Ok(Engine_(Mutex::new(Some(Arc::new(engine)))))
    }

    /// Submits a request.
    fn submit(
        &self,
        py: Python<'_>,
        id: String,
        prompt: Vec<u32>,
        options: RequestOptions,
    ) -> PyResult<Events_> {
        let engine = self.engine()?;
        let request = options.request(id, prompt)?;
        // Compiling a grammar takes a while.
        let events = detached(py, || engine.submit(request)).map_err(refused)?;
        Ok(Events_ {
            engine: Arc::downgrade(&engine),
            id: events.id.clone(),
            events: Mutex::new(Some(Arc::new(events))),
        })
    }

    /// The state of the engine, and what it says about it.
    fn health(&self, py: Python<'_>) -> PyResult<(&'static str, String)> {
        let Some(engine) = lock(&self.0).clone() else { return Ok(("closed", String::new())) };
        Ok(match detached(py, || engine.health()) {
            Health::Ok => ("ok", String::new()),
            Health::Loading { what } => ("loading", what),
            Health::Stalled { seconds } => ("stalled", format!("a step has been running for {seconds:.0} s")),
            Health::LostDevice { cause } => ("lost_device", cause),
            Health::Stopping => ("stopping", String::new()),
        })
    }

    /// Counters and the state of every request, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let engine = self.engine()?;
        detached(py, || serde_json::to_string(&engine.snapshot()))
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Refuses new requests, lets those that run end within a time, and fails the others.
    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let limit = seconds("timeout", timeout)?;
        if hesper_runtime::fork::is_forked() {
            return Ok(());
        }
        let Some(engine) = lock(&self.0).take() else { return Ok(()) };
        wait(py, false, move || engine.drain(limit))
    }
}

/// What happened: a token with its text and probabilities, or the end with its reason and counts.
#[derive(IntoPyObject)]
enum Happened {
    Token((u32, String, Option<f32>, Vec<(u32, f32)>)),
    End((&'static str, (usize, usize, usize))),
}

/// The events of a request. Dropping it cancels the request.
#[pyclass(module = "hesper._core", frozen)]
struct Events_ {
    engine: std::sync::Weak<Engine>,
    id: String,
    events: Mutex<Option<Arc<Events>>>,
}

impl Events_ {
    fn events(&self) -> Option<Arc<Events>> {
        lock(&self.events).clone()
    }

    /// What an event means to Python; `None` if nothing.
    fn read(&self, event: Option<Event>) -> PyResult<Option<Happened>> {
        match event {
            Some(Event::Started { .. } | Event::Embedding(_)) => Ok(None),
            Some(Event::Token(token)) => {
                Ok(Some(Happened::Token((token.id, token.text, token.logprob, token.top))))
            }
            Some(Event::Done { finish, usage }) => {
                lock(&self.events).take();
                let finish = match finish {
                    Finish::Stop => "stop",
                    Finish::Length => "length",
                    Finish::Cancelled => "cancelled",
                };
                let usage = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens);
                Ok(Some(Happened::End((finish, usage))))
            }
            Some(Event::Failed(failure)) => {
                lock(&self.events).take();
                Err(failed(failure))
            }
            None => {
                lock(&self.events).take();
                Ok(Some(Happened::End(("cancelled", (0, 0, 0)))))
            }
        }
    }
}

#[pymethods]
impl Events_ {
    /// Waits for the next event. `None` after the end.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Happened>> {
        while let Some(events) = self.events() {
            let event = match detached(py, || events.next_within(SIGNALS)) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Disconnected) => None,
                Err(RecvTimeoutError::Timeout) => {
                    py.check_signals()?;
                    continue;
                }
            };
            if let Some(happened) = self.read(event)? {
                return Ok(Some(happened));
            }
        }
        Ok(None)
    }

    /// The next event if there is one, as `(True, event)`, with `None` after the end. Otherwise `(False,
    /// None)`, and `callback` is called in the event loop when there is one.
    fn poll(
        &self,
        event_loop: Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
    ) -> PyResult<(bool, Option<Happened>)> {
        let notice = Notice(Mutex::new(Some((event_loop.unbind(), callback.unbind()))));
        let waker = Waker::from(Arc::new(notice));
        while let Some(events) = self.events() {
            match events.poll_next(&Context::from_waker(&waker)) {
                Poll::Pending => return Ok((false, None)),
                Poll::Ready(event) => {
                    if let Some(happened) = self.read(event)? {
                        return Ok((true, Some(happened)));
                    }
                }
            }
        }
        Ok((true, None))
    }

    /// Cancels the request. Who waits for its events learns that it was cancelled.
    fn cancel(&self, py: Python<'_>) {
        if let Some(engine) = self.engine.upgrade().filter(|_| self.events().is_some()) {
            detached(py, || engine.cancel(&self.id));
        }
    }
}

/// A callback that a notifier thread hands to an event loop.
struct Notice(Mutex<Option<LoopCall>>);

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        if let Some((event_loop, callback)) = lock(&self.0).take() {
            notify(event_loop, callback);
        }
    }
}

/// An event loop, and what to call in it.
type LoopCall = (Py<PyAny>, Py<PyAny>);

/// The queue of the notifier thread.
static NOTIFIER: Mutex<Option<Sender<LoopCall>>> = Mutex::new(None);

/// Calls `callback` in an event loop soon. The engine's thread must not wait for the interpreter's lock, so
/// another one does.
fn notify(event_loop: Py<PyAny>, callback: Py<PyAny>) {
    let mut notifier = lock(&NOTIFIER);
    let sender = notifier.get_or_insert_with(|| {
        let (sender, receiver) = channel::<LoopCall>();
        let run = move || {
            for first in &receiver {
                attached(|py| {
                    for (event_loop, callback) in std::iter::once(first).chain(receiver.try_iter()) {
                        call_soon(py, &event_loop, &callback);
                    }
                });
            }
        };
        // Without a thread the queue has no receiver, and sending fails.
        let _ = std::thread::Builder::new().name("hesper-notify".into()).spawn(run);
        sender
    });
    if let Err(SendError((event_loop, callback))) = sender.send((event_loop, callback)) {
        // The thread could not be started.
        *notifier = None;
        drop(notifier);
        attached(|py| call_soon(py, &event_loop, &callback));
    }
}

fn call_soon(py: Python<'_>, event_loop: &Py<PyAny>, callback: &Py<PyAny>) {
    // Nobody waits in a loop that is closed.
    let _ = event_loop.bind(py).call_method1("call_soon_threadsafe", (callback,));
}

/// Called in the child after a fork, where the notifier thread does not exist.
pub fn forked() {
    if let Ok(mut notifier) = NOTIFIER.try_lock() {
        std::mem::forget(notifier.take());
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("_Engine", m.py().get_type::<Engine_>())?;
    m.add("_EngineBusy", m.py().get_type::<EngineBusy>())
}
