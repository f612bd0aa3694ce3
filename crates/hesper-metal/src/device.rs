//! The Metal device: the runtime's [`Device`] above the [edge](crate::edge).

use std::any::Any;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hesper_runtime::cache_folder::CacheFolder;
use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::archive_cache::ArchiveCache;
use crate::compiler::{Compiler, Printer};
use crate::edge::{Metal, Pipeline, Properties};
use crate::error::{MetalError, Result};
use crate::event_pool::EventPool;
use crate::memory::Memory;
use crate::report::ReportPool;
use crate::schedule::Streams;

/// The smallest GPU family that has what kernels need: SIMD groups of 32 with their reductions and matrices.
const MIN_FAMILY: u32 = 7;
/// Threads of a SIMD group, on every GPU of these families. Kernels rely on it.
pub(crate) const SIMD_WIDTH: usize = 32;
/// The cores of the smallest GPU of family 7. Metal does not report their number.
const MIN_CORES: u32 = 8;

/// Options for opening a device.
#[derive(Clone)]
pub struct MetalOptions {
    /// The number of commands after which an open submission is committed automatically.
    pub batch: usize,
    /// The number of submissions of one stream that may be in flight.
    pub max_in_flight: usize,
    /// The folder of the archives of compiled kernels; `None` for none.
    pub cache: Option<PathBuf>,
    /// Whether each command is named in captures and in Metal's own diagnostics; by default if
    /// `HESPER_VALIDATE` is set and not `0`.
    pub signposts: bool,
    /// Prints kernels of other languages as Metal text.
    pub printer: Option<Printer>,
    /// The mechanism of this crate that is switched off, to show what it prevents.
    #[cfg(feature = "sim")]
    pub ablation: crate::sim::DeviceAblation,
}

impl Default for MetalOptions {
    fn default() -> Self {
        MetalOptions {
            batch: 64,
            max_in_flight: 16,
            cache: CacheFolder::default_folder("metal"),
            signposts: is_validating(),
            printer: None,
            #[cfg(feature = "sim")]
            ablation: crate::sim::DeviceAblation::None,
        }
    }
}

/// Counters of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetalCounters {
    /// Kernels that Metal compiled.
    pub compiled: u64,
    /// Kernels taken from an archive.
    pub from_archive: u64,
    /// Command buffers committed.
    pub command_buffers: u64,
    /// Dispatches encoded, copies and clears among them.
    pub dispatches: u64,
    /// Barriers encoded.
    pub barriers: u64,
    /// Bytes of all buffers.
    pub buffer_bytes: usize,
    /// Bytes of the resident ones.
    pub resident_bytes: usize,
}

/// An Apple GPU for a [`Runtime`](hesper_runtime::Runtime).
///
/// ```no_run
/// # use hesper_metal::{MetalDevice, MetalOptions};
/// let runtime = hesper_runtime::Runtime::new(MetalDevice::open(MetalOptions::default())?);
/// # Ok::<(), hesper_metal::MetalError>(())
/// ```
pub struct MetalDevice(Arc<MetalShared>);

/// The state shared by a device's users and Metal's threads; see
/// [`Runtime::extension`](hesper_runtime::Runtime::extension).
pub struct MetalShared {
    pub(crate) compiler: Compiler,
    pub(crate) events: EventPool,
    pub(crate) memory: Memory,
    pub(crate) reports: Arc<ReportPool>,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) edge: Arc<dyn Metal>,
    pub(crate) options: MetalOptions,
    info: DeviceInfo,
    lost: OnceLock<String>,
    command_buffers: AtomicU64,
    dispatches: AtomicU64,
    barriers: AtomicU64,
    capturing: Mutex<bool>,
}

/// Locks a mutex, ignoring poison: critical sections keep their data consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether `HESPER_VALIDATE` asks for diagnostics.
pub(crate) fn is_validating() -> bool {
    std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0")
}

/// Whether the system has a GPU for Metal. Opens nothing.
pub fn is_available() -> bool {
    #[cfg(target_vendor = "apple")]
    return crate::apple::AppleMetal::is_available();
    #[cfg(not(target_vendor = "apple"))]
    false
}

impl MetalDevice {
    /// Opens the system's default GPU. A missing or unsuitable one is a typed error.
    pub fn open(options: MetalOptions) -> Result<Self> {
        #[cfg(target_vendor = "apple")]
        return MetalDevice::on(Arc::new(crate::apple::AppleMetal::open()?), options);
        #[cfg(not(target_vendor = "apple"))]
        {
            let _ = options;
            Err(MetalError::NoDevice("this program was not built for an Apple machine".into()))
        }
    }

    /// Opens the GPU behind an edge.
    pub fn on(edge: Arc<dyn Metal>, options: MetalOptions) -> Result<Self> {
        let properties = edge.properties().clone();
        check_family(&properties)?;
        let info = DeviceInfo {
            name: properties.name.clone(),
            kind: "metal",
            unified_memory: true,
            native_commands: true,
            total_memory: properties.recommended_working_set,
            alignment: 256,
            max_buffer: properties.max_buffer,
            multiprocessors: MIN_CORES,
            max_threads_per_group: properties.max_threads,
            simd_width: SIMD_WIDTH as u32,
            shared_memory: properties.threadgroup_memory,
            batch: options.batch,
            max_in_flight: options.max_in_flight,
        };
        let archives = options.cache.as_deref().and_then(|folder| {
            let (files, bytes) = CacheFolder::LIMITS;
            ArchiveCache::open(folder, files, bytes)
        });
        let shared = Arc::new(MetalShared {
            compiler: Compiler::new(edge.clone(), archives, options.printer.clone()),
            events: EventPool::new(edge.clone()),
            reports: Arc::new(ReportPool::new(edge.clone())),
            memory: Memory::new(
                edge.clone(),
                #[cfg(feature = "sim")]
                (options.ablation == crate::sim::DeviceAblation::RealMemory),
            ),
            streams: Mutex::default(),
            edge,
            options,
            info,
            lost: OnceLock::new(),
            command_buffers: AtomicU64::new(0),
            dispatches: AtomicU64::new(0),
            barriers: AtomicU64::new(0),
            capturing: Mutex::new(false),
        });
        let weak = Arc::downgrade(&shared);
        shared.edge.on_memory_pressure(Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                shared.memory.press();
            }
        }));
        Ok(MetalDevice(shared))
    }

    /// The shared state.
    pub fn shared(&self) -> &Arc<MetalShared> {
        &self.0
    }
}

fn check_family(properties: &Properties) -> Result<()> {
    let found = if properties.apple_family == 0 {
        "no Apple GPU".to_string()
    } else if properties.apple_family < MIN_FAMILY {
        format!("of Apple's GPU family {}", properties.apple_family)
    } else if !properties.unified_memory {
        "a GPU with a memory of its own".to_string()
    } else {
        return Ok(());
    };
    Err(MetalError::Family { name: properties.name.clone(), found })
}

impl MetalShared {
    /// Identity and limits of the GPU.
    pub fn properties(&self) -> &Properties {
        self.edge.properties()
    }

    /// Counters so far.
    pub fn counters(&self) -> MetalCounters {
        let (buffer_bytes, resident_bytes) = self.memory.bytes();
        MetalCounters {
            compiled: self.compiler.compiled.load(Ordering::Relaxed),
            from_archive: self.compiler.from_archive.load(Ordering::Relaxed),
            command_buffers: self.command_buffers.load(Ordering::Relaxed),
            dispatches: self.dispatches.load(Ordering::Relaxed),
            barriers: self.barriers.load(Ordering::Relaxed),
            buffer_bytes,
            resident_bytes,
        }
    }

    /// The first cause, if the device is lost.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// Sets how many bytes of buffers stay resident, and returns the old limit: 0 at first. The system cannot
    /// use resident memory for anything else. `None` if the system is older than residency sets (macOS 15,
    /// iOS 18).
    pub fn set_wired_limit(&self, bytes: usize) -> Option<usize> {
        self.memory.set_wired_limit(bytes, || lock(&self.streams).queues())
    }

    /// Captures all GPU work into a `.gputrace` file until the returned value is dropped.
    pub fn capture(self: &Arc<Self>, path: &Path) -> Result<Capture> {
        let mut capturing = lock(&self.capturing);
        let started = match *capturing {
            true => Err("another capture is running".to_string()),
            false => self.edge.start_capture(path),
        };
        started.map_err(|message| MetalError::Capture { path: path.display().to_string(), message })?;
        *capturing = true;
        Ok(Capture(self.clone()))
    }

    pub(crate) fn check_lost(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            Some(cause) => Err(DeviceError::Lost(cause.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn lose(&self, cause: &str) {
        let _ = self.lost.set(cause.to_string());
    }

    pub(crate) fn count(&self, dispatches: u64, barriers: u64) {
        self.dispatches.fetch_add(dispatches, Ordering::Relaxed);
        self.barriers.fetch_add(barriers, Ordering::Relaxed);
    }

    pub(crate) fn count_command_buffer(&self) {
        self.command_buffers.fetch_add(1, Ordering::Relaxed);
    }
}

/// The mechanisms that an ablation switches off.
#[cfg(feature = "sim")]
impl MetalShared {
    pub(crate) fn orders_dispatches(&self) -> bool {
        self.options.ablation != crate::sim::DeviceAblation::Barriers
    }

    pub(crate) fn orders_encoders(&self) -> bool {
        self.options.ablation != crate::sim::DeviceAblation::Fences
    }

    pub(crate) fn orders_streams(&self) -> bool {
        self.options.ablation != crate::sim::DeviceAblation::Events
    }

    pub(crate) fn is_real(&self, memory: &RawMemory) -> bool {
        memory.id != crate::memory::NO_BUFFER
    }
}

#[cfg(not(feature = "sim"))]
impl MetalShared {
    pub(crate) fn orders_dispatches(&self) -> bool {
        true
    }

    pub(crate) fn orders_encoders(&self) -> bool {
        true
    }

    pub(crate) fn orders_streams(&self) -> bool {
        true
    }

    pub(crate) fn is_real(&self, _: &RawMemory) -> bool {
        true
    }
}

/// A running capture; dropping it ends the capture.
pub struct Capture(Arc<MetalShared>);

impl Drop for Capture {
    fn drop(&mut self) {
        let mut capturing = lock(&self.0.capturing);
        self.0.edge.stop_capture();
        *capturing = false;
    }
}

// SAFETY: buffers are exclusive and live until they are freed. `schedule` commits the submissions of a stream
// in order, `encode` orders their commands by fences, barriers and events, and each work is finished once, in
// order, by `pump`, which `submit` never calls.
unsafe impl Device for MetalDevice {
    fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        self.0.check_lost()?;
        self.0.memory.allocate(len)
    }

    unsafe fn free(&self, memory: RawMemory) {
        // SAFETY: upheld by the caller.
        unsafe { self.0.memory.free(memory) };
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        self.0.check_lost()?;
        // SAFETY: upheld by the caller.
        unsafe { self.0.memory.import(host, len) }
    }

    fn imports_mappings_only(&self) -> bool {
        true
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        self.0.check_lost()?;
        Ok(self.0.create_stream()?)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        // SAFETY: upheld by the caller.
        unsafe { self.0.destroy_stream(stream) };
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        self.0.check_lost()?;
        let pipeline = self.0.compiler.compile(source)?;
        Ok(CompiledPipeline { raw: RawPipeline(pipeline.0), bytes: source.text.as_str().len() })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: upheld by the caller.
        unsafe { self.0.compiler.release(Pipeline(pipeline.0)) };
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        // SAFETY: upheld by the caller.
        unsafe { self.0.take(stream, work) }
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        loop {
            if lock(&self.0.streams).is_finished(stream.0, index) {
                return Progress::Done;
            }
            if !self.0.edge.step() {
                return Progress::Delegated;
            }
        }
    }

    fn poll(&self) {
        self.0.edge.step();
    }

    fn take_memory_pressure(&self) -> bool {
        self.0.memory.take_pressure()
    }

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.0.clone())
    }
}
