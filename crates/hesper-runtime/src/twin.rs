//! Twins: a buffer's bytes on another device.
//!
//! A command binds memory of its own device only. [`Buffer::on`] gives the same bytes there: it waits for
//! what fills the buffer, copies through the host (devices stage through page-locked memory), and keeps
//! the copy beside the buffer, so that a weight is uploaded once however many views of it and however
//! many calls ask. The copy goes with the buffer's last handle, and as soon as a command or the host
//! writes the buffer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::Buffer;
use crate::device::LeaseNote;
use crate::error::Result;
use crate::runtime::Runtime;
use crate::sync::atomic::Ordering;

/// Copies of a buffer on other devices, one for each.
pub(crate) type Twins = Mutex<Vec<Buffer>>;

fn lock(twins: &Twins) -> MutexGuard<'_, Vec<Buffer>> {
    twins.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Held while the copy is made: others who want it wait for it instead of making their own.
        let mut twins = lock(self.0.twins.get_or_init(Default::default));
        if let Some(twin) = twins.iter().find(|twin| twin.belongs_to(runtime)) {
            return Ok(twin.clone());
        }
        let twin = runtime.alloc(self.len())?;
        self.transfer(&twin)?;
        twins.push(twin.clone());
        Ok(twin)
    }

    /// Whether it is memory of this runtime.
    pub fn belongs_to(&self, runtime: &Runtime) -> bool {
        Arc::ptr_eq(&self.0.shared, runtime.shared())
    }

    /// Whether a copy of it is kept on a runtime.
    pub fn has_twin(&self, runtime: &Runtime) -> bool {
        self.0.twins.get().is_some_and(|twins| lock(twins).iter().any(|twin| twin.belongs_to(runtime)))
    }

    /// Lets go of copies that are about to be out of date.
    pub(crate) fn forget_twins(&self) {
        if let Some(twins) = self.0.twins.get() {
            let old = std::mem::take(&mut *lock(twins));
            drop(old);
        }
    }

    /// Fills a fresh buffer of another runtime with the bytes of this one.
    fn transfer(&self, to: &Buffer) -> Result<()> {
        if to.0.lease.block.memory.host.is_some() {
            let mut filled = to.write()?;
            self.read_into(filled.bytes_mut())?;
            return filled.finish();
        }
        let guard = self.read()?;
        to.fill(guard.bytes())?;
        // What was read of a mapped file may have gone meanwhile.
        guard.check()
    }

    /// Puts bytes into a buffer that was just allocated for the host, without a copy in between.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<()> {
        let (lease, shared) = (&self.0.lease, &self.0.shared);
        if lease.block.memory.host.is_some() {
            let mut guard = self.write()?;
            guard.bytes_mut().copy_from_slice(bytes);
            return guard.finish();
        }
        if !bytes.is_empty() {
            let bytes = &bytes[..lease.len.min(bytes.len())];
            // SAFETY: the range lies inside of the memory, which no command has named: the host takes
            // retired blocks only, and this is the only handle.
            unsafe { shared.device.write(&lease.block.memory, 0, bytes) }
                .map_err(|error| shared.device_error("write memory", error))?;
        }
        lease.filled.store(true, Ordering::Release);
        shared.device.note_lease(&lease.block.memory, lease.id, LeaseNote::Filled);
        Ok(())
    }
}
