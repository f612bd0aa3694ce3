//! Evaluation: arrays found in trees of Python objects, computed without the interpreter's lock.

use hesper::{Array, Error};
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::device::{self, On};
use crate::encoder;
use crate::error::{raise, usable};
use crate::handle::PyArray;
use crate::started::{remember_started, take_error};
use crate::tree::DEEPEST;
use crate::waiting::{self, computed, evaluated};

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
        // Programs look for MLX's words and go on.
        let what = "[async_eval] Not allowed inside a graph transformation; call it outside, or use mx.eval";
        return Err(PyValueError::new_err(what));
    }
    let Err(arrays) = encoder::hand_over(arrays) else { return Ok(()) };
    let (started, interrupt) = waiting::throttled(py, || encoder::timed(|| hesper::async_eval(&arrays)));
    match started {
        // Reported later, as other failures of what is computed.
        Err(error) if interrupt.is_ok() && !matches!(error, Error::File(_)) => Err(raise(error)),
        started => {
            remember_started(&arrays, started);
            interrupt
        }
    }
}

/// Waits until the work on a stream is done: by default, on the default stream.
///
/// Raises the first error of what ``async_eval`` started there, once.
///
/// Parameters
/// ----------
/// stream : Stream or Device, optional
///
/// Examples
/// --------
/// >>> mx.synchronize()
#[pyfunction]
#[pyo3(signature = (stream = None))]
fn synchronize(py: Python<'_>, stream: Option<On>) -> PyResult<()> {
    let stream = match stream {
        Some(On(stream)) => stream,
        None => device::current_stream()?,
    };
    usable()?;
    let own = stream.clone();
    let synchronized = waiting::wait(py, waiting::last_was_short(), move || {
        encoder::drain();
        stream.synchronize()
    });
    synchronized?.map_err(|error| raise(error.into()))?;
    take_error(&own).map_or(Ok(()), Err)
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
        let host = evaluated(args.py(), array)?;
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
    m.add_function(wrap_pyfunction!(synchronize, m)?)?;
    m.add_function(wrap_pyfunction!(get_array_buffer_size, m)?)
}
