//! Blocks, leases and buffers: memory and the right to name it.
//!
//! * A [`Block`] is physical device memory. It lives as long as anybody holds it: a buffer, a
//!   command in flight, the pool.
//! * A [`Lease`] is one life of a block: from the moment a buffer takes it until the buffer's last
//!   handle is gone and no command names it any more. A fault spoils a lease, never the block.
//! * A [`Buffer`] is the counted handle that a program holds. When its last clone is dropped, the block
//!   returns to the pool at once, although commands in flight may still hold the lease: the pool
//!   hands the block on only to work that is ordered behind them.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32 as AtomicPlace, AtomicU64 as AtomicNumber};
use std::sync::{Arc, OnceLock};

use crate::device::{Device, LeaseNote, RawMemory};
use crate::error::{Fault, FaultKind, Result, Scope};
use crate::label::Label;
use crate::panics;
use crate::ranges::Filled;
use crate::replica::Replicas;
use crate::runtime::{Shared, Watch};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Lock, Rank};

/// Whose memory a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The device's own: written, donated, pooled.
    Owned,
    /// Somebody else's (a mapped file, an array of another library): only ever read.
    Foreign(&'static str),
}

/// Physical memory of a device.
pub(crate) struct Block {
    pub(crate) memory: RawMemory,
    pub(crate) kind: Kind,
    /// Index of the block's hazard history in the ledger.
    pub(crate) slot: u32,
    device: Arc<dyn Device>,
    slots: Arc<SlotBin>,
    /// Bytes counted as allocated, and where.
    counted: Option<(usize, Arc<AtomicUsize>)>,
    owner: Option<Owner>,
}

/// Who keeps foreign memory alive, and who knows whether it is still what it was.
pub(crate) struct Owner {
    pub(crate) _value: Box<dyn Any + Send + Sync>,
    pub(crate) watch: Option<Arc<dyn Watch>>,
}

/// Slots whose blocks are gone, to be used again.
pub(crate) type SlotBin = crate::sync::Lock<Vec<u32>>;

impl Block {
    pub(crate) fn new(
        memory: RawMemory,
        kind: Kind,
        slot: u32,
        device: Arc<dyn Device>,
        slots: Arc<SlotBin>,
        counted: Option<(usize, Arc<AtomicUsize>)>,
        owner: Option<Owner>,
    ) -> Self {
        Block { memory, kind, slot, device, slots, counted, owner }
    }

    /// Who knows whether the bytes are still what they were; nobody doubts the device's own memory.
    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.owner.as_ref()?.watch.as_ref()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block was the only name of this memory, and nobody holds the block: no buffer,
        // no work in flight, not the pool.
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

/// One life of a block.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) block: Arc<Block>,
    pub(crate) id: u64,
    pub(crate) len: usize,
    pub(crate) label: Label,
    /// The first cause that spoilt the lease, and the number of the write that it came with.
    fault: Lock<Option<(Fault, u64)>>,
    /// Writes so far, in encode order. A command depends on the writes that were encoded before it, and a failed write
    /// spoils the lease for those that were encoded after it.
    writes: AtomicU64,
    /// Which bytes hold something of this lease.
    pub(crate) filled: Filled,
    /// Live host guards: readers, or `WRITER`. Raised under the ledger's lock.
    pub(crate) guards: AtomicUsize,
    /// The filling of a submission that holds the lease, and where; see [`Mark`].
    pub(crate) mark: Mark,
}

/// Where the open submission that named a lease last holds it: the submission's number and the place in its list.
/// Looked at and changed under the ledger's lock only; plain atomics, as they carry no order.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    number: AtomicNumber,
    place: AtomicPlace,
}

impl Mark {
    /// The place in the list of submission `number`, if that one holds the lease.
    pub(crate) fn place(&self, number: u64) -> Option<u32> {
        (self.number.load(Relaxed) == number).then(|| self.place.load(Relaxed))
    }

    pub(crate) fn set(&self, number: u64, place: u32) {
        self.number.store(number, Relaxed);
        self.place.store(place, Relaxed);
    }
}

/// The value of [`Lease::guards`] while the host writes.
pub(crate) const WRITER: usize = usize::MAX;

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
            mark: Mark::default(),
        }
    }

    /// The fault that spoilt it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault_after(u64::MAX)
    }

    /// The fault that spoils it for a command that was encoded after `writes` writes.
    pub(crate) fn fault_after(&self, writes: u64) -> Option<Fault> {
        let fault = self.fault.lock_unscheduled();
        fault.as_ref().filter(|(_, from)| *from <= writes).map(|(fault, _)| fault.clone())
    }

    /// Spoils the lease for whoever is encoded after the write of number `from`; 0 is everybody. The first cause, in
    /// encode order, stays.
    pub(crate) fn set_fault(&self, fault: &Fault, from: u64) {
        let mut known = self.fault.lock_unscheduled();
        if known.as_ref().is_none_or(|(_, earlier)| from < *earlier) {
            *known = Some((fault.clone(), from));
        }
    }

    /// How many writes were encoded so far; counts one more if the caller is one.
    pub(crate) fn count_write(&self, writes: bool) -> u64 {
        if writes { self.writes.fetch_add(1, Ordering::AcqRel) } else { self.writes.load(Ordering::Acquire) }
    }

    pub(crate) fn name(&self) -> String {
        if self.label.is_empty() { format!("#{}", self.id) } else { format!("{} #{}", self.label, self.id) }
    }
}

/// What a watch says; one that panics cannot say that the memory is good.
pub(crate) fn ask(watch: &dyn Watch) -> Result<(), String> {
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

impl Handle {
    /// A buffer on a lease, which begins in the place of one that has ended if nobody holds that any more.
    #[track_caller]
    pub(crate) fn take(lease: Lease, ended: Option<Arc<Lease>>, shared: Arc<Shared>) -> Buffer {
        let note = LeaseNote::Taken { label: &lease.label, place: Location::caller() };
        shared.device.note_lease(&lease.block.memory, lease.id, note);
        let lease = match ended {
            Some(mut place) => match Arc::get_mut(&mut place) {
                Some(old) => {
                    *old = lease;
                    place
                }
                None => Arc::new(lease),
            },
            None => Arc::new(lease),
        };
        Buffer(Arc::new(Handle { lease, shared, replicas: OnceLock::new() }))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let memory = &self.lease.block.memory;
        self.shared.device.note_lease(memory, self.lease.id, LeaseNote::Returned);
        self.shared.take_back(&self.lease);
    }
}

impl Buffer {
    /// Length in bytes; may be zero.
    pub fn len(&self) -> usize {
        self.0.lease.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it may be written: mapped files and foreign memory may not.
    pub fn writable(&self) -> bool {
        self.0.lease.block.kind == Kind::Owned
    }

    /// Whether this is the only handle, so that its owner may overwrite it (donate it to the next op).
    pub fn is_unique(&self) -> bool {
        self.writable() && Arc::strong_count(&self.0) == 1
    }

    /// The buffer as its only handle; itself again if there are others, or if it may not be written. Whoever has it owns
    /// the memory: nobody else can name it in a command that is encoded later, or look at it.
    pub fn into_unique(mut self) -> std::result::Result<UniqueBuffer, Buffer> {
        if self.is_sole() { Ok(UniqueBuffer(self)) } else { Err(self) }
    }

    /// Whether [`into_unique`](Buffer::into_unique) would succeed: while the handle is borrowed mutably, nobody can make
    /// another one.
    pub fn is_sole(&mut self) -> bool {
        self.writable() && Arc::get_mut(&mut self.0).is_some()
    }

    /// How many handles there are, this one included.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether both are handles on the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The fault that spoilt it, if one has. Does not wait.
    pub fn fault(&self) -> Option<Fault> {
        self.0.lease.fault().or_else(|| self.0.shared.lost())
    }

    /// Spoils the buffer: whoever reads it, or what is computed from it, gets `fault`.
    pub fn fail(&self, fault: &Fault) {
        self.0.shared.count_fault();
        self.0.lease.set_fault(fault, 0);
    }

    /// Asks whether foreign memory is still what it was; if not, the buffer is spoilt from here on.
    pub(crate) fn check_source(&self, call: &'static str) -> Result<()> {
        let Some(watch) = self.0.lease.block.watch() else { return Ok(()) };
        let Err(message) = ask(&**watch) else { return Ok(()) };
        self.fail(&Fault::new(FaultKind::Source, Scope::Command, call, 0, 0, message));
        self.fault().map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// The runtime it belongs to.
    pub fn runtime(&self) -> crate::Runtime {
        crate::Runtime::from_shared(self.0.shared.clone())
    }

    /// A number that no other buffer of the process has.
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
