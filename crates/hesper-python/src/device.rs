//! Devices and streams as Python objects, and the stream of the current scope.
//!
//! As in MLX a GPU, if there is one, is the default device unless `HESPER_DEVICE=cpu`. It is opened with the
//! first array, not by the import.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hesper::placement;
use hesper_runtime::Stream;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use crate::enumeration::Enumeration;
use crate::error::raise;

/// Whether the default device is presented as a GPU with Metal. Metal kernels run on the host, or on the GPU
/// there is.
static AS_METAL: AtomicBool = AtomicBool::new(false);
/// Set by `set_default_device`.
static GPU_IS_DEFAULT: AtomicBool = AtomicBool::new(false);

static DEVICE_TYPE: Enumeration = Enumeration::new("DeviceType", "The kinds of devices.", &["cpu", "gpu"]);

/// A kind of devices, a member of `DEVICE_TYPE` in Python.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs, reason = "the names that Python shows")]
pub enum PyDeviceType {
    cpu,
    gpu,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyDeviceType {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Some(kind) = PyDeviceType::of(object) {
            return Ok(kind);
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected a DeviceType, not {name}")))
    }
}

impl PyDeviceType {
    /// The kind that a member names, or its number as MLX takes it.
    fn of(object: Borrowed<'_, '_, PyAny>) -> Option<PyDeviceType> {
        let plain = || object.cast::<PyInt>().ok()?.extract::<usize>().ok();
        match DEVICE_TYPE.number(object).or_else(plain)? {
            0 => Some(PyDeviceType::cpu),
            1 => Some(PyDeviceType::gpu),
            _ => None,
        }
    }
}

impl<'py> IntoPyObject<'py> for PyDeviceType {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        DEVICE_TYPE.member(py, self as usize)
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
        if let Some(kind) = PyDeviceType::of(object) {
            return Ok(PyDevice { kind, index: 0 });
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected a Device or a DeviceType, not {name}")))
    }
}

impl PyDevice {
    const CPU: PyDevice = PyDevice { kind: PyDeviceType::cpu, index: 0 };
    const GPU: PyDevice = PyDevice { kind: PyDeviceType::gpu, index: 0 };

    fn exists(self) -> bool {
        match self.kind {
            PyDeviceType::cpu => true,
            PyDeviceType::gpu => AS_METAL.load(Ordering::Relaxed) || self.place() != placement::Device::Cpu,
        }
    }

    /// Where its ops run: on the host, too, where no such GPU can be opened.
    fn place(self) -> placement::Device {
        match (self.kind, usize::try_from(self.index)) {
            (PyDeviceType::gpu, Ok(index)) if !presented_on_the_host() => {
                let gpu = placement::Device::Gpu(index);
                if gpu.is_available() { gpu } else { placement::Device::Cpu }
            }
            _ => placement::Device::Cpu,
        }
    }

    fn of(device: placement::Device) -> PyDevice {
        match device {
            placement::Device::Cpu => PyDevice::CPU,
            placement::Device::Gpu(index) => PyDevice { kind: PyDeviceType::gpu, index: index as i32 },
        }
    }

    /// The device of a stream; the host where that is none of the devices of this process.
    pub fn of_stream(stream: &Stream) -> PyDevice {
        placement::device_of(stream).map_or(PyDevice::CPU, PyDevice::of)
    }

    /// The default stream of the device, for `call`.
    pub fn on(self, call: &str) -> PyResult<On> {
        self.check(call, &format!("use {}", self.__repr__()))?;
        StreamOrDevice::Device(self).stream().map(|stream| On(stream.stream))
    }

    fn check(self, call: &str, what: &str) -> PyResult<()> {
        if self.exists() {
            return Ok(());
        }
        let missing = placement::Device::Gpu(self.index.max(0) as usize).runtime().err();
        let why = match missing.filter(|_| placement::gpu_count() > 0) {
            Some(error) => format!(": {error}"),
            None => ": there is no gpu here".to_string(),
        };
        Err(PyValueError::new_err(format!("[{call}] cannot {what}{why}")))
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index = 0))]
    fn new(r#type: &Bound<'_, PyAny>, index: i32) -> PyResult<Self> {
        Ok(PyDevice { kind: r#type.extract()?, index })
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
            _ => Err(PyTypeError::new_err("cannot order devices; compare them with == or !=")),
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
static LOCAL_INDICES: AtomicUsize = AtomicUsize::new(0);

/// The default streams that all threads share, for the host and for the device presented as a GPU.
fn shared(device: PyDevice) -> PyResult<PyStream> {
    static STREAMS: Mutex<Vec<PyStream>> = Mutex::new(Vec::new());
    let mut streams = STREAMS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(stream) = streams.iter().find(|stream| stream.device == device) {
        return Ok(stream.clone());
    }
    let stream = match (device.kind, device.place()) {
        // The host presented as a GPU has a stream of its own.
        (PyDeviceType::gpu, placement::Device::Cpu) => placement::Device::Cpu.stream(),
        (_, found) => placement::default_stream(found),
    }
    .map_err(raise)?;
    let stream = PyStream { stream, device, index: INDICES.fetch_add(1, Ordering::Relaxed) };
    streams.push(stream.clone());
    Ok(stream)
}

thread_local! {
    /// The streams of the thread's `with` blocks.
    static SCOPES: RefCell<Vec<PyStream>> = const { RefCell::new(Vec::new()) };
    /// The thread's own streams, by the number of the ``ThreadLocalStream``.
    static LOCALS: RefCell<HashMap<usize, PyStream>> = RefCell::new(HashMap::new());
    /// What `set_default_stream` said on this thread.
    static DEFAULT: RefCell<Option<PyStream>> = const { RefCell::new(None) };
}

/// The error of a call that needs the streams of a thread that is ending.
fn ending() -> PyErr {
    PyRuntimeError::new_err("cannot use the streams of a thread that is ending")
}

/// Something of the thread's streams, innermost first, the first that `f` finds.
fn find<R>(f: impl Fn(&PyStream) -> Option<R>) -> Option<R> {
    // A thread that is ending has neither.
    let scope = SCOPES.try_with(|scopes| scopes.borrow().iter().rev().find_map(&f)).ok().flatten();
    scope.or_else(|| DEFAULT.try_with(|default| default.borrow().as_ref().and_then(&f)).ok().flatten())
}

/// Builds something on the stream of the current scope.
pub fn in_scope<R>(build: impl FnOnce() -> R) -> R {
    match find(|scope| Some(scope.stream.clone())) {
        Some(stream) => placement::with_stream(&stream, build),
        None => build(),
    }
}

/// Whether the host is presented as a GPU with Metal.
fn presented_on_the_host() -> bool {
    AS_METAL.load(Ordering::Relaxed) && std::env::var("HESPER_DEVICE").is_ok_and(|name| name == "cpu")
}

fn default_device_now() -> PyDevice {
    let process = if GPU_IS_DEFAULT.load(Ordering::Relaxed) {
        PyDevice::GPU
    } else {
        PyDevice::of(placement::default_device())
    };
    find(|scope| Some(scope.device)).unwrap_or(process)
}

/// Whether the host is the default device.
pub fn on_host() -> bool {
    default_device_now().place() == placement::Device::Cpu
}

/// Sets the folders of Python packages to search for CUDA libraries.
#[pyfunction]
fn _look_for_libraries_in(folders: Vec<std::path::PathBuf>) {
    hesper::cuda::look_for_libraries_in(&folders);
}

/// The stream that stands for a device.
pub fn default_stream_of(device: PyDevice) -> PyResult<PyStream> {
    device.check("default_stream", "get gpu stream")?;
    find(|scope| (scope.device == device).then(|| scope.clone())).map_or_else(|| shared(device), Ok)
}

/// The stream on which ops of this thread run.
pub fn current_stream() -> PyResult<Stream> {
    Ok(default_stream_of(default_device_now())?.stream)
}

/// The default device: a GPU if there is one.
///
/// Examples
/// --------
/// >>> mx.default_device() in (mx.cpu, mx.gpu)
/// True
#[pyfunction]
fn default_device() -> PyDevice {
    default_device_now()
}

/// Set the default device.
///
/// Parameters
/// ----------
/// device : Device or DeviceType
///
/// Examples
/// --------
/// >>> mx.set_default_device(mx.cpu)
#[pyfunction]
fn set_default_device(device: PyDevice) -> PyResult<()> {
    device.check("set_default_device", "set gpu device")?;
    placement::set_default_device(device.place()).map_err(raise)?;
    let presented = device.kind == PyDeviceType::gpu && device.place() == placement::Device::Cpu;
    GPU_IS_DEFAULT.store(presented, Ordering::Relaxed);
    Ok(())
}

/// The default stream of a device.
///
/// Parameters
/// ----------
/// device : Device or DeviceType
///
/// Examples
/// --------
/// >>> mx.default_stream(mx.cpu).device
/// Device(cpu, 0)
#[pyfunction]
fn default_stream(device: PyDevice) -> PyResult<PyStream> {
    default_stream_of(device)
}

fn only_stream(object: &Bound<'_, PyAny>) -> PyResult<PyStream> {
    match object.cast::<PyStream>() {
        Ok(stream) => Ok(stream.get().clone()),
        Err(_) => {
            Err(PyTypeError::new_err(format!("stream: expected a Stream, not {}", object.get_type().name()?)))
        }
    }
}

/// Sets the default stream of the stream's device, for this thread.
///
/// Parameters
/// ----------
/// stream : Stream
///
/// Examples
/// --------
/// >>> mx.set_default_stream(mx.default_stream(mx.cpu))
#[pyfunction]
fn set_default_stream(#[pyo3(from_py_with = only_stream)] stream: PyStream) -> PyResult<()> {
    let old = DEFAULT.try_with(|default| default.borrow_mut().replace(stream)).map_err(|_| ending())?;
    drop(old);
    Ok(())
}

/// A new stream on a device. Any thread may use it.
///
/// Parameters
/// ----------
/// device : Device or DeviceType
///
/// Examples
/// --------
/// >>> mx.new_stream(mx.cpu).device
/// Device(cpu, 0)
#[pyfunction]
fn new_stream(device: PyDevice) -> PyResult<PyStream> {
    device.check("new_stream", "make gpu stream")?;
    shared(device)?;
    let stream = device.place().stream().map_err(raise)?;
    Ok(PyStream { stream, device, index: INDICES.fetch_add(1, Ordering::Relaxed) })
}

/// Runs the ops of a ``with`` block on a stream, or on the default stream of a device.
///
/// Examples
/// --------
/// >>> with mx.stream(mx.cpu):
/// ...     y = mx.exp(mx.array(1.0))
#[pyfunction]
fn stream(s: StreamOrDevice) -> StreamContext {
    StreamContext { place: s }
}

/// What names a stream: itself, one for each thread, or a device.
#[derive(Clone)]
pub enum StreamOrDevice {
    Stream(PyStream),
    Local(ThreadLocalStream),
    Device(PyDevice),
}

impl<'a, 'py> FromPyObject<'a, 'py> for StreamOrDevice {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(stream) = object.cast::<PyStream>() {
            return Ok(StreamOrDevice::Stream(stream.get().clone()));
        }
        if let Ok(stream) = object.cast::<ThreadLocalStream>() {
            return Ok(StreamOrDevice::Local(stream.get().clone()));
        }
        if let Ok(device) = PyDevice::extract(object) {
            return Ok(StreamOrDevice::Device(device));
        }
        let name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!("stream: expected a Stream, a Device or None, not {name}")))
    }
}

impl StreamOrDevice {
    /// The stream that is meant on this thread.
    pub fn stream(&self) -> PyResult<PyStream> {
        match self {
            StreamOrDevice::Stream(stream) => Ok(stream.clone()),
            StreamOrDevice::Local(stream) => stream.here(),
            StreamOrDevice::Device(device) => default_stream_of(*device),
        }
    }
}

/// A stream of which every thread has its own; see ``new_thread_local_stream``.
#[pyclass(module = "hesper.core", frozen, skip_from_py_object)]
#[derive(Clone)]
pub struct ThreadLocalStream {
    device: PyDevice,
    index: usize,
}

impl ThreadLocalStream {
    fn here(&self) -> PyResult<PyStream> {
        let found = LOCALS.try_with(|locals| locals.borrow().get(&self.index).cloned());
        if let Some(stream) = found.map_err(|_| ending())? {
            return Ok(stream);
        }
        let stream = new_stream(self.device)?;
        LOCALS
            .try_with(|locals| locals.borrow_mut().insert(self.index, stream.clone()))
            .map_err(|_| ending())?;
        Ok(stream)
    }
}

#[pymethods]
impl ThreadLocalStream {
    /// The device of the streams.
    #[getter]
    fn device(&self) -> PyDevice {
        self.device
    }

    fn __repr__(&self) -> String {
        format!("ThreadLocalStream({}, {})", self.device.__repr__(), self.index)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<ThreadLocalStream>().is_ok_and(|other| other.get().index == self.index)
    }

    fn __hash__(&self) -> isize {
        self.index as isize
    }
}

/// A stream of which every thread that uses it has its own.
///
/// Parameters
/// ----------
/// device : Device or DeviceType
///
/// Examples
/// --------
/// >>> with mx.stream(mx.new_thread_local_stream(mx.cpu)):
/// ...     y = mx.exp(mx.array(1.0))
#[pyfunction]
fn new_thread_local_stream(device: PyDevice) -> PyResult<ThreadLocalStream> {
    device.check("new_thread_local_stream", "make gpu stream")?;
    Ok(ThreadLocalStream { device, index: LOCAL_INDICES.fetch_add(1, Ordering::Relaxed) })
}

/// A new stream on a device. Any thread may use it, as any stream.
///
/// Parameters
/// ----------
/// device : Device or DeviceType
///
/// Examples
/// --------
/// >>> s = mx.new_thread_unsafe_stream(mx.cpu)
#[pyfunction(name = "new_thread_unsafe_stream")]
fn new_stream_for_any_thread(device: PyDevice) -> PyResult<PyStream> {
    new_stream(device)
}

/// Drop the thread-local streams and the default stream of this thread; work in flight on them continues.
///
/// Examples
/// --------
/// >>> mx.clear_streams()
#[pyfunction]
fn clear_streams() {
    let streams = LOCALS.try_with(|locals| std::mem::take(&mut *locals.borrow_mut()));
    let default = DEFAULT.try_with(|default| default.borrow_mut().take());
    // Streams that go may hand work to a device: nothing is borrowed meanwhile.
    drop((streams, default));
}

/// The scope of a stream; see `stream`.
#[pyclass(module = "hesper.core", frozen)]
struct StreamContext {
    place: StreamOrDevice,
}

#[pymethods]
impl StreamContext {
    #[new]
    fn new(s: StreamOrDevice) -> Self {
        StreamContext { place: s }
    }

    fn __enter__(&self) -> PyResult<()> {
        let stream = self.place.stream()?;
        SCOPES.try_with(|scopes| scopes.borrow_mut().push(stream)).map_err(|_| ending())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        let left = SCOPES.try_with(|scopes| scopes.borrow_mut().pop());
        drop(left);
    }
}

/// Where to run: a stream, or a device that stands for its default stream.
pub struct On(pub Stream);

impl<'a, 'py> FromPyObject<'a, 'py> for On {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(stream) = object.cast::<PyStream>() {
            return Ok(On(stream.get().stream.clone()));
        }
        StreamOrDevice::extract(object)?.stream().map(|stream| On(stream.stream))
    }
}

/// Whether a device can be used.
///
/// Parameters
/// ----------
/// d : Device, optional
///
/// Examples
/// --------
/// >>> mx.is_available(mx.cpu)
/// True
#[pyfunction]
fn is_available(device: PyDevice) -> bool {
    device.exists()
}

/// How many devices of a kind there are.
///
/// Parameters
/// ----------
/// d : Device, optional
///
/// Examples
/// --------
/// >>> mx.device_count(mx.cpu)
/// 1
#[pyfunction]
fn device_count(device_type: PyDeviceType) -> usize {
    match device_type {
        PyDeviceType::gpu => placement::gpu_count().max(AS_METAL.load(Ordering::Relaxed).into()),
        PyDeviceType::cpu => 1,
    }
}

/// The properties of a device: its name, its architecture, its memory.
///
/// Parameters
/// ----------
/// d : Device, optional
///
/// Examples
/// --------
/// >>> "architecture" in mx.device_info()
/// True
#[pyfunction]
#[pyo3(signature = (d = None))]
fn device_info(py: Python<'_>, d: Option<PyDevice>) -> PyResult<Py<PyDict>> {
    let info = PyDict::new(py);
    let device = d.unwrap_or_else(default_device_now);
    if !device.exists() {
        return Ok(info.unbind());
    }
    let runtime = device.place().runtime().map_err(raise)?;
    info.set_item("device_name", &runtime.info().name)?;
    info.set_item("memory_size", runtime.info().total_memory)?;
    if AS_METAL.load(Ordering::Relaxed) {
        info.set_item("max_recommended_working_set_size", runtime.memory_limit())?;
        info.set_item("max_buffer_length", runtime.info().max_buffer)?;
    }
    let placement::Device::Gpu(number) = device.place() else {
        info.set_item("architecture", std::env::consts::ARCH)?;
        return Ok(info.unbind());
    };
    if let Some(metal) = hesper::metal::device_of(&runtime) {
        let gpu = metal.properties();
        info.set_item("architecture", format!("apple{}", gpu.apple_family))?;
        info.set_item("max_recommended_working_set_size", gpu.recommended_working_set)?;
        info.set_item("max_buffer_length", gpu.max_buffer)?;
        info.set_item("resource_limit", gpu.max_buffers)?;
        return Ok(info.unbind());
    }
    let gpu = hesper::cuda::gpu_info(number).map_err(raise)?;
    let (major, minor) = gpu.capability;
    info.set_item("architecture", format!("sm_{major}{minor}"))?;
    info.set_item("compute_capability_major", major)?;
    info.set_item("compute_capability_minor", minor)?;
    info.set_item("total_memory", gpu.total_memory)?;
    info.set_item("free_memory", gpu.free_memory)?;
    Ok(info.unbind())
}

/// Whether the host is presented as a GPU with Metal.
#[pyfunction]
fn _presented_as_metal() -> bool {
    AS_METAL.load(Ordering::Relaxed)
}

/// Presents the default device as a GPU with Metal, so that programs use their custom kernels.
#[pyfunction]
fn _present_as_metal(on: bool) {
    AS_METAL.store(on, Ordering::Relaxed);
    GPU_IS_DEFAULT.store(on, Ordering::Relaxed);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    placement::prefer_gpu();
    DEVICE_TYPE.register(m)?;
    m.add_class::<PyDevice>()?;
    m.add_class::<PyStream>()?;
    m.add_class::<StreamContext>()?;
    m.add_class::<ThreadLocalStream>()?;
    m.add("cpu", PyDeviceType::cpu)?;
    m.add("gpu", PyDeviceType::gpu)?;
    m.add_function(wrap_pyfunction!(default_device, m)?)?;
    m.add_function(wrap_pyfunction!(set_default_device, m)?)?;
    m.add_function(wrap_pyfunction!(default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(set_default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(new_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream, m)?)?;
    m.add_function(wrap_pyfunction!(new_thread_local_stream, m)?)?;
    m.add_function(wrap_pyfunction!(new_stream_for_any_thread, m)?)?;
    m.add_function(wrap_pyfunction!(clear_streams, m)?)?;
    m.add_function(wrap_pyfunction!(is_available, m)?)?;
    m.add_function(wrap_pyfunction!(device_count, m)?)?;
    m.add_function(wrap_pyfunction!(device_info, m)?)?;
    m.add_function(wrap_pyfunction!(_look_for_libraries_in, m)?)?;
    m.add_function(wrap_pyfunction!(_presented_as_metal, m)?)?;
    m.add_function(wrap_pyfunction!(_present_as_metal, m)?)
}
