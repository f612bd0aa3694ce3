//! Where ops run: devices, their default streams, and the stream of the current scope.
//!
//! The host is always available. GPUs are those of the linked backends ([`crate::backend`]). They are
//! searched for when a program first needs one, and opened when it first uses one.
//!
//! An array is computed on the device of the stream that was current when its op was built. Inputs on another
//! device are copied; a buffer keeps its copies ([`Buffer::on`](hesper_runtime::Buffer::on)). An op that the
//! backend of a GPU does not implement runs on the host. Its result stays there until an op on the GPU reads
//! it.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hesper_runtime::{Runtime, Stream};
use smallvec::SmallVec;

use crate::error::{Error, Result};
pub use crate::registry::fallbacks;
use crate::registry::{self, Backend, BackendKind};

/// A device.
///
/// ```
/// use hesper::placement::{self, Device};
/// let sum = placement::with_device(Device::Cpu, || hesper::Array::from_slice(&[1.0f32, 2.0]).sum(()))??;
/// assert_eq!(sum.item::<f32>()?, 3.0);
/// assert_eq!("gpu:1".parse::<Device>()?, Device::Gpu(1));
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The host.
    Cpu,
    /// A GPU, by its index.
    Gpu(usize),
}

impl Device {
    /// The runtime of the device. Fails if the device is not available.
    ///
    /// ```
    /// use hesper::placement;
    /// let runtime = placement::Device::Cpu.runtime()?;
    /// assert!(!runtime.info().name.is_empty());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn runtime(self) -> Result<Runtime> {
        match self {
            Device::Cpu => Ok(cpu().clone()),
            Device::Gpu(number) => gpu(number),
        }
    }

    /// Whether the device can be opened.
    ///
    /// ```
    /// use hesper::{array, placement};
    /// use hesper::placement::Device;
    /// let device = if Device::Gpu(0).is_available() { Device::Gpu(0) } else { Device::Cpu };
    /// let y = placement::with_device(device, || array![1.0, 2.0].exp())??;
    /// assert_eq!(y.shape(), [2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn is_available(self) -> bool {
        self.runtime().is_ok()
    }

    /// A new stream on the device.
    ///
    /// ```
    /// use hesper::placement;
    /// let (a, b) = (placement::Device::Cpu.stream()?, placement::Device::Cpu.stream()?);
    /// assert_ne!(a.id(), b.id());
    /// # Ok::<(), hesper::Error>(())
    /// ```
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
            .ok_or_else(|| Error::value("device", format!("device must be cpu, gpu or gpu:N, not {text:?}")))
    }
}

/// The runtime of the host, opened once for the process.
///
/// # Panics
/// If no backend for the host is linked. The crate `hesper` links one.
///
/// ```
/// use hesper::placement;
/// assert!(placement::cpu().same(&placement::Device::Cpu.runtime()?));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn cpu() -> &'static Runtime {
    static CPU: OnceLock<Runtime> = OnceLock::new();
    CPU.get_or_init(|| match registry::host().and_then(|host| host.open(0)) {
        Ok(runtime) => runtime,
        Err(error) => panic!("{error}"),
    })
}

/// The number of GPUs; 0 if there is no driver.
///
/// ```
/// use hesper::placement;
/// for number in 0..placement::gpu_count() {
///     println!("{}", placement::gpu(number)?.info().name);
/// }
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn gpu_count() -> usize {
    slots().len()
}

/// A GPU: its backend, its index there, and its runtime and default stream once they are opened.
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
        let gpus = registry::backends().into_iter().filter(|backend| backend.kind() == BackendKind::Gpu);
        let slot =
            |backend, number| Slot { backend, number, runtime: OnceLock::new(), stream: OnceLock::new() };
        gpus.flat_map(|backend| (0..backend.device_count()).map(move |number| slot(backend, number)))
            .collect()
    })
}

fn slot(number: usize) -> Result<&'static Slot> {
    slots().get(number).ok_or_else(|| {
        let what = match slots().len() {
            0 => format!("cannot open GPU {number}: there is no GPU"),
            count => format!("cannot open GPU {number}: there are {count} GPUs"),
        };
        Error::value("device", what)
    })
}

/// The runtime of a GPU, opened once for the process.
///
/// ```
/// use hesper::placement;
/// let error = placement::gpu(1000).unwrap_err();
/// assert!(error.to_string().contains("cannot open GPU 1000"));
/// ```
pub fn gpu(number: usize) -> Result<Runtime> {
    let slot = slot(number)?;
    slot.runtime.get_or_init(|| slot.backend.open(slot.number)).clone()
}

/// The opened runtimes, that of the host first.
///
/// ```
/// use hesper::placement;
/// assert!(placement::opened()[0].same(placement::cpu()));
/// ```
pub fn opened() -> Vec<Runtime> {
    let gpus = SLOTS.get().map(Vec::as_slice).unwrap_or_default();
    let gpus = gpus.iter().filter_map(|slot| slot.runtime.get()?.as_ref().ok().cloned());
    std::iter::once(cpu().clone()).chain(gpus).collect()
}

/// The device of a stream; `None` if its runtime was not opened by this module.
///
/// ```
/// use hesper::placement;
/// let stream = placement::Device::Cpu.stream()?;
/// assert_eq!(placement::device_of(&stream), Some(placement::Device::Cpu));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn device_of(stream: &Stream) -> Option<Device> {
    let runtime = stream.runtime();
    if runtime.same(cpu()) {
        return Some(Device::Cpu);
    }
    let same = |slot: &Slot| matches!(slot.runtime.get(), Some(Ok(opened)) if opened.same(&runtime));
    slots().iter().position(same).map(Device::Gpu)
}

/// The default device: 0 for the host, else the index of a GPU plus one, or [`UNDECIDED`].
static DEFAULT: AtomicUsize = AtomicUsize::new(UNDECIDED);
const UNDECIDED: usize = usize::MAX;

/// Whether a GPU is the default device unless another is chosen.
static GPU_PREFERRED: AtomicBool = AtomicBool::new(false);

/// Makes the first GPU the default device if it can be opened and neither `HESPER_DEVICE` nor
/// [`set_default_device`] chooses another. It is opened when the default device is first used; after that the
/// call has no effect.
///
/// ```
/// use hesper::placement;
/// placement::prefer_gpu(); // at the start of a program: on a GPU where there is one
/// println!("on {}", placement::default_device());
/// ```
pub fn prefer_gpu() {
    GPU_PREFERRED.store(true, Ordering::Relaxed);
}

/// The device on which ops run outside of a scope. It is the device of [`set_default_device`], else that of
/// `HESPER_DEVICE` (`cpu`, `gpu`, `gpu:N`), else the first GPU after [`prefer_gpu`]. If that is not
/// available, it is the host.
///
/// ```
/// use hesper::placement;
/// assert!(placement::default_device().is_available());
/// ```
pub fn default_device() -> Device {
    match DEFAULT.load(Ordering::Relaxed) {
        0 => Device::Cpu,
        UNDECIDED => {
            let preferred = GPU_PREFERRED.load(Ordering::Relaxed).then_some(Device::Gpu(0));
            let named = std::env::var("HESPER_DEVICE").ok().and_then(|name| name.parse::<Device>().ok());
            let requested = named.or(preferred);
            let device = requested.filter(|device| device.is_available()).unwrap_or(Device::Cpu);
            remember(device);
            device
        }
        number => Device::Gpu(number - 1),
    }
}

/// Sets the device on which ops of all threads run outside of a scope.
///
/// ```
/// use hesper::placement;
/// assert!(placement::set_default_device(placement::Device::Gpu(1000)).is_err());
/// ```
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

/// The default stream of the host.
fn host_stream() -> Result<&'static Stream> {
    static HOST: OnceLock<Result<Stream>> = OnceLock::new();
    HOST.get_or_init(|| Ok(cpu().stream()?)).as_ref().map_err(Clone::clone)
}

/// The default stream of a device, which lives as long as the process.
fn stream_of(device: Device) -> Result<&'static Stream> {
    let Device::Gpu(number) = device else { return host_stream() };
    let stream = slot(number)?.stream.get_or_init(|| Ok(gpu(number)?.stream()?));
    stream.as_ref().map_err(Clone::clone)
}

/// Whether a stream is the default one of a device, which lives as long as the process.
pub(crate) fn is_default(stream: &Stream) -> bool {
    let is_same = |default: &Stream| default.id() == stream.id();
    let of_slot = |slot: &Slot| matches!(slot.stream.get(), Some(Ok(default)) if is_same(default));
    host_stream().is_ok_and(is_same) || SLOTS.get().is_some_and(|slots| slots.iter().any(of_slot))
}

/// The default stream of a device, which all threads share.
///
/// ```
/// use hesper::placement;
/// let cpu = placement::Device::Cpu;
/// assert_eq!(placement::default_stream(cpu)?.id(), placement::default_stream(cpu)?.id());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn default_stream(device: Device) -> Result<Stream> {
    stream_of(device).cloned()
}

thread_local! {
    /// The streams of the nested scopes of the thread. It has no destructor, because arrays are also built
    /// while a thread ends.
    static SCOPE: ManuallyDrop<RefCell<SmallVec<[Stream; 4]>>> =
        ManuallyDrop::new(RefCell::new(SmallVec::new()));
}

/// The stream of the innermost scope.
fn scope() -> Option<Stream> {
    SCOPE.with(|scope| scope.borrow().last().cloned())
}

/// The stream on which ops of the current thread run: that of the innermost [`with_stream`] or
/// [`with_device`], else the default stream of the default device.
///
/// ```
/// use hesper::placement;
/// let own = placement::Device::Cpu.stream()?;
/// let inside = placement::with_stream(&own, placement::current_stream)?;
/// assert_eq!(inside.id(), own.id());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn current_stream() -> Result<Stream> {
    hesper_runtime::fork::check()?;
    match scope() {
        Some(stream) => Ok(stream),
        None => default_stream(default_device()),
    }
}

/// Calls `f` with the current stream.
pub(crate) fn with_current<R>(f: impl FnOnce(&Stream) -> R) -> Result<R> {
    hesper_runtime::fork::check()?;
    if let Some(stream) = scope() {
        return Ok(f(&stream));
    }
    stream_of(default_device()).map(f)
}

/// The device on which ops of the current thread run. A device that was not opened by this module counts as a
/// GPU if its backend is not that of the host.
///
/// ```
/// use hesper::placement;
/// let device = placement::with_device(placement::Device::Cpu, placement::current_device)?;
/// assert_eq!(device, placement::Device::Cpu);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn current_device() -> Device {
    let Some(stream) = scope() else { return default_device() };
    let host = registry::of_stream(&stream).is_ok_and(|backend| backend.kind() == BackendKind::Host);
    device_of(&stream).unwrap_or(if host { Device::Cpu } else { Device::Gpu(0) })
}

/// Runs `f` with its ops on `stream`.
///
/// ```
/// use hesper::{array, placement};
/// let (left, right) = (placement::Device::Cpu.stream()?, placement::Device::Cpu.stream()?);
/// let a = placement::with_stream(&left, || array![1.0, 2.0].exp())?;
/// let b = placement::with_stream(&right, || array![1.0, 2.0].sin())?; // may run beside a
/// let sum = a.add(&b)?; // waits for both
/// assert_eq!(sum.shape(), [2]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn with_stream<R>(stream: &Stream, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // There is no destructor, so an empty list must not hold memory.
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
///
/// ```
/// use hesper::{array, placement};
/// let y = placement::with_device(placement::Device::Cpu, || array![3, 4].square())??;
/// assert_eq!(y.to_vec::<i32>()?, [9, 16]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn with_device<R>(device: Device, f: impl FnOnce() -> R) -> Result<R> {
    Ok(with_stream(&default_stream(device)?, f))
}
