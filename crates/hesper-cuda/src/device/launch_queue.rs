//! The queue of submissions that are not launched yet.
//!
//! Launching costs about as much time as encoding, so a device thread launches submissions while the next
//! commands are encoded. Submissions are launched in order: whichever thread takes one holds `launch_order`
//! until it is launched. A thread that waits for a submission that is not launched yet launches too, so no
//! wait depends on the launch thread; a thread that waits for an earlier one does not disturb it.
//!
//! Small submissions that have queued up are [launched together](super::submit). They complete together, so
//! only those that take the device microseconds are.
//!
//! A queued submission has been accepted. If it then cannot be launched, it [fails as a
//! whole](CudaShared::fail_accepted) in its position in the stream.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hesper_runtime::{DeviceError, OpRef, RawStream, Work, panics};

use super::CudaShared;
use crate::host::lock;
use crate::shutdown;

/// How long the launch thread spins for the next submission before it sleeps.
const SPIN: Duration = Duration::from_micros(500);
/// Machines with fewer cores launch on the encoding thread.
const MIN_CORES_FOR_LAUNCH_THREAD: usize = 4;

/// The most submissions that are launched together.
const MAX_TOGETHER: usize = 16;
/// The most commands of a small submission.
const SMALL_COMMANDS: usize = 4;
/// The most bytes that a small submission binds: a few microseconds for a device.
const SMALL_BYTES: usize = 16 << 20;

/// Whether a submission takes the device microseconds.
fn is_small(work: &Work) -> bool {
    let runs_on_device = |position: usize| !matches!(work.command(position).op, OpRef::Native);
    let bindings = || (0..work.len()).flat_map(|position| work.command(position).bindings);
    work.len() <= SMALL_COMMANDS
        && (0..work.len()).all(runs_on_device)
        && bindings().map(|binding| binding.len()).sum::<usize>() <= SMALL_BYTES
}

/// A submission that is not launched yet.
struct Queued {
    stream: RawStream,
    work: Work,
    small: bool,
}

#[derive(Default)]
struct LaunchQueueState {
    list: VecDeque<Queued>,
    /// The stream and index of the first submission that is being launched.
    launching: Option<(RawStream, u64)>,
    /// The launch thread sleeps.
    asleep: bool,
    /// The device is being dropped.
    stop: bool,
}

impl LaunchQueueState {
    /// Takes the oldest submission, and those that are launched together with it.
    fn next(&mut self) -> Option<(RawStream, Vec<Work>)> {
        let Queued { stream, work, small } = self.list.pop_front()?;
        let follows =
            |queued: &&Queued| queued.small && queued.stream == stream && queued.work.waits().is_empty();
        let behind = match small {
            true => self.list.iter().take(MAX_TOGETHER - 1).take_while(follows).count(),
            false => 0,
        };
        // Few sizes, so that graphs are found again.
        let together = match 1 + behind {
            together @ MAX_TOGETHER.. => together,
            together @ 8.. => together - together % 8,
            together => together,
        };
        let mut works = Vec::with_capacity(together);
        works.push(work);
        works.extend(self.list.drain(..together - 1).map(|queued| queued.work));
        self.launching = Some((stream, works[0].index()));
        Some((stream, works))
    }
}

/// The queue of accepted submissions.
pub(crate) struct LaunchQueue {
    state: Mutex<LaunchQueueState>,
    /// The number of submissions not launched, readable without the lock.
    count: AtomicUsize,
    wake: Condvar,
    /// Held while a submission is taken and launched.
    launch_order: Mutex<()>,
    pub(crate) enabled: bool,
}

impl LaunchQueue {
    pub(crate) fn new(enabled: bool) -> Self {
        LaunchQueue {
            state: Mutex::default(),
            count: AtomicUsize::new(0),
            wake: Condvar::new(),
            launch_order: Mutex::new(()),
            enabled,
        }
    }

    /// Whether this machine has enough cores for a launch thread.
    pub(crate) fn has_enough_cores() -> bool {
        std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= MIN_CORES_FOR_LAUNCH_THREAD)
    }

    /// Launches nothing until the result is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> std::sync::MutexGuard<'_, ()> {
        lock(&self.launch_order)
    }

    /// Whether a submission, or one before it on its stream, is not launched yet.
    fn holds(&self, stream: RawStream, index: u64) -> bool {
        let state = lock(&self.state);
        let listed = state.list.iter().map(|queued| (queued.stream, queued.work.index()));
        state.launching.into_iter().chain(listed).any(|(other, earlier)| other == stream && earlier <= index)
    }

    /// Ends the launch thread once the queue is empty.
    pub(crate) fn stop(&self) {
        lock(&self.state).stop = true;
        self.wake.notify_all();
    }
}

impl CudaShared {
    /// Takes a submission: launches it if the caller is about to wait for it and the queue is empty, else
    /// queues it.
    ///
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn enqueue_submission(
        self: &Arc<Self>,
        stream: RawStream,
        work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        let queue = &self.queue;
        if let Err(error) = self.check_lost() {
            return Err((work, error));
        }
        if work.is_awaited() {
            let launch_order = match queue.launch_order.try_lock() {
                Ok(launch_order) => Some(launch_order),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if launch_order.is_some() && queue.count.load(Ordering::Acquire) == 0 {
                // SAFETY: upheld by the caller.
                return unsafe { self.submit_one(stream, work) };
            }
        }
        let small = is_small(&work);
        let mut state = lock(&queue.state);
        state.list.push_back(Queued { stream, work, small });
        queue.count.fetch_add(1, Ordering::AcqRel);
        if state.asleep {
            queue.wake.notify_one();
        }
        Ok(())
    }

    /// Launches the oldest submission, and those that go with it; false if there is none.
    fn launch_next(self: &Arc<Self>) -> bool {
        let queue = &self.queue;
        let launch_order = lock(&queue.launch_order);
        let next = lock(&queue.state).next();
        let Some((stream, works)) = next else { return false };
        let (count, last) = (works.len(), works[works.len() - 1].index());
        // SAFETY: the submissions were queued under the contract of `Device::submit`, in order, and
        // `launch_order` keeps the order.
        let outcome = unsafe { self.submit(stream, works) };
        let failed = outcome.is_err();
        if let Err((works, error)) = outcome {
            works.into_iter().for_each(|work| self.fail_accepted(stream, work, error.clone()));
        }
        lock(&queue.state).launching = None;
        queue.count.fetch_sub(count, Ordering::AcqRel);
        drop(launch_order);
        if failed {
            self.finish_failed(stream, last);
        }
        self.unload_released();
        true
    }

    /// Launches submissions until the given one, and all before it on its stream, are launched.
    pub(crate) fn launch_until(self: &Arc<Self>, stream: RawStream, index: u64) {
        while self.queue.count.load(Ordering::Acquire) > 0 && self.queue.holds(stream, index) {
            self.launch_next();
        }
    }

    /// The main function of the launch thread. A panic marks the device as lost, and the loop runs again to
    /// fail what is queued.
    pub(crate) fn launch_loop(self: Arc<Self>) {
        shutdown::mark_device_thread();
        for _ in 0..2 {
            match panics::catch(|| self.run_launches()) {
                Ok(()) => return,
                Err(message) => self.lose_to_panic("the launch thread", message),
            }
        }
    }

    fn run_launches(self: &Arc<Self>) {
        let queue = &self.queue;
        loop {
            #[cfg(test)]
            crate::fake::panic_point("launcher");
            if self.launch_next() {
                continue;
            }
            // More submissions usually follow soon: spin before going to sleep.
            let begun = Instant::now();
            while queue.count.load(Ordering::Acquire) == 0 && begun.elapsed() < SPIN {
                std::hint::spin_loop();
            }
            let mut state = lock(&queue.state);
            while state.list.is_empty() {
                if state.stop {
                    return;
                }
                state.asleep = true;
                state = queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.asleep = false;
            }
        }
    }
}
