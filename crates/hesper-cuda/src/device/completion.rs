//! Completion: detecting that submissions have completed, and finishing them.
//!
//! A thread that waits for a submission waits for its event. One device thread finishes submissions that no
//! thread waits for. It sleeps while nothing is in flight and otherwise polls: only memory for other streams
//! depends on it, and a wait in the driver for each submission would delay the threads that launch. No CUDA
//! callback is used. No lock is held while work is finished, since that runs destructors, which call the
//! device.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hesper_runtime::{DeviceError, Progress, Work, panics};

use super::CudaShared;
use crate::bounds_report::Reports;
use crate::dependent_launch::MemoryRange;
use crate::error::{CudaError, Result};
use crate::event::Event;
use crate::graph::Graph;
use crate::host::lock;
use crate::in_flight::InFlight;
use crate::shutdown;

/// The interval between polls of the device thread: at first, and after repeated polls without progress.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// A submission, the graphs that run it, and the reports of its launches.
pub(crate) struct SubmittedWork {
    work: Work,
    graphs: Vec<Arc<Graph>>,
    /// Out-of-range writes that its kernels dropped.
    reports: Option<Reports>,
    /// The error that failed it as a whole.
    failed: Option<DeviceError>,
    /// The ranges that it writes, recorded for the validation of dependent launches.
    pub(crate) writes: Vec<MemoryRange>,
}

impl SubmittedWork {
    pub(crate) fn new(
        work: Work,
        graphs: Vec<Arc<Graph>>,
        reports: Reports,
        writes: Vec<MemoryRange>,
    ) -> Self {
        SubmittedWork { work, graphs, reports: Some(reports), failed: None, writes }
    }

    /// A submission that was not launched, or launched in part and drained.
    pub(crate) fn failed(work: Work, error: DeviceError) -> Self {
        SubmittedWork { work, graphs: Vec::new(), reports: None, failed: Some(error), writes: Vec::new() }
    }
}

/// The work in flight and the state of the device thread.
pub(crate) struct CompletionState {
    pub(crate) in_flight: InFlight<Arc<Event>, SubmittedWork>,
    /// The device thread sleeps.
    pub(crate) parked: bool,
    /// The device is being dropped.
    pub(crate) stop: bool,
}

impl CompletionState {
    pub(crate) fn new() -> Self {
        CompletionState { in_flight: InFlight::new(), parked: false, stop: false }
    }
}

impl CudaShared {
    /// Marks the device as lost: everything in flight is completed, and every later call returns the first
    /// cause.
    pub(crate) fn lose(&self, error: &CudaError) -> DeviceError {
        let cause = self.lost.get_or_init(|| error.to_string()).clone();
        lock(&self.state).in_flight.lose();
        self.wake.notify_one();
        DeviceError::Lost(cause)
    }

    /// Marks the device as lost because one of its threads panicked.
    pub(crate) fn lose_to_panic(&self, what: &'static str, message: String) {
        self.lose(&CudaError::Panicked { what, message });
    }

    /// In a forked process: marks everything in flight as lost, unless a thread of the parent held the lock.
    pub(crate) fn lose_to_fork(&self) -> Progress {
        self.lost.get_or_init(|| CudaError::Forked.to_string());
        match self.state.try_lock() {
            Ok(mut state) => state.in_flight.lose(),
            Err(_) => return Progress::Delegated,
        }
        if self.finish_completed() { Progress::Done } else { Progress::Delegated }
    }

    /// Waits for a submission and finishes it.
    pub(crate) fn wait(&self, stream: u64, index: u64) -> Progress {
        let event = lock(&self.state).in_flight.event(stream, index);
        if let Some(event) = event {
            match self.wait_for(&event) {
                Ok(()) => lock(&self.state).in_flight.collect(stream, index),
                Err(error) => {
                    self.lose(&error);
                }
            }
        }
        if self.finish_completed() { Progress::Done } else { Progress::Delegated }
    }

    /// Finishes completed work; returns whether there was any.
    pub(crate) fn poll(&self) -> bool {
        // On an error the device is lost, and everything in flight can be finished.
        let some = self.collect_completed().unwrap_or(true);
        self.finish_completed();
        some
    }

    fn wait_for(&self, event: &Event) -> Result<()> {
        let current = self.context.enter()?;
        event.wait(&current, self.options.spin)
    }

    /// Moves all completed work to the completed list; returns whether there was any.
    fn collect_completed(&self) -> Result<bool, DeviceError> {
        let mut some = false;
        loop {
            let probes = lock(&self.state).in_flight.probes();
            if probes.is_empty() {
                return Ok(some);
            }
            let current = match self.context.enter() {
                Ok(current) => current,
                // Waiting threads detect completion themselves.
                Err(CudaError::ShuttingDown) => return Ok(some),
                Err(error) => return Err(self.lose(&error)),
            };
            let mut progress = false;
            for of_stream in probes {
                for ((stream, index), event) in of_stream {
                    if event.done(&current).map_err(|error| self.lose(&error))? {
                        lock(&self.state).in_flight.collect(stream, index);
                        progress = true;
                        break;
                    }
                }
            }
            if !progress {
                return Ok(some);
            }
            some = true;
        }
    }

    /// Finishes the work on the completed list. False if another thread is finishing it.
    fn finish_completed(&self) -> bool {
        if !lock(&self.state).in_flight.begin_finishing() {
            return false;
        }
        loop {
            let next = lock(&self.state).in_flight.next_completed();
            let Some(completed) = next else { return true };
            let SubmittedWork { mut work, graphs, reports, failed, .. } = completed.work;
            // User hooks and destructors run here; a panic of one must not stop completion.
            let _ = panics::catch(|| {
                match (failed, self.lost.get()) {
                    (Some(error), _) => work.fail(&error),
                    (None, Some(cause)) if completed.lost => work.fail(&DeviceError::Lost(cause.clone())),
                    _ => {
                        if let Some(reports) = &reports {
                            reports.settle(&mut work);
                        }
                        work.finish();
                    }
                }
                drop((graphs, reports));
            });
        }
    }

    /// The main function of the device thread. A panic marks the device as lost, and the loop runs again to
    /// finish what was in flight.
    pub(crate) fn completion_loop(self: Arc<Self>) {
        shutdown::mark_device_thread();
        for _ in 0..2 {
            match panics::catch(|| self.run_completion()) {
                Ok(()) => return,
                Err(message) => self.lose_to_panic("the completion thread", message),
            }
        }
    }

    fn run_completion(&self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            #[cfg(test)]
            crate::fake::panic_point("completion");
            let mut state = lock(&self.state);
            while state.in_flight.in_flight() == 0 && !state.in_flight.has_unclaimed() {
                if state.stop || shutdown::is_closed() {
                    return;
                }
                state.parked = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.parked = false;
                pause = SHORTEST_PAUSE;
            }
            drop(self.wake.wait_timeout(state, pause));
            if shutdown::is_closed() {
                return;
            }
            pause = if self.poll() { SHORTEST_PAUSE } else { LONGEST_PAUSE.min(2 * pause) };
        }
    }
}
