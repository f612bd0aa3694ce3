//! The runtime: an opened device with its memory, streams and pipelines.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64 as IdCounter, Ordering as IdOrdering};
use std::sync::{Arc, OnceLock};

use crate::block::{Block, Buffer, Handle, Kind, Lease, Owner, SlotBin};
use crate::device::{Device, DeviceError, DeviceInfo};
use crate::error::{Fault, FaultKind, Result, Scope};
use crate::ledger::Ledger;
use crate::pipeline::{CacheCounters, CacheLimits, Pipeline, PipelineCache, PipelineSource};
use crate::pool::Taker;
use crate::replica::Sources;
use crate::stream::{Stream, StreamShared};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Lock, Rank};
use crate::trace::Trace;
use crate::validate::{Report, Validator};

/// Numbers that no two things of the process share. Plain atomics: ids carry no order.
static IDS: IdCounter = IdCounter::new(1);

pub(crate) fn new_id() -> u64 {
    new_ids(1).start
}

/// Several of them.
pub(crate) fn new_ids(count: u64) -> Range<u64> {
    let start = IDS.fetch_add(count, IdOrdering::Relaxed);
    start..start + count
}

/// What all handles on a runtime share.
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) ledger: Lock<Ledger>,
    /// Held while closed submissions go to the device, so that they arrive in order.
    pub(crate) commit: Lock<()>,
    cache: PipelineCache,
    pub(crate) batch: usize,
    pub(crate) trace: Trace,
    pub(crate) slots: Arc<SlotBin>,
    /// Buffers of other runtimes that have a replica here.
    pub(crate) sources: Sources,
    /// The thread that hands closed submissions over, while one does.
    pub(crate) committer: AtomicUsize,
    pub(crate) allocated: Arc<AtomicUsize>,
    pub(crate) memory_limit: AtomicUsize,
    pub(crate) cache_limit: AtomicUsize,
    faults: AtomicU64,
    lost: OnceLock<Fault>,
    report: Option<Arc<Report>>,
    #[cfg(feature = "sim")]
    pub(crate) ablation: crate::sim::Ablation,
}

/// How a runtime is set up; see [`Runtime::builder`].
pub struct RuntimeBuilder {
    device: Arc<dyn Device>,
    memory_limit: Option<usize>,
    cache_limit: Option<usize>,
    pipelines: CacheLimits,
    validate: Option<bool>,
    #[cfg(feature = "sim")]
    ablation: crate::sim::Ablation,
}

impl RuntimeBuilder {
    /// Most bytes that may be allocated at once. Default: what the device has.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Most bytes that the pool keeps for reuse. Default: a quarter of the memory limit.
    pub fn cache_limit(mut self, bytes: usize) -> Self {
        self.cache_limit = Some(bytes);
        self
    }

    /// How many compiled kernels are kept.
    pub fn pipelines(mut self, limits: CacheLimits) -> Self {
        self.pipelines = limits;
        self
    }

    /// Whether the validation layer checks every call. Default: as `HESPER_VALIDATE` says.
    pub fn validate(mut self, on: bool) -> Self {
        self.validate = Some(on);
        self
    }

    /// Switches one mechanism off, to show what it is for. On the simulator only.
    #[cfg(feature = "sim")]
    pub fn ablate(mut self, ablation: crate::sim::Ablation) -> Self {
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
        let info = device.info();
        let memory_limit = self.memory_limit.unwrap_or(info.total_memory);
        Runtime(Arc::new(Shared {
            id: new_id(),
            ledger: Lock::new(Rank::Ledger, Ledger::default()),
            commit: Lock::new(Rank::Commit, ()),
            cache: PipelineCache::new(
                self.pipelines,
                #[cfg(feature = "sim")]
                self.ablation,
            ),
            batch: info.batch.max(1),
            trace: Trace::default(),
            slots: Arc::new(Lock::new(Rank::Leaf, Vec::new())),
            sources: Lock::new(Rank::Leaf, Vec::new()),
            committer: AtomicUsize::new(0),
            allocated: Arc::new(AtomicUsize::new(0)),
            memory_limit: AtomicUsize::new(memory_limit),
            cache_limit: AtomicUsize::new(self.cache_limit.unwrap_or(memory_limit / 4)),
            faults: AtomicU64::new(0),
            lost: OnceLock::new(),
            report,
            #[cfg(feature = "sim")]
            ablation: self.ablation,
            device,
        }))
    }
}

/// An opened device. Clones are handles on the same one.
#[derive(Clone)]
pub struct Runtime(Arc<Shared>);

/// A snapshot of what a runtime holds and has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Bytes held by buffers and by work in flight.
    pub active: usize,
    /// Bytes kept for reuse.
    pub cached: usize,
    /// Most active bytes so far.
    pub peak: usize,
    /// Bytes allocated from the device: active and cached.
    pub allocated: usize,
    /// Blocks kept for reuse.
    pub cached_blocks: usize,
    /// Copies of other devices' buffers that are kept here, and their bytes. They are active, and go when memory runs out.
    pub replicas: usize,
    /// Bytes of these copies.
    pub replica_bytes: usize,
    /// Live streams.
    pub streams: usize,
    /// Commands encoded so far.
    pub encoded: u64,
    /// Barriers among them.
    pub barriers: u64,
    /// Commands that failed so far.
    pub faults: u64,
    /// The pipeline cache.
    pub pipelines: CacheCounters,
}

impl Runtime {
    /// Opens a runtime on a device, with default limits.
    pub fn new(device: impl Device) -> Self {
        Runtime::builder(device).build()
    }

    /// Sets up a runtime on a device.
    pub fn builder(device: impl Device) -> RuntimeBuilder {
        RuntimeBuilder {
            device: Arc::new(device),
            memory_limit: None,
            cache_limit: None,
            pipelines: CacheLimits::default(),
            validate: None,
            #[cfg(feature = "sim")]
            ablation: crate::sim::Ablation::None,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Runtime(shared)
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.0.device.info()
    }

    /// A number that no other runtime of the process has.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Whether both are handles on the same runtime.
    pub fn same(&self, other: &Runtime) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Opens a stream.
    pub fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(self.0.clone(), self.0.open_stream()?))
    }

    /// Allocates memory for the host to fill. Takes no memory that work in flight still uses.
    #[track_caller]
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        Shared::alloc(&self.0, len, Taker::Host, "".into())
    }

    /// A buffer with a copy of `data`.
    #[track_caller]
    pub fn upload<T: bytemuck::NoUninit>(&self, data: &[T]) -> Result<Buffer> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let buffer = self.alloc(bytes.len())?;
        buffer.fill(bytes)?;
        Ok(buffer)
    }

    /// A read-only buffer on memory that `owner` keeps, without a copy where the device can do so.
    #[track_caller]
    pub fn adopt(&self, owner: impl HostMemory, what: &'static str) -> Result<Buffer> {
        let (address, len) = {
            let bytes = owner.bytes();
            (NonNull::from(bytes).cast::<u8>(), bytes.len())
        };
        let owner = Owner { watch: owner.watch(), _value: Box::new(owner) };
        // SAFETY: `HostMemory` promises that the bytes stay in place and unchanged while the owner
        // lives, and the owner is moved into the block.
        unsafe { self.import_owned(address, len, owner, what) }
    }

    /// As [`adopt`](Runtime::adopt), from an address.
    ///
    /// # Safety
    /// `len` bytes at `address` stay valid and unchanged for as long as `owner` lives.
    #[track_caller]
    pub unsafe fn import(
        &self,
        address: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
        what: &'static str,
    ) -> Result<Buffer> {
        // SAFETY: the caller's promise.
        unsafe { self.import_owned(address, len, Owner { _value: owner, watch: None }, what) }
    }

    /// # Safety
    /// As for [`import`](Runtime::import).
    #[track_caller]
    unsafe fn import_owned(
        &self,
        address: NonNull<u8>,
        len: usize,
        owner: Owner,
        what: &'static str,
    ) -> Result<Buffer> {
        if len == 0 {
            return self.upload::<u8>(&[]);
        }
        // SAFETY: the caller's promise, and the block keeps the owner.
        match unsafe { self.0.device.import(address, len) } {
            Ok(memory) => {
                let slot = self.0.ledger.lock().new_slot(&self.0.slots);
                let block = Block::new(
                    memory,
                    Kind::Foreign(what),
                    slot,
                    self.0.device.clone(),
                    self.0.slots.clone(),
                    None,
                    Some(owner),
                );
                let lease = Lease::new(Arc::new(block), new_id(), len, what.into(), true);
                let buffer = Handle::take(lease, None, self.0.clone());
                self.0.device.note_lease(&memory, buffer.id(), crate::device::LeaseNote::Filled);
                Ok(buffer)
            }
            Err(DeviceError::Unsupported(_)) => {
                // SAFETY: the caller's promise.
                let buffer = self.upload(unsafe { std::slice::from_raw_parts(address.as_ptr(), len) })?;
                match owner.watch.as_ref().map(|watch| crate::block::ask(&**watch)) {
                    Some(Err(why)) => {
                        Err(Fault::new(FaultKind::Source, Scope::Command, what, 0, 0, why).into())
                    }
                    _ => Ok(buffer),
                }
            }
            Err(error) => Err(self.0.device_error("import memory", error)),
        }
    }

    /// The compiled kernel of a source, compiled at most once for each content.
    pub fn pipeline(&self, source: &PipelineSource) -> Result<Arc<Pipeline>> {
        if let Some(fault) = self.0.lost() {
            return Err(fault.into());
        }
        let pipeline = self.0.cache.get(&self.0.device, self.0.id, source)?;
        match self.0.device.check_pipeline(pipeline.raw(), source) {
            Ok(()) => Ok(pipeline),
            Err(error) => Err(self.0.device_error("find a pipeline", error)),
        }
    }

    /// Waits until all streams are idle. Faults are told by results; this gives an error only if the
    /// device is lost.
    pub fn synchronize(&self) -> Result<()> {
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

    /// Gives back all memory that is kept for reuse. Memory that work in flight uses goes when that
    /// work is done. Any thread may call this at any moment.
    pub fn clear_cache(&self) {
        let garbage = self.0.ledger.lock().trim(0);
        drop(garbage);
    }

    /// Forgets compiled kernels; those in use live until they are not.
    pub fn clear_pipelines(&self) {
        self.0.cache.clear();
    }

    /// Sets the most bytes that may be allocated; gives the old limit.
    pub fn set_memory_limit(&self, bytes: usize) -> usize {
        self.0.memory_limit.swap(bytes, Ordering::AcqRel)
    }

    /// The most bytes that may be allocated.
    pub fn memory_limit(&self) -> usize {
        self.0.memory_limit.load(Ordering::Acquire)
    }

    /// Sets the most bytes that are kept for reuse; gives the old limit.
    pub fn set_cache_limit(&self, bytes: usize) -> usize {
        let old = self.0.cache_limit.swap(bytes, Ordering::AcqRel);
        let garbage = self.0.ledger.lock().trim(bytes);
        drop(garbage);
        old
    }

    /// What the runtime holds and has done.
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

    /// Starts counting the peak anew.
    pub fn reset_peak(&self) {
        let mut ledger = self.0.ledger.lock();
        ledger.peak = self.0.allocated.load(Ordering::Relaxed).saturating_sub(ledger.pool.cached());
    }

    /// The recorder of what the runtime does.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    /// Something device-specific, for crates that know the device.
    pub fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.0.device.extension()
    }

    /// What the validation layer has found, if it is on. The report outlives the runtime.
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

/// Host memory that a buffer can be made of.
///
/// # Safety
/// `bytes` gives the same address and length each time, and the bytes do not change, for as long as
/// the value lives, also when it is moved.
pub unsafe trait HostMemory: Send + Sync + 'static {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// Who knows whether the bytes can still be relied on. Nobody, by default: they can.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        None
    }
}

/// Knows whether foreign memory is still what it was when it was adopted: the file behind a mapping may
/// have been truncated, and a plain memory access cannot say so.
///
/// The runtime asks after the bytes were used: when a submission that reads them is finished, and when
/// the host reads them. An error spoils the buffer and what was computed from it, as a fault of the kind
/// [`FaultKind::Source`]. One watch for all buffers of one file makes that one question.
pub trait Watch: Send + Sync + 'static {
    /// An error says, in words for people, why what was read so far cannot be relied on.
    fn check(&self) -> Result<(), String>;
}

// SAFETY: the heap allocation does not move with the vector, and nobody else can change it.
unsafe impl HostMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as for the vector.
unsafe impl HostMemory for Arc<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Shared {
    pub(crate) fn name(&self) -> String {
        self.device.info().name.clone()
    }

    fn open_stream(&self) -> Result<Arc<StreamShared>> {
        if let Some(fault) = self.lost() {
            return Err(fault.into());
        }
        let raw = self.device.create_stream().map_err(|error| self.device_error("create a stream", error))?;
        let stream = Arc::new(StreamShared::new(new_id(), raw, self.device.clone()));
        self.ledger.lock().add_stream(stream.clone());
        Ok(stream)
    }

    /// Whether the ablation in force leaves an earlier owner's bytes in fresh memory.
    #[inline(always)]
    pub(crate) fn leaves_fresh_memory(&self) -> bool {
        #[cfg(feature = "sim")]
        {
            self.ablation == crate::sim::Ablation::FreshMemory
        }
        #[cfg(not(feature = "sim"))]
        {
            false
        }
    }

    /// Whether any command has ever failed: the quick answer that lets faultless work skip the checks.
    pub(crate) fn any_fault(&self) -> bool {
        self.faults.load(Ordering::Acquire) != 0
    }

    pub(crate) fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn lost(&self) -> Option<Fault> {
        if self.any_fault() { self.lost.get().cloned() } else { None }
    }

    /// Records that the device is lost; gives the first cause.
    pub(crate) fn lose(&self, fault: Fault) -> Fault {
        let first = self.lost.get_or_init(|| fault).clone();
        self.count_fault();
        first
    }
}
