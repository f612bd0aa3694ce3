//! Reports of launches that check their accesses: which of them dropped a write.
//!
//! A launch that checks gets the address of four words in page-locked memory, which the device writes where it drops a
//! write and the host reads when the submission is over. Submissions without such launches have no reports.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use hesper_kernel::bounds::Violation;
use hesper_kernel::ir;
use hesper_runtime::{FaultKind, Scope, Work};

use crate::context::{Context, Current};
use crate::device::lock;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::sys::CUdeviceptr;

/// The words of a launch; see [`Violation::reported`].
type Words = [u64; 4];

/// Launches whose words lie in one block.
const PER_BLOCK: usize = 64;
/// Blocks that are kept for reuse.
const KEPT: usize = 64;

/// Page-locked memory for the words of some launches. The device has it at the host's address.
struct Block(*mut Words);

// SAFETY: a block has one owner at a time, and its address is valid on every thread.
unsafe impl Send for Block {}

/// The blocks of a device.
pub(crate) struct ReportPool {
    context: Arc<Context>,
    free: Mutex<Vec<Block>>,
}

impl ReportPool {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(ReportPool { context, free: Mutex::default() })
    }

    fn take(&self, current: &Current<'_>) -> Result<Block> {
        let free = lock(&self.free).pop();
        match free {
            Some(block) => Ok(block),
            None => Ok(Block(current.allocate_host(PER_BLOCK * size_of::<Words>())?.cast())),
        }
    }
}

/// Blocks go with the context where it is lost.
fn release(context: &Context, blocks: impl Iterator<Item = Block>) {
    if let Ok(current) = context.enter() {
        for block in blocks {
            // SAFETY: nothing in flight names the block any more.
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
    blocks: Vec<Block>,
    /// The command and the kernel of each launch that checks.
    launches: Vec<(usize, Arc<ir::Kernel>)>,
}

impl Reports {
    pub(crate) fn new(pool: &Arc<ReportPool>) -> Self {
        Reports { pool: pool.clone(), blocks: Vec::new(), launches: Vec::new() }
    }

    /// The address of a launch's words, all zero, if its kernel checks; else 0.
    pub(crate) fn address(
        &mut self,
        current: &Current<'_>,
        command: usize,
        kernel: &Kernel,
    ) -> Result<CUdeviceptr> {
        let Some(source) = &kernel.checks else { return Ok(0) };
        let at = self.launches.len() % PER_BLOCK;
        if at == 0 {
            self.blocks.push(self.pool.take(current)?);
        }
        let Some(block) = self.blocks.last() else { return Ok(0) };
        self.launches.push((command, source.clone()));
        let words = block.0.wrapping_add(at);
        // SAFETY: the words lie in the block, which no launch in flight has.
        unsafe { words.write([0; 4]) };
        Ok(words as CUdeviceptr)
    }

    /// Fails each command that dropped a write. The submission is over.
    pub(crate) fn settle(&self, work: &mut Work) {
        for (at, (command, kernel)) in self.launches.iter().enumerate() {
            let words = self.blocks[at / PER_BLOCK].0.wrapping_add(at % PER_BLOCK);
            // SAFETY: the words lie in the block, and the device is done with them.
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
        let room = KEPT.saturating_sub(free.len()).min(self.blocks.len());
        free.extend(self.blocks.drain(..room));
        drop(free);
        release(&self.pool.context, self.blocks.drain(..));
    }
}
