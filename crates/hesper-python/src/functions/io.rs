//! Loading and saving: paths and file objects on one side, `hesper::io` on the other.
//!
//! A path is memory-mapped, and so is a file object at the start of a regular file; any other object with
//! `read` is read at once. The interpreter's lock is released throughout; writing to a file object acquires
//! it for each piece.

use std::io::{Cursor, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use hesper::io::{self, Format, Input, Loaded, MetaArray, MetaValue, Source};
use hesper::{Array, Dtype};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyFileNotFoundError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::args::{On, on};
use crate::error::raise;
use crate::handle::PyArray;
use crate::waiting::{attached, computed, detached};

type Named = Vec<(String, Array)>;

/// The path that an object names, if it names one.
pub fn path_of(file: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    if file.is_instance_of::<PyString>() || file.hasattr("__fspath__")? {
        return file.extract().map(Some);
    }
    Ok(None)
}

/// The path with an extension, which is added if it is missing.
fn with_extension(path: PathBuf, extension: &str) -> PathBuf {
    if path.extension().is_some_and(|found| found == extension) {
        return path;
    }
    let mut name = path.into_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}

fn format_of(name: &Path, format: Option<&str>) -> PyResult<Format> {
    let extension = match format {
        Some(format) => format.to_string(),
        None if name.is_dir() => return Ok(Format::ShardIndex),
        None => match name.extension() {
            Some(extension) => extension.to_string_lossy().into_owned(),
            None => {
                return Err(PyValueError::new_err(format!(
                    "[load] cannot infer the format of {}: it has no extension; give format",
                    name.display()
                )));
            }
        },
    };
    match extension.as_str() {
        "npy" => Ok(Format::Npy),
        "npz" => Ok(Format::Npz),
        "safetensors" => Ok(Format::Safetensors),
        "gguf" => Ok(Format::Gguf),
        "json" => Ok(Format::ShardIndex),
        other => Err(PyValueError::new_err(format!(
            "[load] unknown format {other}; use npy, npz, safetensors, gguf or json"
        ))),
    }
}

/// The path of a regular file that a file object stands at the start of.
fn mapped_path(file: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let py = file.py();
    let os = py.import("os")?;
    let find = || -> PyResult<Option<PathBuf>> {
        let name: PathBuf = file.getattr("name")?.extract()?;
        let at_start = file.call_method0("tell")?.extract::<u64>()? == 0;
        let here = os.call_method1("fstat", (file.call_method0("fileno")?,))?;
        let there = os.call_method1("stat", (&name,))?;
        let same = |field: &str| -> PyResult<bool> {
            Ok(here.getattr(field)?.extract::<u64>()? == there.getattr(field)?.extract::<u64>()?)
        };
        Ok((at_start && same("st_ino")? && same("st_dev")? && name.is_file()).then_some(name))
    };
    // Whatever an object lacks for that, it can still be read.
    Ok(find().unwrap_or(None))
}

/// The content of a file object from its position on.
fn content(file: &Bound<'_, PyAny>) -> PyResult<Input> {
    if !file.call_method1("read", (0,))?.is_instance_of::<PyBytes>() {
        return Err(not_a_file("load"));
    }
    if let Some(path) = mapped_path(file)? {
        return Ok(path.into());
    }
    let read = file.call_method0("read")?;
    match read.cast::<PyBytes>() {
        Ok(bytes) => Ok(Source::from_bytes(bytes.as_bytes()).into()),
        Err(_) => Err(not_a_file("load")),
    }
}

fn not_a_file(call: &str) -> PyErr {
    let what = format!("[{call}] expected a path, or a file opened in binary mode");
    PyValueError::new_err(what)
}

/// Load arrays from a file.
///
/// Only the header is read: the elements of an array are used in place, or read, when the array is evaluated.
///
/// Parameters
/// ----------
/// file : str, path or file object
///     An ``.npy``, ``.npz``, ``.safetensors`` or ``.gguf`` file; the index file
///     (``.json``) of a sharded checkpoint; a folder that holds one.
/// format : str, optional
///     Default: the extension.
/// return_metadata : bool
///     Whether to return the metadata of a safetensors or GGUF file too.
/// stream : Stream or Device, optional
///
/// Returns
/// -------
/// array, dict of str to array, or a tuple of the dict and the metadata
#[pyfunction]
#[pyo3(signature = (file, /, format = None, return_metadata = false, *, stream = None))]
fn load<'py>(
    file: &Bound<'py, PyAny>,
    format: Option<&str>,
    return_metadata: bool,
    stream: Option<On>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = file.py();
    let (input, kind) = match path_of(file)? {
        Some(path) => {
            let kind = format_of(&path, format)?;
            (Input::Path(path), kind)
        }
        None if file.hasattr("read")? => {
            let kind = match format {
                Some(_) => format_of(Path::new(""), format)?,
                None => format_of(&file.getattr("name")?.extract::<PathBuf>()?, None)?,
            };
            (content(file)?, kind)
        }
        None if file.is_none() => {
            return Err(PyTypeError::new_err("[load] expected a file or a path, not None"));
        }
        None => return Err(not_a_file("load")),
    };
    if return_metadata && matches!(kind, Format::Npy | Format::Npz) {
        return Err(PyValueError::new_err(format!("[load] cannot return metadata: {kind} files have none")));
    }
    let parser = if kind == Format::ShardIndex { None } else { Some(kind) };
    let options = io::Options { format: parser, ..Default::default() };
    let missing = match &input {
        Input::Path(path) => !path.is_file(),
        _ => false,
    };
    let loaded = detached(py, || on(stream, || io::load_with(input, &options))).map_err(|error| {
        // As in MLX for files of these formats that cannot be opened.
        match missing && matches!(kind, Format::Npz | Format::Gguf) {
            true => PyValueError::new_err(error.value(py).to_string()),
            false => error,
        }
    })?;
    if let Some(array) = loaded.single() {
        return PyArray::new(array.clone()).into_bound_py_any(py);
    }
    let metadata = if return_metadata { Some(metadata_of(py, &loaded)?) } else { None };
    let arrays = PyDict::new(py);
    for (name, array) in loaded.into_arrays() {
        arrays.set_item(name, PyArray::new(array))?;
    }
    match metadata {
        Some(metadata) => (arrays, metadata).into_bound_py_any(py),
        None => Ok(arrays.into_any()),
    }
}

fn metadata_of<'py>(py: Python<'py>, loaded: &Loaded) -> PyResult<Bound<'py, PyDict>> {
    let metadata = PyDict::new(py);
    for (key, value) in loaded.metadata().entries() {
        metadata.set_item(key, value_of(py, value)?)?;
    }
    Ok(metadata)
}

/// Numbers are arrays, text is text.
fn value_of<'py>(py: Python<'py>, value: &MetaValue) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! scalar {
        ($value:expr) => {
            Array::try_from_slice(&[*$value], &[])
        };
    }
    let array = match value {
        MetaValue::String(text) => return text.into_bound_py_any(py),
        MetaValue::Array(values) => return list_of(py, values),
        MetaValue::U8(v) => scalar!(v),
        MetaValue::I8(v) => scalar!(v),
        MetaValue::U16(v) => scalar!(v),
        MetaValue::I16(v) => scalar!(v),
        MetaValue::U32(v) => scalar!(v),
        MetaValue::I32(v) => scalar!(v),
        MetaValue::U64(v) => scalar!(v),
        MetaValue::I64(v) => scalar!(v),
        MetaValue::F32(v) => scalar!(v),
        MetaValue::F64(v) => scalar!(v),
        MetaValue::Bool(v) => Array::from_bytes(&[u8::from(*v)], Dtype::Bool, &[]),
    };
    PyArray::new(array.map_err(raise)?).into_bound_py_any(py)
}

fn list_of<'py>(py: Python<'py>, values: &MetaArray) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! vector {
        ($values:expr) => {
            Array::try_from_slice($values, &[$values.len()])
        };
    }
    let array = match values {
        MetaArray::String(texts) => return texts.into_bound_py_any(py),
        MetaArray::Array(inner) => {
            let items = inner.iter().map(|values| list_of(py, values)).collect::<PyResult<Vec<_>>>()?;
            return PyList::new(py, items)?.into_bound_py_any(py);
        }
        MetaArray::U8(v) => vector!(v),
        MetaArray::I8(v) => vector!(v),
        MetaArray::U16(v) => vector!(v),
        MetaArray::I16(v) => vector!(v),
        MetaArray::U32(v) => vector!(v),
        MetaArray::I32(v) => vector!(v),
        MetaArray::U64(v) => vector!(v),
        MetaArray::I64(v) => vector!(v),
        MetaArray::F32(v) => vector!(v),
        MetaArray::F64(v) => vector!(v),
        MetaArray::Bool(v) => {
            let bytes: Vec<u8> = v.iter().map(|&v| u8::from(v)).collect();
            Array::from_bytes(&bytes, Dtype::Bool, &[v.len()])
        }
    };
    PyArray::new(array.map_err(raise)?).into_bound_py_any(py)
}

/// A file object to write to.
struct Output {
    file: Py<PyAny>,
    failure: Option<PyErr>,
}

impl Output {
    fn call<R>(&mut self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> std::io::Result<R> {
        attached(|py| f(self.file.bind(py))).map_err(|error| {
            let text = error.to_string();
            self.failure.get_or_insert(error);
            std::io::Error::other(text)
        })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        const MAX_WRITE: usize = 16 << 20;
        let part = &bytes[..bytes.len().min(MAX_WRITE)];
        self.call(|file| {
            // Raw files may write less; buffered ones write all.
            let written = file.call_method1("write", (PyBytes::new(file.py(), part),))?;
            Ok(if written.is_none() { part.len() } else { written.extract::<usize>()?.min(part.len()) })
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let (offset, whence) = match to {
            SeekFrom::Start(at) => (at as i64, 0),
            SeekFrom::Current(by) => (by, 1),
            SeekFrom::End(by) => (by, 2),
        };
        self.call(|file| file.call_method1("seek", (offset, whence))?.extract())
    }
}

/// Saves to a path, atomically, or writes to a file object, without the interpreter's lock. The arrays are
/// computed before: an interrupt can end that, and no file is begun.
fn put(
    call: &str,
    file: &Bound<'_, PyAny>,
    extension: &str,
    arrays: Vec<Array>,
    to_path: impl FnOnce(&Path) -> hesper::Result<()> + Send,
    to_file: impl FnOnce(&mut Output) -> hesper::Result<()> + Send,
) -> PyResult<()> {
    let py = file.py();
    crate::error::usable()?;
    if let Some(path) = path_of(file)? {
        let path = with_extension(path, extension);
        computed(py, arrays)?;
        return detached(py, || to_path(&path)).map_err(raise);
    }
    if !file.hasattr("write")? {
        return Err(not_a_file(call));
    }
    computed(py, arrays)?;
    let mut output = Output { file: file.clone().unbind(), failure: None };
    let result = detached(py, || to_file(&mut output));
    match output.failure {
        Some(error) => Err(error),
        None => result.map_err(raise),
    }
}

fn all(arrays: &Named) -> Vec<Array> {
    arrays.iter().map(|(_, array)| array.clone()).collect()
}

fn named(arrays: &Named) -> impl Iterator<Item = (&str, &Array)> {
    arrays.iter().map(|(name, array)| (name.as_str(), array))
}

/// Save an array in the ``.npy`` format.
///
/// The extension is added to a path that lacks it. A file that was there is replaced when all is written.
#[pyfunction]
#[pyo3(signature = (file, arr))]
fn save(file: &Bound<'_, PyAny>, arr: PyArray) -> PyResult<()> {
    let array = arr.value();
    put(
        "save",
        file,
        "npy",
        vec![array.clone()],
        |path| io::save_npy(path, &array),
        |out| io::write_npy(out, &array),
    )
}

/// The arrays of `savez`: those without a name are called ``arr_0``, ``arr_1`` and so on.
fn to_zip(
    call: &str,
    file: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Named> {
    if let Some(path) = path_of(file)?
        && let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty())
        && !folder.exists()
    {
        let what =
            format!("[{call}] cannot write {}: there is no folder {}", path.display(), folder.display());
        return Err(PyFileNotFoundError::new_err(what));
    }
    let mut arrays = Vec::new();
    if let Some(kwargs) = kwargs {
        for (name, array) in kwargs.iter() {
            arrays.push((name.extract()?, array.extract::<PyArray>()?.value()));
        }
    }
    for (at, array) in args.iter().enumerate() {
        let name = format!("arr_{at}");
        if arrays.iter().any(|(other, _): &(String, Array)| *other == name) {
            let what = format!("[{call}] cannot save an unnamed array as {name}: a keyword has that name");
            return Err(PyValueError::new_err(what));
        }
        arrays.push((name, array.extract::<PyArray>()?.value()));
    }
    Ok(arrays)
}

/// Writes an archive to a file object that may be unable to go back, or stand elsewhere than at its start.
fn zip_to(out: &mut Output, write: impl Fn(&mut dyn WriteSeek) -> hesper::Result<()>) -> hesper::Result<()> {
    let from_start = |file: &Bound<'_, PyAny>| -> PyResult<bool> {
        Ok(file.call_method0("seekable")?.extract::<bool>()?
            && file.call_method0("tell")?.extract::<u64>()? == 0)
    };
    if attached(|py| from_start(out.file.bind(py))).unwrap_or(false) {
        return write(out);
    }
    let mut memory = Cursor::new(Vec::new());
    write(&mut memory)?;
    out.write_all(memory.get_ref()).map_err(|e| hesper_files::Error::io("cannot write", None, e).into())
}

trait WriteSeek: Write + Seek {}
impl<T: Write + Seek> WriteSeek for T {}

/// Save arrays in the ``.npz`` format.
///
/// Arrays given by position are called ``arr_0``, ``arr_1`` and so on.
#[pyfunction]
#[pyo3(signature = (file, *args, **kwargs))]
fn savez(
    file: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let arrays = to_zip("savez", file, args, kwargs)?;
    let to_file = |out: &mut Output| zip_to(out, |mut out| io::write_npz(&mut out, named(&arrays)));
    put("savez", file, "npz", all(&arrays), |path| io::save_npz(path, named(&arrays)), to_file)
}

/// Save arrays in the compressed ``.npz`` format.
///
/// Arrays given by position are called ``arr_0``, ``arr_1`` and so on.
#[pyfunction]
#[pyo3(signature = (file, *args, **kwargs))]
fn savez_compressed(
    file: &Bound<'_, PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let arrays = to_zip("savez_compressed", file, args, kwargs)?;
    let to_file =
        |out: &mut Output| zip_to(out, |mut out| io::write_npz_compressed(&mut out, named(&arrays)));
    put(
        "savez_compressed",
        file,
        "npz",
        all(&arrays),
        |path| io::save_npz_compressed(path, named(&arrays)),
        to_file,
    )
}

/// The arrays of a dict.
fn dict_of(call: &str, arrays: &Bound<'_, PyDict>) -> PyResult<Named> {
    let wrong = |what: &str, name: &Bound<'_, PyAny>| {
        PyRuntimeError::new_err(format!(
            "[{call}] {what}: {}",
            name.repr().map_or_else(|_| "?".into(), |r| r.to_string())
        ))
    };
    arrays
        .iter()
        .map(|(name, array)| {
            let text = name.extract::<String>().map_err(|_| wrong("names must be strings", &name))?;
            let array =
                array.extract::<PyArray>().map_err(|_| wrong("not an array under the name", &name))?;
            Ok((text, array.value()))
        })
        .collect()
}

/// Save arrays in the ``.safetensors`` format.
///
/// Parameters
/// ----------
/// file : str, path or file object
///     The extension is added to a path that lacks it.
/// arrays : dict of str to array
/// metadata : dict of str to str, optional
#[pyfunction]
#[pyo3(signature = (file, arrays, metadata = None))]
fn save_safetensors(
    file: &Bound<'_, PyAny>,
    arrays: &Bound<'_, PyDict>,
    metadata: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let arrays = dict_of("save_safetensors", arrays)?;
    let metadata: Vec<(String, String)> = match metadata {
        None => Vec::new(),
        Some(metadata) => metadata
            .extract::<std::collections::BTreeMap<String, String>>()
            .map_err(|_| {
                let what =
                    "[save_safetensors] cannot save metadata that is not a dictionary of strings to strings";
                PyValueError::new_err(what)
            })?
            .into_iter()
            .collect(),
    };
    put(
        "save_safetensors",
        file,
        "safetensors",
        all(&arrays),
        |path| io::save_safetensors(path, named(&arrays), &metadata),
        |out| io::write_safetensors(out, named(&arrays), &metadata),
    )
}

/// Save arrays in the ``.gguf`` format.
///
/// Parameters
/// ----------
/// file : str or path
///     The extension is added if it is missing.
/// arrays : dict of str to array
/// metadata : dict of str to array, str or list of str, optional
///     Arrays have at most one axis.
#[pyfunction]
#[pyo3(signature = (file, arrays, metadata = None))]
fn save_gguf(
    file: &Bound<'_, PyAny>,
    arrays: &Bound<'_, PyDict>,
    metadata: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    crate::error::usable()?;
    let py = file.py();
    let Some(path) = path_of(file)? else {
        return Err(PyValueError::new_err("[save_gguf] expected a path"));
    };
    let path = with_extension(path, "gguf");
    let arrays = dict_of("save_gguf", arrays)?;
    let mut entries = Vec::new();
    for (key, value) in metadata.into_iter().flat_map(|metadata| metadata.iter()) {
        entries.push((key.extract::<String>()?, gguf_value(&key, &value)?));
    }
    computed(py, all(&arrays))?;
    detached(py, || io::save_gguf(path, named(&arrays), &entries)).map_err(raise)
}

fn gguf_value(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<MetaValue> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(MetaValue::String(text));
    }
    let Ok(array) = value.extract::<PyArray>() else {
        if let Ok(texts) = value.extract::<Vec<String>>() {
            return Ok(MetaValue::Array(MetaArray::String(texts)));
        }
        let what = format!(
            "[save_gguf] cannot save the metadata {key}; it must be an array, a string or a list of strings"
        );
        return Err(PyRuntimeError::new_err(what));
    };
    let array = array.value();
    if array.ndim() > 1 {
        return Err(PyRuntimeError::new_err(format!(
            "[save_gguf] cannot save the metadata {key} of shape {:?}; it must have at most one axis",
            array.shape()
        )));
    }
    if array.size() == 0 {
        return Err(PyRuntimeError::new_err(format!(
            "[save_gguf] cannot save the metadata {key}: it is an empty array"
        )));
    }
    macro_rules! numbers {
        ($type:ty, $kind:ident) => {{
            let values = detached(value.py(), || array.to_vec::<$type>()).map_err(raise)?;
            match (array.ndim(), &values[..]) {
                (0, [value]) => MetaValue::$kind(*value),
                _ => MetaValue::Array(MetaArray::$kind(values)),
            }
        }};
    }
    Ok(match array.dtype() {
        Dtype::Uint8 => numbers!(u8, U8),
        Dtype::Int8 => numbers!(i8, I8),
        Dtype::Uint16 => numbers!(u16, U16),
        Dtype::Int16 => numbers!(i16, I16),
        Dtype::Uint32 => numbers!(u32, U32),
        Dtype::Int32 => numbers!(i32, I32),
        Dtype::Uint64 => numbers!(u64, U64),
        Dtype::Int64 => numbers!(i64, I64),
        Dtype::Float32 => numbers!(f32, F32),
        Dtype::Float64 => numbers!(f64, F64),
        Dtype::Bool => {
            let bytes = detached(value.py(), || array.read_bytes(<[u8]>::to_vec)).map_err(raise)?;
            let values: Vec<bool> = bytes.iter().map(|&byte| byte != 0).collect();
            match (array.ndim(), &values[..]) {
                (0, [value]) => MetaValue::Bool(*value),
                _ => MetaValue::Array(MetaArray::Bool(values)),
            }
        }
        other => {
            let what = format!("[save_gguf] cannot save the metadata {key} of type {other}");
            return Err(PyValueError::new_err(what));
        }
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(load, m)?)?;
    m.add_function(wrap_pyfunction!(save, m)?)?;
    m.add_function(wrap_pyfunction!(savez, m)?)?;
    m.add_function(wrap_pyfunction!(savez_compressed, m)?)?;
    m.add_function(wrap_pyfunction!(save_safetensors, m)?)?;
    m.add_function(wrap_pyfunction!(save_gguf, m)?)
}
