//! What was started and not waited for, so that its failure is reported.
//!
//! Submissions of a stream retire in order, so those that have retired are at the front of its queue. Nothing
//! here asks the device: this runs with every `async_eval`.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Mutex, PoisonError};

use hesper::{Array, Error};
use hesper_runtime::{Stream, Submission};
use pyo3::PyErr;

use crate::error::raise;

/// What was started on a stream.
#[derive(Default)]
struct Started {
    running: VecDeque<Submission>,
    /// The first failure.
    failed: Option<Error>,
}

impl Started {
    /// Drops submissions that have retired; keeps the first failure.
    fn forget_retired(&mut self) {
        while let Some(retired) = self.running.pop_front_if(|first| first.is_retired()) {
            if self.failed.is_none() {
                self.failed = retired.fault().map(|fault| hesper_runtime::Error::from(fault.clone()).into());
            }
        }
    }

    fn is_over(&self) -> bool {
        self.running.is_empty() && self.failed.is_none()
    }
}

/// What was started, by stream.
struct Streams {
    streams: Option<HashMap<u64, Started>>,
    /// The number of streams at which those with nothing to report are removed.
    limit: usize,
}

/// The least number of streams at which streams are removed.
const MIN_LIMIT: usize = 16;

static STREAMS: Mutex<Streams> = Mutex::new(Streams { streams: None, limit: MIN_LIMIT });

/// Remembers what was started, or why it could not be.
pub fn remember_started(arrays: &[Array], started: hesper::Result<Vec<Submission>>) {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    match started {
        Ok(submissions) => {
            for submission in submissions {
                if !submission.is_retired() || submission.fault().is_some() {
                    streams.of(submission.stream()).running.push_back(submission);
                }
            }
        }
        Err(error) => {
            let stream = arrays.first().map_or(0, |array| array.stream().id());
            streams.of(stream).failed.get_or_insert(error);
        }
    }
}

impl Streams {
    /// What was started on a stream, without what has retired.
    fn of(&mut self, stream: u64) -> &mut Started {
        let streams = self.streams.get_or_insert_default();
        if streams.len() >= self.limit {
            streams.retain(|_, started| {
                started.forget_retired();
                !started.is_over()
            });
            self.limit = MIN_LIMIT.max(2 * streams.len());
        }
        let started = streams.entry(stream).or_default();
        started.forget_retired();
        started
    }
}

/// The first error of what was started on a stream, which has finished. It is reported once.
pub fn take_error(stream: &Stream) -> Option<PyErr> {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let Entry::Occupied(entry) = streams.streams.as_mut()?.entry(stream.id()) else { return None };
    let mut started = entry.remove();
    drop(streams);
    started.forget_retired();
    started.failed.map(raise)
}
