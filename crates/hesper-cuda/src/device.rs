//! The NVIDIA device: the runtime's [`Device`] on a CUDA context of its own, and what runs on it: submissions
//! and the calls of libraries.

pub mod blas;
mod completion;
pub mod cudnn;
mod launch_queue;
pub mod solver;
mod submit;

use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hesper_kernel::bounds;
use hesper_kernel::cuda::{self, Options};
use hesper_kernel::ir;
use hesper_runtime::cache_folder::CacheFolder;
use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::bounds_report::ReportPool;
use crate::compiler::{self, Compiler};
use crate::context::{self, Context, Properties};
use crate::disk_cache::DiskCache;
use crate::error::{CudaError, Result};
use crate::event::EventPool;
use crate::graph::GraphCounters;
use crate::host::lock;
use crate::kernel::Kernel;
use crate::shutdown;
use crate::specialisation::Specialisation;
use crate::staging::Staging;
use blas::Blas;
use completion::CompletionState;
use cudnn::Dnn;
use launch_queue::LaunchQueue;
use solver::Solver;
use submit::CudaStream;

pub use submit::NativeContext;

/// The granularity of allocations in bytes.
const ALLOCATION_GRANULARITY: usize = 512;

/// Options for opening a device.
#[derive(Debug, Clone)]
pub struct CudaOptions {
    /// The ordinal of the device.
    pub ordinal: usize,
    /// The number of commands from which on a submission is launched as a graph.
    pub graph_from: usize,
    /// The number of commands after which an open submission is committed automatically.
    pub batch: usize,
    /// The number of submissions of one stream that may be in flight.
    pub max_in_flight: usize,
    /// The time a thread that waits for the device spins before it sleeps. Waking up takes tens of
    /// microseconds.
    pub spin: Duration,
    /// The folder of the disk cache of compiled kernels; `None` for no cache.
    pub cache: Option<PathBuf>,
    /// Whether a device thread launches submissions; by default on machines with four or more cores.
    pub launch_thread: bool,
    /// Whether dependent launches are validated; by default if `HESPER_VALIDATE` is set and not `0`.
    pub validate: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        CudaOptions {
            ordinal: 0,
            graph_from: 8,
            batch: 64,
            max_in_flight: 256,
            spin: Duration::from_millis(2),
            cache: DiskCache::default_folder(),
            launch_thread: LaunchQueue::has_enough_cores(),
            validate: std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0"),
        }
    }
}

/// Counters of a device.
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaCounters {
    /// Kernels compiled by NVRTC.
    pub compiled: u64,
    /// Kernels loaded from the disk cache.
    pub from_disk: u64,
    /// Submissions launched.
    pub submitted: u64,
    /// Kernels, copies and clears launched one by one.
    pub launched: u64,
    /// Runs of commands whose graph launch failed, and that were launched one by one.
    pub graph_failures: u64,
    /// Submissions whose completion event could not be recorded, and that were waited for at launch.
    pub unmarked: u64,
    /// Counters of graphs.
    pub graphs: GraphCounters,
}

/// An NVIDIA device for a [`Runtime`](hesper_runtime::Runtime).
///
/// ```no_run
/// # use hesper_cuda::{CudaDevice, CudaOptions};
/// let runtime = hesper_runtime::Runtime::new(CudaDevice::open(CudaOptions::default())?);
/// # Ok::<(), hesper_cuda::CudaError>(())
/// ```
pub struct CudaDevice {
    shared: Arc<CudaShared>,
    /// The completion thread and the launch thread, once started.
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: OnceLock<()>,
}

/// The state shared by a device's users, threads and native commands; see
/// [`Runtime::extension`](hesper_runtime::Runtime::extension).
pub struct CudaShared {
    pub(crate) context: Arc<Context>,
    pub(crate) info: DeviceInfo,
    pub(crate) options: CudaOptions,
    pub(crate) compiler: Compiler,
    pub(crate) staging: Staging,
    pub(crate) events: Arc<EventPool>,
    pub(crate) reports: Arc<ReportPool>,
    pub(crate) streams: Mutex<HashMap<u64, Arc<CudaStream>>>,
    pub(crate) state: Mutex<CompletionState>,
    pub(crate) wake: Condvar,
    pub(crate) queue: LaunchQueue,
    pub(crate) lost: OnceLock<String>,
    /// Kernels released while a submission was being launched.
    unloading: Mutex<Vec<Kernel>>,
    pub(crate) counters: Mutex<CudaCounters>,
    pub(crate) blas: LazyLibrary<Blas>,
    pub(crate) dnn: LazyLibrary<Dnn>,
    pub(crate) solver: LazyLibrary<Solver>,
    ids: AtomicU64,
}

/// A library with its handle for a device, loaded on first use. A missing library is cached; any other
/// failure is retried by the next call.
pub(crate) struct LazyLibrary<T> {
    handle: OnceLock<Result<T>>,
    loading: Mutex<()>,
}

impl<T> Default for LazyLibrary<T> {
    fn default() -> Self {
        LazyLibrary { handle: OnceLock::new(), loading: Mutex::new(()) }
    }
}

impl<T> LazyLibrary<T> {
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(handle) = self.handle.get() {
            return handle.as_ref().map_err(Clone::clone);
        }
        let _loading = lock(&self.loading);
        if self.handle.get().is_none() {
            let handle = make();
            let missing = |error: &CudaError| {
                matches!(error, CudaError::MissingLibrary { .. } | CudaError::MissingSymbol { .. })
            };
            if let Err(error) = &handle
                && !missing(error)
            {
                return Err(error.clone());
            }
            let _ = self.handle.set(handle);
        }
        match self.handle.get() {
            Some(handle) => handle.as_ref().map_err(Clone::clone),
            None => Err(CudaError::ShuttingDown),
        }
    }

    fn take(&mut self) -> Option<Result<T>> {
        self.handle.take()
    }
}

impl CudaDevice {
    /// Opens a device. A missing driver, library or device is a typed error.
    pub fn open(options: CudaOptions) -> Result<Self> {
        let disk = options.cache.as_deref().and_then(|folder| {
            let (files, bytes) = CacheFolder::LIMITS;
            DiskCache::open(folder, files, bytes)
        });
        // Creating a context takes longer than loading the compiler, which happens in parallel.
        if let Ok(capability) = context::capability(options.ordinal) {
            compiler::warm(capability, disk.as_ref().is_none_or(DiskCache::is_empty));
        }
        let context = Context::create(options.ordinal)?;
        let properties = context.properties();
        let info = DeviceInfo {
            name: properties.name.clone(),
            kind: "cuda",
            unified_memory: false,
            native_commands: false,
            total_memory: properties.total_memory,
            alignment: 256,
            max_buffer: properties.total_memory,
            multiprocessors: properties.multiprocessors.max(1),
            max_threads_per_group: properties.max_threads as usize,
            simd_width: properties.warp_size,
            shared_memory: properties.max_shared as usize,
            batch: options.batch,
            max_in_flight: options.max_in_flight,
        };
        let shared = CudaShared {
            compiler: Compiler::new(properties, disk),
            staging: Staging::new(context.clone(), options.spin),
            events: EventPool::new(context.clone()),
            reports: ReportPool::new(context.clone()),
            streams: Mutex::new(HashMap::new()),
            state: Mutex::new(CompletionState::new()),
            wake: Condvar::new(),
            queue: LaunchQueue::new(options.launch_thread),
            lost: OnceLock::new(),
            unloading: Mutex::new(Vec::new()),
            counters: Mutex::new(CudaCounters::default()),
            blas: LazyLibrary::default(),
            dnn: LazyLibrary::default(),
            solver: LazyLibrary::default(),
            ids: AtomicU64::new(1),
            context,
            info,
            options,
        };
        Ok(CudaDevice { shared: Arc::new(shared), threads: Mutex::default(), started: OnceLock::new() })
    }

    /// The shared state.
    pub fn shared(&self) -> &Arc<CudaShared> {
        &self.shared
    }

    /// Starts the device threads with the first submission.
    fn start_threads(&self) -> Result<(), DeviceError> {
        if self.started.get().is_some() {
            return Ok(());
        }
        let mut threads = lock(&self.threads);
        if self.started.get().is_some() {
            return Ok(());
        }
        let start = |name: &str, life: fn(Arc<CudaShared>)| {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || life(shared));
            thread.map_err(|error| DeviceError::Failed(format!("cannot start a device thread: {error}")))
        };
        if threads.is_empty() {
            threads.push(start("hesper-cuda", CudaShared::completion_loop)?);
        }
        if self.shared.queue.enabled {
            threads.push(start("hesper-launch", CudaShared::launch_loop)?);
        }
        let _ = self.started.set(());
        Ok(())
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // A forked process has none of the threads, and its locks may be held.
        if shutdown::is_forked() {
            std::mem::forget(std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner)));
            return;
        }
        lock(&self.shared.state).stop = true;
        self.shared.wake.notify_all();
        self.shared.queue.stop();
        let threads = std::mem::take(&mut *lock(&self.threads));
        // During exit threads may block at the gate.
        if shutdown::is_closed() {
            return;
        }
        // A device thread may finish the last work and so drop the device.
        let own = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

impl Drop for CudaShared {
    fn drop(&mut self) {
        // The handles of the libraries belong to the context and are destroyed before it.
        let current = self.context.enter_to_release();
        let handles = (self.blas.take(), self.dnn.take(), self.solver.take());
        match current {
            Ok(_) => drop(handles),
            Err(_) => std::mem::forget(handles),
        }
    }
}

impl CudaShared {
    /// The device's context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        self.context.properties()
    }

    /// The version and target of the compiler.
    pub fn compiler(&self) -> Result<String> {
        self.compiler.describe()
    }

    /// Free and total bytes of device memory, over all processes.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        self.context.enter()?.memory_info()
    }

    /// Counters so far.
    pub fn counters(&self) -> CudaCounters {
        let (compiled, from_disk) = self.compiler.counts();
        CudaCounters { compiled, from_disk, ..*lock(&self.counters) }
    }

    /// The first cause, if the device is lost.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    pub(crate) fn check_lost(&self) -> Result<(), DeviceError> {
        if shutdown::is_forked() {
            return Err(CudaError::Forked.into());
        }
        match self.lost.get() {
            Some(cause) => Err(DeviceError::Lost(cause.clone())),
            None => Ok(()),
        }
    }

    /// Converts a driver error; a sticky one marks the device as lost.
    pub(crate) fn device_error(&self, error: CudaError) -> DeviceError {
        if error.is_sticky() { self.lose(&error) } else { error.into() }
    }

    /// Emits a kernel of the kernel language as CUDA C++ and loads it.
    fn load_kernel(
        &self,
        source: &PipelineSource,
        kernel: &Arc<ir::Kernel>,
    ) -> Result<(Kernel, usize), DeviceError> {
        let says = |what: &str| source.specialisation.as_str().lines().any(|line| line == what);
        let (flat, checks) = (!says("upright"), says("bounds"));
        let max_threads = max_threads_of(source)?;
        let fast_half = says("fast");
        let options = Options { max_threads, fast_half, flat, bounds: checks, ..Options::default() };
        let mask = source.specialisation.as_str().lines().find_map(|line| line.strip_prefix("proven "));
        let proven = mask.and_then(|mask| bounds::from_mask(kernel, mask)).unwrap_or_default();
        let written = cuda::emit_proven(kernel, &options, &proven);
        let mut wanted = Specialisation::parse(&written.specialisation())?;
        wanted.language = true;
        wanted.flat = flat;
        wanted.minimal = true;
        let loaded = self.load(&source.label, &written.text, &wanted);
        let (mut loaded, bytes) = loaded.map_err(|error| self.device_error(error))?;
        loaded.checks = checks.then(|| kernel.clone());
        Ok((loaded, bytes))
    }

    fn load(&self, label: &str, text: &str, wanted: &Specialisation) -> Result<(Kernel, usize)> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (compiled, from_disk) = self.compiler.compile(label, text, wanted)?;
        let current = self.context.enter()?;
        let loaded = Kernel::load(&self.context, &current, id, &compiled, wanted);
        match loaded {
            // The driver rejects the cached file: compile again and replace it.
            Err(error) if from_disk && !error.is_sticky() => {
                let compiled = self.compiler.compile_afresh(label, text, wanted)?;
                let kernel = Kernel::load(&self.context, &current, id, &compiled, wanted)?;
                Ok((kernel, compiled.image.bytes().len()))
            }
            loaded => Ok((loaded?, compiled.image.bytes().len())),
        }
    }

    /// Unloads a kernel once no graph uses it, and not while a submission is being launched.
    fn unload(&self, kernel: Kernel) {
        lock(&self.unloading).push(kernel);
        self.unload_released();
    }

    /// Unloads released kernels.
    pub(crate) fn unload_released(&self) {
        let mut kernels = std::mem::take(&mut *lock(&self.unloading));
        if kernels.is_empty() {
            return;
        }
        let streams: Vec<Arc<CudaStream>> = lock(&self.streams).values().cloned().collect();
        let mut garbage = Vec::new();
        let mut busy = false;
        for stream in streams {
            match stream.try_forget(&kernels) {
                Some(graphs) => garbage.extend(graphs),
                None => busy = true,
            }
        }
        drop(garbage);
        if busy {
            // The launching thread calls this again when it is done.
            lock(&self.unloading).append(&mut kernels);
        }
    }
}

/// The largest threadgroup of a kernel of the kernel language: `threads N` in its specialisation, else the
/// limit of a group.
fn max_threads_of(source: &PipelineSource) -> Result<u32, DeviceError> {
    let said = source.specialisation.as_str().lines().find_map(|line| line.strip_prefix("threads "));
    match said.map(|number| number.trim().parse::<u32>()) {
        None => Ok(1024),
        Some(Ok(threads @ 1..=1024)) => Ok(threads),
        Some(_) => Err(DeviceError::Compile("`threads` takes a number from 1 to 1024".into())),
    }
}

// SAFETY: submissions of a stream go to one CUDA stream in order, each behind the events of its waits; graphs
// honour the `after` edges. A work is kept until its event has completed, and `CudaShared::finish_completed`
// finishes works one at a time in the order of `InFlight::collect`. Memory comes from `cuMemAlloc`:
// exclusive, and aligned to at least 256 bytes.
unsafe impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        let shared = &self.shared;
        shared.check_lost()?;
        // Vectorized kernels may access memory past the last element, up to the next multiple of
        // `ALLOCATION_GRANULARITY` bytes.
        let address = shared
            .context
            .enter()
            .and_then(|current| current.allocate(len.next_multiple_of(ALLOCATION_GRANULARITY)));
        let address = address.map_err(|error| shared.device_error(error))?;
        Ok(RawMemory { id: address, host: None, len })
    }

    unsafe fn free(&self, memory: RawMemory) {
        let shared = &self.shared;
        if shared.check_lost().is_err() {
            return;
        }
        // SAFETY: upheld by the caller.
        let freed = shared.context.enter_to_release().and_then(|current| unsafe { current.free(memory.id) });
        if let Err(error) = freed {
            shared.device_error(error);
        }
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        self.shared.check_lost()?;
        // SAFETY: upheld by the caller.
        let read = unsafe { self.shared.staging.read(memory.id + offset as u64, out) };
        read.map_err(|error| self.shared.device_error(error))
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.shared.check_lost()?;
        // SAFETY: upheld by the caller.
        let written = unsafe { self.shared.staging.write(memory.id + offset as u64, data) };
        written.map_err(|error| self.shared.device_error(error))
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        let shared = &self.shared;
        shared.check_lost()?;
        let made = shared.context.enter().and_then(|current| current.create_stream());
        let raw = made.map_err(|error| shared.device_error(error))?;
        let id = shared.ids.fetch_add(1, Ordering::Relaxed);
        lock(&shared.streams).insert(id, Arc::new(CudaStream::new(raw)));
        lock(&shared.state).in_flight.add_stream(id);
        Ok(RawStream(id))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        let shared = &self.shared;
        if shutdown::is_forked() {
            return;
        }
        lock(&shared.state).in_flight.remove_stream(stream.0);
        let stream = lock(&shared.streams).remove(&stream.0);
        let Some(stream) = stream else { return };
        if let Ok(current) = shared.context.enter_to_release() {
            // SAFETY: upheld by the caller. A lost context destroys its streams itself.
            let _ = unsafe { current.destroy_stream(stream.raw()) };
        }
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        let shared = &self.shared;
        shared.check_lost()?;
        let payload = source.payload.clone().and_then(|payload| payload.downcast::<ir::Kernel>().ok());
        let loaded = match payload {
            Some(kernel) => Ok(shared.load_kernel(source, &kernel)?),
            None if source.language == "cuda" => {
                let wanted = Specialisation::parse(source.specialisation.as_str())?;
                shared.load(&source.label, source.text.as_str(), &wanted)
            }
            None => {
                let language = source.language;
                let what = format!(
                    "a CUDA device compiles `cuda` and kernels of the kernel language, not `{language}`"
                );
                return Err(DeviceError::Compile(what));
            }
        };
        let (kernel, bytes) = loaded.map_err(|error| shared.device_error(error))?;
        let raw = RawPipeline(Box::into_raw(Box::new(kernel)) as u64);
        Ok(CompiledPipeline { raw, bytes })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: `compile` made the address from a box, and it is not used again.
        let kernel = unsafe { Box::from_raw(pipeline.0 as *mut Kernel) };
        if shutdown::is_forked() {
            return;
        }
        self.shared.unload(*kernel);
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        if let Err(error) = self.shared.check_lost().and_then(|()| self.start_threads()) {
            return Err((work, error));
        }
        let outcome = if self.shared.queue.enabled {
            // SAFETY: upheld by the caller.
            unsafe { self.shared.enqueue_submission(stream, work) }
        } else {
            // SAFETY: upheld by the caller.
            unsafe { self.shared.submit_one(stream, work) }
        };
        self.shared.unload_released();
        outcome
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        if shutdown::is_forked() {
            return self.shared.lose_to_fork();
        }
        self.shared.launch_until(stream, index);
        self.shared.wait(stream.0, index)
    }

    fn poll(&self) {
        if shutdown::is_forked() {
            return;
        }
        let _ = self.shared.poll();
    }

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.shared.clone())
    }
}
