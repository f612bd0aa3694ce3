//! The NVIDIA device: the runtime's [`Device`] on a CUDA context of its own.

use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hesper_kernel::bounds;
use hesper_kernel::cuda::{self, Options};
use hesper_kernel::ir;
use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::blas::Blas;
use crate::compiler::{self, Compiler};
use crate::context::{self, Context, Properties};
use crate::cudnn::Dnn;
use crate::disk::DiskCache;
use crate::ending;
use crate::error::{CudaError, Result};
use crate::event::EventPool;
use crate::graph::GraphCounters;
use crate::kernel::Kernel;
use crate::options::Specialisation;
use crate::queue::Queue;
use crate::reap::State;
use crate::report::ReportPool;
use crate::staging::Staging;
use crate::submit::Lane;

/// Allocations are whole multiples of this.
const REACH: usize = 512;

/// How a device is opened.
#[derive(Debug, Clone)]
pub struct CudaOptions {
    /// The device's number.
    pub ordinal: usize,
    /// From how many commands on a submission is launched as a graph.
    pub graph_from: usize,
    /// After how many commands an open submission is committed by itself.
    pub batch: usize,
    /// How many submissions of one stream may be in flight.
    pub max_in_flight: usize,
    /// How long a waiting thread looks before it sleeps. To wake up takes as long as many a kernel.
    pub look: Duration,
    /// Where compiled kernels are kept; `None` for nowhere.
    pub cache: Option<PathBuf>,
    /// Whether a thread of the device launches what nobody waits for; where there are four cores and more unless said
    /// otherwise.
    pub launcher: bool,
    /// Whether early launches are checked before they are made; `HESPER_VALIDATE` unless said otherwise.
    pub validate: bool,
}

impl Default for CudaOptions {
    fn default() -> Self {
        CudaOptions {
            ordinal: 0,
            graph_from: 8,
            batch: 64,
            max_in_flight: 32,
            look: Duration::from_micros(500),
            cache: DiskCache::default_folder(),
            launcher: Queue::pays(),
            validate: std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0"),
        }
    }
}

/// What a device has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaCounters {
    /// Kernels that NVRTC compiled.
    pub compiled: u64,
    /// Kernels that came from disk.
    pub from_disk: u64,
    /// Submissions taken.
    pub submitted: u64,
    /// Kernels and copies that were launched one by one.
    pub launched: u64,
    /// Runs of commands that could not be launched as a graph, and were launched one by one.
    pub graph_failures: u64,
    /// Submissions whose end could not be marked by an event, and were waited for when they were launched.
    pub unmarked: u64,
    /// Graphs.
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
    /// The threads that finish and launch, once they have started.
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: OnceLock<()>,
}

/// What a device's users, its reaper and its native commands share; see
/// [`Runtime::extension`](hesper_runtime::Runtime::extension).
pub struct CudaShared {
    pub(crate) context: Arc<Context>,
    pub(crate) info: DeviceInfo,
    pub(crate) options: CudaOptions,
    pub(crate) compiler: Compiler,
    pub(crate) staging: Staging,
    pub(crate) events: Arc<EventPool>,
    pub(crate) reports: Arc<ReportPool>,
    pub(crate) lanes: Mutex<HashMap<u64, Arc<Lane>>>,
    pub(crate) state: Mutex<State>,
    pub(crate) wake: Condvar,
    pub(crate) queue: Queue,
    pub(crate) lost: OnceLock<String>,
    /// Kernels that were given back while a submission was under way.
    unloading: Mutex<Vec<Kernel>>,
    pub(crate) counters: Mutex<CudaCounters>,
    pub(crate) blas: Loaded<Blas>,
    pub(crate) dnn: Loaded<Dnn>,
    ids: AtomicU64,
}

/// Locks, also after a panic: sections of this crate leave their data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A library with its handle for a device: made when it is first asked for. That it is not installed is remembered; any
/// other failure is not, so the next call tries again.
pub(crate) struct Loaded<T> {
    made: OnceLock<Result<T>>,
    making: Mutex<()>,
}

impl<T> Default for Loaded<T> {
    fn default() -> Self {
        Loaded { made: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> Loaded<T> {
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        if let Some(made) = self.made.get() {
            return made.as_ref().map_err(Clone::clone);
        }
        let _making = lock(&self.making);
        if self.made.get().is_none() {
            let made = make();
            let missing = |error: &CudaError| {
                matches!(error, CudaError::MissingLibrary { .. } | CudaError::MissingSymbol { .. })
            };
            if let Err(error) = &made
                && !missing(error)
            {
                return Err(error.clone());
            }
            let _ = self.made.set(made);
        }
        match self.made.get() {
            Some(made) => made.as_ref().map_err(Clone::clone),
            None => Err(CudaError::Ending),
        }
    }

    fn take(&mut self) -> Option<Result<T>> {
        self.made.take()
    }
}

impl CudaDevice {
    /// Opens a device. A missing driver, library or device is a typed error.
    pub fn open(options: CudaOptions) -> Result<Self> {
        let disk = options.cache.as_deref().and_then(|folder| {
            let (files, bytes) = DiskCache::LIMITS;
            DiskCache::open(folder, files, bytes)
        });
        // To make a context takes longer than to make the compiler ready.
        if let Ok(capability) = context::capability(options.ordinal) {
            compiler::warm(capability, disk.as_ref().is_none_or(DiskCache::is_empty));
        }
        let context = Context::create(options.ordinal)?;
        let properties = context.properties();
        let info = DeviceInfo {
            name: properties.name.clone(),
            host_visible: false,
            total_memory: properties.total_memory,
            alignment: 256,
            max_buffer: properties.total_memory,
            max_threads: properties.max_threads as usize,
            batch: options.batch,
            max_in_flight: options.max_in_flight,
        };
        let shared = CudaShared {
            compiler: Compiler::new(properties, disk),
            staging: Staging::new(context.clone(), options.look),
            events: EventPool::new(context.clone()),
            reports: ReportPool::new(context.clone()),
            lanes: Mutex::new(HashMap::new()),
            state: Mutex::new(State::new()),
            wake: Condvar::new(),
            queue: Queue::new(options.launcher),
            lost: OnceLock::new(),
            unloading: Mutex::new(Vec::new()),
            counters: Mutex::new(CudaCounters::default()),
            blas: Loaded::default(),
            dnn: Loaded::default(),
            ids: AtomicU64::new(1),
            context,
            info,
            options,
        };
        Ok(CudaDevice { shared: Arc::new(shared), threads: Mutex::default(), started: OnceLock::new() })
    }

    /// What the device shares with its libraries.
    pub fn shared(&self) -> &Arc<CudaShared> {
        &self.shared
    }

    /// Starts the threads that finish what nobody waits for and that launch, with the first submission.
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
            thread.map_err(|error| DeviceError::Failed(format!("no thread to be had: {error}")))
        };
        if threads.is_empty() {
            threads.push(start("hesper-cuda", CudaShared::reap)?);
        }
        if self.shared.queue.in_use {
            threads.push(start("hesper-launch", CudaShared::keep_launching)?);
        }
        let _ = self.started.set(());
        Ok(())
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // A forked process has none of the threads, and locks as they were.
        if ending::is_forked() {
            std::mem::forget(std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner)));
            return;
        }
        lock(&self.shared.state).stop = true;
        self.shared.wake.notify_all();
        self.shared.queue.stop();
        let threads = std::mem::take(&mut *lock(&self.threads));
        // At the end of the process threads may stay at the gate.
        if ending::is_closed() {
            return;
        }
        // The last work may be finished, and so the device dropped, by one of them.
        let own = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

impl Drop for CudaShared {
    fn drop(&mut self) {
        // The libraries' handles belong to the context, and go before it.
        let current = self.context.enter_to_release();
        let handles = (self.blas.take(), self.dnn.take());
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

    /// What the device is.
    pub fn properties(&self) -> &Properties {
        self.context.properties()
    }

    /// The compiler's version and target.
    pub fn compiler(&self) -> Result<String> {
        self.compiler.describe()
    }

    /// Free and total bytes of the device's memory, of all its users.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        self.context.enter()?.memory_info()
    }

    /// What the device has done so far.
    pub fn counters(&self) -> CudaCounters {
        let (compiled, from_disk) = self.compiler.counts();
        CudaCounters { compiled, from_disk, ..*lock(&self.counters) }
    }

    /// The first cause, if the device is lost.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    pub(crate) fn check_lost(&self) -> Result<(), DeviceError> {
        if ending::is_forked() {
            return Err(CudaError::Forked.into());
        }
        match self.lost.get() {
            Some(cause) => Err(DeviceError::Lost(cause.clone())),
            None => Ok(()),
        }
    }

    /// The runtime's error for the driver's; one that ends the context loses the device.
    pub(crate) fn refuse(&self, error: CudaError) -> DeviceError {
        if error.is_sticky() { self.lose(&error) } else { error.into() }
    }

    /// Writes a kernel of the kernel language as CUDA C++ and loads it.
    fn load_kernel(
        &self,
        source: &PipelineSource,
        kernel: &Arc<ir::Kernel>,
    ) -> Result<(Kernel, usize), DeviceError> {
        let says = |what: &str| source.specialisation.as_str().lines().any(|line| line == what);
        let (flat, checks) = (!says("upright"), says("bounds"));
        let max_threads = most_threads(source)?;
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
        let (mut loaded, bytes) = loaded.map_err(|error| self.refuse(error))?;
        loaded.checks = checks.then(|| kernel.clone());
        Ok((loaded, bytes))
    }

    fn load(&self, label: &str, text: &str, wanted: &Specialisation) -> Result<(Kernel, usize)> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (compiled, from_disk) = self.compiler.compile(label, text, wanted)?;
        let current = self.context.enter()?;
        let loaded = Kernel::load(&self.context, &current, id, &compiled, wanted);
        match loaded {
            // A file that the driver does not take is replaced, whatever is wrong with it.
            Err(error) if from_disk && !error.is_sticky() => {
                let compiled = self.compiler.compile_afresh(label, text, wanted)?;
                let kernel = Kernel::load(&self.context, &current, id, &compiled, wanted)?;
                Ok((kernel, compiled.image.bytes().len()))
            }
            loaded => Ok((loaded?, compiled.image.bytes().len())),
        }
    }

    /// Unloads a kernel, once no graph names it. While a submission is under way that waits.
    fn unload(&self, kernel: Kernel) {
        lock(&self.unloading).push(kernel);
        self.unload_released();
    }

    /// Unloads what was given back.
    pub(crate) fn unload_released(&self) {
        let mut kernels = std::mem::take(&mut *lock(&self.unloading));
        if kernels.is_empty() {
            return;
        }
        let lanes: Vec<Arc<Lane>> = lock(&self.lanes).values().cloned().collect();
        let mut garbage = Vec::new();
        let mut busy = false;
        for lane in lanes {
            match lane.try_forget(&kernels) {
                Some(graphs) => garbage.extend(graphs),
                None => busy = true,
            }
        }
        drop(garbage);
        if busy {
            // Whoever is submitting there comes by here when he is done.
            lock(&self.unloading).append(&mut kernels);
        }
    }
}

/// The most threads of a group that a kernel of the kernel language is launched with: `threads N` in its
/// specialisation, else as many as a group can have.
fn most_threads(source: &PipelineSource) -> Result<u32, DeviceError> {
    let said = source.specialisation.as_str().lines().find_map(|line| line.strip_prefix("threads "));
    match said.map(|number| number.trim().parse::<u32>()) {
        None => Ok(1024),
        Some(Ok(threads @ 1..=1024)) => Ok(threads),
        Some(_) => Err(DeviceError::Compile("`threads` is a number from 1 to 1024".into())),
    }
}

// SAFETY: submissions of a stream go to one CUDA stream in order, each behind the events of those that
// it waits for; graphs honour the `after` edges. A work is kept until its event has completed and is
// finished by `CudaShared::finish_landed`, one at a time, in an order made by `Flights::collect`.
// Memory comes from `cuMemAlloc`: exclusive, and aligned to 256 bytes and more.
unsafe impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        let shared = &self.shared;
        shared.check_lost()?;
        // Kernels that handle several elements at a time may reach past the last one, up to the next
        // multiple of `REACH` bytes.
        let address =
            shared.context.enter().and_then(|current| current.allocate(len.next_multiple_of(REACH)));
        let address = address.map_err(|error| shared.refuse(error))?;
        Ok(RawMemory { id: address, host: None, len })
    }

    unsafe fn free(&self, memory: RawMemory) {
        let shared = &self.shared;
        if shared.check_lost().is_err() {
            return;
        }
        // SAFETY: the caller's promise.
        let freed = shared.context.enter_to_release().and_then(|current| unsafe { current.free(memory.id) });
        if let Err(error) = freed {
            shared.refuse(error);
        }
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        self.shared.check_lost()?;
        // SAFETY: the caller's promise.
        let read = unsafe { self.shared.staging.read(memory.id + offset as u64, out) };
        read.map_err(|error| self.shared.refuse(error))
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.shared.check_lost()?;
        // SAFETY: the caller's promise.
        let written = unsafe { self.shared.staging.write(memory.id + offset as u64, data) };
        written.map_err(|error| self.shared.refuse(error))
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        let shared = &self.shared;
        shared.check_lost()?;
        let made = shared.context.enter().and_then(|current| current.create_stream());
        let raw = made.map_err(|error| shared.refuse(error))?;
        let id = shared.ids.fetch_add(1, Ordering::Relaxed);
        lock(&shared.lanes).insert(id, Arc::new(Lane::new(raw)));
        lock(&shared.state).flights.add_stream(id);
        Ok(RawStream(id))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        let shared = &self.shared;
        if ending::is_forked() {
            return;
        }
        lock(&shared.state).flights.remove_stream(stream.0);
        let lane = lock(&shared.lanes).remove(&stream.0);
        let Some(lane) = lane else { return };
        if let Ok(current) = shared.context.enter_to_release() {
            // SAFETY: the caller's promise. A lost context's streams go with it.
            let _ = unsafe { current.destroy_stream(lane.raw()) };
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
                    "this device compiles `cuda` and kernels of the kernel language, not `{language}`"
                );
                return Err(DeviceError::Compile(what));
            }
        };
        let (kernel, bytes) = loaded.map_err(|error| shared.refuse(error))?;
        let raw = RawPipeline(Box::into_raw(Box::new(kernel)) as u64);
        Ok(CompiledPipeline { raw, bytes })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: `compile` made the address from a box, and it is not used again.
        let kernel = unsafe { Box::from_raw(pipeline.0 as *mut Kernel) };
        if ending::is_forked() {
            return;
        }
        self.shared.unload(*kernel);
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        if let Err(error) = self.shared.check_lost().and_then(|()| self.start_threads()) {
            return Err((work, error));
        }
        let outcome = if self.shared.queue.in_use {
            // SAFETY: the caller's promise.
            unsafe { self.shared.enlist(stream, work) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.shared.submit(stream, work) }
        };
        self.shared.unload_released();
        outcome
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        if ending::is_forked() {
            return self.shared.lose_by_fork();
        }
        self.shared.launch_until(stream, index);
        self.shared.wait(stream.0, index)
    }

    fn poll(&self) {
        if ending::is_forked() {
            return;
        }
        let _ = self.shared.poll();
    }

    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.shared.clone())
    }
}
