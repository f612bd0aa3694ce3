//! The way of a submission: closed, handed to the device, finished.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Fault;
use crate::ledger::{FaultCell, Ledger};
use crate::runtime::Shared;
use crate::stream::StreamShared;
use crate::work::{Batch, Work};

thread_local! {
    /// Its address names the thread. It has no destructor, so it can be used while a thread ends.
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

/// A name of the current thread that no other living thread has.
fn this_thread() -> usize {
    THREAD.with(|mark| mark as *const Cell<u8> as usize)
}

/// The thread that hands over the submissions of a runtime, 0 if there is none. Only that thread sees its own name.
#[derive(Debug, Default)]
pub(crate) struct Committer(AtomicUsize);

/// Marks the current thread as handing over the submissions of a runtime. It holds the lock `commit`.
struct Committing<'a>(&'a Committer);

impl Committer {
    /// Whether the current thread is at it already.
    fn is_current(&self) -> bool {
        // The model checker's tasks share one thread, whose name would say nothing.
        !cfg!(hesper_model) && self.0.load(Ordering::Relaxed) == this_thread()
    }

    fn enter(&self) -> Committing<'_> {
        self.0.store(this_thread(), Ordering::Relaxed);
        Committing(self)
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Closes and submits what a stream has open, and whatever else is closed. Gives the index of its
    /// last closed submission.
    pub(crate) fn commit(self: &Arc<Shared>, stream: u64) -> u64 {
        self.submit_closed(None, |ledger| ledger.close(self, stream))
    }

    /// The same for a caller who waits for the stream's submissions up to `last` next, and may then run them
    /// himself.
    pub(crate) fn commit_awaited(self: &Arc<Shared>, stream: u64, last: u64) -> u64 {
        self.submit_closed(Some((stream, last)), |ledger| ledger.close(self, stream))
    }

    pub(crate) fn commit_watched(self: &Arc<Shared>, stream: u64) -> (u64, FaultCell) {
        self.submit_closed(None, |ledger| ledger.close_watched(self, stream))
    }

    pub(crate) fn commit_all(self: &Arc<Shared>) {
        self.submit_closed(None, |ledger| ledger.close_all(self));
    }

    /// Hands closed submissions to the device in their order. A refused one is spoilt before the next
    /// is submitted, so that nothing that depends on it can run; it is reported after the lock is gone.
    fn submit_closed<R>(
        self: &Arc<Shared>,
        awaited: Option<(u64, u64)>,
        close: impl FnOnce(&mut Ledger) -> R,
    ) -> R {
        // A native command that its device runs while it takes the work may encode, or drop a stream:
        // what it closes goes out with the submissions that this thread is handing over.
        if self.committer.is_current() {
            return close(&mut self.ledger.lock());
        }
        let mut refused: Vec<Work> = Vec::new();
        let result = {
            let _commit = self.commit.lock();
            let _committing = self.committer.enter();
            let (result, mut next) = {
                let mut ledger = self.ledger.lock();
                (close(&mut ledger), ledger.next_closed())
            };
            while let Some(mut work) = next {
                if awaited.is_some_and(|(stream, last)| work.stream() == stream && work.index() <= last) {
                    work.set_awaited();
                }
                self.trace.submitted(&work);
                // SAFETY: the work holds what it names (its bindings and dispatches are references),
                // everything was checked to be this device's at encode time, and closed submissions
                // come in an order in which waits point backwards.
                let outcome = unsafe { self.device.submit(work.raw_stream(), work) };
                if let Err((mut work, error)) = outcome {
                    work.spoil(&error);
                    self.ledger.lock().refused(&work);
                    refused.push(work);
                }
                next = self.ledger.lock().next_closed();
            }
            result
        };
        refused.into_iter().for_each(Work::finish);
        result
    }

    /// Waits while too much of a stream is in flight.
    pub(crate) fn throttle(&self, stream: &StreamShared) {
        if crate::native::inside() {
            return;
        }
        let most = self.device.info().max_in_flight.max(1) as u64;
        let over = self.ledger.lock().over_limit(stream.id(), most);
        if let Some(index) = over {
            self.wait(stream, index);
        }
    }

    /// Waits for a submission that has been handed to the device, or refused by it.
    pub(crate) fn wait(&self, stream: &StreamShared, index: u64) {
        while !stream.is_done(index) {
            if !stream.has_refusal() {
                return stream.wait(index);
            }
            let target = self.ledger.lock().awaited(stream.id(), index);
            match target {
                Some((other, last)) => other.wait_once(last),
                // Whoever hands submissions over is about to report a refused one.
                None => stream.wait_for_report(index),
            }
        }
    }

    /// A submission is finished: whoever waits is told.
    pub(crate) fn retire(
        &self,
        stream: &StreamShared,
        index: u64,
        fault: Option<Fault>,
        mut recycled: Batch,
    ) {
        self.trace.finished(stream.id(), index, fault.as_ref());
        let finished = loop {
            let finished = self.ledger.lock().finished(stream.id(), index, &mut recycled);
            match finished {
                Some(finished) => break finished,
                None => recycled.leases.clear(),
            }
        };
        stream.publish(finished.completed);
        for (other, completed, over) in finished.others {
            other.publish(completed);
            drop(over);
        }
        drop(finished.over);
    }

    /// A stream's last handle is gone.
    pub(crate) fn abandon(self: &Arc<Shared>, stream: &StreamShared) {
        let over = self.submit_closed(None, |ledger| ledger.orphan(self, stream.id()));
        drop(over);
    }
}
