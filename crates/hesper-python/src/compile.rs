//! `compile`: Python functions that are called once for each signature.
//!
//! A signature is the shape of the arguments' tree, the numbers and strings in it, and the shapes (or, for a
//! function without shapes, the numbers of axes) and types of all arrays, those of the captured state
//! included. While a function is traced, the objects of its state hold arrays without values; their previous
//! arrays are restored afterwards. A run stores the new state in the containers of the state, as new objects.

use std::sync::{PoisonError, RwLock};

use hesper::Array;
use hesper::transform::{self, Cache};
use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::args::callable;
use crate::functions::random::{self, RandomState};
use crate::handle::PyArray;
use crate::transform::{Raised, documented};
use crate::tree::{DEEPEST, Leaves, Part, Tree};

/// The result of a trace besides the program: the tree of the result and how many of the outputs belong to
/// it.
struct Traced {
    result: Tree,
    count: usize,
}

/// The Python objects of a compiled function.
struct Parts {
    fun: Py<PyAny>,
    inputs: Option<Py<PyAny>>,
    outputs: Option<Py<PyAny>>,
}

/// A compiled function; see ``compile``.
#[pyclass(module = "hesper.core", name = "_compiled_function", frozen, weakref, dict)]
pub struct Compiled {
    parts: RwLock<Option<Parts>>,
    cache: Cache<Traced>,
}

/// A container and a key in it.
type Slot<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// An array of the state, and its container.
enum Kept<'py> {
    /// An entry of a dict or a list.
    Entry(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyArray>),
    /// An object that no container can replace.
    Object(Bound<'py, PyArray>),
    /// The process's random state.
    Random,
}

impl Kept<'_> {
    fn value(&self) -> PyResult<Array> {
        match self {
            Kept::Entry(_, _, object) | Kept::Object(object) => Ok(object.get().value()),
            Kept::Random => random::state(),
        }
    }

    /// Lets the object itself hold another array.
    fn hold(&self, array: Array) {
        match self {
            Kept::Entry(_, _, object) | Kept::Object(object) => object.get().replace(array),
            Kept::Random => random::set_state(array),
        }
    }

    /// Puts the object into its place again, and lets it hold an array.
    fn put_back(&self, array: Array) -> PyResult<()> {
        self.hold(array);
        match self {
            Kept::Entry(container, key, object) => container.set_item(key, object),
            Kept::Object(_) | Kept::Random => Ok(()),
        }
    }

    /// Puts another object into its place.
    fn put(&self, py: Python<'_>, array: Array) -> PyResult<()> {
        match self {
            Kept::Entry(container, key, _) => container.set_item(key, Bound::new(py, PyArray::new(array))?),
            Kept::Object(_) | Kept::Random => {
                self.hold(array);
                Ok(())
            }
        }
    }
}

/// The arrays of a state, in their order.
fn state<'py>(py: Python<'py>, tree: &Option<Py<PyAny>>) -> PyResult<Vec<Kept<'py>>> {
    let mut found = Vec::new();
    let mut stack: Vec<(Option<Slot<'py>>, Bound<'py, PyAny>, usize)> = Vec::new();
    stack.extend(tree.as_ref().map(|tree| (None, tree.bind(py).clone(), 0)));
    while let Some((slot, object, depth)) = stack.pop() {
        if let Ok(array) = object.cast::<PyArray>() {
            found.push(match slot {
                Some((container, key)) => Kept::Entry(container, key, array.clone()),
                None => Kept::Object(array.clone()),
            });
            continue;
        }
        if object.is_instance_of::<RandomState>() {
            found.push(Kept::Random);
            continue;
        }
        if depth == DEEPEST {
            return Err(PyRecursionError::new_err(
                "[compile] cannot walk the captured state: it is nested too deep",
            ));
        }
        let first = stack.len();
        let slot = |key| Some((object.clone(), key));
        if let Ok(dict) = object.cast::<PyDict>() {
            stack.extend(dict.iter().map(|(key, item)| (slot(key), item, depth + 1)));
        } else if let Ok(list) = object.cast::<PyList>() {
            let keyed = list.iter().enumerate();
            stack.extend(keyed.map(|(at, item)| (slot(PyInt::new(py, at).into_any()), item, depth + 1)));
        } else if let Ok(tuple) = object.cast::<PyTuple>() {
            stack.extend(tuple.iter().map(|item| (None, item, depth + 1)));
        }
        stack[first..].reverse();
    }
    Ok(found)
}

/// Adds the shape of a tree, and the constants in it, to a signature.
fn describe(py: Python<'_>, tree: &Tree, key: &mut Vec<u8>) -> PyResult<()> {
    let container = |tag: u8, count: usize, key: &mut Vec<u8>| {
        key.push(tag);
        key.extend((count as u64).to_le_bytes());
    };
    let text = |tag: u8, text: &str, key: &mut Vec<u8>| {
        container(tag, text.len(), key);
        key.extend(text.as_bytes());
    };
    for part in tree.parts() {
        match part {
            Part::Array => key.push(b'a'),
            Part::List(count) => container(b'[', *count, key),
            Part::Tuple(count, kind) => {
                container(b'(', *count, key);
                key.extend(kind.iter().flat_map(|kind| (kind.as_ptr() as usize).to_le_bytes()));
            }
            Part::Dict(names) => {
                container(b'{', names.len(), key);
                for name in names {
                    text(b'k', &name.bind(py).repr()?.to_string(), key);
                }
            }
            Part::Other(object) => {
                let object = object.bind(py);
                if object.is_none() {
                    key.push(b'n');
                } else if let Ok(name) = object.cast::<PyString>() {
                    text(b's', name.to_str()?, key);
                } else if object.is_instance_of::<PyFloat>() {
                    key.push(b'f');
                    key.extend(object.extract::<f64>()?.to_bits().to_le_bytes());
                } else if object.is_instance_of::<PyBool>() || object.is_instance_of::<PyInt>() {
                    text(b'i', &object.repr()?.to_string(), key);
                } else {
                    let name = object.get_type().name()?;
                    return Err(PyValueError::new_err(format!(
                        "[compile] cannot trace an argument of type {name}; use arrays, numbers, strings and None"
                    )));
                }
            }
        }
    }
    Ok(())
}

#[pymethods]
impl Compiled {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::error::usable()?;
        let py = args.py();
        let parts = self.parts(py)?;
        let fun = parts.fun.bind(py);
        // A graph that is described has the function's own steps.
        if !transform::compile_enabled() || crate::steps::described() {
            return fun.call(args, kwargs);
        }
        let mut arrays = Vec::new();
        let positional = Tree::of(args.as_any(), Leaves::Any, &mut arrays)?;
        let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
        let named = kwargs.map(|kwargs| Tree::of(kwargs.as_any(), Leaves::Any, &mut arrays)).transpose()?;
        let given = arrays.len();
        let mut key = Vec::with_capacity(16);
        describe(py, &positional, &mut key)?;
        named.iter().try_for_each(|named| describe(py, named, &mut key))?;
        let before = state(py, &parts.inputs)?;
        for kept in &before {
            arrays.push(kept.value()?);
        }
        let run = |varied: &[Array]| -> Result<(Vec<Array>, Traced), Raised> {
            let (own, of_state) = varied.split_at(given);
            // Undo the changes of a failed function to its state.
            let mut originals = Vec::new();
            for kept in state(py, &parts.outputs)? {
                let value = kept.value()?;
                originals.push((kept, value));
            }
            before.iter().zip(of_state).for_each(|(kept, array)| kept.hold(array.clone()));
            let traced = (|| -> PyResult<(Vec<Array>, Traced)> {
                let mut leaves = Vec::with_capacity(own.len());
                for array in own {
                    leaves.push(Bound::new(py, PyArray::new(array.clone()))?.into_any());
                }
                let mut leaves = leaves.into_iter();
                let args = positional.filled(py, &mut leaves)?.cast_into::<PyTuple>()?;
                let kwargs = named.as_ref().map(|named| named.filled(py, &mut leaves)).transpose()?;
                let kwargs = kwargs.map(|kwargs| kwargs.cast_into::<PyDict>()).transpose()?;
                let returned = fun.call(args, kwargs.as_ref())?;
                let mut outputs = Vec::new();
                let result = Tree::of(&returned, Leaves::Any, &mut outputs)?;
                let count = outputs.len();
                for kept in state(py, &parts.outputs)? {
                    outputs.push(kept.value()?);
                }
                Ok((outputs, Traced { result, count }))
            })();
            if traced.is_err() {
                originals.into_iter().try_for_each(|(kept, array)| kept.put_back(array))?;
            }
            before.iter().zip(&arrays[given..]).for_each(|(kept, array)| kept.hold(array.clone()));
            Ok(traced?)
        };
        let called = crate::device::in_scope(|| self.cache.call(&key, &arrays, run));
        let (mut outputs, traced) = called.map_err(|Raised(error)| error)?;
        let of_state = outputs.split_off(traced.count.min(outputs.len()));
        if !of_state.is_empty() {
            let places = state(py, &parts.outputs)?;
            if places.len() != of_state.len() {
                let what = format!(
                    "[compile] cannot store the captured outputs: they have {} arrays, but had {} while tracing",
                    places.len(),
                    of_state.len()
                );
                return Err(PyValueError::new_err(what));
            }
            places.iter().zip(of_state).try_for_each(|(place, array)| place.put(py, array))?;
        }
        traced.result.with_arrays(py, &outputs)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.parts(py)?.fun.bind(py).getattr(name)
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.parts(py)?.fun)
    }

    #[getter]
    fn __name__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.parts(py)?.fun.bind(py).getattr("__name__")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(parts) = self.parts.try_read() else { return Ok(()) };
        let Some(parts) = &*parts else { return Ok(()) };
        visit.call(&parts.fun)?;
        visit.call(&parts.inputs)?;
        visit.call(&parts.outputs)
    }

    fn __clear__(&self) {
        let old = self.parts.try_write().ok().and_then(|mut parts| parts.take());
        drop(old);
    }
}

impl Compiled {
    fn parts(&self, py: Python<'_>) -> PyResult<Parts> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        let parts = parts.as_ref().ok_or_else(|| {
            PyRuntimeError::new_err("cannot call a compiled function while it is being collected")
        })?;
        let again = |object: &Option<Py<PyAny>>| object.as_ref().map(|object| object.clone_ref(py));
        Ok(Parts {
            fun: parts.fun.clone_ref(py),
            inputs: again(&parts.inputs),
            outputs: again(&parts.outputs),
        })
    }
}

/// The function, compiled: called once for each set of shapes and types, run as a whole after that.
///
/// Parameters
/// ----------
/// fun : callable
///     Takes and returns trees of arrays; numbers and strings among its arguments are constants.
/// inputs : tree of array, optional
///     State that the function reads besides its arguments: lists and dicts, also
///     ``model.state``, ``optimizer.state``, ``mx.random.state``.
/// outputs : tree of array, optional
///     State that the function changes.
/// shapeless : bool
///     Whether the function is traced once for all shapes with the same number of axes. Numbers
///     that it takes from a shape keep their first value.
///
/// Returns
/// -------
/// callable
///
/// Examples
/// --------
/// >>> f = mx.compile(lambda x, y: mx.exp(-x) + y)
/// >>> f(mx.array([0.0]), mx.array([1.0]))
/// array([2], dtype=float32)
#[pyfunction]
#[pyo3(signature = (fun, inputs = None, outputs = None, shapeless = false))]
fn compile<'py>(
    fun: &Bound<'py, PyAny>,
    inputs: Option<Py<PyAny>>,
    outputs: Option<Py<PyAny>>,
    shapeless: bool,
) -> PyResult<Bound<'py, Compiled>> {
    callable(fun, "compile")?;
    let parts = Parts { fun: fun.clone().unbind(), inputs, outputs };
    let cache = if shapeless { Cache::shapeless() } else { Cache::default() };
    documented(Bound::new(fun.py(), Compiled { parts: RwLock::new(Some(parts)), cache })?, fun)
}

/// Lets compiled functions run as they are written, in the whole process.
///
/// Examples
/// --------
/// >>> mx.disable_compile()
/// >>> mx.enable_compile()
#[pyfunction]
fn disable_compile() {
    transform::set_compile(false);
}

/// Ends what ``disable_compile`` began.
///
/// Examples
/// --------
/// >>> mx.enable_compile()
#[pyfunction]
fn enable_compile() {
    transform::set_compile(true);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Compiled>()?;
    m.add_function(wrap_pyfunction!(compile, m)?)?;
    m.add_function(wrap_pyfunction!(disable_compile, m)?)?;
    m.add_function(wrap_pyfunction!(enable_compile, m)?)
}
