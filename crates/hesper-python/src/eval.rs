//! Evaluation: arrays found in trees of Python objects, computed without the interpreter's lock.

use std::sync::atomic::{AtomicBool, Ordering};

use hesper::Array;
use pyo3::exceptions::{PyRecursionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::array::PyArray;
use crate::error::raise;

/// Deepest tree that is searched; deeper ones usually contain themselves.
const DEEPEST: usize = 512;

static USED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// An error in a process that was forked from one that had used arrays: its compute threads are gone.
pub fn usable() -> PyResult<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(PyRuntimeError::new_err(
            "this process was forked from one that uses hesper, whose threads did not come along; \
             start processes with the 'spawn' or 'forkserver' method",
        ));
    }
    if !USED.load(Ordering::Relaxed) {
        USED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Called in the child after a fork.
#[pyfunction]
fn _forked() {
    if USED.load(Ordering::Relaxed) {
        FORKED.store(true, Ordering::Relaxed);
    }
}

fn collect(object: &Bound<'_, PyAny>, depth: usize, arrays: &mut Vec<Array>) -> PyResult<()> {
    if let Ok(array) = object.cast::<PyArray>() {
        arrays.push(array.get().value());
        return Ok(());
    }
    if depth == DEEPEST {
        return Err(PyRecursionError::new_err("arrays are nested too deep to evaluate"));
    }
    if let Ok(list) = object.cast::<PyList>() {
        list.iter().try_for_each(|item| collect(&item, depth + 1, arrays))
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        tuple.iter().try_for_each(|item| collect(&item, depth + 1, arrays))
    } else if let Ok(dict) = object.cast::<PyDict>() {
        dict.iter().try_for_each(|(_, item)| collect(&item, depth + 1, arrays))
    } else {
        Ok(())
    }
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
    args.iter().try_for_each(|item| collect(&item, 0, &mut arrays))?;
    py.detach(|| hesper::eval(&arrays)).map_err(raise)?;
    py.check_signals()
}

/// Starts computing arrays, or trees of arrays, and returns at once.
///
/// What goes wrong is told when the array that it spoils is used.
#[pyfunction]
#[pyo3(signature = (*args))]
fn async_eval(args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    usable()?;
    let mut arrays = Vec::with_capacity(args.len());
    args.iter().try_for_each(|item| collect(&item, 0, &mut arrays))?;
    py.detach(|| hesper::async_eval(&arrays)).map_err(raise)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(eval, m)?)?;
    m.add_function(wrap_pyfunction!(async_eval, m)?)?;
    m.add_function(wrap_pyfunction!(_forked, m)?)
}
