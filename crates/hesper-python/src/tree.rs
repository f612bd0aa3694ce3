//! Trees of Python objects: lists, tuples and dicts with arrays at their leaves.

use hesper::Array;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyTuple};

use crate::array::PyArray;

/// Deepest tree that is followed; deeper ones usually contain themselves.
const DEEPEST: usize = 512;

/// The shape of a tree, without its arrays.
pub enum Tree {
    /// The place of an array.
    Array,
    /// A list.
    List(Vec<Tree>),
    /// A tuple.
    Tuple(Vec<Tree>),
    /// A dict, with its keys in their order.
    Dict(Vec<(Py<PyAny>, Tree)>),
    /// Anything else, which stays as it is.
    Other(Py<PyAny>),
}

/// Whether a tree may hold something else than arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Arrays only; anything else is an error.
    Arrays,
    /// Arrays and anything else.
    Any,
}

impl Tree {
    /// The shape of a tree; its arrays are added to `arrays` in their order.
    pub fn of(object: &Bound<'_, PyAny>, leaves: Leaves, arrays: &mut Vec<Array>) -> PyResult<Tree> {
        Tree::at(object, leaves, 0, &mut |array| arrays.push(array.get().value()))
    }

    fn at(
        object: &Bound<'_, PyAny>,
        leaves: Leaves,
        depth: usize,
        add: &mut dyn FnMut(&Bound<'_, PyArray>),
    ) -> PyResult<Tree> {
        if let Ok(array) = object.cast::<PyArray>() {
            add(array);
            return Ok(Tree::Array);
        }
        if depth == DEEPEST {
            return Err(PyRecursionError::new_err("arrays are nested too deep"));
        }
        if let Ok(list) = object.cast::<PyList>() {
            let items = list.iter().map(|item| Tree::at(&item, leaves, depth + 1, add));
            return Ok(Tree::List(items.collect::<PyResult<_>>()?));
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            let items = tuple.iter().map(|item| Tree::at(&item, leaves, depth + 1, add));
            return Ok(Tree::Tuple(items.collect::<PyResult<_>>()?));
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            let mut entries = Vec::with_capacity(dict.len());
            for (key, item) in dict {
                entries.push((key.unbind(), Tree::at(&item, leaves, depth + 1, add)?));
            }
            return Ok(Tree::Dict(entries));
        }
        if leaves == Leaves::Arrays {
            let what = "[tree_flatten] The argument should contain only arrays";
            return Err(PyValueError::new_err(what));
        }
        Ok(Tree::Other(object.clone().unbind()))
    }

    /// A tree of this shape with the next objects of `leaves` in the places of the arrays.
    pub fn filled<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Tree::Array => leaves
                .next()
                .ok_or_else(|| PyValueError::new_err("a tree has more arrays than were given"))?,
            Tree::Other(object) => object.bind(py).clone(),
            Tree::List(items) => {
                let list = PyList::empty(py);
                for item in items {
                    list.append(item.filled(py, leaves)?)?;
                }
                list.into_any()
            }
            Tree::Tuple(items) => {
                let items: Vec<_> =
                    items.iter().map(|item| item.filled(py, leaves)).collect::<PyResult<_>>()?;
                PyTuple::new(py, items)?.into_any()
            }
            Tree::Dict(entries) => {
                let dict = PyDict::new(py);
                for (key, item) in entries {
                    dict.set_item(key.bind(py), item.filled(py, leaves)?)?;
                }
                dict.into_any()
            }
        })
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
        if axes.is_none() || (axes.is_instance_of::<PyInt>() && !axes.is_instance_of::<PyBool>()) {
            let axis: Option<isize> = axes.extract()?;
            self.spread(axis, found);
            return Ok(());
        }
        let invalid = || {
            PyValueError::new_err("[tree_map] Additional input tree is not a valid prefix of the first tree.")
        };
        let items = match self {
            Tree::List(items) | Tree::Tuple(items) => items,
            Tree::Dict(entries) => {
                let axes = axes.cast::<PyDict>().map_err(|_| invalid())?;
                for (key, item) in entries {
                    item.axes(&axes.get_item(key)?.ok_or_else(invalid)?, found)?;
                }
                return Ok(());
            }
            Tree::Array | Tree::Other(_) => return Err(invalid()),
        };
        if !(axes.is_instance_of::<PyList>() || axes.is_instance_of::<PyTuple>())
            || axes.len()? != items.len()
        {
            return Err(invalid());
        }
        items.iter().zip(axes.try_iter()?).try_for_each(|(item, axes)| item.axes(&axes?, found))
    }

    fn spread(&self, axis: Option<isize>, found: &mut Vec<Option<isize>>) {
        match self {
            Tree::Array => found.push(axis),
            Tree::Other(_) => {}
            Tree::List(items) | Tree::Tuple(items) => items.iter().for_each(|item| item.spread(axis, found)),
            Tree::Dict(entries) => entries.iter().for_each(|(_, item)| item.spread(axis, found)),
        }
    }
}
