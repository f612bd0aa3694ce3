//! Streams, and the way of a submission: encoded, committed, completed, finished.
//!
//! A submission without native commands is one command buffer, encoded and committed inside of `submit`. The
//! GPU orders it: a fence behind what its stream committed before, events behind what it waits for on other
//! streams.
//!
//! A submission with native commands runs step by step once everything before it is finished: a command
//! buffer for each run of kernels, and the host for each run of native commands. Submissions behind it are
//! parked, and encoded when it is finished.
//!
//! Metal calls completion handlers on its own threads and in any order. Here submissions are finished in
//! stream order and after those that they waited for. [`pump`](MetalShared::pump) does whatever has become
//! possible; any thread may call it, except from inside of `submit`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hesper_runtime::{DeviceError, FaultKind, OpRef, RawStream, Scope, Work};

use crate::edge::{Buffer, CommandError, ErrorCode};
use crate::encode::{Encoded, Part};
use crate::error::{MetalError, Result, command_error};
use crate::event_pool::Signal;
use crate::host::lock;
use crate::report::Reports;
use crate::shared::MetalShared;
use crate::streams::{Action, Flight, MAX_COMMAND_BUFFERS, Stage, Step, StreamState};

/// The command buffers of one queue that have not completed, those that are being encoded among them. Metal
/// blocks the thread that asks for one more, which may be the one that calls completion handlers.
const QUEUE_ROOM: usize = 2 * MAX_COMMAND_BUFFERS;

fn is_native(work: &Work, index: usize) -> bool {
    matches!(work.command(index).op, OpRef::Native)
}

impl MetalShared {
    pub(crate) fn create_stream(&self) -> Result<RawStream> {
        let queue = self.edge.new_queue(QUEUE_ROOM).ok_or(MetalError::Refused("a command queue"))?;
        let Some(fence) = self.edge.new_fence() else {
            // SAFETY: made above, and named by nothing.
            unsafe { self.edge.release(queue.into()) };
            return Err(MetalError::Refused("a fence"));
        };
        let mut streams = lock(&self.streams);
        streams.next += 1;
        let id = streams.next;
        self.memory.add_queue(queue);
        streams.streams.insert(id, StreamState { queue, fence, fenced: false, flights: VecDeque::new() });
        Ok(RawStream(id))
    }

    /// # Safety
    /// All work of the stream is finished.
    pub(crate) unsafe fn destroy_stream(&self, stream: RawStream) {
        let removed = lock(&self.streams).streams.remove(&stream.0);
        if let Some(StreamState { queue, fence, .. }) = removed {
            // SAFETY: no command buffer of the stream is left.
            unsafe {
                self.edge.release(fence.into());
                self.edge.release(queue.into());
            }
        }
    }

    /// Takes work: commits it, or parks it.
    ///
    /// # Safety
    /// As for [`Device::submit`](hesper_runtime::Device::submit).
    pub(crate) unsafe fn take(
        self: &Arc<Self>,
        stream: RawStream,
        mut work: Work,
    ) -> Result<(), (Work, DeviceError)> {
        if let Err(error) = self.check_lost() {
            return Err((work, error));
        }
        let signal = match self.events.take() {
            Ok(signal) => signal,
            Err(error) => return Err((work, error.into())),
        };
        let waits: Vec<(u64, u64)> = work.waits().iter().map(|wait| (wait.raw.0, wait.index)).collect();
        let native = (0..work.len()).any(|index| is_native(&work, index));
        let index = work.index();
        let (place, wait_signals) = {
            let streams = lock(&self.streams);
            let place = streams.streams.get(&stream.0).map(|stream| {
                let now = !native && stream.can_commit(stream.flights.len());
                (stream.queue, stream.fence, stream.fenced, now)
            });
            (place, streams.signals(stream.0, usize::MAX, &waits))
        };
        let Some((queue, fence, fenced, now)) = place else {
            self.events.give_back_unused(signal);
            return Err((work, DeviceError::Failed("no such stream".into())));
        };
        let mut flight = Flight {
            index,
            work: None,
            signal,
            waits,
            native,
            stage: Stage::Parked,
            position: 0,
            error: None,
        };
        if !now {
            flight.work = Some(work);
            self.add_flight(stream.0, flight);
            let shared = self.clone();
            self.edge.run_async(Box::new(move || shared.pump()));
            return Ok(());
        }
        let range = 0..work.len();
        let part =
            Part { queue, fence, fenced, range: range.clone(), waits: &wait_signals, signal: Some(signal) };
        // SAFETY: the work owns what its commands name until it is finished, which is after the completion.
        match unsafe { self.encode(&mut work, part) } {
            Err(error) => {
                self.events.give_back_unused(signal);
                Err((work, error))
            }
            Ok(encoded) => {
                flight.work = Some(work);
                flight.stage = Stage::Committed;
                self.add_flight(stream.0, flight);
                // SAFETY: as above. The runtime submits one submission at a time, so nothing was committed in
                // between.
                unsafe { self.commit(encoded, stream.0, index, range) };
                Ok(())
            }
        }
    }

    fn add_flight(&self, stream: u64, flight: Flight) {
        if let Some(stream) = lock(&self.streams).streams.get_mut(&stream) {
            stream.flights.push_back(flight);
        }
    }

    /// Commits a command buffer with the commands `range` of a submission in flight.
    ///
    /// # Safety
    /// The submission owns what the command buffer names, and is in the stage `Committed`.
    unsafe fn commit(
        self: &Arc<Self>,
        (commands, reports): Encoded,
        stream: u64,
        index: u64,
        range: Range<usize>,
    ) {
        if let Some(stream) = lock(&self.streams).streams.get_mut(&stream) {
            stream.fenced = true;
        }
        let shared = self.clone();
        let handler = Box::new(move |outcome| shared.completed(stream, index, range, &reports, outcome));
        // SAFETY: upheld by the caller. Metal holds a committed command buffer until it has completed.
        unsafe {
            self.edge.on_completed(commands, handler);
            self.edge.commit(commands);
            self.edge.release(commands.into());
        }
        self.count_command_buffer();
    }

    /// Handles the completion of a command buffer.
    fn completed(
        self: &Arc<Self>,
        stream: u64,
        index: u64,
        range: Range<usize>,
        reports: &Reports,
        outcome: std::result::Result<(), CommandError>,
    ) {
        let error = outcome.err();
        if error.as_ref().is_some_and(|error| error.code == ErrorCode::OutOfMemory) {
            // Asking again needs the memory that the runtime keeps for reuse.
            self.memory.press();
        }
        let error = error.map(command_error);
        if let Some(DeviceError::Lost(cause)) = &error {
            self.lose(cause);
        }
        {
            let mut streams = lock(&self.streams);
            let Some(flight) = streams.streams.get_mut(&stream).and_then(|stream| stream.flight(index))
            else {
                return;
            };
            if let (None, Some(work)) = (&error, &mut flight.work) {
                reports.settle(work);
            }
            flight.end_part(range, error);
        }
        self.pump();
    }

    /// Does what has become possible: commits parked submissions, runs native commands, finishes submissions.
    pub(crate) fn pump(self: &Arc<Self>) {
        loop {
            let action = lock(&self.streams).next_action();
            match action {
                None => return,
                Some(Action::Finish { stream, index, work, signal, error }) => {
                    // Not earlier: who waits for this submission relies on those before it, too.
                    self.events.release_waiters(signal);
                    match error {
                        None => work.finish(),
                        Some(error) => work.fail(&error),
                    }
                    // The last reference to the stream may be gone, and the stream with it.
                    if let Some(stream) = lock(&self.streams).streams.get_mut(&stream) {
                        stream.flights.retain(|flight| flight.index != index);
                    }
                    self.events.give_back(signal);
                }
                Some(Action::Advance { step, work, waits, signal }) => {
                    self.advance(step, work, &waits, signal);
                }
            }
        }
    }

    /// Starts the next commands of a submission.
    fn advance(self: &Arc<Self>, step: Step, mut work: Work, waits: &[Signal], signal: Option<Signal>) {
        let start = step.position;
        if start < work.len() && is_native(&work, start) {
            let shared = self.clone();
            // A native command may take long, and this may be a thread of Metal.
            self.edge.run_async(Box::new(move || shared.run_native(step, work)));
            return;
        }
        let end = (start..work.len()).find(|index| is_native(&work, *index)).unwrap_or(work.len());
        let Step { queue, fence, fenced, .. } = step;
        let part = Part { queue, fence, fenced, range: start..end, waits, signal };
        let encoded = match self.check_lost() {
            // SAFETY: the work owns what its commands name until it is finished, which is after the
            // completion.
            Ok(()) => unsafe { self.encode(&mut work, part) },
            Err(error) => Err(error),
        };
        let mut streams = lock(&self.streams);
        let flight = streams.streams.get_mut(&step.stream).and_then(|stream| stream.flight(step.index));
        // A stream outlives its flights.
        let Some(flight) = flight else { return };
        flight.work = Some(work);
        match encoded {
            Ok(encoded) => {
                flight.stage = Stage::Committed;
                drop(streams);
                // SAFETY: as above.
                unsafe { self.commit(encoded, step.stream, step.index, start..end) };
            }
            Err(error) => {
                flight.end_part(start..end, Some(error));
            }
        }
    }

    /// Runs the native commands of a submission from its position on.
    fn run_native(self: &Arc<Self>, step: Step, mut work: Work) {
        let start = step.position;
        let end = (start..work.len()).find(|index| !is_native(&work, *index)).unwrap_or(work.len());
        for index in start..end {
            let command = work.command(index);
            let mut buffers = command.bindings.iter().map(|binding| Buffer(binding.memory().id));
            if let Err(message) = self.edge.access_on_host(&mut buffers) {
                let fault = work.fault_at(command.label, FaultKind::Failed, Scope::Command, message);
                work.fail_command(index, fault);
                continue;
            }
            // SAFETY: everything before the submission is finished, its commands run in order, and memory is
            // unified.
            unsafe { work.run_on_host(index, &|_, _| Err("not a native command".into())) };
        }
        {
            let mut streams = lock(&self.streams);
            let stream = streams.streams.get_mut(&step.stream);
            let Some(flight) = stream.and_then(|stream| stream.flight(step.index)) else { return };
            flight.work = Some(work);
            flight.end_part(start..end, None);
        }
        self.pump();
    }
}

impl Flight {
    /// Notes that the commands of `range` have ended, with an error or without.
    fn end_part(&mut self, range: Range<usize>, error: Option<DeviceError>) {
        let Some(work) = &mut self.work else { return };
        self.position = range.end;
        self.stage = if self.position == work.len() { Stage::Completed } else { Stage::Parked };
        match error {
            None => {}
            // A command buffer fails as a whole; parts of the submission before and after it do not.
            Some(error) if self.native && !matches!(error, DeviceError::Lost(_)) => {
                let label = match range.len() {
                    1 => work.command(range.start).label.to_string(),
                    count => format!("a command buffer of {count} commands"),
                };
                let fault = work.fault_at(&label, FaultKind::Failed, Scope::Submission, error.to_string());
                range.for_each(|index| work.fail_command(index, fault.clone()));
            }
            Some(error) => {
                self.error.get_or_insert(error);
            }
        }
    }
}
