//! Evaluation: arrays found in trees of Python objects, computed without the interpreter's lock.

use std::sync::{Mutex, PoisonError};

use hesper::{Array, Error};
use hesper_runtime::{Stream, Submission};
use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::array::PyArray;
use crate::encoder;
use crate::error::raise;
use crate::tree::DEEPEST;
use crate::waiting;

/// An error in a process that was forked from one that had used arrays: its compute threads are gone.
pub fn usable() -> PyResult<()> {
    hesper_runtime::fork::check().map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Adds the arrays of a tree of objects to a list, without recursion.
fn collect(object: Bound<'_, PyAny>, arrays: &mut Vec<Array>) -> PyResult<()> {
    let mut stack = vec![(object, 0)];
    while let Some((object, depth)) = stack.pop() {
        if let Ok(array) = object.cast::<PyArray>() {
            arrays.push(array.get().value());
            continue;
        }
        if depth == DEEPEST {
            return Err(PyRecursionError::new_err("cannot evaluate a tree that is nested too deep"));
        }
        let first = stack.len();
        if let Ok(list) = object.cast::<PyList>() {
            stack.extend(list.iter().map(|item| (item, depth + 1)));
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            stack.extend(tuple.iter().map(|item| (item, depth + 1)));
        } else if let Ok(dict) = object.cast::<PyDict>() {
            stack.extend(dict.iter().map(|(_, item)| (item, depth + 1)));
        }
        stack[first..].reverse();
    }
    Ok(())
}

/// Computes arrays, or trees of arrays, and returns when they are computed.
///
/// Parameters
/// ----------
/// *args
///     Arrays, or lists, tuples and dicts of arrays. Whatever else is in them
///     is ignored.
///
/// Examples
/// --------
/// >>> y = mx.exp(mx.array([0.0, 1.0]))
/// >>> mx.eval(y)
#[pyfunction]
#[pyo3(signature = (*args))]
fn eval(args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    usable()?;
    let mut arrays = Vec::with_capacity(args.len());
    args.iter().try_for_each(|item| collect(item, &mut arrays))?;
    computed(py, arrays)
}

/// Evaluates arrays; an interrupt ends the wait.
pub fn computed(py: Python<'_>, arrays: Vec<Array>) -> PyResult<()> {
    usable()?;
    let quick = waiting::is_quick(&arrays);
    waiting::wait(py, quick, move || hesper::eval(&arrays))?.map_err(raise)
}

/// Starts computing arrays, or trees of arrays, and returns at once.
///
/// An error is raised when an array that it concerns is used, and by ``synchronize`` of its stream.
///
/// Parameters
/// ----------
/// args : arrays or trees of arrays
///
/// Examples
/// --------
/// >>> y = mx.exp(mx.array([0.0]))
/// >>> mx.async_eval(y)
#[pyfunction]
#[pyo3(signature = (*args))]
fn async_eval(args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    usable()?;
    let mut arrays = Vec::with_capacity(args.len());
    args.iter().try_for_each(|item| collect(item, &mut arrays))?;
    if hesper::transform::is_varied(&arrays) {
        let what = "[async_eval] cannot evaluate an array while a transformation is tracing; call it outside, or use mx.eval";
        return Err(PyValueError::new_err(what));
    }
    let Err(arrays) = encoder::hand_over(arrays) else { return Ok(()) };
    match waiting::detached(py, || encoder::timed(|| hesper::async_eval(&arrays))) {
        // Reported later, as other failures of what is computed.
        Err(error) if !matches!(error, Error::File(_)) => Err(raise(error)),
        started => {
            remember_started(&arrays, started);
            Ok(())
        }
    }
}

/// Starts computing arrays. Errors are reported later: by ``synchronize``, and when an array that they
/// concern is used.
pub fn start(arrays: &[Array]) {
    let started = encoder::timed(|| hesper::async_eval(arrays));
    remember_started(arrays, started);
}

fn remember_started(arrays: &[Array], started: hesper::Result<Vec<Submission>>) {
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

/// Bytes of the memory under evaluated arrays, or trees of arrays; memory that arrays share counts once.
///
/// Parameters
/// ----------
/// *args
///     Arrays, or lists, tuples and dicts of arrays. Whatever else is in them
///     is ignored.
///
/// Examples
/// --------
/// >>> a = mx.zeros((4,))
/// >>> mx.eval(a)
/// >>> mx.get_array_buffer_size(a, a)
/// 16
#[pyfunction]
#[pyo3(signature = (*args))]
fn get_array_buffer_size(args: &Bound<'_, PyTuple>) -> PyResult<usize> {
    usable()?;
    let mut arrays = Vec::with_capacity(args.len());
    args.iter().try_for_each(|item| collect(item, &mut arrays))?;
    if arrays.iter().any(|array| !array.is_evaluated()) {
        let what = "[get_array_buffer_size] cannot size an array that was not evaluated; call mx.eval first";
        return Err(PyValueError::new_err(what));
    }
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for array in arrays.iter().filter(|array| array.size() > 0) {
        let host = crate::array::evaluated(args.py(), array)?;
        let mut part = (host.as_ptr() as usize, host.as_ptr() as usize + array.dtype().size());
        for (length, stride) in host.shape().iter().zip(host.strides()) {
            let reach = (*length as isize - 1) * stride * array.dtype().size() as isize;
            part = (part.0.saturating_add_signed(reach.min(0)), part.1.saturating_add_signed(reach.max(0)));
        }
        parts.push(part);
    }
    parts.sort_unstable();
    let (mut total, mut end) = (0, 0);
    for part in parts {
        total += part.1.saturating_sub(part.0.max(end));
        end = end.max(part.1);
    }
    Ok(total)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(eval, m)?)?;
    m.add_function(wrap_pyfunction!(async_eval, m)?)?;
    m.add_function(wrap_pyfunction!(get_array_buffer_size, m)?)
}
