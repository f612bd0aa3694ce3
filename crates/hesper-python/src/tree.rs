//! Trees of Python objects: lists, tuples and dicts with arrays at their leaves.
//!
//! A tree is stored as the list of its parts, each container before its contents, so nothing here recurses:
//! threads may have small stacks. Copies of a tree have plain lists and dicts; tuples keep their type.

use std::collections::HashMap;

use hesper::Array;
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple, PyType};

use crate::handle::PyArray;

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
    /// A tuple of this many of the following parts; its type where that is a subclass.
    Tuple(usize, Option<Py<PyType>>),
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
            Part::List(count) | Part::Tuple(count, _) => *count,
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

/// A tuple of these items: a plain one, a named tuple, or any other subclass that takes a sequence.
fn tuple<'py>(
    py: Python<'py>,
    kind: Option<&Py<PyType>>,
    items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let items = PyTuple::new(py, items)?;
    match kind.map(|kind| kind.bind(py)) {
        None => Ok(items.into_any()),
        Some(kind) if kind.hasattr("_fields")? => kind.call1(items),
        Some(kind) => kind.call1((items,)),
    }
}

impl Tree {
    /// The shape of a tree; its arrays are added to `arrays` in their order.
    pub fn of(object: &Bound<'_, PyAny>, leaves: Leaves, arrays: &mut Vec<Array>) -> PyResult<Tree> {
        Tree::visit(object, leaves, |object| {
            if let Ok(array) = object.cast::<PyArray>() {
                arrays.push(array.get().value());
            }
        })
    }

    /// The shape of a tree; each of its parts is visited, in their order.
    fn visit<'py>(
        object: &Bound<'py, PyAny>,
        leaves: Leaves,
        mut visit: impl FnMut(&Bound<'py, PyAny>),
    ) -> PyResult<Tree> {
        let mut parts = Vec::new();
        let mut stack = vec![(object.clone(), 0)];
        while let Some((object, depth)) = stack.pop() {
            visit(&object);
            if object.is_instance_of::<PyArray>() {
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
                let kind = (!tuple.is_exact_instance_of::<PyTuple>()).then(|| tuple.get_type().unbind());
                parts.push(Part::Tuple(stack.len() - first, kind));
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

    /// A copy of a tree with new array objects.
    pub fn copied<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut arrays = Vec::new();
        Tree::of(object, Leaves::Any, &mut arrays)?.with_arrays(object.py(), &arrays)
    }

    /// Its parts, each container before its contents.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// How many arrays it has.
    pub fn arrays(&self) -> usize {
        self.0.iter().filter(|part| matches!(part, Part::Array)).count()
    }

    /// A tree of this shape with the next objects of `leaves` in the places of the arrays.
    pub fn filled<'py>(
        &self,
        py: Python<'py>,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let count = self.arrays();
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
                Part::Tuple(count, kind) => tuple(py, kind.as_ref(), popped(&mut made, *count))?,
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

    /// One axis for each array of the tree, from a tree of axes that may end higher up. A single array may
    /// have its axis in a tuple.
    pub fn axes(&self, axes: &Bound<'_, PyAny>, found: &mut Vec<Option<isize>>) -> PyResult<()> {
        let invalid = || {
            PyValueError::new_err(
                "[vmap] cannot match a tree of axes: it must be a prefix of the tree of arrays, with tuples, lists and \
                 dicts where that has them",
            )
        };
        let mut parts = self.0.iter();
        // The axes of parts to come, the next one last.
        let mut stack = match (&self.0[..], axes.cast::<PyTuple>()) {
            ([Part::Array], Ok(tuple)) if tuple.len() == 1 => vec![tuple.get_item(0)?],
            _ => vec![axes.clone()],
        };
        while let Some(axes) = stack.pop() {
            let Some(part) = parts.next() else { return Err(invalid()) };
            if axes.is_none() || axes.is_instance_of::<PyInt>() {
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
                    if axes.len() != keys.len() {
                        return Err(invalid());
                    }
                    for key in keys {
                        stack.push(axes.get_item(key)?.ok_or_else(invalid)?);
                    }
                }
                Part::List(_) => stack.extend(axes.cast::<PyList>().map_err(|_| invalid())?),
                Part::Tuple(..) => stack.extend(axes.cast::<PyTuple>().map_err(|_| invalid())?),
            }
            if stack.len() - first != part.count() {
                return Err(invalid());
            }
            stack[first..].reverse();
        }
        Ok(())
    }
}

/// A tree whose lists and dicts hold other objects in the places of its arrays for a while. Tuples cannot be
/// changed: in their places are others of the same type.
pub struct InPlace<'py> {
    tree: Tree,
    /// The object of each part.
    objects: Vec<Bound<'py, PyAny>>,
    /// What is there for a while, by the address of the object, and what was there before.
    originals: HashMap<usize, (Bound<'py, PyAny>, Bound<'py, PyAny>)>,
}

impl<'py> InPlace<'py> {
    /// A tree of arrays, which are added to `arrays` in their order.
    pub fn new(object: &Bound<'py, PyAny>, arrays: &mut Vec<Array>) -> PyResult<Self> {
        let mut objects = Vec::new();
        let tree = Tree::visit(object, Leaves::Arrays, |object| {
            if let Ok(array) = object.cast::<PyArray>() {
                arrays.push(array.get().value());
            }
            objects.push(object.clone());
        })?;
        Ok(InPlace { tree, objects, originals: HashMap::new() })
    }

    /// The shape of the tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Puts the next of `leaves` into the places of the arrays.
    pub fn fill(
        &mut self,
        leaves: &mut dyn Iterator<Item = Bound<'py, PyArray>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyValueError::new_err("cannot fill a tree: it has more arrays than were given");
        let mut leaves: Vec<Bound<'py, PyArray>> = leaves.take(self.tree.arrays()).collect();
        let mut made: Vec<Bound<'py, PyAny>> = Vec::new();
        for (part, object) in self.tree.0.iter().zip(&self.objects).rev() {
            let py = object.py();
            let filled = match part {
                Part::Array => leaves.pop().ok_or_else(missing)?.into_any(),
                Part::Other(_) => object.clone(),
                Part::Tuple(count, kind) => tuple(py, kind.as_ref(), popped(&mut made, *count))?,
                Part::List(count) => {
                    for (at, item) in popped(&mut made, *count).enumerate() {
                        object.set_item(at, item)?;
                    }
                    object.clone()
                }
                Part::Dict(keys) => {
                    for (key, item) in keys.iter().zip(popped(&mut made, keys.len())) {
                        object.cast::<PyDict>()?.set_item(key, item)?;
                    }
                    object.clone()
                }
            };
            if !filled.is(object) {
                self.originals.insert(filled.as_ptr() as usize, (filled.clone(), object.clone()));
            }
            made.push(filled);
        }
        made.pop().ok_or_else(missing)
    }

    /// Puts the original objects back wherever lists and dicts of the tree still hold what replaced them and
    /// `unchanged` says that it is.
    pub fn restore(&self, unchanged: impl Fn(&Bound<'py, PyAny>) -> bool) -> PyResult<()> {
        let original = |item: &Bound<'py, PyAny>| {
            let (_, original) = self.originals.get(&(item.as_ptr() as usize))?;
            unchanged(item).then(|| original.clone())
        };
        for object in &self.objects {
            if let Ok(list) = object.cast::<PyList>() {
                for (at, item) in list.iter().enumerate() {
                    if let Some(original) = original(&item) {
                        list.set_item(at, original)?;
                    }
                }
            } else if let Ok(dict) = object.cast::<PyDict>() {
                for (key, item) in dict.iter().collect::<Vec<_>>() {
                    if let Some(original) = original(&item) {
                        dict.set_item(key, original)?;
                    }
                }
            }
        }
        Ok(())
    }
}
