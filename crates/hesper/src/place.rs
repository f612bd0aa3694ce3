//! Where ops run: devices, their default streams, and the stream of the current scope.
//!
//! The host is always there. NVIDIA GPUs are found when somebody asks for them: every library of theirs
//! is loaded at run time, and on a machine without one nothing is loaded and nothing starts.
//!
//! An array is computed on the device of the stream that its op was built for. Inputs that lie elsewhere
//! are moved: the copy is made once and kept beside the memory it was made of (see
//! [`Buffer::on`](hesper_runtime::Buffer::on)). An op that a GPU has no kernels for is computed on
//! the host; its result stays there until something on the GPU needs it.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hesper_cpu::CpuDevice;
use hesper_cuda::{CudaDevice, CudaOptions, CudaShared};
use hesper_runtime::{Runtime, Stream};
use smallvec::SmallVec;

use crate::error::{Error, Result};
pub use crate::gpu::fallbacks;

/// A device.
///
/// ```
/// use hesper::place::{self, Device};
/// let sum = place::with_device(Device::Cpu, || hesper::Array::from_slice(&[1.0f32, 2.0]).sum(None, false))??;
/// assert_eq!(sum.item::<f32>()?, 3.0);
/// assert_eq!("gpu:1".parse::<Device>()?, Device::Gpu(1));
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The host.
    Cpu,
    /// A GPU, by its number.
    Gpu(usize),
}

impl Device {
    /// The device's memory, streams and kernels. An error says what is missing.
    pub fn runtime(self) -> Result<Runtime> {
        match self {
            Device::Cpu => Ok(cpu().clone()),
            Device::Gpu(number) => gpu(number),
        }
    }

    /// Whether it can be used.
    pub fn is_available(self) -> bool {
        self.runtime().is_ok()
    }

    /// A stream of its own on the device.
    pub fn stream(self) -> Result<Stream> {
        Ok(self.runtime()?.stream()?)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Gpu(number) => write!(f, "gpu:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = match text {
            "cpu" => return Ok(Device::Cpu),
            "gpu" => Some(0),
            _ => text.strip_prefix("gpu:").and_then(|number| number.parse().ok()),
        };
        number
            .map(Device::Gpu)
            .ok_or_else(|| Error::value("device", format!("{text:?} is neither cpu, gpu nor gpu:N")))
    }
}

/// The host's runtime, opened once for the process.
pub fn cpu() -> &'static Runtime {
    static CPU: OnceLock<Runtime> = OnceLock::new();
    CPU.get_or_init(|| Runtime::new(CpuDevice::new()))
}

/// How many GPUs there are; none where no driver is found.
pub fn gpu_count() -> usize {
    slots().len()
}

/// What is known of one GPU.
#[derive(Default)]
struct Slot {
    runtime: OnceLock<Result<Runtime>>,
    stream: OnceLock<Result<Stream>>,
}

static SLOTS: OnceLock<Vec<Slot>> = OnceLock::new();

fn slots() -> &'static [Slot] {
    SLOTS.get_or_init(|| {
        let count = hesper_cuda::device_count().unwrap_or(0);
        (0..count).map(|_| Slot::default()).collect()
    })
}

fn slot(number: usize) -> Result<&'static Slot> {
    slots().get(number).ok_or_else(|| {
        let what = match slots().len() {
            0 => "there is no GPU".to_string(),
            count => format!("there is no GPU {number}: {count} were found"),
        };
        Error::value("device", what)
    })
}

/// A GPU's runtime, opened once for the process.
pub fn gpu(number: usize) -> Result<Runtime> {
    let opened = slot(number)?.runtime.get_or_init(|| {
        let options = CudaOptions { ordinal: number, ..CudaOptions::default() };
        let device = CudaDevice::open(options).map_err(|error| Error::value("device", error.to_string()))?;
        Ok(Runtime::new(device))
    });
    opened.clone()
}

/// What is known of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Bytes of its memory.
    pub total_memory: usize,
    /// Bytes of its memory that nobody uses now.
    pub free_memory: usize,
}

/// Names folders that hold packages of NVIDIA's, such as `nvidia` in Python's `site-packages`: libraries of CUDA are looked
/// for there, too. Takes effect once, before a GPU is first asked for.
pub fn look_for_libraries_in(folders: &[PathBuf]) {
    hesper_cuda::library::look_in(folders);
}

/// Says that the process is about to end: no thread works with a GPU any more, and what was not begun there is not begun.
/// The end of a process that has work under way would otherwise find threads in libraries that are taken apart.
pub fn end_of_process() {
    hesper_cuda::end();
}

/// What is known of a GPU, which is opened for that.
pub fn gpu_info(number: usize) -> Result<GpuInfo> {
    let shared = gpu(number)?.extension().and_then(|found| found.downcast::<CudaShared>().ok());
    let shared = shared.ok_or_else(|| Error::value("device", format!("GPU {number} is of another kind")))?;
    let (free_memory, total_memory) =
        shared.memory_info().map_err(|error| Error::value("device", error.to_string()))?;
    Ok(GpuInfo { capability: shared.properties().capability, total_memory, free_memory })
}

/// The runtimes that were opened so far, the host's first.
pub fn opened() -> Vec<Runtime> {
    let gpus = SLOTS.get().map(Vec::as_slice).unwrap_or_default();
    let gpus = gpus.iter().filter_map(|slot| slot.runtime.get()?.as_ref().ok().cloned());
    std::iter::once(cpu().clone()).chain(gpus).collect()
}

/// The device of a stream; `None` if it belongs to a runtime that was opened elsewhere.
pub fn device_of(stream: &Stream) -> Option<Device> {
    let runtime = stream.runtime();
    if runtime.same(cpu()) {
        return Some(Device::Cpu);
    }
    let same = |slot: &Slot| matches!(slot.runtime.get(), Some(Ok(opened)) if opened.same(&runtime));
    slots().iter().position(same).map(Device::Gpu)
}

/// The default device: 0 for the host, one more than a GPU's number, or not decided yet.
static DEFAULT: AtomicUsize = AtomicUsize::new(UNDECIDED);
const UNDECIDED: usize = usize::MAX;

/// Whether a GPU is the default where nothing else was said.
static GPU_PREFERRED: AtomicBool = AtomicBool::new(false);

/// Makes the first GPU the default device where it can be opened and neither `HESPER_DEVICE` nor
/// [`set_default_device`] says otherwise. Nothing is opened before the default is first asked for; after that
/// the call has no effect.
pub fn prefer_gpu() {
    GPU_PREFERRED.store(true, Ordering::Relaxed);
}

/// The device on which ops run unless a scope says otherwise: as `HESPER_DEVICE` says (`cpu`, `gpu`,
/// `gpu:N`) if there is such a device, else the host, or a GPU after [`prefer_gpu`]; or what
/// [`set_default_device`] has set.
pub fn default_device() -> Device {
    match DEFAULT.load(Ordering::Relaxed) {
        0 => Device::Cpu,
        UNDECIDED => {
            let preferred = GPU_PREFERRED.load(Ordering::Relaxed).then_some(Device::Gpu(0));
            let named = std::env::var("HESPER_DEVICE").ok().and_then(|name| name.parse::<Device>().ok());
            let wished = named.or(preferred);
            let device = wished.filter(|device| device.is_available()).unwrap_or(Device::Cpu);
            remember(device);
            device
        }
        number => Device::Gpu(number - 1),
    }
}

/// Sets the device on which ops of all threads run unless a scope says otherwise.
pub fn set_default_device(device: Device) -> Result<()> {
    default_stream(device)?;
    remember(device);
    Ok(())
}

fn remember(device: Device) {
    let number = match device {
        Device::Cpu => 0,
        Device::Gpu(number) => number + 1,
    };
    DEFAULT.store(number, Ordering::Relaxed);
}

/// The host's default stream.
fn host_stream() -> Result<&'static Stream> {
    static HOST: OnceLock<Result<Stream>> = OnceLock::new();
    HOST.get_or_init(|| Ok(cpu().stream()?)).as_ref().map_err(Clone::clone)
}

/// Whether a stream is the host's default one, which lives as long as the process.
pub(crate) fn is_host_default(stream: &Stream) -> bool {
    host_stream().is_ok_and(|host| host.id() == stream.id())
}

/// The stream of a device that all threads share.
pub fn default_stream(device: Device) -> Result<Stream> {
    match device {
        Device::Cpu => host_stream().cloned(),
        Device::Gpu(number) => {
            let runtime = gpu(number)?;
            slot(number)?.stream.get_or_init(|| Ok(runtime.stream()?)).clone()
        }
    }
}

thread_local! {
    /// The streams of the scopes that the thread is in. Without a destructor: arrays are built while a thread ends, too.
    static SCOPE: ManuallyDrop<RefCell<SmallVec<[Stream; 4]>>> =
        ManuallyDrop::new(RefCell::new(SmallVec::new()));
}

/// The stream of the innermost scope.
fn scope() -> Option<Stream> {
    SCOPE.with(|scope| scope.borrow().last().cloned())
}

/// The stream on which the current thread's ops run: that of the innermost [`with_stream`] or
/// [`with_device`], else the default stream of the default device, which all threads share.
pub fn current_stream() -> Result<Stream> {
    hesper_runtime::fork::check()?;
    match scope() {
        Some(stream) => Ok(stream),
        None => default_stream(default_device()),
    }
}

/// Calls `f` with the stream on which the current thread's ops run.
pub(crate) fn with_current<R>(f: impl FnOnce(&Stream) -> R) -> Result<R> {
    hesper_runtime::fork::check()?;
    if let Some(stream) = scope() {
        return Ok(f(&stream));
    }
    match default_device() {
        Device::Cpu => host_stream().map(f),
        device => default_stream(device).map(|stream| f(&stream)),
    }
}

/// The device on which the current thread's ops run; that of a runtime that was opened elsewhere counts as a GPU if its
/// memory is not the host's.
pub fn current_device() -> Device {
    let Some(stream) = scope() else { return default_device() };
    let elsewhere = if stream.runtime().info().host_visible { Device::Cpu } else { Device::Gpu(0) };
    device_of(&stream).unwrap_or(elsewhere)
}

/// Runs `f` with its ops on `stream`.
pub fn with_stream<R>(stream: &Stream, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // Without a destructor the list must not keep memory of its own when it is empty.
            let left = SCOPE.with(|scope| {
                let mut scope = scope.borrow_mut();
                let left = scope.pop();
                if scope.is_empty() && scope.spilled() {
                    *scope = SmallVec::new();
                }
                left
            });
            drop(left);
        }
    }
    SCOPE.with(|scope| scope.borrow_mut().push(stream.clone()));
    let _leave = Leave;
    f()
}

/// Runs `f` with its ops on the default stream of a device.
pub fn with_device<R>(device: Device, f: impl FnOnce() -> R) -> Result<R> {
    Ok(with_stream(&default_stream(device)?, f))
}
