//! The Metal device: the runtime's [`Device`] above the [edge](crate::edge).

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use hesper_runtime::cache_folder::CacheFolder;
use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::archive_cache::ArchiveCache;
use crate::compiler::Compiler;
use crate::edge::{Metal, Pipeline, Properties, SIMD_WIDTH};
use crate::error::{MetalError, Result};
use crate::event_pool::EventPool;
use crate::host::lock;
use crate::memory::Memory;
use crate::report::ReportPool;
use crate::shared::{MetalOptions, MetalShared};

/// The smallest GPU family that has what kernels need: SIMD groups of 32 with their reductions and matrices.
const MIN_FAMILY: u32 = 7;
/// The cores of the smallest GPU of family 7. Metal does not report their number.
const MIN_CORES: u32 = 8;

/// An Apple GPU for a [`Runtime`](hesper_runtime::Runtime).
///
/// ```no_run
/// # use hesper_metal::{MetalDevice, MetalOptions};
/// let runtime = hesper_runtime::Runtime::new(MetalDevice::open(MetalOptions::default())?);
/// # Ok::<(), hesper_metal::MetalError>(())
/// ```
pub struct MetalDevice(Arc<MetalShared>);

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
                (options.ablation == crate::ablation::DeviceAblation::RealMemory),
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
