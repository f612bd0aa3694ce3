//! Transformations of Python functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `vmap`.
//!
//! A Python function is called with fresh array objects that hold the traced arrays. If the function keeps
//! such an object (as a module does with its parameters), the object holds the original array again when the
//! function has returned. Derivatives put these objects into the lists and dicts of the arguments themselves,
//! so the function sees its own objects and the caller sees what the function stores in them.

use std::cell::RefCell;
use std::collections::HashSet;

use hesper::{Array, Dtype, transform};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::args::{Arrays, Given, On, array_on, callable};
use crate::error::raise;
use crate::handle::PyArray;
use crate::steps;
use crate::tree::{InPlace, Leaves, Tree};

/// An exception on its way through the array library.
pub struct Raised(pub PyErr);

impl From<hesper::Error> for Raised {
    fn from(error: hesper::Error) -> Self {
        Raised(raise(error))
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Raised(error)
    }
}

/// The transformation that a call applies.
enum Transformation {
    /// Gradients with respect to arguments; with the value, or without.
    Gradient { numbers: Vec<usize>, names: Vec<String>, value: bool },
    /// The function, recomputed for its gradient.
    Checkpoint,
    /// The function, vectorized over an axis.
    Vmap { inputs: Py<PyAny>, outputs: Py<PyAny> },
}

/// A transformed function.
#[pyclass(module = "hesper.core", name = "_function", frozen, weakref, dict)]
pub struct Transformed {
    fun: Py<PyAny>,
    kind: Transformation,
}

#[pymethods]
impl Transformed {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::error::usable()?;
        let fun = self.fun.bind(args.py());
        match &self.kind {
            Transformation::Gradient { numbers, names, value } => {
                gradient(fun, numbers, names, *value, args, kwargs)
            }
            Transformation::Checkpoint => crate::custom::checkpointed(fun, args, kwargs),
            Transformation::Vmap { inputs, outputs } => vmapped(fun, inputs, outputs, args, kwargs),
        }
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.fun.bind(py).getattr(name)
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.fun.clone_ref(py)
    }

    #[getter]
    fn __name__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.fun.bind(py).getattr("__name__")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.fun)
    }
}

impl Transformed {
    fn new<'py>(fun: &Bound<'py, PyAny>, kind: Transformation) -> PyResult<Bound<'py, Self>> {
        documented(Bound::new(fun.py(), Transformed { fun: fun.clone().unbind(), kind })?, fun)
    }
}

/// An object that stands for a function, with the function's module and documentation. Its class has its own,
/// so `__getattr__` is not asked for these.
pub fn documented<'py, T>(object: Bound<'py, T>, fun: &Bound<'py, PyAny>) -> PyResult<Bound<'py, T>> {
    for name in ["__module__", "__doc__"] {
        object.as_any().setattr(name, fun.getattr_opt(name)?)?;
    }
    Ok(object)
}

/// Fresh objects that hold the traced arrays. When the call ends, with a result or an error, they get their
/// original arrays back, unless the function has stored others.
struct Lent<'a, 'py> {
    objects: Vec<Bound<'py, PyArray>>,
    varied: &'a [Array],
    originals: &'a [Array],
}

impl<'a, 'py> Lent<'a, 'py> {
    fn new(py: Python<'py>, varied: &'a [Array], originals: &'a [Array]) -> PyResult<Self> {
        let objects = varied.iter().map(|array| Bound::new(py, PyArray::new(array.clone())));
        Ok(Lent { objects: objects.collect::<PyResult<_>>()?, varied, originals })
    }

    fn leaves(&self) -> impl Iterator<Item = Bound<'py, PyAny>> + '_ {
        self.objects.iter().map(|object| object.clone().into_any())
    }

    /// Whether an object, or every item of a tuple, holds the traced array that it was made with.
    fn is_unchanged(&self, object: &Bound<'py, PyAny>) -> bool {
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return tuple.iter().all(|item| !item.is_instance_of::<PyArray>() || self.is_unchanged(&item));
        }
        let mut pairs = self.objects.iter().zip(self.varied);
        pairs.any(|(one, varied)| one.is(object) && one.get().value().ptr_eq(varied))
    }
}

/// An argument that is not differentiated: in-place changes of its arrays, also of those in tuples, stay in
/// the call.
fn untouched<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if object.is_instance_of::<PyArray>() || object.is_instance_of::<PyTuple>() {
        return Tree::copied(object);
    }
    Ok(object.clone())
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        for ((object, varied), original) in self.objects.iter().zip(self.varied).zip(self.originals) {
            if object.get().value().ptr_eq(varied) {
                object.get().replace(original.clone());
            }
        }
    }
}

fn parse(
    name: &str,
    fun: &Bound<'_, PyAny>,
    argnums: Option<&Bound<'_, PyAny>>,
    argnames: Given<'_>,
) -> PyResult<(Vec<usize>, Vec<String>)> {
    callable(fun, name)?;
    let names: Vec<String> = match argnames {
        Given::Default => Vec::new(),
        Given::Object(one) if one.is_instance_of::<PyString>() => vec![one.extract()?],
        Given::Object(list) => list.extract()?,
    };
    let names: Vec<String> = {
        let mut seen = HashSet::new();
        names.into_iter().filter(|name| seen.insert(name.clone())).collect()
    };
    let listed: Vec<isize> = match argnums {
        None if names.is_empty() => vec![0],
        None => Vec::new(),
        Some(one) if one.is_instance_of::<PyInt>() => vec![one.extract()?],
        Some(list) => list.extract()?,
    };
    let mut numbers = Vec::new();
    for number in listed {
        let what = match usize::try_from(number) {
            Err(_) => {
                format!("[{name}] cannot differentiate by argument {number}; argnums must not be negative")
            }
            Ok(number) if numbers.contains(&number) => {
                format!("[{name}] cannot differentiate by argument {number} twice")
            }
            Ok(number) => {
                numbers.push(number);
                continue;
            }
        };
        return Err(PyValueError::new_err(what));
    }
    numbers.sort_unstable();
    if numbers.is_empty() && names.is_empty() {
        return Err(PyValueError::new_err(format!(
            "[{name}] cannot differentiate by no argument; give argnums or argnames"
        )));
    }
    Ok((numbers, names))
}

fn gradient<'py>(
    fun: &Bound<'py, PyAny>,
    numbers: &[usize],
    names: &[String],
    value: bool,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let call = if value { "value_and_grad" } else { "grad" };
    let mut arrays = Vec::new();
    let mut trees: Vec<InPlace<'py>> = Vec::new();
    let mut ends = Vec::new();
    for number in numbers {
        if *number >= args.len() {
            return Err(PyValueError::new_err(format!(
                "[{call}] cannot differentiate by argument {number}: the call has {} positional arguments",
                args.len()
            )));
        }
        trees.push(InPlace::new(&args.get_item(*number)?, &mut arrays)?);
        ends.push(arrays.len());
    }
    for name in names {
        let Some(argument) = kwargs.map(|kwargs| kwargs.get_item(name)).transpose()?.flatten() else {
            let given: Vec<String> = match kwargs {
                Some(kwargs) => kwargs.keys().iter().map(|key| key.to_string()).collect(),
                None => Vec::new(),
            };
            return Err(PyValueError::new_err(format!(
                "[{call}] cannot differentiate by the keyword argument '{name}': the call has {{{}}}",
                given.join(", ")
            )));
        };
        trees.push(InPlace::new(&argument, &mut arrays)?);
        ends.push(arrays.len());
    }
    if arrays.is_empty() {
        return Err(PyValueError::new_err(format!(
            "[{call}] cannot differentiate by arguments without arrays"
        )));
    }
    let mut result = None;
    let run = |varied: &[Array]| -> Result<Vec<Array>, Raised> {
        let lent = Lent::new(py, varied, &arrays)?;
        let mut leaves = lent.objects.iter().cloned();
        let mut call = || -> PyResult<Bound<'py, PyAny>> {
            let mut arguments = args.iter().map(|one| untouched(&one)).collect::<PyResult<Vec<_>>>()?;
            let named = PyDict::new(py);
            for (name, one) in kwargs.iter().flat_map(|kwargs| kwargs.iter()) {
                named.set_item(name, untouched(&one)?)?;
            }
            for (at, tree) in trees.iter_mut().enumerate() {
                let tree = tree.fill(&mut leaves)?;
                match numbers.get(at) {
                    Some(number) => arguments[*number] = tree,
                    None => named.set_item(&names[at - numbers.len()], tree)?,
                }
            }
            fun.call(PyTuple::new(py, arguments)?, Some(&named))
        };
        let returned = call();
        trees.iter().try_for_each(|tree| tree.restore(|object| lent.is_unchanged(object)))?;
        let returned = returned?;
        let first = loss(&returned, value)?;
        result = Some(returned);
        Ok(vec![first])
    };
    let seed = |outputs: &[Array]| -> Result<Vec<Option<Array>>, Raised> {
        let mut seeds = Vec::new();
        for output in outputs {
            if output.ndim() != 0 {
                let what = format!(
                    "cannot take the gradient of an output of shape {}; the function must return a scalar",
                    shape_text(output)
                );
                return Err(PyValueError::new_err(what).into());
            }
            // MLX converts the seed.
            let dtype = if steps::described() { Dtype::Float32 } else { output.dtype() };
            seeds.push(Some(Array::scalar(1.0, dtype)?));
        }
        Ok(seeds)
    };
    let (outputs, found) = steps::transform::vjp_with(run, &arrays, seed).map_err(|Raised(error)| error)?;
    if let (true, Some(returned)) = (steps::described(), &result) {
        // The value and the gradient have the same steps.
        let first = returned.cast::<PyTuple>().ok().map(|tuple| tuple.get_item(0)).transpose()?;
        let first = first.unwrap_or_else(|| returned.clone());
        first.cast::<PyArray>().map_err(PyErr::from)?.get().replace(outputs[0].clone());
    }
    let mut parts = Vec::new();
    let mut start = 0;
    for (tree, end) in trees.iter().zip(&ends) {
        parts.push(tree.tree().with_arrays(py, &found[start..*end])?);
        start = *end;
    }
    let by_name = parts.split_off(numbers.len());
    let positional = match parts.len() {
        0 => py.None().into_bound(py),
        1 => parts.remove(0),
        _ => PyTuple::new(py, parts)?.into_any(),
    };
    let gradients = if names.is_empty() {
        positional
    } else {
        let named = PyDict::new(py);
        for (name, part) in names.iter().zip(by_name) {
            named.set_item(name, part)?;
        }
        PyTuple::new(py, [positional, named.into_any()])?.into_any()
    };
    match result {
        Some(returned) if value => Ok(PyTuple::new(py, [returned, gradients])?.into_any()),
        _ => Ok(gradients),
    }
}

fn shape_text(array: &Array) -> String {
    let lengths: Vec<String> = array.shape().iter().map(usize::to_string).collect();
    format!("({})", lengths.join(","))
}

/// The array to differentiate.
fn loss(returned: &Bound<'_, PyAny>, value: bool) -> PyResult<Array> {
    if let Ok(array) = returned.cast::<PyArray>() {
        return Ok(array.get().value());
    }
    let name = returned.get_type().name()?;
    if !value {
        return Err(PyValueError::new_err(format!(
            "[grad] cannot differentiate a function that returned a {name}; it must return a scalar array"
        )));
    }
    let what = || {
        PyValueError::new_err(format!(
            "[value_and_grad] cannot differentiate a function that returned a {name}; it must return a scalar array, or \
             a tuple that begins with one"
        ))
    };
    let tuple = returned.cast::<PyTuple>().map_err(|_| what())?;
    let first = tuple.get_item(0).map_err(|_| what())?;
    let array = first.cast::<PyArray>().map_err(|_| what())?;
    Ok(array.get().value())
}

/// The outputs of a function that returns an array or a sequence of arrays.
fn outputs_of(returned: &Bound<'_, PyAny>) -> PyResult<Vec<Array>> {
    if let Ok(array) = returned.cast::<PyArray>() {
        return Ok(vec![array.get().value()]);
    }
    let name = returned.get_type().name()?;
    let what = || {
        PyValueError::new_err(format!(
            "cannot transform a function that returned a {name}; it must return arrays"
        ))
    };
    if !(returned.is_instance_of::<PyList>() || returned.is_instance_of::<PyTuple>()) {
        return Err(what());
    }
    returned.try_iter()?.map(|item| Ok(item?.cast::<PyArray>().map_err(|_| what())?.get().value())).collect()
}

/// Calls a function with the arrays that a transformation varies.
fn call_with(fun: &Bound<'_, PyAny>, varied: &[Array], originals: &[Array]) -> Result<Vec<Array>, Raised> {
    let py = fun.py();
    let lent = Lent::new(py, varied, originals)?;
    let returned = fun.call1(PyTuple::new(py, &lent.objects)?)?;
    Ok(outputs_of(&returned)?)
}

/// A list of arrays.
pub struct ArrayList(Vec<Array>);

impl<'a, 'py> FromPyObject<'a, 'py> for ArrayList {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyArray>()
            || object.is_instance_of::<PyList>()
            || object.is_instance_of::<PyTuple>()
        {
            return Arrays::extract(object).map(|Arrays(list)| ArrayList(list));
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected a list of arrays, not {name}")))
    }
}

fn wrapped(arrays: Vec<Array>) -> Vec<PyArray> {
    arrays.into_iter().map(PyArray::new).collect()
}

/// The outputs of a function, and the products of cotangents with its Jacobian.
///
/// Parameters
/// ----------
/// fun : callable
///     Takes arrays and returns an array or a sequence of arrays.
/// primals : list of array
///     The arguments at which to take the Jacobian.
/// cotangents : list of array
///     As many, and of the same shapes, as the outputs of `fun`.
///
/// Returns
/// -------
/// tuple of two lists of array
///
/// Examples
/// --------
/// >>> mx.vjp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
/// ([array(9, dtype=float32)], [array(6, dtype=float32)])
#[pyfunction]
fn vjp(
    fun: &Bound<'_, PyAny>,
    primals: ArrayList,
    cotangents: ArrayList,
) -> PyResult<(Vec<PyArray>, Vec<PyArray>)> {
    callable(fun, "vjp")?;
    let seeds = |outputs: &[Array]| -> Result<Vec<Option<Array>>, Raised> {
        // An output of `stop_gradient` has no cotangent.
        let varied: Vec<bool> = match outputs.len() == cotangents.0.len() {
            true => vec![true; outputs.len()],
            false => outputs.iter().map(|output| !transform::is_stopped(output)).collect(),
        };
        let count = varied.iter().filter(|varied| **varied).count();
        if count != cotangents.0.len() {
            let what = format!(
                "[vjp] the function has {count} outputs, but there are {} cotangents; give one for each",
                cotangents.0.len()
            );
            return Err(PyValueError::new_err(what).into());
        }
        let mut given = cotangents.0.iter();
        let seeds: Vec<Option<Array>> =
            varied.iter().map(|varied| varied.then(|| given.next().cloned()).flatten()).collect();
        for (output, cotangent) in outputs.iter().zip(&seeds) {
            let Some(cotangent) = cotangent else { continue };
            if output.shape() != cotangent.shape() {
                let what = format!(
                    "[vjp] an output has shape {}, but its cotangent {}; they must be equal",
                    shape_text(output),
                    shape_text(cotangent)
                );
                return Err(PyValueError::new_err(what).into());
            }
        }
        Ok(seeds)
    };
    let run = |varied: &[Array]| call_with(fun, varied, &primals.0);
    let (outputs, found) =
        steps::transform::vjp_with(run, &primals.0, seeds).map_err(|Raised(error)| error)?;
    Ok((wrapped(outputs), wrapped(found)))
}

/// The outputs of a function, and the products of its Jacobian with tangents.
///
/// Parameters
/// ----------
/// fun : callable
///     Takes arrays and returns an array or a sequence of arrays.
/// primals : list of array
///     The arguments at which to take the Jacobian.
/// tangents : list of array
///     As many, and of the same shapes, as `primals`.
///
/// Returns
/// -------
/// tuple of two lists of array
///
/// Examples
/// --------
/// >>> mx.jvp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
/// ([array(9, dtype=float32)], [array(6, dtype=float32)])
#[pyfunction]
fn jvp(
    fun: &Bound<'_, PyAny>,
    primals: ArrayList,
    tangents: ArrayList,
) -> PyResult<(Vec<PyArray>, Vec<PyArray>)> {
    callable(fun, "jvp")?;
    let run = |varied: &[Array]| call_with(fun, varied, &primals.0);
    let (outputs, found) =
        steps::transform::jvp_with(run, &primals.0, &tangents.0).map_err(|Raised(error)| error)?;
    Ok((wrapped(outputs), wrapped(found)))
}

/// The gradient of a function, as a function.
///
/// Parameters
/// ----------
/// fun : callable
///     Returns a scalar array.
/// argnums : int or sequence of int, optional
///     Which positional arguments; by default the first. They are arrays or trees
///     of arrays.
/// argnames : str or sequence of str
///     Which keyword arguments.
///
/// Returns
/// -------
/// callable
///     Returns the gradient with the structure of the argument; a tuple of gradients for several arguments; a
///     pair of these and a dict with `argnames`.
///
/// Examples
/// --------
/// >>> mx.grad(lambda x: x * x)(mx.array(3.0))
/// array(6, dtype=float32)
#[pyfunction]
#[pyo3(signature = (fun, argnums = None, argnames = Given::Default), text_signature = "(fun, argnums=None, argnames=[])")]
fn grad<'py>(
    fun: &Bound<'py, PyAny>,
    argnums: Option<&Bound<'py, PyAny>>,
    argnames: Given<'py>,
) -> PyResult<Bound<'py, Transformed>> {
    let (numbers, names) = parse("grad", fun, argnums, argnames)?;
    Transformed::new(fun, Transformation::Gradient { numbers, names, value: false })
}

/// The value and the gradient of a function, as a function.
///
/// Parameters
/// ----------
/// fun : callable
///     Returns a scalar array, or a tuple that begins with one.
/// argnums : int or sequence of int, optional
///     Which positional arguments; by default the first. They are arrays or trees
///     of arrays.
/// argnames : str or sequence of str
///     Which keyword arguments.
///
/// Returns
/// -------
/// callable
///     Returns a pair: the result of `fun`, and the gradient as ``grad`` returns it.
///
/// Examples
/// --------
/// >>> mx.value_and_grad(lambda x: x * x)(mx.array(3.0))
/// (array(9, dtype=float32), array(6, dtype=float32))
#[pyfunction]
#[pyo3(signature = (fun, argnums = None, argnames = Given::Default), text_signature = "(fun, argnums=None, argnames=[])")]
fn value_and_grad<'py>(
    fun: &Bound<'py, PyAny>,
    argnums: Option<&Bound<'py, PyAny>>,
    argnames: Given<'py>,
) -> PyResult<Bound<'py, Transformed>> {
    let (numbers, names) = parse("value_and_grad", fun, argnums, argnames)?;
    Transformed::new(fun, Transformation::Gradient { numbers, names, value: true })
}

/// The function, vectorized: applied to every slice of its arguments along an axis.
///
/// Parameters
/// ----------
/// fun : callable
///     Takes and returns arrays or trees of arrays.
/// in_axes : int or tree of int and None
///     The axis of each argument to map over; None for an argument that every call gets whole.
/// out_axes : int or tree of int and None
///     The place of that axis in each result.
///
/// Returns
/// -------
/// callable
///
/// Examples
/// --------
/// >>> mx.vmap(mx.sum)(mx.array([[1, 2], [3, 4]]))
/// array([3, 7], dtype=int32)
#[pyfunction]
#[pyo3(
    signature = (fun, in_axes = Given::Default, out_axes = Given::Default),
    text_signature = "(fun, in_axes=0, out_axes=0)"
)]
fn vmap<'py>(
    fun: &Bound<'py, PyAny>,
    in_axes: Given<'py>,
    out_axes: Given<'py>,
) -> PyResult<Bound<'py, Transformed>> {
    callable(fun, "vmap")?;
    let axes = |given| match given {
        Given::Default => PyInt::new(fun.py(), 0).into_any().unbind(),
        Given::Object(axes) => axes.unbind(),
    };
    Transformed::new(fun, Transformation::Vmap { inputs: axes(in_axes), outputs: axes(out_axes) })
}

fn vmapped<'py>(
    fun: &Bound<'py, PyAny>,
    inputs: &Py<PyAny>,
    outputs: &Py<PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    if kwargs.is_some_and(|kwargs| !kwargs.is_empty()) {
        return Err(PyTypeError::new_err("[vmap] cannot pass keyword arguments; pass them by position"));
    }
    let mut arrays = Vec::new();
    // The axes of an only argument are not in a tuple.
    let only = args.len() == 1;
    let whole = if only { args.get_item(0)? } else { args.clone().into_any() };
    let tree = Tree::of(&whole, Leaves::Arrays, &mut arrays)?;
    let mut axes = Vec::new();
    tree.axes(inputs.bind(py), &mut axes)?;
    let (mut shape, places) = (None, RefCell::new(Vec::new()));
    let run = |varied: &[Array]| -> Result<Vec<Array>, Raised> {
        let lent = Lent::new(py, varied, &arrays)?;
        let arguments = tree.filled(py, &mut lent.leaves())?;
        let arguments =
            if only { PyTuple::new(py, [arguments])? } else { arguments.cast_into().map_err(PyErr::from)? };
        let returned = fun.call1(arguments)?;
        let mut found = Vec::new();
        let result = Tree::of(&returned, Leaves::Arrays, &mut found)?;
        result.axes(outputs.bind(py), &mut places.borrow_mut())?;
        shape = Some(result);
        Ok(found)
    };
    let mut made = steps::transform::vmap_with(run, &arrays, &axes, |_| Ok(places.borrow().clone()))
        .map_err(|Raised(error)| error)?;
    // Without a place for the axis, a result that is the same for all slices has it last.
    let size = arrays.iter().zip(&axes).find_map(|(array, axis)| {
        let axis = usize::try_from((*axis)?.rem_euclid(array.ndim() as isize)).ok()?;
        Some(array.shape()[axis])
    });
    for (array, place) in made.iter_mut().zip(places.into_inner()) {
        if place.is_none() {
            let last = [array.ndim() as isize];
            let shape: Vec<usize> = array.shape().iter().copied().chain(size).collect();
            *array = array.expand_dims(last).and_then(|one| one.broadcast_to(&shape)).map_err(raise)?;
        }
    }
    match shape {
        Some(tree) => tree.with_arrays(py, &made),
        None => Err(PyValueError::new_err("[vmap] cannot return from a function that was not called")),
    }
}

/// The function with its intermediate arrays recomputed for its derivative instead of kept.
///
/// Parameters
/// ----------
/// fun : callable
///     Takes and returns arrays or trees of arrays.
///
/// Returns
/// -------
/// callable
///
/// Examples
/// --------
/// >>> mx.grad(mx.checkpoint(lambda x: mx.exp(mx.sin(x))))(mx.array(0.0))
/// array(1, dtype=float32)
#[pyfunction]
fn checkpoint<'py>(fun: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Transformed>> {
    callable(fun, "checkpoint")?;
    Transformed::new(fun, Transformation::Checkpoint)
}

/// The array, as a constant to derivatives.
///
/// Parameters
/// ----------
/// a : array
/// stream : Stream or Device, optional
///
/// Returns
/// -------
/// array
///
/// Examples
/// --------
/// >>> mx.grad(lambda x: x * mx.stop_gradient(x))(mx.array(3.0))
/// array(3, dtype=float32)
#[pyfunction]
#[pyo3(signature = (a, /, *, stream = None))]
fn stop_gradient(a: PyArray, stream: Option<On>) -> PyResult<PyArray> {
    let a = a.value();
    array_on(stream, || transform::stop_gradient(&a))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Transformed>()?;
    m.add_function(wrap_pyfunction!(vjp, m)?)?;
    m.add_function(wrap_pyfunction!(jvp, m)?)?;
    m.add_function(wrap_pyfunction!(grad, m)?)?;
    m.add_function(wrap_pyfunction!(value_and_grad, m)?)?;
    m.add_function(wrap_pyfunction!(vmap, m)?)?;
    m.add_function(wrap_pyfunction!(checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(stop_gradient, m)?)
}
