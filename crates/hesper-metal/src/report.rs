//! Reports of dropped writes by launches that check their accesses.
//!
//! A checking launch gets a buffer of four words. The GPU writes them when it drops a write, and the host reads them when
//! the command buffer has completed.

use std::ptr::NonNull;
use std::sync::Arc;

use hesper_runtime::{DeviceError, FaultKind, Scope, Work};

use crate::compiler::ReportReader;
use crate::edge::{Buffer, Metal};

/// The report of one launch.
struct Report {
    command: usize,
    buffer: Buffer,
    words: NonNull<[u64; 4]>,
    reader: ReportReader,
}

/// The reports of one command buffer.
pub(crate) struct Reports {
    edge: Arc<dyn Metal>,
    list: Vec<Report>,
}

// SAFETY: the addresses are those of buffers that the reports own, and valid on every thread.
unsafe impl Send for Reports {}

impl Reports {
    pub(crate) fn new(edge: Arc<dyn Metal>) -> Self {
        Reports { edge, list: Vec::new() }
    }

    /// A zeroed buffer for the report of a command.
    pub(crate) fn add(&mut self, command: usize, reader: ReportReader) -> Result<Buffer, DeviceError> {
        let Some((buffer, host)) = self.edge.new_buffer(size_of::<[u64; 4]>()) else {
            return Err(DeviceError::OutOfMemory("Metal refused a buffer for the report of a kernel".into()));
        };
        let words = host.cast::<[u64; 4]>();
        // SAFETY: the buffer has these bytes, aligned for any type, and no command uses it yet.
        unsafe { words.write([0; 4]) };
        self.list.push(Report { command, buffer, words, reader });
        Ok(buffer)
    }

    /// Fails each command that dropped a write. The command buffer has completed.
    pub(crate) fn settle(&self, work: &mut Work) {
        for report in &self.list {
            // SAFETY: the buffer is alive, and the GPU no longer writes it.
            let words = unsafe { report.words.read_volatile() };
            if let Some(message) = (report.reader)(&words) {
                let label = work.command(report.command).label;
                let fault = work.fault_at(label, FaultKind::Failed, Scope::Command, message);
                work.fail_command(report.command, fault);
            }
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        for report in &self.list {
            // SAFETY: the command buffer has completed, or was never committed.
            unsafe { self.edge.release(report.buffer.into()) };
        }
    }
}
