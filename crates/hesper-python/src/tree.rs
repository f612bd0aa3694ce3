//! Trees of Python objects: lists, tuples and dicts with arrays at their leaves.
//!
//! A tree is stored as the list of its parts, each container before its contents, so nothing here recurses: threads may
//! have small stacks.

use hesper::Array;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyTuple};

use crate::array::PyArray;

/// The deepest tree to walk; deeper ones usually contain themselves.
pub const DEEPEST: usize = 512;

/// The shape of a tree, without its arrays.
pub struct Tree(Vec<Part>);

/// A part of a tree.
pub enum Part {
    /// The place of an array.
    Array,
    /// A list of this many of the following parts.
    List(usize),
    /// A tuple of this many of the following parts.
    Tuple(usize),
    /// A dict with these keys, in order, of the following parts.
    Dict(Vec<Py<PyAny>>),
    /// Anything else, which stays as it is.
    Other(Py<PyAny>),
}

impl Part {
    /// How many parts are directly in it.
    fn count(&self) -> usize {
        match self {
            Part::Array | Part::Other(_) => 0,
            Part::List(count) | Part::Tuple(count) => *count,
            Part::Dict(keys) => keys.len(),
        }
    }
}

/// Whether a tree may hold something else than arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Arrays only; anything else is an error.
    Arrays,
    /// Arrays and anything else.
    Any,
}

/// Takes the last `count` items of a stack, in the order in which they would be popped.
fn popped<T>(stack: &mut Vec<T>, count: usize) -> impl ExactSizeIterator<Item = T> + '_ {
    let rest = stack.len().saturating_sub(count);
    stack.drain(rest..).rev()
}

impl Tree {
    /// The shape of a tree; its arrays are added to `arrays` in their order.
    pub fn of(object: &Bound<'_, PyAny>, leaves: Leaves, arrays: &mut Vec<Array>) -> PyResult<Tree> {
        let mut parts = Vec::new();
        let mut stack = vec![(object.clone(), 0)];
        while let Some((object, depth)) = stack.pop() {
            if let Ok(array) = object.cast::<PyArray>() {
                arrays.push(array.get().value());
                parts.push(Part::Array);
                continue;
            }
            if depth == DEEPEST {
                return Err(PyRecursionError::new_err("cannot walk a tree that is nested too deep"));
            }
            let first = stack.len();
            if let Ok(list) = object.cast::<PyList>() {
                stack.extend(list.iter().map(|item| (item, depth + 1)));
                parts.push(Part::List(stack.len() - first));
            } else if let Ok(tuple) = object.cast::<PyTuple>() {
                stack.extend(tuple.iter().map(|item| (item, depth + 1)));
                parts.push(Part::Tuple(stack.len() - first));
            } else if let Ok(dict) = object.cast::<PyDict>() {
                let mut keys = Vec::with_capacity(dict.len());
                for (key, item) in dict {
                    keys.push(key.unbind());
                    stack.push((item, depth + 1));
                }
                parts.push(Part::Dict(keys));
            } else if leaves == Leaves::Any {
                parts.push(Part::Other(object.unbind()));
            } else {
                let what = "cannot transform arguments or results that are not arrays; use trees of arrays";
                return Err(PyValueError::new_err(what));
            }
            stack[first..].reverse();
        }
        Ok(Tree(parts))
    }

    /// Its parts, each container before its contents.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// A tree of this shape with the next objects of `leaves` in the places of the arrays.
    pub fn filled<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let count = self.0.iter().filter(|part| matches!(part, Part::Array)).count();
        let mut leaves: Vec<Bound<'py, PyAny>> = leaves.take(count).collect();
        let missing = || PyValueError::new_err("cannot fill a tree: it has more arrays than were given");
        if leaves.len() < count {
            return Err(missing());
        }
        // From the last part to the first, so the contents of a container exist before it.
        let mut made: Vec<Bound<'py, PyAny>> = Vec::new();
        for part in self.0.iter().rev() {
            let object = match part {
                Part::Array => leaves.pop().ok_or_else(missing)?,
                Part::Other(object) => object.bind(py).clone(),
                Part::List(count) => PyList::new(py, popped(&mut made, *count))?.into_any(),
                Part::Tuple(count) => PyTuple::new(py, popped(&mut made, *count))?.into_any(),
                Part::Dict(keys) => {
                    let dict = PyDict::new(py);
                    for (key, item) in keys.iter().zip(popped(&mut made, keys.len())) {
                        dict.set_item(key.bind(py), item)?;
                    }
                    dict.into_any()
                }
            };
            made.push(object);
        }
        made.pop().ok_or_else(missing)
    }

    /// The same from arrays.
    pub fn with_arrays<'py>(&self, py: Python<'py>, arrays: &[Array]) -> PyResult<Bound<'py, PyAny>> {
        let objects = arrays
            .iter()
            .map(|array| Ok(Bound::new(py, PyArray::new(array.clone()))?.into_any()))
            .collect::<PyResult<Vec<_>>>()?;
        self.filled(py, &mut objects.into_iter())
    }

    /// One axis for each array of the tree, from a tree of axes that may end higher up.
    pub fn axes(&self, axes: &Bound<'_, PyAny>, found: &mut Vec<Option<isize>>) -> PyResult<()> {
        let invalid =
            || PyValueError::new_err("cannot match a tree of axes: it is not a prefix of the tree of arrays");
        let mut parts = self.0.iter();
        // The axes of parts to come, the next one last.
        let mut stack = vec![axes.clone()];
        while let Some(axes) = stack.pop() {
            let Some(part) = parts.next() else { return Err(invalid()) };
            if axes.is_none() || (axes.is_instance_of::<PyInt>() && !axes.is_instance_of::<PyBool>()) {
                let axis: Option<isize> = axes.extract()?;
                // It is the axis of all that is in the part.
                let (mut part, mut open) = (part, 1);
                loop {
                    found.extend(matches!(part, Part::Array).then_some(axis));
                    open += part.count();
                    open -= 1;
                    if open == 0 {
                        break;
                    }
                    part = parts.next().ok_or_else(invalid)?;
                }
                continue;
            }
            let first = stack.len();
            match part {
                Part::Array | Part::Other(_) => return Err(invalid()),
                Part::Dict(keys) => {
                    let axes = axes.cast::<PyDict>().map_err(|_| invalid())?;
                    for key in keys {
                        stack.push(axes.get_item(key)?.ok_or_else(invalid)?);
                    }
                }
                Part::List(count) | Part::Tuple(count) => {
                    let listed = axes.is_instance_of::<PyList>() || axes.is_instance_of::<PyTuple>();
                    if !listed || axes.len()? != *count {
                        return Err(invalid());
                    }
                    for axes in axes.try_iter()? {
                        stack.push(axes?);
                    }
                }
            }
            stack[first..].reverse();
        }
        Ok(())
    }
}
