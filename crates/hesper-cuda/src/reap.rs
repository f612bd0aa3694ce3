//! Completion: who notices it, and who finishes the work.
//!
//! Whoever waits for a submission waits for its event on his own thread. What nobody waits for is
//! noticed by one thread of the device, which sleeps while nothing is in flight and otherwise looks from
//! time to time: nothing but memory for other streams waits for it, and a wait in the driver for each
//! submission would hold up the threads that launch. Neither calls CUDA from a callback, and no lock is
//! held while work is finished: that runs destructors, which come back to the device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hesper_runtime::{DeviceError, Progress, Work};

use crate::device::{CudaShared, lock};
use crate::early::Range;
use crate::ending;
use crate::error::{CudaError, Result, panic_words};
use crate::event::Event;
use crate::flight::Flights;
use crate::graph::Graph;
use crate::report::Reports;

/// How long the device's thread sleeps between two looks: first, and when much that it looked for is not over.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// A submission, the graphs that run it, and what its launches report.
pub(crate) struct InFlight {
    work: Work,
    graphs: Vec<Arc<Graph>>,
    /// Writes out of range that its kernels may have dropped.
    reports: Option<Reports>,
    /// Why it failed as a whole, if it did.
    failed: Option<DeviceError>,
    /// What it writes, where early launches are checked.
    pub(crate) writes: Vec<Range>,
}

impl InFlight {
    pub(crate) fn new(work: Work, graphs: Vec<Arc<Graph>>, reports: Reports, writes: Vec<Range>) -> Self {
        InFlight { work, graphs, reports: Some(reports), failed: None, writes }
    }

    /// A submission that was not launched, or only in part, and of which nothing runs any more.
    pub(crate) fn failed(work: Work, error: DeviceError) -> Self {
        InFlight { work, graphs: Vec::new(), reports: None, failed: Some(error), writes: Vec::new() }
    }
}

/// What is in flight, and the state of the thread that looks after it.
pub(crate) struct State {
    pub(crate) flights: Flights<Arc<Event>, InFlight>,
    /// The reaper sleeps.
    pub(crate) parked: bool,
    /// The device is going.
    pub(crate) stop: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        State { flights: Flights::new(), parked: false, stop: false }
    }
}

impl CudaShared {
    /// The device is lost: everything in flight is over, and every later call gets the first cause.
    pub(crate) fn lose(&self, error: &CudaError) -> DeviceError {
        let cause = self.lost.get_or_init(|| error.to_string()).clone();
        lock(&self.state).flights.lose();
        self.wake.notify_one();
        DeviceError::Lost(cause)
    }

    /// The device is lost by a panic of one of its threads.
    pub(crate) fn lose_by_panic(&self, what: &'static str, panic: &(dyn std::any::Any + Send)) {
        self.lose(&CudaError::Panicked { what, message: panic_words(panic) });
    }

    /// In a forked process: everything that was in flight is lost, as far as the threads of the parent have left the
    /// books open.
    pub(crate) fn lose_by_fork(&self) -> Progress {
        self.lost.get_or_init(|| CudaError::Forked.to_string());
        match self.state.try_lock() {
            Ok(mut state) => state.flights.lose(),
            Err(_) => return Progress::Elsewhere,
        }
        if self.finish_landed() { Progress::Done } else { Progress::Elsewhere }
    }

    /// Waits for a submission and finishes it.
    pub(crate) fn wait(&self, stream: u64, index: u64) -> Progress {
        let event = lock(&self.state).flights.event(stream, index);
        if let Some(event) = event {
            match self.wait_for(&event) {
                Ok(()) => lock(&self.state).flights.collect(stream, index),
                Err(error) => {
                    self.lose(&error);
                }
            }
        }
        if self.finish_landed() { Progress::Done } else { Progress::Elsewhere }
    }

    /// Finishes what has completed; tells whether there was any.
    pub(crate) fn poll(&self) -> bool {
        // An error says that the device is lost: then everything in flight is ready to be finished.
        let some = self.collect_completed().unwrap_or(true);
        self.finish_landed();
        some
    }

    fn wait_for(&self, event: &Event) -> Result<()> {
        let current = self.context.enter()?;
        event.wait(&current, self.options.look)
    }

    /// Moves all completed work to the list of finished work; tells whether there was any.
    fn collect_completed(&self) -> Result<bool, DeviceError> {
        let mut some = false;
        loop {
            let probes = lock(&self.state).flights.probes();
            if probes.is_empty() {
                return Ok(some);
            }
            let current = match self.context.enter() {
                Ok(current) => current,
                // Who still waits sees the end of his work himself.
                Err(CudaError::Ending) => return Ok(some),
                Err(error) => return Err(self.lose(&error)),
            };
            let mut progress = false;
            for of_stream in probes {
                for ((stream, index), event) in of_stream {
                    if event.done(&current).map_err(|error| self.lose(&error))? {
                        lock(&self.state).flights.collect(stream, index);
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

    /// Finishes the work on the list. False if another thread is at it.
    fn finish_landed(&self) -> bool {
        if !lock(&self.state).flights.begin_finishing() {
            return false;
        }
        loop {
            let next = lock(&self.state).flights.next_landed();
            let Some(landed) = next else { return true };
            let InFlight { mut work, graphs, reports, failed, .. } = landed.work;
            // Hooks and destructors of others run here; a panic of theirs must not end completion.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                match (failed, self.lost.get()) {
                    (Some(error), _) => work.fail(&error),
                    (None, Some(cause)) if landed.lost => work.fail(&DeviceError::Lost(cause.clone())),
                    _ => {
                        if let Some(reports) = &reports {
                            reports.settle(&mut work);
                        }
                        work.finish();
                    }
                }
                drop((graphs, reports));
            }));
        }
    }

    /// The life of the device's thread. A panic loses the device with the panic as its cause, and what was in flight is
    /// still finished.
    pub(crate) fn reap(self: Arc<Self>) {
        ending::own_thread();
        for _ in 0..2 {
            match catch_unwind(AssertUnwindSafe(|| self.look_after_flights())) {
                Ok(()) => return,
                Err(panic) => self.lose_by_panic("the thread that finishes submissions", &*panic),
            }
        }
    }

    fn look_after_flights(&self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            #[cfg(test)]
            crate::fake::panic_point("reaper");
            let mut state = lock(&self.state);
            while state.flights.in_flight() == 0 && !state.flights.has_unattended() {
                if state.stop || ending::is_closed() {
                    return;
                }
                state.parked = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.parked = false;
                pause = SHORTEST_PAUSE;
            }
            drop(self.wake.wait_timeout(state, pause));
            if ending::is_closed() {
                return;
            }
            pause = if self.poll() { SHORTEST_PAUSE } else { LONGEST_PAUSE.min(2 * pause) };
        }
    }
}
