//! Submission: closing, handing to the device, waiting, retiring.

use std::sync::Arc;

use crate::error::Fault;
use crate::state::{Batch, FaultCell, Ledger, Shared, StreamShared, Work};

impl Shared {
    /// Closes the open submission of a stream and submits everything that is closed. Returns the index of
    /// the stream's last closed submission.
    pub(crate) fn commit(self: &Arc<Shared>, stream: u64) -> u64 {
        self.submit_closed(None, |ledger| ledger.close_submission(self, stream))
    }

    /// The same for a caller that then waits for the stream's submissions up to `last`, and may run them
    /// itself.
    pub(crate) fn commit_awaited(self: &Arc<Shared>, stream: u64, last: u64) -> u64 {
        self.submit_closed(Some((stream, last)), |ledger| ledger.close_submission(self, stream))
    }

    pub(crate) fn commit_with_faults(self: &Arc<Shared>, stream: u64) -> (u64, FaultCell) {
        self.submit_closed(None, |ledger| ledger.close_for_commit(self, stream))
    }

    pub(crate) fn commit_all(self: &Arc<Shared>) {
        self.submit_closed(None, |ledger| ledger.close_all_submissions(self));
    }

    /// Submits closed submissions in order. A refused one is poisoned before the next one is submitted, so
    /// that nothing that depends on it runs. It is reported after the lock is released.
    fn submit_closed<R>(
        self: &Arc<Shared>,
        awaited: Option<(u64, u64)>,
        close: impl FnOnce(&mut Ledger) -> R,
    ) -> R {
        // A device may run a native command inside of `submit`, and that command may encode or drop a
        // stream. The loop below submits what it closes.
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
                self.trace.submitted(work.stream(), work.index(), work.len());
                // SAFETY: the work holds what it names, encoding checked that all of it belongs to this
                // device, and waits point backwards in the order of closed submissions.
                let outcome = unsafe { self.device.submit(work.raw_stream(), work) };
                if let Err((mut work, error)) = outcome {
                    work.poison(&error);
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

    /// Waits for a submission that the device has taken or refused.
    pub(crate) fn wait(&self, stream: &StreamShared, index: u64) {
        while !stream.is_done(index) {
            if !stream.has_refusal() {
                return stream.wait(index);
            }
            let target = self.ledger.lock().blocking_submission(stream.id(), index);
            match target {
                Some((other, last)) => other.wait_once(last),
                // Another thread is about to report a refused submission.
                None => stream.wait_for_report(index),
            }
        }
    }

    /// Retires a finished submission and wakes its waiters.
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
        for (other, completed, removed) in finished.others {
            other.publish(completed);
            drop(removed);
        }
        drop(finished.removed);
        self.relieve_pressure();
    }

    /// Handles the drop of a stream's last handle.
    pub(crate) fn orphan_stream(self: &Arc<Shared>, stream: &StreamShared) {
        let removed = self.submit_closed(None, |ledger| ledger.orphan(self, stream.id()));
        drop(removed);
    }
}
