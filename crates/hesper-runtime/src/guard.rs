//! Host guards: host access to the bytes of a buffer.
//!
//! A guard commits and waits for the work that it would race with. While it lives, encoding a command
//! that writes under a read guard, or uses the bytes at all under a write guard, is an error.

use std::ops::{Range, RangeBounds};

use bytemuck::Pod;

use crate::error::{Error, Result};
use crate::ranges::resolve;
use crate::raw::{DeviceError, LeaseNote};
use crate::state::{Buffer, Ownership, Shared, WRITE_GUARDED};
use crate::sync::atomic::Ordering;

/// The guarded bytes: in place, or a staged copy.
enum HostBytes {
    InPlace(*mut u8),
    Staged(Vec<u64>),
}

impl HostBytes {
    fn address(&self) -> *const u8 {
        match self {
            HostBytes::InPlace(address) => *address,
            HostBytes::Staged(words) => words.as_ptr().cast(),
        }
    }
}

/// Read access to a buffer's bytes. Nothing writes them while it lives.
pub struct HostRead {
    buffer: Buffer,
    host: HostBytes,
    range: Range<usize>,
}

/// Exclusive access to a buffer's bytes.
pub struct HostWrite {
    buffer: Buffer,
    host: HostBytes,
    written: bool,
}

// SAFETY: a guard is a borrow of plain bytes; which thread uses it does not matter.
unsafe impl Send for HostRead {}
// SAFETY: as above; `&HostRead` only reads.
unsafe impl Sync for HostRead {}
// SAFETY: as above.
unsafe impl Send for HostWrite {}
// SAFETY: as above; `&HostWrite` only reads.
unsafe impl Sync for HostWrite {}

impl Buffer {
    /// Waits for pending writers and returns the bytes. Every call returns the fault of the work that fills
    /// the buffer.
    pub fn read(&self) -> Result<HostRead> {
        self.read_range(..)
    }

    /// As [`read`](Buffer::read), for a range. Only the range is copied from discrete memory.
    pub fn read_range(&self, range: impl RangeBounds<usize>) -> Result<HostRead> {
        let (start, end) = resolve(range, self.len());
        if start > end || end > self.len() {
            let (buffer, len) = (self.0.lease.name(), self.len());
            return Err(Error::OutOfRange { buffer, len, start, end, command: "Buffer::read".into() });
        }
        let mut guard = self.read_guard(start..end)?;
        guard.host = self.host_bytes(start..end, true)?;
        Ok(guard)
    }

    /// Waits for pending writers and returns their fault; copies nothing.
    pub fn wait(&self) -> Result<()> {
        self.read_guard(0..0).map(drop)
    }

    /// Copies the bytes to `out`, which is as long as the buffer.
    pub(crate) fn read_into(&self, out: &mut [u8]) -> Result<()> {
        let memory = &self.0.lease.block.memory;
        if memory.host.is_some() {
            let guard = self.read()?;
            out.copy_from_slice(guard.bytes());
            return guard.check();
        }
        let _guard = self.read_guard(0..self.len())?;
        if out.is_empty() {
            return Ok(());
        }
        // SAFETY: the lease's length is at most its memory's, and pending writers are done.
        unsafe { self.0.shared.device.read(memory, 0, &mut out[..self.len()]) }
            .map_err(|error| self.0.shared.device_error("read memory", error))
    }

    /// A read guard without an address.
    fn read_guard(&self, range: Range<usize>) -> Result<HostRead> {
        self.acquire_guard(false, "Buffer::read")?;
        // From here on dropping the guard releases the count.
        let guard = HostRead { buffer: self.clone(), host: HostBytes::Staged(Vec::new()), range };
        if let Some(fault) = self.fault() {
            return Err(fault.into());
        }
        if !self.0.lease.filled.covers(guard.range.clone()) {
            return Err(Error::Unfilled { buffer: self.0.lease.name(), command: "Buffer::read".into() });
        }
        let note = LeaseNote::HostRead { start: guard.range.start, end: guard.range.end };
        self.0.shared.device.note_lease(&self.0.lease.block.memory, self.id(), note);
        self.check_source("Buffer::read")?;
        Ok(guard)
    }

    /// Waits for all pending uses and returns the bytes, mutable. Unfilled bytes are zero.
    pub fn write(&self) -> Result<HostWrite> {
        let mut guard = self.write_guard()?;
        if !self.0.shared.leaves_fresh_memory() {
            for gap in self.0.lease.filled.gaps(0..self.len()) {
                guard.bytes_mut()[gap].fill(0);
            }
        }
        Ok(guard)
    }

    /// As [`write`](Buffer::write), without clearing unfilled bytes.
    ///
    /// # Safety
    /// The caller writes every byte before any byte is read, or drops the buffer unread.
    pub unsafe fn overwrite(&self) -> Result<HostWrite> {
        self.write_guard()
    }

    /// A write guard; unfilled bytes may hold data of an earlier lease.
    pub(crate) fn write_guard(&self) -> Result<HostWrite> {
        if let Ownership::Foreign(why) = self.0.lease.block.ownership {
            let buffer = self.0.lease.name();
            return Err(Error::ReadOnly { buffer, command: "Buffer::write".into(), why });
        }
        self.acquire_guard(true, "Buffer::write")?;
        let mut guard =
            HostWrite { buffer: self.clone(), host: HostBytes::Staged(Vec::new()), written: true };
        if let Some(fault) = self.fault() {
            return Err(fault.into());
        }
        let whole = 0..self.len();
        let fresh = self.0.lease.filled.gaps(whole.clone())[..] == [whole.clone()];
        guard.host = self.host_bytes(whole, !fresh)?;
        guard.written = false;
        let note = LeaseNote::HostWrite;
        self.0.shared.device.note_lease(&self.0.lease.block.memory, self.id(), note);
        self.forget_replicas();
        Ok(guard)
    }

    /// Waits until no command uses the bytes in a way that races with the access, and counts the guard in
    /// the same critical section, before another command can be encoded.
    fn acquire_guard(&self, writes: bool, call: &'static str) -> Result<()> {
        crate::fork::check()?;
        crate::native::refuse_inside(call)?;
        let lease = &self.0.lease;
        loop {
            let pending = {
                let mut ledger = self.0.shared.ledger.lock();
                let guards = lease.guards.load(Ordering::Acquire);
                if guards == WRITE_GUARDED || (writes && guards != 0) {
                    return Err(Error::HostAccess {
                        buffer: lease.name(),
                        command: call.into(),
                        guard: if guards == WRITE_GUARDED { "write" } else { "read" },
                    });
                }
                match ledger.pending(lease, 0..lease.block.memory.len, writes) {
                    Some(pending) => pending,
                    None => {
                        // Guards are dropped without the lock: the loaded count may be too high by now.
                        match writes {
                            true => lease.guards.store(WRITE_GUARDED, Ordering::Release),
                            false => _ = lease.guards.fetch_add(1, Ordering::AcqRel),
                        }
                        return Ok(());
                    }
                }
            };
            let (stream, index) = pending;
            self.0.shared.commit_awaited(stream.id(), index);
            self.0.shared.wait(&stream, index);
        }
    }

    fn host_bytes(&self, range: Range<usize>, copy: bool) -> Result<HostBytes> {
        let lease = &self.0.lease;
        let memory = &lease.block.memory;
        if let Some(host) = memory.host {
            return Ok(HostBytes::InPlace(host.as_ptr().wrapping_add(range.start)));
        }
        let mut words = vec![0u64; range.len().div_ceil(8)];
        if copy && !range.is_empty() {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            // SAFETY: the range lies inside of the lease, which is no longer than its memory, and pending
            // writers are done.
            unsafe { self.0.shared.device.read(memory, range.start, &mut bytes[..range.len()]) }
                .map_err(|error| self.0.shared.device_error("read memory", error))?;
        }
        Ok(HostBytes::Staged(words))
    }
}

impl HostRead {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the address holds the bytes of the range for as long as the buffer lives, which this guard
        // holds; no command writes them while the guard is counted.
        unsafe { slice(&self.host, self.range.len()) }
    }

    /// Whether the bytes may change while they are read (see [`Watch`](crate::Watch)).
    pub fn is_watched(&self) -> bool {
        self.buffer.0.lease.block.watch().is_some()
    }

    /// Checks, after the bytes were used, that they were valid: a mapped file may have been truncated (see
    /// [`Watch`](crate::Watch)).
    pub fn check(&self) -> Result<()> {
        self.buffer.check_source("HostRead::check")
    }

    /// The bytes as values of one type; `None` if size or alignment do not fit.
    pub fn as_slice<T: Pod>(&self) -> Option<&[T]> {
        bytemuck::try_cast_slice(self.bytes()).ok()
    }
}

impl HostWrite {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as for `HostRead`; a write guard is the only user.
        unsafe { slice(&self.host, self.buffer.len()) }
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let address = match &mut self.host {
            HostBytes::InPlace(address) => *address,
            HostBytes::Staged(words) => words.as_mut_ptr().cast(),
        };
        // SAFETY: as for `bytes`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(address, self.buffer.len()) }
    }

    /// Ends the access and copies staged bytes to the device. Dropping the guard does the same, but poisons
    /// the buffer if that fails.
    pub fn finish(mut self) -> Result<()> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.written, true) {
            return Ok(());
        }
        let Buffer(handle) = &self.buffer;
        let (lease, device) = (&handle.lease, &handle.shared.device);
        if let HostBytes::Staged(words) = &self.host
            && lease.len > 0
        {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            // SAFETY: the lease's length is at most its memory's, and a write guard is the only user.
            unsafe { device.write(&lease.block.memory, 0, &bytes[..lease.len]) }
                .map_err(|error| handle.shared.device_error("write memory", error))?;
        }
        lease.filled.add(0..lease.len, lease.len);
        device.note_lease(&lease.block.memory, lease.id, LeaseNote::Filled);
        Ok(())
    }
}

impl Drop for HostRead {
    fn drop(&mut self) {
        self.buffer.0.lease.guards.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for HostWrite {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            let fault = crate::Fault::new(
                crate::FaultKind::Failed,
                crate::Scope::Command,
                "Buffer::write",
                0,
                0,
                error.to_string(),
            );
            self.buffer.fail(&fault);
        }
        self.buffer.0.lease.guards.store(0, Ordering::Release);
    }
}

/// # Safety
/// The address holds `len` bytes, which nothing writes while the result lives.
unsafe fn slice(host: &HostBytes, len: usize) -> &[u8] {
    // SAFETY: upheld by the caller; an empty staged vector's address is dangling but aligned, and
    // then the length is zero.
    unsafe { std::slice::from_raw_parts(host.address(), len) }
}

impl Shared {
    pub(crate) fn device_error(&self, call: &'static str, error: DeviceError) -> Error {
        match error {
            DeviceError::Lost(message) => {
                let fault =
                    crate::Fault::new(crate::FaultKind::Lost, crate::Scope::Device, call, 0, 0, message);
                self.lose(fault).into()
            }
            other => Error::Device { device: self.name(), call, message: other.to_string() },
        }
    }
}
