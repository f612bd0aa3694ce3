//! Blocks, leases and buffers: memory and the right to name it.
//!
//! * A [`Block`] is physical device memory. Buffers, commands in flight and the pool hold it.
//! * A [`Lease`] is one use of a block: from allocation until the last handle is dropped and no command
//!   names it. A fault poisons a lease, never the block.
//! * A [`Buffer`] is the counted handle that a program holds. Dropping its last clone returns the block to
//!   the pool at once, although commands in flight may still hold the lease: the pool hands the block
//!   only to work that is ordered behind them.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32 as PlainU32, AtomicU64 as PlainU64};
use std::sync::{Arc, OnceLock, Weak};

use super::device::Device;
use super::shared::Shared;
use crate::error::{Fault, FaultKind, Result, Scope};
use crate::label::Label;
use crate::panics;
use crate::ranges::Filled;
use crate::raw::{LeaseNote, RawMemory};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Lock, Rank, Signal};

/// The owner of the memory of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The device: may be written, donated, pooled.
    Owned,
    /// Foreign memory (a mapped file, an array of another library), read-only.
    Foreign(&'static str),
}

/// Physical memory of a device.
pub(crate) struct Block {
    pub(crate) memory: RawMemory,
    pub(crate) ownership: Ownership,
    /// Index of the block's hazard history in the ledger.
    pub(crate) slot: u32,
    device: Arc<dyn Device>,
    slots: Arc<FreeSlots>,
    /// The bytes to subtract from a counter of allocated bytes on drop.
    counted: Option<(usize, Arc<AtomicUsize>)>,
    owner: Option<Owner>,
}

/// Keeps foreign memory alive and watches it for changes.
pub(crate) struct Owner {
    pub(crate) _value: Box<dyn Any + Send + Sync>,
    pub(crate) watch: Option<Arc<dyn Watch>>,
}

/// Detects that foreign memory changed since it was adopted: the file behind a mapping may be truncated,
/// which a plain memory access does not report.
///
/// The runtime checks after each use: when a submission that reads the bytes is finished, and when the
/// host reads them. An error poisons the buffer and everything computed from it with a fault of kind
/// [`FaultKind::Source`]. Buffers of one file share one watch, so a submission checks each file once.
pub trait Watch: Send + Sync + 'static {
    /// Returns an error message if the bytes read so far may be invalid.
    fn check(&self) -> Result<(), String>;
}

/// History slots of dropped blocks, for reuse.
pub(crate) type FreeSlots = Lock<Vec<u32>>;

impl Block {
    pub(crate) fn new(
        memory: RawMemory,
        ownership: Ownership,
        slot: u32,
        device: Arc<dyn Device>,
        slots: Arc<FreeSlots>,
        counted: Option<(usize, Arc<AtomicUsize>)>,
        owner: Option<Owner>,
    ) -> Self {
        Block { memory, ownership, slot, device, slots, counted, owner }
    }

    /// The watch on foreign memory, if it has one.
    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.owner.as_ref()?.watch.as_ref()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        // SAFETY: only the block names this memory, and no buffer, work in flight or pool holds the block.
        unsafe { self.device.free(self.memory) };
        if let Some((bytes, counter)) = &self.counted {
            counter.fetch_sub(*bytes, Ordering::Relaxed);
        }
        self.slots.lock().push(self.slot);
        if let Some(owner) = self.owner.take() {
            panics::discard(owner);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:#x}, {} bytes)", self.memory.id, self.memory.len)
    }
}

/// One use of a block by one buffer.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) block: Arc<Block>,
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) label: Label,
    /// The fault that poisoned the lease, and the number of the write that failed.
    fault: Lock<Option<(Fault, u64)>>,
    /// Writes so far, in encode order. A failed write poisons the lease for the commands encoded after it,
    /// and for no others.
    writes: AtomicU64,
    /// The bytes that this lease has filled.
    pub(crate) filled: Filled,
    /// The number of live read guards, or [`WRITE_GUARDED`]. Raised under the ledger's lock.
    pub(crate) guards: AtomicUsize,
    /// Where the open submission holds the lease.
    pub(crate) held_index: HeldIndex,
}

/// The index of a lease in the lease list of an open submission, so that the submission holds the lease once.
/// Accessed under the ledger's lock only; standard atomics, since they carry no order.
#[derive(Debug, Default)]
pub(crate) struct HeldIndex {
    submission: PlainU64,
    index: PlainU32,
}

impl HeldIndex {
    /// The index in the list of `submission`, if that submission holds the lease.
    pub(crate) fn get(&self, submission: u64) -> Option<u32> {
        (self.submission.load(Relaxed) == submission).then(|| self.index.load(Relaxed))
    }

    pub(crate) fn set(&self, submission: u64, index: u32) {
        self.submission.store(submission, Relaxed);
        self.index.store(index, Relaxed);
    }
}

/// The value of [`Lease::guards`] while a write guard is alive.
pub(crate) const WRITE_GUARDED: usize = usize::MAX;

impl Lease {
    pub(crate) fn new(block: Arc<Block>, id: u64, len: usize, label: Label, filled: bool) -> Self {
        Lease {
            block,
            id,
            len,
            label,
            fault: Lock::new(Rank::Leaf, None),
            writes: AtomicU64::new(0),
            filled: Filled::new(filled),
            guards: AtomicUsize::new(0),
            held_index: HeldIndex::default(),
        }
    }

    /// The fault that poisoned it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault_after(u64::MAX)
    }

    /// The fault that a command encoded after `writes` writes sees.
    pub(crate) fn fault_after(&self, writes: u64) -> Option<Fault> {
        let fault = self.fault.lock_unscheduled();
        fault.as_ref().filter(|(_, from)| *from <= writes).map(|(fault, _)| fault.clone())
    }

    /// Poisons the lease for commands encoded after write number `from`; 0 means all commands. The earliest
    /// fault in encode order stays.
    pub(crate) fn set_fault(&self, fault: &Fault, from: u64) {
        let mut known = self.fault.lock_unscheduled();
        if known.as_ref().is_none_or(|(_, earlier)| from < *earlier) {
            *known = Some((fault.clone(), from));
        }
    }

    /// The number of writes encoded so far; counts one more if `writes`.
    pub(crate) fn count_write(&self, writes: bool) -> u64 {
        if writes { self.writes.fetch_add(1, Ordering::AcqRel) } else { self.writes.load(Ordering::Acquire) }
    }

    pub(crate) fn name(&self) -> String {
        if self.label.is_empty() { format!("#{}", self.id) } else { format!("{} #{}", self.label, self.id) }
    }
}

/// Asks a watch. A panic counts as an error.
pub(crate) fn check_watch(watch: &dyn Watch) -> Result<(), String> {
    panics::catch(|| watch.check()).unwrap_or_else(|panic| Err(format!("its watch panicked: {panic}")))
}

/// A piece of a device's memory.
///
/// A buffer is a handle: clones name the same memory. Its bytes can be reached in two ways: by binding
/// it in a command ([`Stream::encode`](crate::Stream::encode)), and through a host guard
/// ([`Buffer::read`], [`Buffer::write`]).
///
/// ```
/// # use hesper_runtime::{sim::Sim, Runtime};
/// let runtime = Runtime::new(Sim::new(1));
/// let buffer = runtime.upload(&[1u8, 2, 3])?;
/// assert_eq!(buffer.len(), 3);
/// assert_eq!(buffer.read()?.bytes(), [1, 2, 3]);
/// # Ok::<(), hesper_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer(pub(crate) Arc<Handle>);

pub(crate) struct Handle {
    pub(crate) lease: Arc<Lease>,
    pub(crate) shared: Arc<Shared>,
    /// The same bytes on other devices.
    pub(crate) replicas: OnceLock<Box<Replicas>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        let memory = &self.lease.block.memory;
        self.shared.device.note_lease(memory, self.lease.id, LeaseNote::Released);
        self.shared.return_block(&self.lease);
    }
}

impl Buffer {
    /// A buffer on a lease. Reuses the allocation of `recycled` if nothing else holds it.
    #[track_caller]
    pub(crate) fn new(lease: Lease, recycled: Option<Arc<Lease>>, shared: Arc<Shared>) -> Self {
        let note = LeaseNote::Acquired { label: &lease.label, location: Location::caller() };
        shared.device.note_lease(&lease.block.memory, lease.id, note);
        let lease = match recycled {
            Some(mut slot) => match Arc::get_mut(&mut slot) {
                Some(old) => {
                    *old = lease;
                    slot
                }
                None => Arc::new(lease),
            },
            None => Arc::new(lease),
        };
        Buffer(Arc::new(Handle { lease, shared, replicas: OnceLock::new() }))
    }

    /// Length in bytes; may be zero.
    pub fn len(&self) -> usize {
        self.0.lease.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it may be written; foreign memory, such as a mapped file, may not.
    pub fn writable(&self) -> bool {
        self.0.lease.block.ownership == Ownership::Owned
    }

    /// Whether the host addresses its bytes, so that [guards](Buffer::write) give access to them in place.
    pub fn in_host_memory(&self) -> bool {
        self.0.lease.block.memory.host.is_some()
    }

    /// Whether this is the only handle of writable memory, so that it may be donated.
    pub fn is_unique(&self) -> bool {
        self.writable() && Arc::strong_count(&self.0) == 1
    }

    /// Converts the only handle of writable memory; otherwise returns the buffer. No other code can read a
    /// [`UniqueBuffer`] or bind it in a later command.
    pub fn into_unique(mut self) -> std::result::Result<UniqueBuffer, Buffer> {
        if self.is_sole() { Ok(UniqueBuffer(self)) } else { Err(self) }
    }

    /// Whether [`into_unique`](Buffer::into_unique) would succeed. The mutable borrow keeps the answer valid.
    pub fn is_sole(&mut self) -> bool {
        self.writable() && Arc::get_mut(&mut self.0).is_some()
    }

    /// Whether both are handles on the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The fault that poisoned it, if any. Does not wait.
    pub fn fault(&self) -> Option<Fault> {
        self.0.lease.fault().or_else(|| self.0.shared.lost())
    }

    /// Poisons the buffer: reads of it, and of results computed from it, return `fault`.
    pub fn fail(&self, fault: &Fault) {
        self.0.shared.count_fault();
        self.0.lease.set_fault(fault, 0);
    }

    /// Checks the watch of foreign memory; an error poisons the buffer.
    pub(crate) fn check_source(&self, call: &'static str) -> Result<()> {
        let Some(watch) = self.0.lease.block.watch() else { return Ok(()) };
        let Err(message) = check_watch(&**watch) else { return Ok(()) };
        self.fail(&Fault::new(FaultKind::Source, Scope::Command, call, 0, 0, message));
        self.fault().map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// A number unique among the buffers of the process.
    pub fn id(&self) -> u64 {
        self.0.lease.id
    }
}

/// The only handle on a buffer that may be written; see [`Buffer::into_unique`].
///
/// ```
/// # use hesper_runtime::{sim::Sim, Runtime};
/// let buffer = Runtime::new(Sim::new(1)).upload(&[1u8, 2, 3])?;
/// let other = buffer.clone();
/// let buffer = buffer.into_unique().unwrap_err();
/// drop(other);
/// assert_eq!(buffer.into_unique().unwrap().into_shared().len(), 3);
/// # Ok::<(), hesper_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct UniqueBuffer(Buffer);

impl UniqueBuffer {
    /// An ordinary handle, which may be cloned.
    pub fn into_shared(self) -> Buffer {
        self.0
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes)", self.0.lease.name(), self.len())
    }
}

/// The replicas of a buffer, one for each device.
pub(crate) struct Replicas {
    pub(crate) list: Lock<Vec<Replica>>,
    pub(crate) changed: Signal,
}

impl Default for Replicas {
    fn default() -> Self {
        Replicas { list: Lock::new(Rank::Leaf, Vec::new()), changed: Signal::default() }
    }
}

pub(crate) enum Replica {
    /// A thread is copying the bytes: the id of the runtime and the id of the copy.
    Copying(u64, u64),
    Ready(Buffer),
}

impl Replica {
    pub(crate) fn runtime(&self) -> u64 {
        match self {
            Replica::Copying(runtime, _) => *runtime,
            Replica::Ready(buffer) => buffer.0.shared.id,
        }
    }
}

/// The sources of the replicas on a runtime.
pub(crate) type Sources = Lock<Vec<Weak<Handle>>>;
