//! Commands, as a device sees them.

use smallvec::SmallVec;

use crate::raw::{RawMemory, RawPipeline, RawStream};

/// How a command uses a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It reads.
    Read,
    /// It overwrites.
    Write,
    /// It reads and writes (in-place updates, atomics).
    ReadWrite,
}

impl Access {
    /// Whether the bytes may change.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    /// Whether the old bytes matter.
    pub fn reads(self) -> bool {
        self != Access::Write
    }
}

/// The lease index of a binding whose lease the submission does not hold.
pub(crate) const UNHELD: u32 = u32::MAX;

/// A range of memory that a command uses. Its submission keeps the memory alive.
#[derive(Debug)]
pub struct Binding {
    /// The index of the lease in the submission; [`UNHELD`] under the ablation of retention.
    pub(crate) lease: u32,
    pub(crate) lease_id: u64,
    pub(crate) memory: RawMemory,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: Access,
    /// Writes of the lease that were encoded before this command.
    pub(crate) writes: u64,
}

impl Binding {
    /// The memory.
    pub fn memory(&self) -> &RawMemory {
        &self.memory
    }

    /// First byte of the range.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length of the range; may be zero.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it is used.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The id of the lease: a block has a new one for each buffer.
    pub fn lease(&self) -> u64 {
        self.lease_id
    }
}

/// The dispatch of a compiled kernel.
#[derive(Debug)]
pub struct Dispatch {
    pub(crate) pipeline: RawPipeline,
    /// Threads in each dimension; the last threadgroups may be partial.
    pub grid: [u64; 3],
    /// Threads of a threadgroup in each dimension.
    pub threadgroup: [u64; 3],
    /// Constants, in the layout of the kernel's compiler.
    pub constants: SmallVec<[u8; 32]>,
}

impl Dispatch {
    /// The compiled kernel. The submission keeps it alive.
    pub fn pipeline(&self) -> RawPipeline {
        self.pipeline
    }
}

/// The operation of a command, as a device sees it.
#[derive(Debug, Clone, Copy)]
pub enum OpRef<'a> {
    /// Runs a compiled kernel.
    Dispatch(&'a Dispatch),
    /// Runs a native closure; see [`Work::run_native`](crate::Work::run_native).
    Native,
    /// Copies the bytes of binding 0 to binding 1, of the same length.
    Copy,
    /// Sets the bytes of binding 0 to zero.
    Clear,
}

/// A command, as a device sees it.
#[derive(Debug, Clone, Copy)]
pub struct CommandRef<'a> {
    /// The label.
    pub label: &'a str,
    /// The operation.
    pub op: OpRef<'a>,
    /// The bindings, in the order of the kernel's parameters.
    pub bindings: &'a [Binding],
    /// Whether the command must start after all earlier commands of the submission.
    pub barrier: bool,
    /// The earlier commands of the submission that the command must start after.
    pub after: &'a [u32],
}

/// A submission to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The stream of the runtime.
    pub stream: u64,
    /// The stream of the device.
    pub raw: RawStream,
    /// The submission's index.
    pub index: u64,
}
