//! Reports of dropped writes by launches that check their accesses.
//!
//! A checking launch gets the address of four words in page-locked memory. The device writes them when it
//! drops a write, and the host reads them when the submission has completed. Submissions without such
//! launches have no reports.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use hesper_kernel::bounds::Violation;
use hesper_kernel::ir;
use hesper_runtime::{FaultKind, Scope, Work};

use crate::context::{Context, Current};
use crate::error::Result;
use crate::host::lock;
use crate::kernel::Kernel;
use crate::sys::CUdeviceptr;

/// The report of a launch; see [`Violation::reported`].
type ReportWords = [u64; 4];

/// The number of reports in a block.
const LAUNCHES_PER_BLOCK: usize = 64;
/// The most blocks kept for reuse.
const MAX_POOLED_BLOCKS: usize = 64;

/// Page-locked memory for reports, which the device has at the same address.
struct ReportBlock(*mut ReportWords);

// SAFETY: a block has one owner at a time, and its address is valid on every thread.
unsafe impl Send for ReportBlock {}

/// The pool of blocks of a device.
pub(crate) struct ReportPool {
    context: Arc<Context>,
    free: Mutex<Vec<ReportBlock>>,
}

impl ReportPool {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(ReportPool { context, free: Mutex::default() })
    }

    fn take(&self, current: &Current<'_>) -> Result<ReportBlock> {
        let free = lock(&self.free).pop();
        match free {
            Some(block) => Ok(block),
            None => {
                Ok(ReportBlock(current.allocate_host(LAUNCHES_PER_BLOCK * size_of::<ReportWords>())?.cast()))
            }
        }
    }
}

/// Frees blocks; a lost context frees them itself.
fn release(context: &Context, blocks: impl Iterator<Item = ReportBlock>) {
    if let Ok(current) = context.enter() {
        for block in blocks {
            // SAFETY: nothing in flight names the block.
            let _ = unsafe { current.free_host(block.0.cast::<c_void>()) };
        }
    }
}

impl Drop for ReportPool {
    fn drop(&mut self) {
        let free = std::mem::take(self.free.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()));
        release(&self.context, free.into_iter());
    }
}

/// The reports of one submission.
pub(crate) struct Reports {
    pool: Arc<ReportPool>,
    blocks: Vec<ReportBlock>,
    /// The command and kernel of each checking launch.
    launches: Vec<(usize, Arc<ir::Kernel>)>,
}

impl Reports {
    pub(crate) fn new(pool: &Arc<ReportPool>) -> Self {
        Reports { pool: pool.clone(), blocks: Vec::new(), launches: Vec::new() }
    }

    /// The address of a launch's zeroed report if its kernel checks, else 0.
    pub(crate) fn address(
        &mut self,
        current: &Current<'_>,
        command: usize,
        kernel: &Kernel,
    ) -> Result<CUdeviceptr> {
        let Some(source) = &kernel.checks else { return Ok(0) };
        let at = self.launches.len() % LAUNCHES_PER_BLOCK;
        if at == 0 {
            self.blocks.push(self.pool.take(current)?);
        }
        let Some(block) = self.blocks.last() else { return Ok(0) };
        self.launches.push((command, source.clone()));
        let words = block.0.wrapping_add(at);
        // SAFETY: the words lie in the block, which no launch in flight uses.
        unsafe { words.write([0; 4]) };
        Ok(words as CUdeviceptr)
    }

    /// Fails each command that dropped a write. The submission has completed.
    pub(crate) fn settle(&self, work: &mut Work) {
        for (at, (command, kernel)) in self.launches.iter().enumerate() {
            let words = self.blocks[at / LAUNCHES_PER_BLOCK].0.wrapping_add(at % LAUNCHES_PER_BLOCK);
            // SAFETY: the words lie in the block, and the device no longer writes them.
            let words = unsafe { words.read_volatile() };
            if let Some(violation) = Violation::reported(kernel, &words) {
                let label = work.command(*command).label;
                let fault = work.fault_at(label, FaultKind::Failed, Scope::Command, violation.to_string());
                work.fail_command(*command, fault);
            }
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        let mut free = lock(&self.pool.free);
        let room = MAX_POOLED_BLOCKS.saturating_sub(free.len()).min(self.blocks.len());
        free.extend(self.blocks.drain(..room));
        drop(free);
        release(&self.pool.context, self.blocks.drain(..));
    }
}
