//! The runtime: an opened device with its memory, streams and pipelines.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::error::{Fault, FaultKind, Result, Scope};
use crate::raw::{DeviceError, DeviceInfo, LeaseNote};
use crate::report::Report;
use crate::source::PipelineSource;
use crate::state::{
    Block, Buffer, CacheCounters, CacheLimits, Committer, Device, Lease, Ledger, Owner, Ownership, Pipeline,
    PipelineCache, Requester, Shared, Watch, check_watch, new_id,
};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Lock, Rank};
use crate::trace::Trace;
use crate::validate::Validator;

/// Configures a runtime; see [`Runtime::builder`].
pub struct RuntimeBuilder {
    device: Arc<dyn Device>,
    memory_limit: Option<usize>,
    cache_limit: Option<usize>,
    pipelines: CacheLimits,
    validate: Option<bool>,
    #[cfg(feature = "sim")]
    ablation: crate::ablation::Ablation,
}

impl RuntimeBuilder {
    /// Limits the bytes allocated at once. Default: the memory of the device.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Limits the bytes that the pool keeps for reuse. Default: a quarter of the memory limit.
    pub fn cache_limit(mut self, bytes: usize) -> Self {
        self.cache_limit = Some(bytes);
        self
    }

    /// Limits the pipeline cache.
    pub fn pipelines(mut self, limits: CacheLimits) -> Self {
        self.pipelines = limits;
        self
    }

    /// Enables the validation layer. Default: enabled if `HESPER_VALIDATE` is set and not `0`.
    pub fn validate(mut self, on: bool) -> Self {
        self.validate = Some(on);
        self
    }

    /// Switches one mechanism off to show what it prevents. For the simulator only.
    #[cfg(feature = "sim")]
    pub fn ablate(mut self, ablation: crate::ablation::Ablation) -> Self {
        self.ablation = ablation;
        self
    }

    /// Opens the runtime.
    pub fn build(self) -> Runtime {
        let validate = self
            .validate
            .unwrap_or_else(|| std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0"));
        let mut report = None;
        let device = if validate {
            let validator = Validator::new(self.device);
            report = Some(validator.report());
            Arc::new(validator)
        } else {
            self.device
        };
        crate::fork::opened();
        let info = device.info();
        let memory_limit = self.memory_limit.unwrap_or(info.total_memory);
        Runtime(Arc::new(Shared {
            id: new_id(),
            ledger: Lock::new(Rank::Ledger, Ledger::default()),
            commit: Lock::new(Rank::Commit, ()),
            committer: Committer::default(),
            cache: PipelineCache::new(
                self.pipelines,
                #[cfg(feature = "sim")]
                self.ablation,
            ),
            batch: info.batch.max(1),
            trace: Trace::default(),
            slots: Arc::new(Lock::new(Rank::Leaf, Vec::new())),
            sources: Lock::new(Rank::Leaf, Vec::new()),
            allocated: Arc::new(AtomicUsize::new(0)),
            memory_limit: AtomicUsize::new(memory_limit),
            soft_limit: AtomicUsize::new(memory_limit),
            cache_limit: AtomicUsize::new(self.cache_limit.unwrap_or(memory_limit / 4)),
            faults: AtomicU64::new(0),
            lost: OnceLock::new(),
            report,
            attachment: OnceLock::new(),
            #[cfg(feature = "sim")]
            ablation: self.ablation,
            device,
        }))
    }
}

/// An opened device. Clones are handles to the same one.
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

/// A snapshot of a runtime's memory and activity.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Bytes held by buffers and by work in flight.
    pub active: usize,
    /// Bytes kept for reuse.
    pub cached: usize,
    /// The largest number of active bytes at an allocation so far.
    pub peak: usize,
    /// Bytes allocated from the device: active and cached.
    pub allocated: usize,
    /// Blocks kept for reuse.
    pub cached_blocks: usize,
    /// Replicas of other devices' buffers. They count as active and are dropped when memory runs out.
    pub replicas: usize,
    /// Bytes of these replicas.
    pub replica_bytes: usize,
    /// Live streams.
    pub streams: usize,
    /// Commands encoded so far.
    pub encoded: u64,
    /// Commands among them that needed a barrier.
    pub barriers: u64,
    /// Faults counted so far; nonzero after the first failure.
    pub faults: u64,
    /// Counters of the pipeline cache.
    pub pipelines: CacheCounters,
}

impl Runtime {
    /// Opens a runtime on a device, with default limits.
    pub fn new(device: impl Device) -> Self {
        Runtime::builder(device).build()
    }

    /// Configures a runtime on a device.
    pub fn builder(device: impl Device) -> RuntimeBuilder {
        RuntimeBuilder {
            device: Arc::new(device),
            memory_limit: None,
            cache_limit: None,
            pipelines: CacheLimits::default(),
            validate: None,
            #[cfg(feature = "sim")]
            ablation: crate::ablation::Ablation::None,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Runtime(shared)
    }

    /// The device's identity, capabilities and limits.
    pub fn info(&self) -> &DeviceInfo {
        self.0.device.info()
    }

    /// A value that the runtime's user keeps with it, made when it is first asked for. `None` if a value of
    /// another type is kept already.
    pub fn attached<T: Any + Send + Sync + Default>(&self) -> Option<&T> {
        self.0.attached()
    }

    /// A number unique among the runtimes of the process.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Whether both are handles to the same runtime.
    pub fn same(&self, other: &Runtime) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Allocates memory for the host to fill. Takes no memory that work in flight uses.
    #[track_caller]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        Shared::alloc(&self.0, len, Requester::Host, "".into())
    }

    /// A buffer with a copy of `data`.
    #[track_caller]
    pub fn upload<T: bytemuck::NoUninit>(&self, data: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let buffer = self.alloc(bytes.len())?;
        buffer.fill(bytes)?;
        Ok(buffer)
    }

    /// A read-only buffer on memory that `owner` keeps alive. Copies only if the device cannot import it.
    #[track_caller]
    pub fn adopt(&self, owner: impl HostMemory, what: &'static str) -> Result<Buffer> {
        let (address, len) = {
            let bytes = owner.bytes();
            (NonNull::from(bytes).cast::<u8>(), bytes.len())
        };
        let is_mapped = owner.is_mapped();
        let owner = Owner { watch: owner.watch(), _value: Box::new(owner) };
        crate::fork::check()?;
        if len == 0 {
            return self.upload::<u8>(&[]);
        }
        let imported = match self.0.device.imports_mappings_only() && !is_mapped {
            true => Err(DeviceError::Unsupported("an import of memory of an allocator")),
            // SAFETY: `HostMemory` promises that the bytes stay in place and unchanged while the owner
            // lives, and the block keeps the owner.
            false => unsafe { self.0.device.import(address, len) },
        };
        match imported {
            Ok(memory) => {
                let slot = self.0.ledger.lock().new_slot(&self.0.slots);
                let block = Block::new(
                    memory,
                    Ownership::Foreign(what),
                    slot,
                    self.0.device.clone(),
                    self.0.slots.clone(),
                    None,
                    Some(owner),
                );
                let lease = Lease::new(Arc::new(block), new_id(), len, what.into(), true);
                let buffer = Buffer::new(lease, None, self.0.clone());
                self.0.device.note_lease(&memory, buffer.id(), LeaseNote::Filled);
                Ok(buffer)
            }
            Err(DeviceError::Unsupported(_)) => {
                // SAFETY: as above; `owner` is alive.
                let buffer = self.upload(unsafe { std::slice::from_raw_parts(address.as_ptr(), len) })?;
                match owner.watch.as_ref().map(|watch| check_watch(&**watch)) {
                    Some(Err(why)) => {
                        Err(Fault::new(FaultKind::Source, Scope::Command, what, 0, 0, why).into())
                    }
                    _ => Ok(buffer),
                }
            }
            Err(error) => Err(self.0.device_error("import memory", error)),
        }
    }

    /// The compiled kernel of a source. Each content is compiled once.
    pub fn pipeline(&self, source: &PipelineSource) -> Result<Arc<Pipeline>> {
        crate::fork::check()?;
        if let Some(fault) = self.0.lost() {
            return Err(fault.into());
        }
        let pipeline = self.0.cache.get(&self.0.device, self.0.id, source)?;
        match self.0.device.check_pipeline(pipeline.raw(), source) {
            Ok(()) => Ok(pipeline),
            Err(error) => Err(self.0.device_error("find a pipeline", error)),
        }
    }

    /// Waits until all streams are idle. Fails only if the device is lost; results report other faults.
    pub fn synchronize(&self) -> Result<()> {
        crate::fork::check()?;
        crate::native::refuse_inside("Runtime::synchronize")?;
        self.0.commit_all();
        loop {
            let pending = self.0.ledger.lock().oldest_in_flight();
            match pending {
                Some((stream, index)) => self.0.wait(&stream, index),
                None => break,
            }
        }
        match self.0.lost() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }

    /// Frees all memory that is kept for reuse; memory that work in flight uses is freed when that work is
    /// finished.
    pub fn clear_cache(&self) {
        let garbage = self.0.ledger.lock().trim(0);
        drop(garbage);
    }

    /// Sets the limit of allocated bytes and returns the old one. An allocation that cannot be made within it
    /// fails.
    pub fn set_memory_limit(&self, bytes: usize) -> usize {
        self.0.memory_limit.swap(bytes, Ordering::AcqRel)
    }

    /// The limit of allocated bytes.
    pub fn memory_limit(&self) -> usize {
        self.0.memory_limit.load(Ordering::Acquire)
    }

    /// Sets the limit of allocated bytes above which an allocation first frees cached memory and waits for
    /// the work in flight, and then goes on; returns the old one. It starts as the memory limit.
    pub fn set_soft_memory_limit(&self, bytes: usize) -> usize {
        self.0.soft_limit.swap(bytes, Ordering::AcqRel)
    }

    /// The limit of allocated bytes above which allocations wait.
    pub fn soft_memory_limit(&self) -> usize {
        self.0.soft_limit.load(Ordering::Acquire)
    }

    /// Sets the limit of bytes kept for reuse and returns the old one.
    pub fn set_cache_limit(&self, bytes: usize) -> usize {
        let old = self.0.cache_limit.swap(bytes, Ordering::AcqRel);
        let garbage = self.0.ledger.lock().trim(bytes);
        drop(garbage);
        old
    }

    /// A snapshot of memory and activity.
    pub fn counters(&self) -> Counters {
        let pipelines = self.0.cache.counters();
        let (replicas, replica_bytes) = self.0.replicas();
        let ledger = self.0.ledger.lock();
        let allocated = self.0.allocated.load(Ordering::Relaxed);
        let cached = ledger.pool.cached();
        Counters {
            active: allocated.saturating_sub(cached),
            cached,
            peak: ledger.peak,
            allocated,
            cached_blocks: ledger.pool.blocks(),
            replicas,
            replica_bytes,
            streams: ledger.stream_count(),
            encoded: ledger.encoded,
            barriers: ledger.barriers,
            faults: self.0.faults.load(Ordering::Relaxed),
            pipelines,
        }
    }

    /// Resets the peak to zero; the next allocation counts the active bytes again.
    pub fn reset_peak(&self) {
        self.0.ledger.lock().peak = 0;
    }

    /// The trace recorder.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// The device-specific object, for crates that know the device.
    pub fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.device.extension()
    }

    /// The report of the validation layer, if enabled. It outlives the runtime.
    pub fn validation(&self) -> Option<Arc<Report>> {
        self.0.report.clone()
    }

    /// The fault that lost the device, if it is lost.
    pub fn lost(&self) -> Option<Fault> {
        self.0.lost()
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runtime({}, {})", self.0.id, self.0.name())
    }
}

/// Host memory that a buffer can adopt.
///
/// # Safety
/// For as long as the value lives, also after a move, `bytes` returns the same address and length, and
/// the bytes do not change.
pub unsafe trait HostMemory: Send + Sync + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// A watch that detects changes of the bytes; `None` if they cannot change.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }

    /// Whether the bytes lie in one mapping of the system, a mapped file for instance, and not in memory of
    /// an allocator. Some devices can import nothing else.
    fn is_mapped(&self) -> bool {
        false
    }
}

// SAFETY: the heap allocation does not move with the vector, which nothing else can change.
unsafe impl HostMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Buffer {
    /// The runtime it belongs to.
    pub fn runtime(&self) -> Runtime {
        Runtime::from_shared(self.0.shared.clone())
    }
}
