//! Replicas: a buffer's bytes on another device.
//!
//! A command binds memory of its own device only. [`Buffer::on`] gives the same bytes there: it waits for
//! what fills the buffer, copies through the host (devices stage through page-locked memory), and keeps
//! the copy beside the buffer, so that a weight is uploaded once however many views of it and however
//! many calls ask. The replica goes with the buffer's last handle, as soon as a command or the host
//! writes the buffer, and when the device that it lies on runs out of memory.

use std::sync::{Arc, Weak};

use crate::block::{Buffer, Handle};
use crate::device::LeaseNote;
use crate::error::Result;
use crate::runtime::{Runtime, Shared, new_id};
use crate::sync::{Lock, Rank, Signal};

/// The replicas of a buffer, one for each device.
pub(crate) struct Replicas {
    list: Lock<Vec<Replica>>,
    changed: Signal,
}

impl Default for Replicas {
    fn default() -> Self {
        Replicas { list: Lock::new(Rank::Leaf, Vec::new()), changed: Signal::default() }
    }
}

enum Replica {
    /// Some thread copies the bytes to the device of this runtime; the second number is the copy's own.
    Copying(u64, u64),
    Made(Buffer),
}

impl Replica {
    fn runtime(&self) -> u64 {
        match self {
            Replica::Copying(runtime, _) => *runtime,
            Replica::Made(buffer) => buffer.0.shared.id,
        }
    }
}

/// The sources of the replicas that lie on a runtime.
pub(crate) type Sources = Lock<Vec<Weak<Handle>>>;

/// A copy under way: its end is told, also if it fails or unwinds.
struct Copying<'a> {
    replicas: &'a Replicas,
    number: u64,
}

impl Copying<'_> {
    /// Whether the copy is still wanted: nothing has written the buffer since it began.
    fn end(&self) -> bool {
        let mut list = self.replicas.list.lock();
        let found =
            list.iter().position(|entry| matches!(entry, Replica::Copying(_, n) if *n == self.number));
        if let Some(at) = found {
            list.swap_remove(at);
        }
        found.is_some()
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.end();
        self.replicas.changed.notify();
    }
}

impl Buffer {
    /// The buffer's bytes on a runtime: itself, or a copy that is made once and kept. Waits for pending
    /// writers; their fault is given to everybody who asks.
    #[track_caller]
    pub fn on(&self, runtime: &Runtime) -> Result<Buffer> {
        if self.belongs_to(runtime) {
            return Ok(self.clone());
        }
        crate::native::refuse_inside("Buffer::on")?;
        let replicas = self.0.replicas.get_or_init(Default::default);
        let copying = loop {
            {
                let mut list = replicas.list.lock();
                match list.iter().find(|entry| entry.runtime() == runtime.id()) {
                    Some(Replica::Made(replica)) => return Ok(replica.clone()),
                    Some(Replica::Copying(..)) => {}
                    None => {
                        let number = new_id();
                        list.push(Replica::Copying(runtime.id(), number));
                        break Copying { replicas, number };
                    }
                }
            }
            replicas.changed.wait_until(|| {
                let list = replicas.list.lock_unscheduled();
                !list
                    .iter()
                    .any(|entry| matches!(entry, Replica::Copying(..)) && entry.runtime() == runtime.id())
            });
        };
        let replica = runtime.alloc(self.len())?;
        self.transfer(&replica)?;
        if copying.end() {
            replicas.list.lock().push(Replica::Made(replica.clone()));
            runtime.shared().note_source(&self.0);
        }
        Ok(replica)
    }

    /// Whether it is memory of this runtime.
    pub fn belongs_to(&self, runtime: &Runtime) -> bool {
        Arc::ptr_eq(&self.0.shared, runtime.shared())
    }

    /// Whether a copy of it is kept on a runtime.
    pub fn has_replica(&self, runtime: &Runtime) -> bool {
        let made = |entry: &Replica| matches!(entry, Replica::Made(_)) && entry.runtime() == runtime.id();
        self.0.replicas.get().is_some_and(|replicas| replicas.list.lock().iter().any(made))
    }

    /// Lets go of copies that are about to be out of date.
    #[inline]
    pub(crate) fn forget_replicas(&self) {
        if let Some(replicas) = self.0.replicas.get() {
            let old = std::mem::take(&mut *replicas.list.lock());
            // A copy under way is not kept; those who wait for it make their own.
            replicas.changed.notify();
            drop(old);
        }
    }

    /// Fills a fresh buffer of another runtime with the bytes of this one.
    fn transfer(&self, to: &Buffer) -> Result<()> {
        if to.0.lease.block.memory.host.is_some() {
            let mut filled = to.overwriting()?;
            self.read_into(filled.bytes_mut())?;
            return filled.finish();
        }
        let guard = self.read()?;
        to.fill(guard.bytes())?;
        // What was read of a mapped file may have gone meanwhile.
        guard.check()
    }

    /// Puts bytes, as many as there are, into a buffer that was just allocated for the host, without a copy in between.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<()> {
        let (lease, shared) = (&self.0.lease, &self.0.shared);
        if lease.block.memory.host.is_some() {
            let mut guard = self.overwriting()?;
            guard.bytes_mut().copy_from_slice(bytes);
            return guard.finish();
        }
        if !bytes.is_empty() {
            let bytes = &bytes[..lease.len.min(bytes.len())];
            shared.device.note_lease(&lease.block.memory, lease.id, LeaseNote::HostWrite);
            // SAFETY: the range lies inside of the memory, which no command has named: the host takes
            // retired blocks only, and this is the only handle.
            unsafe { shared.device.write(&lease.block.memory, 0, bytes) }
                .map_err(|error| shared.device_error("write memory", error))?;
        }
        lease.filled.add(0..lease.len, lease.len);
        shared.device.note_lease(&lease.block.memory, lease.id, LeaseNote::Filled);
        Ok(())
    }
}

impl Shared {
    /// Remembers that a buffer of another runtime has a replica here.
    fn note_source(&self, source: &Arc<Handle>) {
        let mut sources = self.sources.lock();
        if sources.len() == sources.capacity() {
            sources.retain(|source| source.strong_count() > 0);
        }
        sources.push(Arc::downgrade(source));
    }

    /// The replicas that lie here: how many, and their bytes.
    pub(crate) fn replicas(&self) -> (usize, usize) {
        let sources: Vec<Arc<Handle>> = self.sources.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut count, mut bytes) = (0, 0);
        for source in &sources {
            let Some(replicas) = source.replicas.get() else { continue };
            for entry in replicas.list.lock().iter() {
                if let Replica::Made(buffer) = entry
                    && buffer.0.shared.id == self.id
                {
                    count += 1;
                    bytes += buffer.0.lease.block.memory.len;
                }
            }
        }
        (count, bytes)
    }

    /// Lets go of the replicas here that nothing else holds: they can be made again. Whether there were any.
    pub(crate) fn drop_replicas(&self) -> bool {
        let sources: Vec<Arc<Handle>> = {
            let mut sources = self.sources.lock();
            sources.retain(|source| source.strong_count() > 0);
            sources.iter().filter_map(Weak::upgrade).collect()
        };
        let mut dropped = Vec::new();
        for source in &sources {
            let Some(replicas) = source.replicas.get() else { continue };
            let mut list = replicas.list.lock();
            let idle = |entry: &mut Replica| matches!(entry, Replica::Made(buffer) if buffer.0.shared.id == self.id && buffer.is_unique());
            dropped.extend(list.extract_if(.., idle));
        }
        !dropped.is_empty()
    }
}
