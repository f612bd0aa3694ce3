//! The encoder: how a command names memory.
//!
//! There is one way to name memory in a command, and it retains: [`Encoder::read`],
//! [`Encoder::write`] and [`Encoder::read_write`] borrow the buffer until the command is in its
//! submission, and from there on the submission holds its memory. An encoder that is dropped half-way
//! leaves no trace.

use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::block::{Buffer, Kind};
use crate::error::{Error, Result};
use crate::label::Label;
use crate::ledger::Launch;
use crate::native::{Native, NativeResult};
use crate::pipeline::Pipeline;
use crate::stream::Stream;
use crate::work::{Access, Dispatch};

/// A use of memory that is not in a submission yet.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) buffer: &'a Buffer,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: Access,
}

impl Draft<'_> {
    /// The bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// One command under construction; see [`Stream::encode`].
#[must_use = "a command takes effect when it is dispatched, run or copied"]
pub struct Encoder<'a> {
    stream: &'a Stream,
    label: Label,
    drafts: SmallVec<[Draft<'a>; 6]>,
    /// Boxed: an encoder is moved with every binding.
    error: Option<Box<Error>>,
    constants: SmallVec<[u8; 32]>,
    /// Whether the command writes every byte that it binds to write.
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
    /// The command writes every byte of each range that it binds with [`Access::Write`], and reads none of them before.
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

    /// Binds any range with any access. A mistake is told by the call that ends the command.
    #[inline]
    pub fn bind(mut self, buffer: &'a Buffer, range: impl RangeBounds<usize>, access: Access) -> Self {
        self.add(buffer, range, access);
        self
    }

    /// The same for an encoder that stays where it is: moving it with every binding takes as long as checking one.
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

    /// The same for an encoder that stays where it is.
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
        self.finish(Launch::Dispatch(pipeline, dispatch))
    }

    /// Ends the command: runs a closure on exactly the views that were bound, in order.
    pub fn run(
        mut self,
        closure: impl FnOnce(&mut Native<'_, '_>) -> NativeResult + Send + 'static,
    ) -> Result<()> {
        self.finish(Launch::Native(Box::new(closure)))
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
        self.finish(Launch::Copy)
    }

    /// Ends the command: sets the one range bound to write to zero.
    pub fn clear(mut self) -> Result<()> {
        if self.error.is_none() && !matches!(&self.drafts[..], [range] if range.access == Access::Write) {
            return Err(Error::Launch {
                command: self.label.to_string(),
                message: "clear binds exactly one range, to write".into(),
            });
        }
        self.finish(Launch::Clear)
    }

    fn finish(&mut self, launch: Launch<'_>) -> Result<()> {
        if let Some(error) = self.error.take() {
            return Err(*error);
        }
        self.check_aliases()?;
        let shared = self.stream.shared();
        if let Some(fault) = shared.lost() {
            return Err(fault.into());
        }
        if shared.any_fault() {
            self.check_faults()?;
        }
        let clears = if self.covering { SmallVec::new() } else { self.clears(&launch) };
        let outcome = {
            let mut ledger = shared.ledger.lock();
            ledger.enter(shared, self.stream.id(), &self.label, launch, &self.drafts, &clears)
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

    /// The bytes that the command binds to write and that nothing has filled. The command may leave some of them
    /// unwritten, and they would show what an earlier owner of the memory left there.
    fn clears(&self, launch: &Launch<'_>) -> SmallVec<[Draft<'a>; 1]> {
        let mut clears = SmallVec::new();
        // These write all that they bind.
        if matches!(launch, Launch::Copy | Launch::Clear) || self.stream.shared().leaves_fresh_memory() {
            return clears;
        }
        for draft in self.drafts.iter().filter(|draft| draft.access == Access::Write) {
            let gaps = draft.buffer.0.lease.filled.gaps(draft.range());
            clears.extend(gaps.into_iter().map(|gap| Draft { offset: gap.start, len: gap.len(), ..*draft }));
        }
        clears
    }

    #[inline]
    fn check(&self, buffer: &'a Buffer, range: impl RangeBounds<usize>, access: Access) -> Result<Draft<'a>> {
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
            && let Kind::Foreign(why) = lease.block.kind
        {
            return Err(Error::ReadOnly { buffer: lease.name(), command: command(), why });
        }
        if access.reads() && start < end && !lease.filled.covers(start..end) {
            return Err(Error::Unfilled { buffer: lease.name(), command: command() });
        }
        Ok(Draft { buffer, offset: start, len: end - start, access })
    }

    /// No range that is written may overlap another: a kernel would see its own writes.
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

    /// A command that reads a spoilt buffer spoils what it would have written, at once.
    fn check_faults(&self) -> Result<()> {
        let spoilt = self
            .drafts
            .iter()
            .filter(|draft| draft.access.reads())
            .find_map(|draft| draft.buffer.0.lease.fault());
        if let Some(fault) = spoilt {
            for draft in self.drafts.iter().filter(|draft| draft.access.writes()) {
                let lease = &draft.buffer.0.lease;
                // A write that failed: commands in flight that read the bytes before it are not concerned.
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
        let most = shared.device.info().max_threads as u64;
        let threads = threadgroup.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
        if threads.is_none_or(|threads| threads > most) {
            return fail(format!("threadgroup {threadgroup:?} has more than {most} threads"));
        }
        if grid.iter().try_fold(1u64, |product, size| product.checked_mul(*size)).is_none() {
            return fail(format!("grid {grid:?} has more than 2^64 threads"));
        }
        Ok(())
    }
}

/// A range of bytes with its open ends filled in.
pub(crate) fn resolve(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    (start, end)
}
