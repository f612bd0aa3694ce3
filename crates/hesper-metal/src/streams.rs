//! Streams and their submissions in flight: where each is, and what can be done next.

use std::collections::{BTreeMap, VecDeque};

use hesper_runtime::{DeviceError, Work};

use crate::edge::{Fence, Queue};
use crate::event_pool::Signal;

/// The submissions of one queue that the GPU has.
pub(crate) const MAX_COMMAND_BUFFERS: usize = 64;
/// Where a submission is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not encoded, or waiting for its next step.
    Parked,
    /// A thread encodes it or runs its native commands.
    Busy,
    /// The GPU has it.
    Committed,
    /// All of its commands have ended.
    Completed,
    /// A thread finishes it.
    Finishing,
}

/// A submission in flight.
pub(crate) struct Flight {
    pub(crate) index: u64,
    /// `None` while a thread has it.
    pub(crate) work: Option<Work>,
    /// What other streams wait for.
    pub(crate) signal: Signal,
    /// The submissions it waits for: stream and index.
    pub(crate) waits: Vec<(u64, u64)>,
    /// Whether it has native commands.
    pub(crate) native: bool,
    pub(crate) stage: Stage,
    /// The commands that have ended.
    pub(crate) position: usize,
    pub(crate) error: Option<DeviceError>,
}

pub(crate) struct StreamState {
    pub(crate) queue: Queue,
    pub(crate) fence: Fence,
    /// Whether a command buffer was committed, which updates the fence.
    pub(crate) fenced: bool,
    pub(crate) flights: VecDeque<Flight>,
}

impl StreamState {
    pub(crate) fn flight(&mut self, index: u64) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.index == index)
    }

    /// Whether a submission at `position` of the queue, which has no native commands, can be committed now.
    pub(crate) fn can_commit(&self, position: usize) -> bool {
        let committed = self.flights.iter().filter(|flight| flight.stage == Stage::Committed).count();
        let mut ahead = self.flights.iter().take(position);
        committed < MAX_COMMAND_BUFFERS
            && ahead.all(|flight| !flight.native && !matches!(flight.stage, Stage::Parked | Stage::Busy))
    }
}

/// The streams of a device.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) streams: BTreeMap<u64, StreamState>,
    pub(crate) next: u64,
}

impl Streams {
    pub(crate) fn queues(&self) -> Vec<Queue> {
        self.streams.values().map(|stream| stream.queue).collect()
    }

    pub(crate) fn is_finished(&self, stream: u64, index: u64) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_none_or(|stream| stream.flights.iter().all(|flight| flight.index != index))
    }

    /// What the unfinished submissions signal that a submission at `position` of a stream waits for: its own
    /// `waits`, and those of the submissions before it. The runtime counts on the latter by stream order, but
    /// a command buffer that cannot be encoded or does not run waits for nothing.
    pub(crate) fn signals(&self, stream: u64, position: usize, waits: &[(u64, u64)]) -> Vec<Signal> {
        let signal = |(stream, index): &(u64, u64)| {
            let mut flights = self.streams.get(stream)?.flights.iter();
            flights.find(|flight| flight.index == *index).map(|flight| flight.signal)
        };
        let before =
            self.streams.get(&stream).into_iter().flat_map(|stream| stream.flights.iter().take(position));
        let all = before.flat_map(|flight| &flight.waits).chain(waits);
        let mut signals: Vec<Signal> = Vec::new();
        for signal in all.filter_map(signal) {
            if !signals.contains(&signal) {
                signals.push(signal);
            }
        }
        signals
    }

    /// Takes the next thing to do.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        let (id, position) = self.streams.iter().find_map(|(id, stream)| {
            let at = stream
                .flights
                .iter()
                .position(|flight| !matches!(flight.stage, Stage::Committed | Stage::Finishing))?;
            let flight = &stream.flights[at];
            let released = || flight.waits.iter().all(|(stream, index)| self.is_finished(*stream, *index));
            let possible = match flight.stage {
                Stage::Completed => at == 0 && released(),
                Stage::Parked if flight.native => at == 0 && released(),
                Stage::Parked => stream.can_commit(at),
                _ => false,
            };
            // Behind a completed submission that cannot be finished yet, a parked one may still be committed.
            let parked = || {
                let parked = stream.flights.iter().position(|flight| flight.stage == Stage::Parked)?;
                (!stream.flights[parked].native && stream.can_commit(parked)).then_some(parked)
            };
            let at = if possible { Some(at) } else { parked() };
            at.map(|at| (*id, at))
        })?;
        let waits = self.streams.get(&id).map(|stream| stream.flights[position].waits.clone());
        let signals = self.signals(id, position, &waits.unwrap_or_default());
        let stream = self.streams.get_mut(&id)?;
        let (queue, fence, fenced) = (stream.queue, stream.fence, stream.fenced);
        let flight = &mut stream.flights[position];
        let finishes = flight.stage == Stage::Completed;
        flight.stage = if finishes { Stage::Finishing } else { Stage::Busy };
        let work = flight.work.take()?;
        let (stream, index, signal, native) = (id, flight.index, flight.signal, flight.native);
        Some(match finishes {
            true => Action::Finish { stream, index, work, signal, error: flight.error.take() },
            false => {
                let step = Step { stream, index, queue, fence, fenced, position: flight.position };
                Action::Advance { step, work, waits: signals, signal: (!native).then_some(signal) }
            }
        })
    }
}

/// The next commands of a submission.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) stream: u64,
    pub(crate) index: u64,
    pub(crate) queue: Queue,
    pub(crate) fence: Fence,
    pub(crate) fenced: bool,
    pub(crate) position: usize,
}

pub(crate) enum Action {
    Finish { stream: u64, index: u64, work: Work, signal: Signal, error: Option<DeviceError> },
    Advance { step: Step, work: Work, waits: Vec<Signal>, signal: Option<Signal> },
}
