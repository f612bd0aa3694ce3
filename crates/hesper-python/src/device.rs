//! Devices and streams as Python objects, and the stream of the current scope.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use hesper::place;
use hesper_runtime::Stream;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args::On;
use crate::error::raise;

/// Whether programs are told that there is a GPU with Metal (their kernels run on the host).
static AS_METAL: AtomicBool = AtomicBool::new(false);
/// Set by `set_default_device`.
static GPU_IS_DEFAULT: AtomicBool = AtomicBool::new(false);

/// The kinds of devices.
#[pyclass(name = "DeviceType", module = "hesper.core", frozen, eq, hash, skip_from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs)]
pub enum PyDeviceType {
    cpu,
    gpu,
}

#[pymethods]
impl PyDeviceType {
    fn __repr__(&self) -> &'static str {
        match self {
            PyDeviceType::cpu => "DeviceType.cpu",
            PyDeviceType::gpu => "DeviceType.gpu",
        }
    }
}

/// A device: its kind and its number.
#[pyclass(name = "Device", module = "hesper.core", frozen, skip_from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PyDevice {
    kind: PyDeviceType,
    index: i32,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyDevice {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(device) = object.cast::<PyDevice>() {
            return Ok(*device.get());
        }
        if let Ok(kind) = object.cast::<PyDeviceType>() {
            return Ok(PyDevice { kind: *kind.get(), index: 0 });
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected a Device or a DeviceType, not {name}")))
    }
}

impl PyDevice {
    const CPU: PyDevice = PyDevice { kind: PyDeviceType::cpu, index: 0 };
    const GPU: PyDevice = PyDevice { kind: PyDeviceType::gpu, index: 0 };

    fn exists(self) -> bool {
        self.kind == PyDeviceType::cpu || AS_METAL.load(Ordering::Relaxed)
    }

    fn check(self, call: &str, what: &str) -> PyResult<()> {
        if self.exists() {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("[{call}] Cannot {what} without gpu backend.")))
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index = 0))]
    fn new(r#type: &Bound<'_, PyDeviceType>, index: i32) -> Self {
        PyDevice { kind: *r#type.get(), index }
    }

    /// The kind of the device.
    #[getter]
    fn r#type(&self) -> PyDeviceType {
        self.kind
    }

    fn __repr__(&self) -> String {
        let kind = if self.kind == PyDeviceType::cpu { "cpu" } else { "gpu" };
        format!("Device({kind}, {})", self.index)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<bool> {
        let same = other.extract::<PyDevice>().is_ok_and(|other| other == *self);
        match op {
            CompareOp::Eq => Ok(same),
            CompareOp::Ne => Ok(!same),
            _ => Err(PyTypeError::new_err("devices have no order")),
        }
    }

    fn __hash__(&self) -> isize {
        self.index as isize * 2 + self.kind as isize
    }
}

/// A stream: work on it runs in order.
#[pyclass(name = "Stream", module = "hesper.core", frozen, skip_from_py_object)]
#[derive(Clone)]
pub struct PyStream {
    pub stream: Stream,
    device: PyDevice,
    index: usize,
}

#[pymethods]
impl PyStream {
    /// The device of the stream.
    #[getter]
    fn device(&self) -> PyDevice {
        self.device
    }

    fn __repr__(&self) -> String {
        format!("Stream({}, {})", self.device.__repr__(), self.index)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyStream>().is_ok_and(|other| other.get().stream.id() == self.stream.id())
    }

    fn __hash__(&self) -> isize {
        self.stream.id() as isize
    }
}

static INDICES: AtomicUsize = AtomicUsize::new(0);

/// The default streams that all threads share, for the host and for the device presented as a GPU.
fn shared(device: PyDevice) -> PyResult<PyStream> {
    static STREAMS: [OnceLock<PyStream>; 2] = [OnceLock::new(), OnceLock::new()];
    static MAKING: Mutex<()> = Mutex::new(());
    let slot = &STREAMS[device.kind as usize];
    if let Some(stream) = slot.get() {
        return Ok(stream.clone());
    }
    let _making = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let stream = match device.kind {
        PyDeviceType::cpu => place::current_stream(),
        PyDeviceType::gpu => place::cpu().stream().map_err(hesper::Error::from),
    }
    .map_err(raise)?;
    Ok(slot
        .get_or_init(|| PyStream { stream, device, index: INDICES.fetch_add(1, Ordering::Relaxed) })
        .clone())
}

thread_local! {
    /// The streams of the thread's `with` blocks.
    static SCOPES: RefCell<Vec<PyStream>> = const { RefCell::new(Vec::new()) };
    /// What `set_default_stream` said on this thread.
    static DEFAULT: RefCell<Option<PyStream>> = const { RefCell::new(None) };
}

/// Something of the thread's streams, innermost first, the first that `f` finds.
fn find<R>(f: impl Fn(&PyStream) -> Option<R>) -> Option<R> {
    let scope = SCOPES.with(|scopes| scopes.borrow().iter().rev().find_map(&f));
    scope.or_else(|| DEFAULT.with(|default| default.borrow().as_ref().and_then(&f)))
}

/// Builds something on the stream of the current scope.
pub fn in_scope<R>(build: impl FnOnce() -> R) -> R {
    match find(|scope| Some(scope.stream.clone())) {
        Some(stream) => place::with_stream(&stream, build),
        None => build(),
    }
}

fn default_device_now() -> PyDevice {
    let process = if GPU_IS_DEFAULT.load(Ordering::Relaxed) { PyDevice::GPU } else { PyDevice::CPU };
    find(|scope| Some(scope.device)).unwrap_or(process)
}

/// The stream that stands for a device.
pub fn default_stream_of(device: PyDevice) -> PyResult<PyStream> {
    device.check("default_stream", "get gpu stream")?;
    find(|scope| (scope.device == device).then(|| scope.clone())).map_or_else(|| shared(device), Ok)
}

/// The device on which ops run unless they are told otherwise.
#[pyfunction]
fn default_device() -> PyDevice {
    default_device_now()
}

/// Sets the device on which ops run unless they are told otherwise.
#[pyfunction]
fn set_default_device(device: PyDevice) -> PyResult<()> {
    device.check("set_default_device", "set gpu device")?;
    GPU_IS_DEFAULT.store(device.kind == PyDeviceType::gpu, Ordering::Relaxed);
    Ok(())
}

/// The default stream of a device.
#[pyfunction]
fn default_stream(device: PyDevice) -> PyResult<PyStream> {
    default_stream_of(device)
}

/// Sets the default stream of the stream's device, for this thread.
#[pyfunction]
fn set_default_stream(stream: &Bound<'_, PyStream>) {
    DEFAULT.with(|default| *default.borrow_mut() = Some(stream.get().clone()));
}

/// A new stream on a device. Any thread may use it.
#[pyfunction]
fn new_stream(device: PyDevice) -> PyResult<PyStream> {
    device.check("new_stream", "make gpu stream")?;
    shared(device)?;
    let stream = place::cpu().stream().map_err(|error| raise(error.into()))?;
    Ok(PyStream { stream, device, index: INDICES.fetch_add(1, Ordering::Relaxed) })
}

/// Runs the ops of a ``with`` block on a stream, or on the default stream of a device.
///
/// Examples
/// --------
/// >>> with mx.stream(mx.cpu):
/// ...     y = mx.exp(x)
#[pyfunction]
fn stream(py: Python<'_>, s: &Bound<'_, PyAny>) -> PyResult<Py<StreamContext>> {
    let stream = match s.cast::<PyStream>() {
        Ok(stream) => stream.get().clone(),
        Err(_) => default_stream_of(s.extract()?)?,
    };
    Py::new(py, StreamContext { stream })
}

/// The scope of a stream; see `stream`.
#[pyclass(module = "hesper.core", frozen)]
struct StreamContext {
    stream: PyStream,
}

#[pymethods]
impl StreamContext {
    fn __enter__(&self) {
        SCOPES.with(|scopes| scopes.borrow_mut().push(self.stream.clone()));
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        SCOPES.with(|scopes| scopes.borrow_mut().pop());
    }
}

/// Waits until the work on a stream is done: by default, on the default stream.
#[pyfunction]
#[pyo3(signature = (stream = None))]
fn synchronize(py: Python<'_>, stream: Option<On>) -> PyResult<()> {
    let stream = match stream {
        Some(On(stream)) => stream,
        None => default_stream_of(default_device_now())?.stream,
    };
    py.detach(|| stream.synchronize()).map_err(|error| raise(error.into()))?;
    py.check_signals()
}

/// Whether a device can be used.
#[pyfunction]
fn is_available(device: PyDevice) -> bool {
    device.exists()
}

/// How many devices of a kind there are.
#[pyfunction]
fn device_count(device_type: &Bound<'_, PyDeviceType>) -> usize {
    usize::from(PyDevice { kind: *device_type.get(), index: 0 }.exists())
}

/// What is known of a device: its name, its architecture, its memory.
#[pyfunction]
#[pyo3(signature = (d = None))]
fn device_info(py: Python<'_>, d: Option<PyDevice>) -> PyResult<Py<PyDict>> {
    d.unwrap_or_else(default_device_now).check("device_info", "get gpu info")?;
    let info = PyDict::new(py);
    info.set_item("architecture", std::env::consts::ARCH)?;
    info.set_item("device_name", &place::cpu().info().name)?;
    info.set_item("memory_size", place::cpu().memory_limit())?;
    Ok(info.unbind())
}

/// Presents the host as a GPU with Metal, so that programs use their custom kernels.
#[pyfunction]
fn _present_as_metal(on: bool) {
    AS_METAL.store(on, Ordering::Relaxed);
    GPU_IS_DEFAULT.store(on, Ordering::Relaxed);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDeviceType>()?;
    m.add_class::<PyDevice>()?;
    m.add_class::<PyStream>()?;
    m.add_class::<StreamContext>()?;
    m.add("cpu", PyDeviceType::cpu)?;
    m.add("gpu", PyDeviceType::gpu)?;
    m.add_function(wrap_pyfunction!(default_device, m)?)?;
    m.add_function(wrap_pyfunction!(set_default_device, m)?)?;
    m.add_function(wrap_pyfunction!(default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(set_default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(new_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream, m)?)?;
    m.add_function(wrap_pyfunction!(synchronize, m)?)?;
    m.add_function(wrap_pyfunction!(is_available, m)?)?;
    m.add_function(wrap_pyfunction!(device_count, m)?)?;
    m.add_function(wrap_pyfunction!(device_info, m)?)?;
    m.add_function(wrap_pyfunction!(_present_as_metal, m)?)
}
