//! The encoder: how a command names memory.
//!
//! A command can name memory only through [`Encoder::read`], [`Encoder::write`] and
//! [`Encoder::read_write`]. They borrow the buffer until the command is in its submission; from then on
//! the submission holds the memory. Dropping an unfinished encoder has no effect.

use std::ops::RangeBounds;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::command::{Access, Dispatch};
use crate::error::{Error, Result};
use crate::label::Label;
use crate::native::{Native, NativeResult};
use crate::ranges::resolve;
use crate::state::{BindingDraft, Buffer, OpDraft, Ownership, Pipeline};
use crate::stream::Stream;

/// One command under construction; see [`Stream::encode`].
#[must_use = "a command takes effect when it is dispatched, run or copied"]
pub struct Encoder<'a> {
    stream: &'a Stream,
    label: Label,
    drafts: SmallVec<[BindingDraft<'a>; 6]>,
    /// Boxed, since every binding moves the encoder.
    error: Option<Box<Error>>,
    constants: SmallVec<[u8; 32]>,
    /// Whether the command writes every byte of its write bindings.
    covering: bool,
}

impl<'a> Encoder<'a> {
    #[inline]
    pub(crate) fn new(stream: &'a Stream, label: Label) -> Self {
        Encoder {
            stream,
            label,
            drafts: SmallVec::new(),
            error: None,
            constants: SmallVec::new(),
            covering: false,
        }
    }

    /// Skips clearing the fresh memory that the command binds to write.
    ///
    /// # Safety
    /// The command writes every byte of each range that it binds with [`Access::Write`], and reads none of
    /// them before.
    #[inline]
    pub unsafe fn covering(mut self) -> Self {
        self.covering = true;
        self
    }

    /// Binds a buffer to be read.
    #[inline]
    pub fn read(self, buffer: &'a Buffer) -> Self {
        self.bind(buffer, .., Access::Read)
    }

    /// Binds some bytes of a buffer to be read.
    #[inline]
    pub fn read_range(self, buffer: &'a Buffer, range: impl RangeBounds<usize>) -> Self {
        self.bind(buffer, range, Access::Read)
    }

    /// Binds a buffer to be overwritten. Bytes that nothing has filled are cleared before the command runs.
    #[inline]
    pub fn write(self, buffer: &'a Buffer) -> Self {
        self.bind(buffer, .., Access::Write)
    }

    /// Binds some bytes of a buffer to be overwritten.
    #[inline]
    pub fn write_range(self, buffer: &'a Buffer, range: impl RangeBounds<usize>) -> Self {
        self.bind(buffer, range, Access::Write)
    }

    /// Binds a buffer to be read and written; something must have filled it.
    #[inline]
    pub fn read_write(self, buffer: &'a Buffer) -> Self {
        self.bind(buffer, .., Access::ReadWrite)
    }

    /// Binds some bytes of a buffer to be read and written.
    #[inline]
    pub fn read_write_range(self, buffer: &'a Buffer, range: impl RangeBounds<usize>) -> Self {
        self.bind(buffer, range, Access::ReadWrite)
    }

    /// Binds any range with any access. The call that ends the command reports an invalid binding.
    #[inline(always)]
    pub fn bind(mut self, buffer: &'a Buffer, range: impl RangeBounds<usize>, access: Access) -> Self {
        self.add(buffer, range, access);
        self
    }

    /// As [`bind`](Encoder::bind), by reference: moving the encoder costs as much as checking a binding.
    #[inline]
    pub fn add(&mut self, buffer: &'a Buffer, range: impl RangeBounds<usize>, access: Access) {
        match self.check(buffer, range, access) {
            Ok(draft) => self.drafts.push(draft),
            Err(error) => {
                self.error.get_or_insert_with(|| Box::new(error));
            }
        }
    }

    /// Adds bytes of constants for the kernel.
    pub fn constants(mut self, bytes: &[u8]) -> Self {
        self.add_constants(bytes);
        self
    }

    /// As [`constants`](Encoder::constants), by reference.
    #[inline]
    pub fn add_constants(&mut self, bytes: &[u8]) {
        self.constants.extend_from_slice(bytes);
    }

    /// Ends the command: runs a compiled kernel over `grid` threads in groups of `threadgroup`.
    pub fn dispatch(mut self, pipeline: &Arc<Pipeline>, grid: [u64; 3], threadgroup: [u64; 3]) -> Result<()> {
        self.check_launch(pipeline, grid, threadgroup)?;
        let dispatch = Dispatch {
            pipeline: pipeline.raw(),
            grid,
            threadgroup,
            constants: std::mem::take(&mut self.constants),
        };
        self.finish(OpDraft::Dispatch(pipeline, dispatch))
    }

    /// Ends the command: runs a closure on the bound views, in binding order.
    pub fn run(
        mut self,
        closure: impl FnOnce(&mut Native<'_, '_>) -> NativeResult + Send + 'static,
    ) -> Result<()> {
        self.finish(OpDraft::Native(Box::new(closure)))
    }

    /// Ends the command: copies the one range bound to read to the one bound to write.
    pub fn copy(mut self) -> Result<()> {
        if self.error.is_none() {
            let fits = match &self.drafts[..] {
                [from, to] => from.access == Access::Read && to.access == Access::Write && from.len == to.len,
                _ => false,
            };
            if !fits {
                return Err(Error::Launch {
                    command: self.label.to_string(),
                    message: "a copy binds one range to read, then one of the same length to write".into(),
                });
            }
        }
        self.finish(OpDraft::Copy)
    }

    /// Ends the command: sets the one range bound to write to zero.
    pub fn clear(mut self) -> Result<()> {
        if self.error.is_none() && !matches!(&self.drafts[..], [range] if range.access == Access::Write) {
            return Err(Error::Launch {
                command: self.label.to_string(),
                message: "clear binds exactly one range, to write".into(),
            });
        }
        self.finish(OpDraft::Clear)
    }

    fn finish(&mut self, op: OpDraft<'_>) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(*error);
        }
        crate::fork::check()?;
        self.check_aliases()?;
        let shared = self.stream.shared();
        if let Some(fault) = shared.lost() {
            return Err(fault.into());
        }
        if shared.any_fault() {
            self.check_faults()?;
        }
        let clears = if self.covering { SmallVec::new() } else { self.clears(&op) };
        let outcome = {
            let mut ledger = shared.ledger.lock();
            ledger.encode(shared, self.stream.id(), &self.label, op, &self.drafts, &clears)
        };
        let count = outcome?;
        for draft in self.drafts.iter().filter(|draft| draft.access.writes()) {
            let lease = &draft.buffer.0.lease;
            lease.filled.add(draft.range(), lease.len);
            draft.buffer.forget_replicas();
        }
        shared.trace.encoded(&self.label, self.stream.id());
        if count >= shared.batch {
            self.stream.commit_full();
        }
        Ok(())
    }

    /// The unfilled bytes of the write bindings. The command may leave some of them unwritten, and they would
    /// expose the data of an earlier lease.
    fn clears(&self, op: &OpDraft<'_>) -> SmallVec<[BindingDraft<'a>; 1]> {
        let mut clears = SmallVec::new();
        // Copies and clears write all of their binding.
        if matches!(op, OpDraft::Copy | OpDraft::Clear) || self.stream.shared().leaves_fresh_memory() {
            return clears;
        }
        for draft in self.drafts.iter().filter(|draft| draft.access == Access::Write) {
            let gaps = draft.buffer.0.lease.filled.gaps(draft.range());
            clears.extend(gaps.into_iter().map(|gap| BindingDraft {
                offset: gap.start,
                len: gap.len(),
                ..*draft
            }));
        }
        clears
    }

    #[inline]
    fn check(
        &self,
        buffer: &'a Buffer,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<BindingDraft<'a>> {
        let lease = &buffer.0.lease;
        let command = || self.label.to_string();
        let shared = self.stream.shared();
        if !Arc::ptr_eq(&buffer.0.shared, shared) {
            return Err(Error::ForeignDevice {
                what: format!("buffer {}", lease.name()),
                command: command(),
                owner: buffer.0.shared.name(),
                device: shared.name(),
            });
        }
        let (start, end) = resolve(range, lease.len);
        if start > end || end > lease.len {
            return Err(Error::OutOfRange {
                buffer: lease.name(),
                len: lease.len,
                start,
                end,
                command: command(),
            });
        }
        if access.writes()
            && let Ownership::Foreign(why) = lease.block.ownership
        {
            return Err(Error::ReadOnly { buffer: lease.name(), command: command(), why });
        }
        if access.reads() && start < end && !lease.filled.covers(start..end) {
            return Err(Error::Unfilled { buffer: lease.name(), command: command() });
        }
        Ok(BindingDraft { buffer, offset: start, len: end - start, access })
    }

    /// Refuses a written range that overlaps another range of the command.
    fn check_aliases(&self) -> Result<()> {
        for (index, one) in self.drafts.iter().enumerate() {
            for other in &self.drafts[..index] {
                if (one.access.writes() || other.access.writes())
                    && one.buffer.0.lease.id == other.buffer.0.lease.id
                    && one.offset.max(other.offset) < (one.offset + one.len).min(other.offset + other.len)
                {
                    return Err(Error::Aliased {
                        buffer: one.buffer.0.lease.name(),
                        command: self.label.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Refuses a command that reads a poisoned buffer, and poisons what it would have written.
    fn check_faults(&self) -> Result<()> {
        let fault = self
            .drafts
            .iter()
            .filter(|draft| draft.access.reads())
            .find_map(|draft| draft.buffer.0.lease.fault());
        if let Some(fault) = fault {
            for draft in self.drafts.iter().filter(|draft| draft.access.writes()) {
                let lease = &draft.buffer.0.lease;
                // Counts as a failed write: commands encoded before it are not affected.
                lease.set_fault(&fault, lease.count_write(true) + 1);
            }
            return Err(fault.into());
        }
        Ok(())
    }

    fn check_launch(&self, pipeline: &Pipeline, grid: [u64; 3], threadgroup: [u64; 3]) -> Result<()> {
        let shared = self.stream.shared();
        if pipeline.owner() != shared.id {
            return Err(Error::ForeignDevice {
                what: format!("pipeline {}", pipeline.label()),
                command: self.label.to_string(),
                owner: "another device".into(),
                device: shared.name(),
            });
        }
        let fail = |message: String| Err(Error::Launch { command: self.label.to_string(), message });
        if grid.contains(&0) || threadgroup.contains(&0) {
            return fail(format!(
                "grid {grid:?} and threadgroup {threadgroup:?} must be positive in every dimension"
            ));
        }
        let limit = shared.device.info().max_threads_per_group as u64;
        let threads = threadgroup.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        if threads.is_none_or(|threads| threads > limit) {
            return fail(format!("threadgroup {threadgroup:?} has more than {limit} threads"));
        }
        if grid.iter().try_fold(1u64, |product, size| product.checked_mul(*size)).is_none() {
            return fail(format!("grid {grid:?} has more than 2^64 threads"));
        }
        Ok(())
    }
}

impl Stream {
    /// Begins a command.
    pub fn encode(&self, label: impl Into<Label>) -> Encoder<'_> {
        Encoder::new(self, label.into())
    }
}
