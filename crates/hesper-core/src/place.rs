//! Where ops run: devices, their default streams, and the stream of the current scope.
//!
//! The host is always there. GPUs are those of the backends that are linked ([`crate::backend`]); they are looked for when
//! a program first asks for one, and on a machine without one nothing starts.
//!
//! An array is computed on the device of the stream that its op was built for. Inputs that lie elsewhere
//! are moved: the copy is made once and kept beside the memory it was made of (see
//! [`Buffer::on`](hesper_runtime::Buffer::on)). An op that a GPU has no kernels for is computed on
//! the host; its result stays there until something on the GPU needs it.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hesper_runtime::{Runtime, Stream};
use smallvec::SmallVec;

pub use crate::backend::fallbacks;
use crate::backend::{self, Backend, BackendKind};
use crate::error::{Error, Result};

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
///
/// # Panics
/// If no backend for the host is linked. The crate `hesper` links one.
pub fn cpu() -> &'static Runtime {
    static CPU: OnceLock<Runtime> = OnceLock::new();
    CPU.get_or_init(|| match backend::host().and_then(|host| host.open(0)) {
        Ok(runtime) => runtime,
        Err(error) => panic!("{error}"),
    })
}

/// How many GPUs there are; none where no driver is found.
pub fn gpu_count() -> usize {
    slots().len()
}

/// A GPU: which backend has it under which number, and what was opened of it.
struct Slot {
    backend: &'static dyn Backend,
    number: usize,
    runtime: OnceLock<Result<Runtime>>,
    stream: OnceLock<Result<Stream>>,
}

static SLOTS: OnceLock<Vec<Slot>> = OnceLock::new();

/// The GPUs of all backends, in the order of their registration.
fn slots() -> &'static [Slot] {
    SLOTS.get_or_init(|| {
        let gpus = backend::backends().into_iter().filter(|backend| backend.kind() == BackendKind::Gpu);
        let slot =
            |backend, number| Slot { backend, number, runtime: OnceLock::new(), stream: OnceLock::new() };
        gpus.flat_map(|backend| (0..backend.device_count()).map(move |number| slot(backend, number)))
            .collect()
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
    let slot = slot(number)?;
    slot.runtime.get_or_init(|| slot.backend.open(slot.number)).clone()
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
/// backend is not the host's.
pub fn current_device() -> Device {
    let Some(stream) = scope() else { return default_device() };
    let host = backend::of_stream(&stream).is_ok_and(|backend| backend.kind() == BackendKind::Host);
    device_of(&stream).unwrap_or(if host { Device::Cpu } else { Device::Gpu(0) })
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
