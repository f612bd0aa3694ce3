//! Reports of dropped writes by launches that check their accesses.
//!
//! A checking launch gets a buffer of four words. The GPU writes them when it drops a write, and the host
//! reads them when the command buffer has completed. Buffers are used again: each is at least a page of the
//! GPU's memory.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use hesper_runtime::{DeviceError, FaultKind, Scope, Work};

use crate::compiler::ReportReader;
use crate::edge::{Buffer, Metal};
use crate::host::lock;

/// Most buffers that are kept for reuse.
const MAX_POOLED: usize = 64;

/// A buffer of four words, and its host address.
struct ReportBuffer(Buffer, NonNull<[u64; 4]>);

// SAFETY: the address is that of the buffer, and valid on every thread.
unsafe impl Send for ReportBuffer {}

/// The buffers of a device that no launch uses.
pub(crate) struct ReportPool {
    edge: Arc<dyn Metal>,
    free: Mutex<Vec<ReportBuffer>>,
}

impl ReportPool {
    pub(crate) fn new(edge: Arc<dyn Metal>) -> Self {
        ReportPool { edge, free: Mutex::default() }
    }

    fn take(&self) -> Option<ReportBuffer> {
        let free = lock(&self.free).pop();
        free.or_else(|| {
            let (buffer, host) = self.edge.new_buffer(size_of::<[u64; 4]>())?;
            Some(ReportBuffer(buffer, host.cast()))
        })
    }

    /// Takes back a buffer that no command buffer names.
    fn give_back(&self, buffer: ReportBuffer) {
        let mut free = lock(&self.free);
        if free.len() < MAX_POOLED {
            free.push(buffer);
        } else {
            // SAFETY: nothing names the buffer.
            unsafe { self.edge.release(buffer.0.into()) };
        }
    }
}

impl Drop for ReportPool {
    fn drop(&mut self) {
        for buffer in std::mem::take(&mut *lock(&self.free)) {
            // SAFETY: nothing names the buffer.
            unsafe { self.edge.release(buffer.0.into()) };
        }
    }
}

/// The report of one launch.
struct Report {
    command: usize,
    buffer: ReportBuffer,
    reader: ReportReader,
}

/// The reports of one command buffer.
pub(crate) struct Reports {
    pool: Arc<ReportPool>,
    list: Vec<Report>,
}

impl Reports {
    pub(crate) fn new(pool: Arc<ReportPool>) -> Self {
        Reports { pool, list: Vec::new() }
    }

    /// A zeroed buffer for the report of a command.
    pub(crate) fn add(&mut self, command: usize, reader: ReportReader) -> Result<Buffer, DeviceError> {
        let Some(buffer) = self.pool.take() else {
            return Err(DeviceError::OutOfMemory("Metal refused a buffer for the report of a kernel".into()));
        };
        // SAFETY: the buffer has these bytes, aligned for any type, and no command uses it.
        unsafe { buffer.1.write([0; 4]) };
        let named = buffer.0;
        self.list.push(Report { command, buffer, reader });
        Ok(named)
    }

    /// Fails each command that dropped a write. The command buffer has completed.
    pub(crate) fn settle(&self, work: &mut Work) {
        for report in &self.list {
            // SAFETY: the buffer is alive, and the GPU no longer writes it.
            let words = unsafe { report.buffer.1.read_volatile() };
            if let Some(message) = (report.reader)(&words) {
                let label = work.command(report.command).label;
                let fault = work.fault_at(label, FaultKind::Failed, Scope::Command, message);
                work.fail_command(report.command, fault);
            }
        }
    }
}

impl Drop for Reports {
    /// The command buffer has completed, or was never committed.
    fn drop(&mut self) {
        self.list.drain(..).for_each(|report| self.pool.give_back(report.buffer));
    }
}
