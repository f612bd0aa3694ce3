//! Functions in files, and graphs as text: `export_function`, `import_function`, `exporter`, `export_to_dot`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hesper::export::{Exporter, Graph, Imported, Value, ValueRef};
use hesper::{Array, Dtype, transform};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit};

use crate::args::callable;
use crate::dtype::PyDtype;
use crate::error::raise;
use crate::functions::io::path_of;
use crate::handle::PyArray;
use crate::primitives::{self, Argument, Id, Operand, Primitives};
use crate::steps::Describing;
use crate::transform::Raised;
use crate::tree::{Leaves, Tree};
use crate::waiting::detached;

type Arguments = (Vec<Array>, Vec<(String, Array)>);

/// Arrays by place and by name: as they are, or as one sequence and one dict of them.
fn arguments(
    call: &str,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Arguments> {
    let wrong = || {
        PyValueError::new_err(format!(
            "[{call}] cannot use these inputs; give arrays by position and by name, or one tuple and one dictionary of \
             arrays"
        ))
    };
    let array = |object: &Bound<'_, PyAny>| -> PyResult<Array> {
        object.cast::<PyArray>().map(|array| array.get().value()).map_err(|_| wrong())
    };
    let list = |object: &Bound<'_, PyAny>| -> PyResult<Vec<Array>> {
        object.try_iter()?.map(|item| array(&item?)).collect()
    };
    let dict = |object: &Bound<'_, PyDict>| -> PyResult<Vec<(String, Array)>> {
        object.iter().map(|(key, item)| Ok((key.extract().map_err(|_| wrong())?, array(&item)?))).collect()
    };
    let sequence =
        |object: &Bound<'_, PyAny>| object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>();
    let given: Vec<Bound<'_, PyAny>> = args.iter().collect();
    let named = kwargs.filter(|kwargs| !kwargs.is_empty());
    match (&given[..], named) {
        ([one], None) if sequence(one) => Ok((list(one)?, Vec::new())),
        ([one], None) if one.is_instance_of::<PyDict>() => Ok((Vec::new(), dict(one.cast()?)?)),
        ([one, other], None) if sequence(one) && other.is_instance_of::<PyDict>() => {
            Ok((list(one)?, dict(other.cast()?)?))
        }
        _ => Ok((list(args.as_any())?, named.map(dict).transpose()?.unwrap_or_default())),
    }
}

/// The graph of a Python function.
fn trace(fun: &Bound<'_, PyAny>, (positional, named): &Arguments, shapeless: bool) -> PyResult<Graph> {
    let py = fun.py();
    let mut names: Vec<&String> = named.iter().map(|(name, _)| name).collect();
    names.sort();
    let run = |arrays: &[Array]| -> Result<Vec<Array>, Raised> {
        let objects = arrays
            .iter()
            .map(|array| Bound::new(py, PyArray::new(array.clone())))
            .collect::<PyResult<Vec<_>>>()?;
        let kwargs = PyDict::new(py);
        for (name, object) in names.iter().zip(&objects[positional.len()..]) {
            kwargs.set_item(name, object)?;
        }
        let returned = fun.call(PyTuple::new(py, &objects[..positional.len()])?, Some(&kwargs))?;
        let wrong = || {
            let what = "[export_function] cannot export a function that returns anything but arrays";
            PyValueError::new_err(what)
        };
        if let Ok(array) = returned.cast::<PyArray>() {
            return Ok(vec![array.get().value()]);
        }
        if !(returned.is_instance_of::<PyTuple>() || returned.is_instance_of::<PyList>()) {
            return Err(wrong().into());
        }
        let mut outputs = Vec::new();
        for item in returned.try_iter()? {
            outputs.push(item?.cast::<PyArray>().map_err(|_| wrong())?.get().value());
        }
        Ok(outputs)
    };
    Graph::trace(positional, named, shapeless, run).map_err(|Raised(error)| error)
}

fn file_of(call: &str, file: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    match path_of(file)? {
        Some(path) => Ok(path),
        None => {
            let name = file.get_type().name()?;
            Err(PyTypeError::new_err(format!("[{call}] expected a path, not {name}")))
        }
    }
}

fn started(path: PathBuf, shapeless: bool, metadata: Option<String>) -> Exporter {
    Exporter::new(path).shapeless(shapeless).metadata(metadata.unwrap_or_default())
}

/// Write a function to a file.
///
/// The function is traced once, with arrays that have no values; the graph is written, with the arrays that
/// the function captures. It can then be imported and called without the program that exported it, from
/// Python and from Rust.
///
/// Parameters
/// ----------
/// file_or_callback : str, path or callable
///     The file. A callable receives the graph instead, as a dict for the inputs, the keyword inputs, the
///     outputs, the constants and each op.
/// fun : callable
///     Takes arrays and returns an array or a sequence of arrays.
/// *args : array
///     Example arguments, by position; or a tuple of arrays, optionally followed by a dict of arrays.
/// shapeless : bool
///     Whether the function can be called with other shapes of the same number of axes. Ops that depend on
///     the lengths, like a slice with a fixed end, are errors then.
/// metadata : str, optional
///     Text to store in the file with the function.
/// **kwargs : array
///     Arguments by name.
///
/// Raises
/// ------
/// ValueError
///     If arguments or results are not arrays, if an op cannot be written, or if there is metadata for a
///     callable.
/// RuntimeError
///     If the file cannot be written.
///
/// See Also
/// --------
/// exporter : for several traces of a function in one file.
/// import_function : loads the function.
///
/// Examples
/// --------
/// >>> import os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "add.hesperfn")
/// >>> mx.export_function(path, lambda x, y: x + y, mx.array(1), y=mx.array([1, 2]))
/// >>> mx.import_function(path)(mx.array(5), y=mx.array([1, 2]))
/// (array([6, 7], dtype=int32),)
#[pyfunction]
#[pyo3(signature = (file_or_callback, fun, *args, shapeless = false, metadata = None, **kwargs))]
fn export_function(
    file_or_callback: &Bound<'_, PyAny>,
    fun: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    shapeless: bool,
    metadata: Option<String>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    crate::error::usable()?;
    callable(fun, "export_function")?;
    let given = arguments("export_function", args, kwargs)?;
    if path_of(file_or_callback)?.is_none() && file_or_callback.is_callable() {
        if metadata.is_some() {
            return Err(PyValueError::new_err(
                "[export_function] cannot pass metadata to a callback; export to a file",
            ));
        }
        let described = Describing::start();
        let graph = trace(fun, &given, shapeless)?;
        drop(described);
        return tell(file_or_callback, &graph);
    }
    let mut exporter = started(file_of("export_function", file_or_callback)?, shapeless, metadata);
    let graph = trace(fun, &given, shapeless)?;
    detached(fun.py(), || {
        exporter.add(graph)?;
        exporter.finish()
    })
    .map_err(raise)
}

/// A, B, ..., Z, AA, AB, ...
fn letters(mut number: usize) -> String {
    let mut text = Vec::new();
    loop {
        text.push(b'A' + (number % 26) as u8);
        match (number / 26).checked_sub(1) {
            Some(rest) => number = rest,
            None => break,
        }
    }
    text.iter().rev().map(|letter| char::from(*letter)).collect()
}

/// Passes a graph to a callback: its inputs, its outputs, its constants, then each of its primitives.
fn tell<'py>(callback: &Bound<'py, PyAny>, graph: &Graph) -> PyResult<()> {
    let py = callback.py();
    let graph = &graph.expanded();
    let primitives = Primitives::of(graph).map_err(raise)?;
    let mut names: HashMap<Id, String> = HashMap::new();
    let mut name = |id: Id| {
        let next = names.len();
        names.entry(id).or_insert_with(|| letters(next)).clone()
    };
    let entry = |(shape, dtype): (&[usize], Dtype), name: String| -> PyResult<Bound<'py, PyAny>> {
        (name, PyTuple::new(py, shape)?, PyDtype(dtype)).into_bound_py_any(py)
    };
    let meta = |place: ValueRef| graph.meta(place).unwrap_or((&[], Dtype::Float32));
    let send = |kind: &str, items: &[(&str, Bound<'py, PyAny>)]| -> PyResult<()> {
        let dict = PyDict::new(py);
        dict.set_item("type", kind)?;
        items.iter().try_for_each(|(key, item)| dict.set_item(key, item))?;
        callback.call1((dict,)).map(|_| ())
    };
    let signature = graph.signature();
    let list = |items: Vec<Bound<'py, PyAny>>| PyList::new(py, items).map(Bound::into_any);
    let inputs = (0..signature.arguments.len())
        .map(ValueRef::Argument)
        .map(|place| entry(meta(place), name(Id::ValueRef(place))))
        .collect::<PyResult<Vec<_>>>()?;
    send("inputs", &[("inputs", list(inputs)?)])?;
    let keywords = signature
        .keywords
        .iter()
        .enumerate()
        .map(|(at, key)| {
            let place = ValueRef::Argument(signature.positional + at);
            (key, name(Id::ValueRef(place))).into_bound_py_any(py)
        })
        .collect::<PyResult<Vec<_>>>()?;
    send("keyword_inputs", &[("keywords", list(keywords)?)])?;
    let outputs = (primitives.outputs.iter())
        .map(|output| entry((&output.shape, output.dtype), name(output.id)))
        .collect::<PyResult<Vec<_>>>()?;
    send("outputs", &[("outputs", list(outputs)?)])?;
    let constants = primitives
        .constants
        .iter()
        .map(|(id, array)| (name(*id), PyArray::new(array.clone())).into_bound_py_any(py))
        .collect::<PyResult<Vec<_>>>()?;
    send("constants", &[("constants", list(constants)?)])?;
    for primitive in &primitives.list {
        let mut operands = |list: &[Operand]| {
            list.iter().map(|one| entry((&one.shape, one.dtype), name(one.id))).collect::<PyResult<Vec<_>>>()
        };
        let (inputs, outputs) = (operands(&primitive.inputs)?, operands(&primitive.outputs)?);
        let arguments = primitive.arguments.iter().map(|argument| match argument {
            Argument::Dtype(dtype) => PyDtype(*dtype).into_bound_py_any(py),
            Argument::Shape(lengths) => PyTuple::new(py, lengths).map(Bound::into_any),
            Argument::Value(Value::Bool(value)) => value.into_bound_py_any(py),
            Argument::Value(Value::Int(value)) => value.into_bound_py_any(py),
            Argument::Value(Value::Float(value)) => value.into_bound_py_any(py),
            Argument::Value(Value::Text(value)) => value.into_bound_py_any(py),
            Argument::Value(Value::Ints(list)) => list.into_bound_py_any(py),
            Argument::Value(Value::Texts(list)) => list.into_bound_py_any(py),
        });
        let arguments = arguments.collect::<PyResult<Vec<_>>>()?;
        let items = [
            ("name", primitive.name.as_str().into_bound_py_any(py)?),
            ("inputs", list(inputs)?),
            ("outputs", list(outputs)?),
            ("arguments", list(arguments)?),
        ];
        send("primitive", &items)?;
    }
    Ok(())
}

/// Writes several traces of one function to a file; returned by `exporter`.
///
/// Called with arrays it adds a trace for arguments like these. As a context manager it writes the file when
/// the block is left.
///
/// Examples
/// --------
/// >>> import os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "sum.hesperfn")
/// >>> with mx.exporter(path, lambda *args: sum(args)) as exporter:
/// ...     exporter(mx.array(1))
/// ...     exporter(mx.array(1), mx.array(2))
/// >>> mx.import_function(path)(mx.array(3), mx.array(4))
/// (array(7, dtype=int32),)
#[pyclass(module = "hesper.core", name = "FunctionExporter", frozen)]
struct PyFunctionExporter {
    fun: Py<PyAny>,
    shapeless: bool,
    open: Mutex<Option<Exporter>>,
}

impl PyFunctionExporter {
    fn take(&self) -> Option<Exporter> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl PyFunctionExporter {
    /// Adds a trace for arguments like these.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        crate::error::usable()?;
        let py = args.py();
        let given = arguments("export_function", args, kwargs)?;
        let closed = || {
            PyRuntimeError::new_err("[export_function] cannot export another trace: the exporter is closed")
        };
        if self.open.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(closed());
        }
        let graph = trace(self.fun.bind(py), &given, self.shapeless)?;
        let added = detached(py, || {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.as_mut().map(|exporter| exporter.add(graph))
        });
        added.ok_or_else(closed)?.map_err(raise)
    }

    /// Writes the file. Nothing can be added after that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Some(exporter) => detached(py, || exporter.finish()).map_err(raise),
            None => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.fun)
    }
}

impl Drop for PyFunctionExporter {
    /// Writes the traces of an exporter that was not closed. Errors have no receiver and are dropped.
    fn drop(&mut self) {
        if let Some(exporter) = self.take() {
            let _ = exporter.finish();
        }
    }
}

/// An object that writes several traces of a function to one file.
///
/// Arrays that the traces share are written once.
///
/// Parameters
/// ----------
/// file : str or path
///     The file.
/// fun : callable
///     Takes arrays and returns an array or a sequence of arrays.
/// shapeless : bool
///     Whether the traces are also for other shapes of the same number of axes.
/// metadata : str, optional
///     Text to store in the file with the function.
///
/// Returns
/// -------
/// FunctionExporter
///
/// Raises
/// ------
/// RuntimeError
///     By the object, if a trace is added for the same arguments twice, or after it was closed.
///
/// Examples
/// --------
/// >>> import os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "square.hesperfn")
/// >>> with mx.exporter(path, mx.square) as exporter:
/// ...     exporter(mx.array(1.0))
/// ...     exporter(mx.array([1, 2]))
/// >>> mx.import_function(path)(mx.array([3, 4]))
/// (array([9, 16], dtype=int32),)
#[pyfunction]
#[pyo3(signature = (file, fun, *, shapeless = false, metadata = None))]
fn exporter(
    file: &Bound<'_, PyAny>,
    fun: &Bound<'_, PyAny>,
    shapeless: bool,
    metadata: Option<String>,
) -> PyResult<PyFunctionExporter> {
    callable(fun, "exporter")?;
    let open = started(file_of("exporter", file)?, shapeless, metadata);
    Ok(PyFunctionExporter { fun: fun.clone().unbind(), shapeless, open: Mutex::new(Some(open)) })
}

/// A function from a file.
#[pyclass(module = "hesper.core", name = "_imported_function", frozen, weakref, dict)]
struct PyImported(Imported);

#[pymethods]
impl PyImported {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (positional, named) = arguments("import_function::call", args, kwargs)?;
        let named: Vec<(&str, &Array)> = named.iter().map(|(name, array)| (name.as_str(), array)).collect();
        let outputs = crate::args::on(None, || self.0.call(&positional, &named))?;
        let outputs: Vec<PyArray> = outputs.into_iter().map(PyArray::new).collect();
        PyTuple::new(args.py(), outputs)
    }

    fn __repr__(&self) -> String {
        format!("<imported function with {} traces>", self.0.signatures().count())
    }
}

/// Read a function from a file that `export_function` or `exporter` has written.
///
/// All of the file is checked when it is opened. Arrays that the function holds stay in the file, which is
/// mapped, and are read when they are used.
///
/// Parameters
/// ----------
/// file : str or path
/// return_metadata : bool
///     Whether to return the text in the file too.
///
/// Returns
/// -------
/// callable, or a tuple of it and a str
///     The function takes arrays like those that it was exported with, or a tuple and a dict of them, and
///     returns a tuple of arrays.
///
/// Raises
/// ------
/// RuntimeError
///     If the file cannot be read, is damaged, or is of another version.
/// ValueError
///     By the function, if no trace is for arguments of these shapes and types.
///
/// Examples
/// --------
/// >>> import os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "exp.hesperfn")
/// >>> mx.export_function(path, mx.exp, mx.zeros((2,)), shapeless=True)
/// >>> mx.import_function(path)(mx.zeros((3,)))
/// (array([1, 1, 1], dtype=float32),)
#[pyfunction]
#[pyo3(signature = (file, return_metadata = false))]
fn import_function<'py>(file: &Bound<'py, PyAny>, return_metadata: bool) -> PyResult<Bound<'py, PyAny>> {
    crate::error::usable()?;
    let (py, path) = (file.py(), file_of("import_function", file)?);
    let imported = detached(py, || hesper::export::import_function(path)).map_err(raise)?;
    let metadata = imported.metadata().to_string();
    let function = Bound::new(py, PyImported(imported))?;
    if return_metadata { (function, metadata).into_bound_py_any(py) } else { Ok(function.into_any()) }
}

/// Write the graph that computes arrays as text for Graphviz.
///
/// Parameters
/// ----------
/// file : str, path or file object
///     The file, opened in text mode if it is an object.
/// *args : array
///     The outputs of the graph: arrays or trees of arrays.
/// **kwargs : array
///     More arrays of the graph, with their names.
///
/// Examples
/// --------
/// >>> import io
/// >>> text, x = io.StringIO(), mx.array(1)
/// >>> mx.export_to_dot(text, mx.exp(x + 2), x=x)
/// >>> text.getvalue().startswith("digraph {") and '"x"' in text.getvalue()
/// True
#[pyfunction]
#[pyo3(signature = (file, *args, **kwargs))]
fn export_to_dot(
    file: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let mut arrays = Vec::new();
    Tree::of(args.as_any(), Leaves::Arrays, &mut arrays)?;
    let mut names: Vec<(String, Array)> = Vec::new();
    for (key, value) in kwargs.into_iter().flatten() {
        let mut named = Vec::new();
        Tree::of(&value, Leaves::Arrays, &mut named)?;
        let key: String = key.extract()?;
        arrays.extend(named.iter().cloned());
        names.extend(named.into_iter().map(|array| (key.clone(), array)));
    }
    let find =
        |array: &Array| names.iter().find(|(_, named)| named.ptr_eq(array)).map(|(name, _)| name.clone());
    let text = transform::named_dot(&arrays, find, primitives::name);
    if let Some(path) = path_of(file)? {
        return Ok(std::fs::write(path, text)?);
    }
    if !file.hasattr("write")? {
        return Err(PyValueError::new_err("[export_to_dot] expected a path or a writable file"));
    }
    file.call_method1("write", (text,)).map(|_| ())
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFunctionExporter>()?;
    m.add_function(wrap_pyfunction!(export_function, m)?)?;
    m.add_function(wrap_pyfunction!(import_function, m)?)?;
    m.add_function(wrap_pyfunction!(exporter, m)?)?;
    m.add_function(wrap_pyfunction!(export_to_dot, m)?)
}
