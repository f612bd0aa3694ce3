//! Submissions on their way to the driver.
//!
//! Launching takes the driver about as long as encoding takes us, so a thread of the device launches what nobody waits for
//! yet, while the next commands are encoded. Submissions are launched in the order in which they came, one at a time:
//! they are taken out of the list under the gate, whoever takes them. Who waits for one that was not launched yet helps, so
//! nothing depends on the thread's turn to come; who waits for an earlier one stays out of the thread's way.
//!
//! A submission in the list has been accepted. One that then cannot be launched [fails as a whole](CudaShared::fail_accepted)
//! in its place in the stream.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use hesper_runtime::{DeviceError, RawStream, Work};

use crate::device::{CudaShared, lock};
use crate::ending;

/// Machines with fewer cores launch on the thread that encodes.
const CORES: usize = 4;

#[derive(Default)]
struct Waiting {
    list: VecDeque<(RawStream, Work)>,
    /// What is being launched: its stream and index.
    launching: Option<(RawStream, u64)>,
    /// The thread sleeps.
    asleep: bool,
    /// The device is going.
    stop: bool,
}

/// The list of submissions that were not launched yet.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Its length, to be looked at without the lock.
    count: AtomicUsize,
    wake: Condvar,
    /// Held while a submission is taken out and launched.
    gate: Mutex<()>,
    pub(crate) in_use: bool,
}

impl Queue {
    pub(crate) fn new(in_use: bool) -> Self {
        Queue {
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            wake: Condvar::new(),
            gate: Mutex::new(()),
            in_use,
        }
    }

    /// Whether this machine has the cores for a thread that launches.
    pub(crate) fn pays() -> bool {
        std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= CORES)
    }

    /// Whether a submission, or one before it on its stream, was not launched yet.
    fn holds(&self, stream: RawStream, index: u64) -> bool {
        let waiting = lock(&self.waiting);
        let listed = waiting.list.iter().map(|(stream, work)| (*stream, work.index()));
        waiting
            .launching
            .into_iter()
            .chain(listed)
            .any(|(other, earlier)| other == stream && earlier <= index)
    }

    /// Ends the thread once the list is empty.
    pub(crate) fn stop(&self) {
        lock(&self.waiting).stop = true;
        self.wake.notify_all();
    }
}

impl CudaShared {
    /// Takes a submission: launches it if somebody is about to wait for it and it is its turn, else puts it at the end of
    /// the list.
    ///
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn enlist(
        self: &Arc<Self>,
        stream: RawStream,
        work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        let queue = &self.queue;
        if let Err(error) = self.check_lost() {
            return Err((work, error));
        }
        if work.is_awaited() {
            let gate = match queue.gate.try_lock() {
                Ok(gate) => Some(gate),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if gate.is_some() && queue.count.load(Ordering::Acquire) == 0 {
                // SAFETY: the caller's promise.
                return unsafe { self.submit(stream, work) };
            }
        }
        let mut waiting = lock(&queue.waiting);
        waiting.list.push_back((stream, work));
        queue.count.fetch_add(1, Ordering::AcqRel);
        if waiting.asleep {
            queue.wake.notify_one();
        }
        Ok(())
    }

    /// Launches what came first, if anything is left.
    fn launch_next(self: &Arc<Self>) -> bool {
        let queue = &self.queue;
        let gate = lock(&queue.gate);
        let next = {
            let mut waiting = lock(&queue.waiting);
            let next = waiting.list.pop_front();
            waiting.launching = next.as_ref().map(|(stream, work)| (*stream, work.index()));
            next
        };
        let Some((stream, work)) = next else { return false };
        let index = work.index();
        // SAFETY: it was handed over under the promises of `Device::submit`, in order, and the gate keeps the order.
        let outcome = unsafe { self.submit(stream, work) };
        let failed = outcome.is_err();
        if let Err((work, error)) = outcome {
            self.fail_accepted(stream, work, error);
        }
        lock(&queue.waiting).launching = None;
        queue.count.fetch_sub(1, Ordering::AcqRel);
        drop(gate);
        if failed {
            self.finish_failed(stream, index);
        }
        self.unload_released();
        true
    }

    /// Launches what is left, until a submission and all before it on its stream have been launched.
    pub(crate) fn launch_until(self: &Arc<Self>, stream: RawStream, index: u64) {
        while self.queue.count.load(Ordering::Acquire) > 0 && self.queue.holds(stream, index) {
            self.launch_next();
        }
    }

    /// The life of the thread that launches. A panic loses the device with the panic as its cause; what is still in the
    /// list then fails with it.
    pub(crate) fn keep_launching(self: Arc<Self>) {
        ending::own_thread();
        for _ in 0..2 {
            match catch_unwind(AssertUnwindSafe(|| self.launch_as_they_come())) {
                Ok(()) => return,
                Err(panic) => self.lose_by_panic("the thread that launches", &*panic),
            }
        }
    }

    fn launch_as_they_come(self: &Arc<Self>) {
        let queue = &self.queue;
        loop {
            #[cfg(test)]
            crate::fake::panic_point("launcher");
            if self.launch_next() {
                continue;
            }
            // Programs that encode go on encoding: look for a while before going to sleep.
            let begun = Instant::now();
            while queue.count.load(Ordering::Acquire) == 0 && begun.elapsed() < self.options.look {
                std::hint::spin_loop();
            }
            let mut waiting = lock(&queue.waiting);
            while waiting.list.is_empty() {
                if waiting.stop {
                    return;
                }
                waiting.asleep = true;
                waiting = queue.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                waiting.asleep = false;
            }
        }
    }
}
