//! Replicas: a buffer's bytes on another device.
//!
//! A command binds memory of its own device only. [`Buffer::on`] copies the bytes to another device: it
//! waits for pending writes, copies through the host (devices stage through page-locked memory), and
//! keeps the copy with the buffer, so that a weight is uploaded once for all views and calls. A replica is
//! dropped with the buffer's last handle, when a command or the host writes the buffer, and when the
//! device that holds it runs out of memory.

use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::raw::LeaseNote;
use crate::runtime::Runtime;
use crate::state::{Buffer, Handle, Replica, Replicas, Shared, new_id};

/// A copy in progress. Dropping it wakes the waiters, also on failure or unwinding.
struct Copying<'a> {
    replicas: &'a Replicas,
    number: u64,
}

impl Copying<'_> {
    /// Removes the entry of the copy. False if the buffer was written since the copy began.
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
    /// The buffer's bytes on a runtime: itself, or a replica that is copied once and kept. Waits for pending
    /// writers and returns their fault.
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
                    Some(Replica::Ready(replica)) => return Ok(replica.clone()),
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
            replicas.list.lock().push(Replica::Ready(replica.clone()));
            runtime.shared().note_source(&self.0);
        }
        Ok(replica)
    }

    /// Whether it is memory of this runtime.
    pub fn belongs_to(&self, runtime: &Runtime) -> bool {
        Arc::ptr_eq(&self.0.shared, runtime.shared())
    }

    /// Drops the replicas, which a write makes stale.
    #[inline]
    pub(crate) fn forget_replicas(&self) {
        if let Some(replicas) = self.0.replicas.get() {
            let old = std::mem::take(&mut *replicas.list.lock());
            // A copy in progress is not kept; threads that wait for it copy again.
            replicas.changed.notify();
            drop(old);
        }
    }

    /// Fills a fresh buffer of another runtime with the bytes of this one.
    fn transfer(&self, to: &Buffer) -> Result<()> {
        if to.0.lease.block.memory.host.is_some() {
            let mut filled = to.write_guard()?;
            self.read_into(filled.bytes_mut())?;
            return filled.finish();
        }
        let guard = self.read()?;
        to.fill(guard.bytes())?;
        // A mapped file may have been truncated during the copy.
        guard.check()
    }

    /// Fills a buffer that was just allocated for the host, without a staging copy.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<()> {
        let (lease, shared) = (&self.0.lease, &self.0.shared);
        if lease.block.memory.host.is_some() {
            let mut guard = self.write_guard()?;
            guard.bytes_mut().copy_from_slice(bytes);
            return guard.finish();
        }
        if !bytes.is_empty() {
            let bytes = &bytes[..lease.len.min(bytes.len())];
            shared.device.note_lease(&lease.block.memory, lease.id, LeaseNote::HostWrite);
            // SAFETY: the range lies inside of the memory, which no command names: host allocations take
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
    /// Records that a buffer of another runtime has a replica here.
    fn note_source(&self, source: &Arc<Handle>) {
        let mut sources = self.sources.lock();
        if sources.len() == sources.capacity() {
            sources.retain(|source| source.strong_count() > 0);
        }
        sources.push(Arc::downgrade(source));
    }

    /// The number of replicas here, and their bytes.
    pub(crate) fn replicas(&self) -> (usize, usize) {
        let sources: Vec<Arc<Handle>> = self.sources.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut count, mut bytes) = (0, 0);
        for source in &sources {
            let Some(replicas) = source.replicas.get() else { continue };
            for entry in replicas.list.lock().iter() {
                if let Replica::Ready(buffer) = entry
                    && buffer.0.shared.id == self.id
                {
                    count += 1;
                    bytes += buffer.0.lease.block.memory.len;
                }
            }
        }
        (count, bytes)
    }

    /// Drops the replicas here that nothing else holds; they can be copied again. False if there were none.
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
            let idle = |entry: &mut Replica| match entry {
                Replica::Ready(buffer) => buffer.0.shared.id == self.id && buffer.is_unique(),
                _ => false,
            };
            dropped.extend(list.extract_if(.., idle));
        }
        !dropped.is_empty()
    }
}
