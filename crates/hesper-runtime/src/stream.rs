//! Streams and submissions: the order of work.
//!
//! Commands enter a stream's open submission; it is committed when it is full, when somebody asks, and
//! before anybody waits. Any thread may encode on, commit or wait for any stream.

use std::fmt;
use std::sync::Arc;

use crate::block::Buffer;
use crate::device::{Device, Progress, RawStream};
use crate::encoder::Encoder;
use crate::error::{Fault, Result};
use crate::label::Label;
use crate::ledger::FaultCell;
use crate::pool::Taker;
use crate::runtime::Shared;
use crate::sync::Signal;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What everybody who works for a stream shares: the device's stream and how far it has come.
pub(crate) struct StreamShared {
    id: u64,
    raw: RawStream,
    device: Arc<dyn Device>,
    completed: AtomicU64,
    changed: Signal,
    cancelled: AtomicU64,
    /// The device has refused a submission of the stream.
    refusal: AtomicBool,
}

impl StreamShared {
    pub(crate) fn new(id: u64, raw: RawStream, device: Arc<dyn Device>) -> Self {
        StreamShared {
            id,
            raw,
            device,
            completed: AtomicU64::new(0),
            changed: Signal::default(),
            cancelled: AtomicU64::new(0),
            refusal: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// Whether the submission was cancelled.
    pub(crate) fn cancelled(&self, index: u64) -> bool {
        index <= self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn is_done(&self, index: u64) -> bool {
        index <= self.completed.load(Ordering::Acquire)
    }

    /// Publishes that everything up to `index` is finished.
    pub(crate) fn publish(&self, index: u64) {
        self.completed.fetch_max(index, Ordering::AcqRel);
        self.changed.notify();
    }

    pub(crate) fn note_refusal(&self) {
        self.refusal.store(true, Ordering::Release);
    }

    pub(crate) fn has_refusal(&self) -> bool {
        self.refusal.load(Ordering::Acquire)
    }

    /// Waits until a submission is reported by another thread.
    pub(crate) fn wait_for_report(&self, index: u64) {
        crate::sync::coop::pause();
        self.changed.wait_until(|| self.is_done(index));
    }

    /// Waits for a submission that the device has taken. [`Shared::wait`] is for any submission.
    pub(crate) fn wait(&self, index: u64) {
        while !self.is_done(index) {
            self.wait_once(index);
        }
    }

    /// Helps with a submission that the device has taken, or waits until another thread has finished it.
    pub(crate) fn wait_once(&self, index: u64) {
        crate::sync::coop::pause();
        if self.device.wait(self.raw, index) == Progress::Elsewhere {
            self.changed.wait_until(|| self.is_done(index));
        }
    }
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        // SAFETY: a stream is dropped when its last handle is gone and its last submission, which
        // holds it too, is finished.
        unsafe { self.device.destroy_stream(self.raw) };
    }
}

/// A queue of commands on a device.
///
/// Streams are cheap and free-threaded: clones are handles on the same stream, on any thread.
/// Commands of one stream take effect as if in encode order; commands of different streams run
/// side by side, except where one needs what another computes: that is found by itself.
///
/// ```
/// # use hesper_runtime::{sim::Sim, Runtime};
/// let runtime = Runtime::new(Sim::new(1));
/// let stream = runtime.stream()?;
/// let numbers = runtime.upload(&[1u8, 2, 3])?;
/// let doubled = stream.alloc(3)?;
/// stream.encode("double").read(&numbers).write(&doubled).run(|native| {
///     let [from, to] = native.take()?;
///     for (to, from) in to.bytes_mut()?.iter_mut().zip(from.bytes()?) {
///         *to = 2 * from;
///     }
///     Ok(())
/// })?;
/// assert_eq!(doubled.read()?.bytes(), [2, 4, 6]);
/// # Ok::<(), hesper_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<StreamHandle>);

pub(crate) struct StreamHandle {
    shared: Arc<Shared>,
    stream: Arc<StreamShared>,
}

impl Stream {
    pub(crate) fn new(shared: Arc<Shared>, stream: Arc<StreamShared>) -> Self {
        Stream(Arc::new(StreamHandle { shared, stream }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// A number that no other stream of the process has.
    pub fn id(&self) -> u64 {
        self.0.stream.id
    }

    /// The runtime it belongs to.
    pub fn runtime(&self) -> crate::Runtime {
        crate::Runtime::from_shared(self.0.shared.clone())
    }

    /// Begins a command.
    pub fn encode(&self, label: impl Into<Label>) -> Encoder<'_> {
        Encoder::new(self, label.into())
    }

    /// A buffer for work on this stream. It may be memory that earlier commands of this stream
    /// still use: later ones are ordered behind them.
    #[track_caller]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.alloc_labelled(len, "")
    }

    /// The same with a label for diagnosis.
    #[track_caller]
    pub fn alloc_labelled(&self, len: usize, label: impl Into<Label>) -> Result<Buffer> {
        Shared::alloc(&self.0.shared, len, Taker::Stream(self.id()), label.into())
    }

    /// Hands everything encoded so far to the device, and gives the submission to wait for. Waits itself
    /// only if too much of this stream is in flight.
    pub fn commit(&self) -> Result<Submission> {
        let (index, fault) = self.0.shared.commit_watched(self.id());
        self.0.shared.throttle(&self.0.stream);
        Ok(Submission { shared: self.0.shared.clone(), stream: self.0.stream.clone(), index, fault })
    }

    /// Commits if the open submission is full.
    pub(crate) fn commit_full(&self) {
        self.0.shared.commit(self.id());
        self.0.shared.throttle(&self.0.stream);
    }

    /// Waits until everything encoded so far is finished, well or not. The fault of a result is told
    /// by the result; this gives an error only if the device is lost.
    pub fn synchronize(&self) -> Result<()> {
        crate::native::refuse_inside("Stream::synchronize")?;
        let index = self.0.shared.commit_awaited(self.id(), u64::MAX);
        self.0.shared.wait(&self.0.stream, index);
        match self.0.shared.lost() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }

    /// Cancels what has been encoded so far and has not begun to run. What it would have written
    /// is spoilt with a fault of kind [`Cancelled`](crate::FaultKind::Cancelled).
    pub fn cancel(&self) {
        let index = self.0.shared.commit(self.id());
        self.0.stream.cancelled.fetch_max(index, Ordering::AcqRel);
    }

    /// Closes the stream: what was encoded runs to its end, further commands are refused.
    pub fn close(&self) {
        self.0.shared.commit(self.id());
        self.0.shared.ledger.lock().shut(self.id());
    }

    /// How many submissions are in flight.
    pub fn in_flight(&self) -> u64 {
        self.0.shared.ledger.lock().in_flight(self.id())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.shared.abandon(&self.stream);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.id())
    }
}

/// A point in a stream: everything that was encoded before it was committed.
#[derive(Clone)]
pub struct Submission {
    shared: Arc<Shared>,
    stream: Arc<StreamShared>,
    index: u64,
    fault: FaultCell,
}

impl Submission {
    /// Its index on its stream; indices only grow.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Whether it is finished. Does not wait.
    pub fn is_done(&self) -> bool {
        if !self.stream.is_done(self.index) {
            self.shared.device.poll();
        }
        self.stream.is_done(self.index)
    }

    /// Waits until it is finished; an error is its first fault, each time it is asked.
    pub fn wait(&self) -> Result<()> {
        crate::native::refuse_inside("Submission::wait")?;
        self.shared.wait(&self.stream, self.index);
        match self.fault.get() {
            Some(fault) => Err(fault.clone().into()),
            None => Ok(()),
        }
    }

    /// Its first fault, if it is finished and has one.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submission(stream {}, index {})", self.stream.id, self.index)
    }
}
