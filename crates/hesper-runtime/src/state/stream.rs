//! The state of a stream: the device's stream and its progress.

use std::sync::Arc;

use super::device::Device;
use crate::raw::{Progress, RawStream};
use crate::sync::Counter;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state shared by the handles and submissions of a stream: the device's stream and its progress.
pub(crate) struct StreamShared {
    id: u64,
    raw: RawStream,
    device: Arc<dyn Device>,
    /// All submissions up to this one have completed.
    completed: Counter,
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
            completed: Counter::default(),
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

    /// Cancels the submissions up to this one.
    pub(crate) fn cancel(&self, index: u64) {
        self.cancelled.fetch_max(index, Ordering::AcqRel);
    }

    pub(crate) fn is_done(&self, index: u64) -> bool {
        self.completed.has_reached(index)
    }

    /// Publishes that all submissions up to `index` have completed.
    pub(crate) fn publish(&self, index: u64) {
        self.completed.raise(index);
    }

    pub(crate) fn note_refusal(&self) {
        self.refusal.store(true, Ordering::Release);
    }

    pub(crate) fn has_refusal(&self) -> bool {
        self.refusal.load(Ordering::Acquire)
    }

    /// Waits until another thread reports a submission.
    pub(crate) fn wait_for_report(&self, index: u64) {
        crate::sync::coop::pause();
        self.completed.wait_for(index);
    }

    /// Waits for a submission that the device has taken. [`Shared::wait`](super::Shared::wait) is for any
    /// submission.
    pub(crate) fn wait(&self, index: u64) {
        while !self.is_done(index) {
            self.wait_once(index);
        }
    }

    /// Runs a submission that the device has taken, or waits until another thread has finished it.
    pub(crate) fn wait_once(&self, index: u64) {
        crate::sync::coop::pause();
        if self.device.wait(self.raw, index) == Progress::Delegated {
            self.completed.wait_for(index);
        }
    }
}

impl Drop for StreamShared {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        // SAFETY: handles and submissions hold the stream, so all of its work is finished.
        unsafe { self.device.destroy_stream(self.raw) };
    }
}
