//! What was started and not waited for, so that its failure is reported.

use std::sync::{Mutex, PoisonError};

use hesper::{Array, Error};
use hesper_runtime::{Stream, Submission};
use pyo3::PyErr;

use crate::error::raise;

/// Remembers what was started, or why it could not be.
pub fn remember_started(arrays: &[Array], started: hesper::Result<Vec<Submission>>) {
    match started {
        Ok(submissions) => remember(submissions.into_iter().map(Started::Running)),
        Err(error) => {
            let stream = arrays.first().map_or(0, |array| array.stream().id());
            remember([Started::Failed(stream, error)]);
        }
    }
}

/// What was started and not waited for.
enum Started {
    Running(Submission),
    /// It could not be started: the stream, and why.
    Failed(u64, Error),
}

impl Started {
    fn stream(&self) -> u64 {
        match self {
            Started::Running(submission) => submission.stream(),
            Started::Failed(stream, _) => *stream,
        }
    }

    fn has_failed(&self) -> bool {
        match self {
            Started::Running(submission) => submission.fault().is_some(),
            Started::Failed(..) => true,
        }
    }
}

/// What is running, and of each stream the first that failed.
static STARTED: Mutex<Vec<Started>> = Mutex::new(Vec::new());

fn remember(new: impl IntoIterator<Item = Started>) {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    forget_finished(&mut started);
    for new in new {
        if !started.iter().any(|one| one.stream() == new.stream() && one.has_failed()) {
            started.push(new);
        }
    }
}

/// Drops what has finished without a failure.
fn forget_finished(started: &mut Vec<Started>) {
    started.retain(|one| one.has_failed() || matches!(one, Started::Running(running) if !running.is_done()));
}

/// The first error of what was started on a stream, which has finished. It is reported once.
pub fn take_error(stream: &Stream) -> Option<PyErr> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let own: Vec<Started> = started.extract_if(.., |one| one.stream() == stream.id()).collect();
    forget_finished(&mut started);
    drop(started);
    own.into_iter().find_map(|one| match one {
        Started::Running(running) => {
            running.fault().map(|fault| raise(hesper_runtime::Error::from(fault.clone()).into()))
        }
        Started::Failed(_, error) => Some(raise(error)),
    })
}
