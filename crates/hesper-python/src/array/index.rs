//! `a[...]` with integers, slices, `None` and `...`.

use hesper::Array;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyFloat, PySlice, PyTuple};
use smallvec::SmallVec;

use super::PyArray;
use crate::args::on;

/// One entry of an index.
enum Entry {
    At(isize),
    Range { start: Option<isize>, stop: Option<isize>, step: isize },
    New,
    Rest,
}

fn entry(object: &Bound<'_, PyAny>) -> PyResult<Entry> {
    if object.is_none() {
        return Ok(Entry::New);
    }
    if object.is_instance_of::<PyEllipsis>() {
        return Ok(Entry::Rest);
    }
    if let Ok(slice) = object.cast::<PySlice>() {
        let bound = |name: &str| -> PyResult<Option<isize>> {
            let bound = slice.getattr(name)?;
            if bound.is_none() { Ok(None) } else { index_of(&bound).map(Some) }
        };
        let step = bound("step")?.unwrap_or(1);
        if step == 0 {
            return Err(PyValueError::new_err("slice step cannot be zero"));
        }
        return Ok(Entry::Range { start: bound("start")?, stop: bound("stop")?, step });
    }
    let refused = object.is_instance_of::<PyBool>() || object.is_instance_of::<PyFloat>();
    if !refused && let Ok(at) = index_of(object) {
        return Ok(Entry::At(at));
    }
    Err(PyValueError::new_err("Cannot index an array using the given type."))
}

fn index_of(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    object.call_method0(pyo3::intern!(object.py(), "__index__"))?.extract()
}

/// The part of an array that an index names.
pub fn get(array: &Array, index: &Bound<'_, PyAny>) -> PyResult<Array> {
    let entries: SmallVec<[Entry; 4]> = match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|item| entry(&item)).collect::<PyResult<_>>()?,
        Err(_) => std::iter::once(entry(index)?).collect(),
    };
    let named = entries.iter().filter(|entry| matches!(entry, Entry::At(_) | Entry::Range { .. })).count();
    if entries.iter().filter(|entry| matches!(entry, Entry::Rest)).count() > 1 {
        return Err(PyValueError::new_err("An index can only have a single ellipsis (...)"));
    }
    let rank = array.ndim();
    if named > rank {
        return Err(PyValueError::new_err(format!("Too many indices for array with {rank} dimensions.")));
    }
    let mut start: SmallVec<[isize; 6]> = SmallVec::new();
    let mut stop: SmallVec<[isize; 6]> = SmallVec::new();
    let mut step: SmallVec<[isize; 6]> = SmallVec::new();
    // Axes of the result: those of the slice, or new ones.
    let mut kept: SmallVec<[Option<usize>; 6]> = SmallVec::new();
    let whole = |start: &mut SmallVec<[isize; 6]>,
                 stop: &mut SmallVec<[isize; 6]>,
                 step: &mut SmallVec<[isize; 6]>| {
        let axis = start.len();
        start.push(0);
        stop.push(array.shape()[axis] as isize);
        step.push(1);
        Some(axis)
    };
    for entry in &entries {
        let axis = start.len();
        match *entry {
            Entry::New => kept.push(None),
            Entry::Rest => {
                for _ in 0..rank - named {
                    let axis = whole(&mut start, &mut stop, &mut step);
                    kept.push(axis);
                }
            }
            Entry::At(at) => {
                let length = array.shape()[axis] as isize;
                let place = if at < 0 { at.saturating_add(length) } else { at };
                if place < 0 || place >= length {
                    let what = format!("index {at} is out of bounds for axis {axis} with size {length}");
                    return Err(PyIndexError::new_err(what));
                }
                start.push(place);
                stop.push(place + 1);
                step.push(1);
            }
            Entry::Range { start: from, stop: to, step: by } => {
                let length = array.shape()[axis] as isize;
                start.push(from.unwrap_or(if by > 0 { 0 } else { isize::MAX }));
                // Going backwards, the place before the first element has no other name.
                stop.push(to.unwrap_or(if by > 0 { length } else { isize::MIN }));
                step.push(by);
                kept.push(Some(axis));
            }
        }
    }
    while start.len() < rank {
        let axis = whole(&mut start, &mut stop, &mut step);
        kept.push(axis);
    }
    let changed = (0..rank)
        .any(|axis| start[axis] != 0 || step[axis] != 1 || stop[axis] != array.shape()[axis] as isize);
    on(None, || {
        let part = if changed { array.slice(&start, &stop, &step)? } else { array.clone() };
        let shape: SmallVec<[isize; 6]> =
            kept.iter().map(|axis| axis.map_or(1, |axis| part.shape()[axis] as isize)).collect();
        part.reshape(&shape)
    })
}

#[pymethods]
impl PyArray {
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<PyArray> {
        get(&self.value(), index).map(PyArray::new)
    }
}
