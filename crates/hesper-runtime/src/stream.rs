//! Streams and submissions: the order of work.
//!
//! Commands enter a stream's open submission. It is committed when it is full, on request, and before a
//! wait. Any thread may encode on, commit or wait for any stream.

use std::fmt;
use std::sync::Arc;

use crate::error::{Fault, Result};
use crate::label::Label;
use crate::runtime::Runtime;
use crate::state::{Buffer, FaultCell, Requester, Shared, StreamShared, new_id};

/// A queue of commands on a device.
///
/// Streams are cheap and free-threaded: clones are handles to the same stream, on any thread.
/// Commands of one stream take effect as if in encode order. Commands of different streams run
/// concurrently, except where the runtime finds a hazard between them.
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

    /// A number unique among the streams of the process.
    pub fn id(&self) -> u64 {
        self.0.stream.id()
    }

    /// The runtime it belongs to.
    pub fn runtime(&self) -> Runtime {
        Runtime::from_shared(self.0.shared.clone())
    }

    /// What is kept with its runtime: see [`Runtime::attached`](crate::Runtime::attached).
    pub fn attached<T: std::any::Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.0.shared.attached()
    }

    /// Allocates a buffer for work on this stream. Earlier commands of the stream may still use the memory;
    /// later ones are ordered behind them.
    #[track_caller]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.alloc_labelled(len, "")
    }

    /// As [`alloc`](Stream::alloc), with a label for diagnostics.
    #[track_caller]
    pub fn alloc_labelled(&self, len: usize, label: impl Into<Label>) -> Result<Buffer> {
        Shared::alloc(&self.0.shared, len, Requester::Stream(self.id()), label.into())
    }

    /// Submits everything encoded so far and returns the submission to wait for. Waits only if too many
    /// submissions of this stream are in flight.
    pub fn commit(&self) -> Result<Submission> {
        crate::fork::check()?;
        let (index, fault) = self.0.shared.commit_with_faults(self.id());
        self.0.shared.throttle(&self.0.stream);
        Ok(Submission { shared: self.0.shared.clone(), stream: self.0.stream.clone(), index, fault })
    }

    /// As [`commit`](Stream::commit), if anything was encoded since the commit before.
    pub fn commit_new(&self) -> Result<Option<Submission>> {
        crate::fork::check()?;
        let is_new = self.0.shared.ledger.lock().has_uncommitted(self.id());
        if is_new { self.commit().map(Some) } else { Ok(None) }
    }

    /// Submits the open submission, which is full.
    pub(crate) fn commit_full(&self) {
        self.0.shared.commit(self.id());
        self.0.shared.throttle(&self.0.stream);
    }

    /// Waits until everything encoded so far has finished or failed. Fails only if the device is lost;
    /// results report other faults.
    pub fn synchronize(&self) -> Result<()> {
        crate::fork::check()?;
        crate::native::refuse_inside("Stream::synchronize")?;
        let index = self.0.shared.commit_awaited(self.id(), u64::MAX);
        self.0.shared.wait(&self.0.stream, index);
        match self.0.shared.lost() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }

    /// Cancels commands encoded so far that have not started. The buffers they would have written are
    /// poisoned with a fault of kind [`Cancelled`](crate::FaultKind::Cancelled).
    pub fn cancel(&self) {
        if crate::fork::is_forked() {
            return;
        }
        let index = self.0.shared.commit(self.id());
        self.0.stream.cancel(index);
    }

    /// Closes the stream: encoded commands still run, further ones are refused.
    pub fn close(&self) {
        if crate::fork::is_forked() {
            return;
        }
        self.0.shared.commit(self.id());
        self.0.shared.ledger.lock().close_stream(self.id());
    }

    /// The number of submissions in flight.
    pub fn in_flight(&self) -> u64 {
        self.0.shared.ledger.lock().in_flight(self.id())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if !crate::fork::is_forked() {
            self.shared.orphan_stream(&self.stream);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.id())
    }
}

/// A point in a stream: everything encoded before a commit.
#[derive(Clone)]
pub struct Submission {
    shared: Arc<Shared>,
    stream: Arc<StreamShared>,
    index: u64,
    fault: FaultCell,
}

impl Submission {
    /// The id of its stream.
    pub fn stream(&self) -> u64 {
        self.stream.id()
    }

    /// Its index on its stream; indices increase.
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

    /// Whether the runtime knows that it is finished. Unlike [`is_done`](Submission::is_done) it does not ask
    /// the device, so it costs no more than a load.
    pub fn is_retired(&self) -> bool {
        self.stream.is_done(self.index)
    }

    /// Waits until it is finished. Every call returns its first fault.
    pub fn wait(&self) -> Result<()> {
        crate::fork::check()?;
        crate::native::refuse_inside("Submission::wait")?;
        self.shared.wait(&self.stream, self.index);
        match self.fault.get() {
            Some(fault) => Err(fault.clone().into()),
            None => Ok(()),
        }
    }

    /// Its first fault, if it has finished with one.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Submission(stream {}, index {})", self.stream.id(), self.index)
    }
}

impl Runtime {
    /// Opens a stream.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.shared().clone(), self.shared().open_stream()?))
    }
}

impl Shared {
    fn open_stream(&self) -> Result<Arc<StreamShared>> {
        crate::fork::check()?;
        if let Some(fault) = self.lost() {
            return Err(fault.into());
        }
        let raw = self.device.create_stream().map_err(|error| self.device_error("create a stream", error))?;
        let stream = Arc::new(StreamShared::new(new_id(), raw, self.device.clone()));
        self.ledger.lock().add_stream(stream.clone());
        Ok(stream)
    }
}
