//! `custom_function` and `checkpoint`: functions with rules of their own for transformations.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hesper::transform::{self, CustomFunction, depends};
use hesper::{Array, Error};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::args::callable;
use crate::error::raise;
use crate::handle::PyArray;
use crate::tree::{Leaves, Part, Tree};

/// One call of a Python function: the trees of its arguments and of its result.
struct Call {
    fun: Py<PyAny>,
    arguments: Tree,
    /// How many of the arrays are in positional arguments.
    positional: usize,
    result: Mutex<Option<Arc<Tree>>>,
    /// The object that the function returned last.
    returned: Mutex<Option<Py<PyAny>>>,
}

impl Call {
    /// A call, and the arrays among its arguments.
    fn new(
        fun: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Arc<Call>, Vec<Array>)> {
        let py = args.py();
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
        let all = PyTuple::new(py, [args.as_any(), kwargs.as_any()])?;
        let mut arrays = Vec::new();
        let arguments = Tree::of(all.as_any(), Leaves::Any, &mut arrays)?;
        let positional = arrays_of(args.as_any())?.len();
        let (result, returned) = (Mutex::new(None), Mutex::new(None));
        let call = Call { fun: fun.clone().unbind(), arguments, positional, result, returned };
        Ok((Arc::new(call), arrays))
    }

    /// The arguments with the given arrays.
    fn arguments<'py>(
        &self,
        py: Python<'py>,
        arrays: &[Array],
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let both = self.arguments.with_arrays(py, arrays)?;
        let both = both.cast::<PyTuple>()?;
        Ok((both.get_item(0)?.cast_into()?, both.get_item(1)?.cast_into()?))
    }

    /// The same for rules: a single positional argument without its tuple.
    fn primals<'py>(
        &self,
        py: Python<'py>,
        arrays: &[Array],
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let (args, kwargs) = self.arguments(py, arrays)?;
        Ok((alone(&args)?, kwargs))
    }

    /// Calls the function with these arrays in a copy of the arguments.
    fn run(&self, arrays: &[Array]) -> hesper::Result<Vec<Array>> {
        attached(|py| {
            let (args, kwargs) = self.arguments(py, arrays)?;
            self.run_with(&args, Some(&kwargs))
        })
    }

    /// Calls the function with these arguments.
    fn run_with(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<Array>> {
        let returned = self.fun.bind(args.py()).call(args, kwargs)?;
        let mut outputs = Vec::new();
        let tree = Tree::of(&returned, Leaves::Any, &mut outputs)?;
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tree));
        *self.returned.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned.unbind());
        Ok(outputs)
    }

    /// The cotangents of all arrays among the arguments from what a rule returned: a tree of arrays with None
    /// where there is no cotangent, for all arguments or for the positional ones.
    fn cotangents(&self, returned: &Bound<'_, PyAny>, primals: &[Array]) -> PyResult<Vec<Array>> {
        let mut arrays = Vec::new();
        let tree = Tree::of(returned, Leaves::Any, &mut arrays)?;
        let given = arrays.len();
        let mut found: Vec<Option<Array>> = arrays.iter().cloned().map(Some).collect();
        if ![primals.len(), self.positional].contains(&given) {
            let mut arrays = arrays.into_iter();
            let py = returned.py();
            let leaf = |part: &Part| match part {
                Part::Array => Some(arrays.next()),
                Part::Other(object) if object.is_none(py) => Some(None),
                _ => None,
            };
            found = tree.parts().iter().filter_map(leaf).collect();
        }
        if ![primals.len(), self.positional].contains(&found.len()) {
            return Err(PyValueError::new_err(format!(
                "[custom vjp] the rule returned {given} cotangents for {} primals; return one, or None, for each",
                primals.len(),
            )));
        }
        found.resize(primals.len(), None);
        let zeros = |primal: &Array| Array::zeros(primal.shape(), primal.dtype()).map_err(raise);
        found.into_iter().zip(primals).map(|(one, primal)| one.map_or_else(|| zeros(primal), Ok)).collect()
    }

    fn result(&self) -> PyResult<Arc<Tree>> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).clone();
        result
            .ok_or_else(|| PyValueError::new_err("cannot return from a custom function that was not called"))
    }

    /// The result of the function with the given arrays.
    fn filled<'py>(&self, py: Python<'py>, arrays: &[Array]) -> PyResult<Bound<'py, PyAny>> {
        self.result()?.with_arrays(py, arrays)
    }
}

/// A single item of a tuple, or the tuple.
fn alone<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    if args.len() == 1 { args.get_item(0) } else { Ok(args.clone().into_any()) }
}

/// Runs Python code on behalf of the array library.
fn attached<R>(f: impl FnOnce(Python<'_>) -> PyResult<R>) -> hesper::Result<R> {
    Python::attach(|py| f(py).map_err(Error::user))
}

/// The arrays of a tree.
fn arrays_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<Array>> {
    let mut arrays = Vec::new();
    Tree::of(object, Leaves::Any, &mut arrays)?;
    Ok(arrays)
}

/// A function with derivatives and a vectorization of its own.
///
/// Parameters
/// ----------
/// f : callable
///     Takes and returns arrays or trees of arrays. Captured arrays are constants.
///
/// Examples
/// --------
/// >>> @mx.custom_function
/// ... def f(x):
/// ...     return mx.sin(x)
/// >>> @f.vjp
/// ... def f(x, cotangent, output):
/// ...     return cotangent * 7
/// >>> mx.grad(f)(mx.array(0.0))
/// array(7, dtype=float32)
#[pyclass(module = "hesper.core", name = "custom_function", frozen, weakref, dict)]
struct PyCustomFunction {
    f: Py<PyAny>,
    rules: RwLock<[Option<Py<PyAny>>; 3]>,
}

/// Places of the rules.
const VJP: usize = 0;
const JVP: usize = 1;
const VMAP: usize = 2;

impl PyCustomFunction {
    fn set<'py>(slf: &Bound<'py, Self>, at: usize, f: Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        callable(&f, ["vjp", "jvp", "vmap"][at])?;
        let mut rules = slf.get().rules.write().unwrap_or_else(PoisonError::into_inner);
        let old = rules[at].replace(f.unbind());
        drop(rules);
        drop(old);
        Ok(slf.clone())
    }

    fn rule(&self, py: Python<'_>, at: usize) -> Option<Py<PyAny>> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules[at].as_ref().map(|rule| rule.clone_ref(py))
    }
}

#[pymethods]
impl PyCustomFunction {
    #[new]
    fn new(f: &Bound<'_, PyAny>) -> PyResult<Self> {
        callable(f, "custom_function")?;
        Ok(PyCustomFunction { f: f.clone().unbind(), rules: RwLock::new([None, None, None]) })
    }

    /// Sets the VJP rule: a function of the arguments, the cotangents of the outputs, and the outputs, which
    /// returns the cotangents of the arguments. Returns the custom function.
    fn vjp<'py>(slf: &Bound<'py, Self>, f: Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        Self::set(slf, VJP, f)
    }

    /// Sets the JVP rule: a function of the arguments and their tangents. Returns the custom function.
    fn jvp<'py>(slf: &Bound<'py, Self>, f: Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        Self::set(slf, JVP, f)
    }

    /// Sets the vmap rule: a function of the arguments and their axes, which returns the outputs and their
    /// axes. Returns the custom function.
    fn vmap<'py>(slf: &Bound<'py, Self>, f: Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        Self::set(slf, VMAP, f)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let (call, arrays) = Call::new(self.f.bind(py), args, kwargs)?;
        // The function gets the objects of the caller, and may change them.
        let (function, args, kwargs) =
            (call.clone(), args.clone().unbind(), kwargs.map(|one| one.clone().unbind()));
        let mut custom = CustomFunction::new(move |_| {
            attached(|py| function.run_with(args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py))))
        });
        if let Some(rule) = self.rule(py, VJP) {
            let call = call.clone();
            custom = custom.with_vjp(move |primals, cotangents, outputs| {
                attached(|py| {
                    let (args, kwargs) = call.primals(py, primals)?;
                    let rest = (args, call.filled(py, cotangents)?, call.filled(py, outputs)?);
                    call.cotangents(&rule.bind(py).call(rest, Some(&kwargs))?, primals)
                })
            });
        }
        if let Some(rule) = self.rule(py, JVP) {
            let call = call.clone();
            custom = custom.with_jvp(move |primals, tangents| {
                attached(|py| {
                    let (args, kwargs) = call.primals(py, primals)?;
                    let mut leaves = Vec::new();
                    for tangent in tangents {
                        leaves.push(match tangent {
                            Some(tangent) => Bound::new(py, PyArray::new(tangent.clone()))?.into_any(),
                            None => py.None().into_bound(py),
                        });
                    }
                    let both = call.arguments.filled(py, &mut leaves.into_iter())?;
                    let tangents = both.cast::<PyTuple>()?.get_item(0)?;
                    let tangents = alone(tangents.cast::<PyTuple>()?)?;
                    arrays_of(&rule.bind(py).call((args, tangents), Some(&kwargs))?)
                })
            });
        }
        if let Some(rule) = self.rule(py, VMAP) {
            let call = call.clone();
            custom = custom.with_vmap(move |inputs, axes| {
                attached(|py| {
                    let (args, kwargs) = call.primals(py, inputs)?;
                    let leaves = axes.iter().map(|axis| axis.into_pyobject(py).map_err(PyErr::from));
                    let leaves: Vec<Bound<'_, PyAny>> = leaves.collect::<PyResult<_>>()?;
                    let both = call.arguments.filled(py, &mut leaves.into_iter())?;
                    let axes = both.cast::<PyTuple>()?.get_item(0)?;
                    let axes = alone(axes.cast::<PyTuple>()?)?;
                    let given = rule.bind(py).call((args, axes), Some(&kwargs))?;
                    let (outputs, places): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                        given.extract().map_err(|_| {
                            PyValueError::new_err(
                                "[custom vmap] the rule must return a pair: the outputs and their axes",
                            )
                        })?;
                    let mut arrays = Vec::new();
                    let tree = Tree::of(&outputs, Leaves::Any, &mut arrays)?;
                    let mut found = Vec::new();
                    tree.axes(&places, &mut found)?;
                    let places =
                        found.into_iter().map(|axis| axis.and_then(|axis| usize::try_from(axis).ok()));
                    Ok((arrays, places.collect()))
                })
            });
        }
        let outputs = custom.call(&arrays).map_err(raise)?;
        let returned = call.returned.lock().unwrap_or_else(PoisonError::into_inner).take();
        match returned {
            Some(returned) if !transform::is_varied(&arrays) => Ok(returned.into_bound(py)),
            _ => call.filled(py, &outputs),
        }
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.f.clone_ref(py)
    }

    #[getter]
    fn __name__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.f.bind(py).getattr("__name__")
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.f)?;
        if let Ok(rules) = self.rules.try_read() {
            rules.iter().flatten().try_for_each(|rule| visit.call(rule))?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        if let Ok(mut rules) = self.rules.try_write() {
            *rules = [None, None, None];
        }
    }
}

/// Calls a function whose intermediate arrays are recomputed for its derivative.
pub fn checkpointed<'py>(
    fun: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (call, arrays) = Call::new(fun, args, kwargs)?;
    let function = call.clone();
    let run = transform::checkpoint(move |inputs: &[Array]| function.run(inputs));
    let outputs = run(&arrays).map_err(raise)?;
    call.filled(args.py(), &outputs)
}

/// Arrays that are computed only when others have been.
///
/// Parameters
/// ----------
/// inputs : array or sequence of array
///     The arrays to return, with unchanged elements.
/// dependencies : array or sequence of array
///     The arrays to compute before.
///
/// Returns
/// -------
/// array or list of array
///
/// Examples
/// --------
/// >>> mx.depends(mx.array([1, 2]), mx.array(3))
/// array([1, 2], dtype=int32)
#[pyfunction(name = "depends")]
#[pyo3(signature = (inputs, dependencies))]
fn after<'py>(inputs: &Bound<'py, PyAny>, dependencies: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = inputs.py();
    let list = |object: &Bound<'py, PyAny>| -> PyResult<Vec<Array>> {
        if let Ok(array) = object.cast::<PyArray>() {
            return Ok(vec![array.get().value()]);
        }
        if !(object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()) {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("[depends] expected arrays, not {name}")));
        }
        object.try_iter()?.map(|item| Ok(item?.extract::<PyArray>()?.value())).collect()
    };
    let (arrays, others) = (list(inputs)?, list(dependencies)?);
    let described = || crate::steps::movement::depends(&arrays, &others);
    let made = crate::args::on(None, || crate::steps::or_else(described, || depends(&arrays, &others)))?;
    let mut made: Vec<PyArray> = made.into_iter().map(PyArray::new).collect();
    if inputs.is_instance_of::<PyArray>()
        && let Some(one) = made.pop()
    {
        return Ok(Bound::new(py, one)?.into_any());
    }
    Ok(made.into_pyobject(py)?.into_any())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCustomFunction>()?;
    m.add_function(wrap_pyfunction!(after, m)?)
}
