//! What the device trait speaks of: capabilities, and a device's own numbers for memory, streams and
//! pipelines.

use std::ptr::NonNull;

#[cfg(doc)]
use crate::state::Device;

/// A device's identity, capabilities and limits. Code above the runtime asks for a capability by name
/// and never compares kinds.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// The display name: `cpu`, `NVIDIA H200`.
    pub name: String,
    /// The backend: `cpu`, `cuda`, `sim`. For messages and for looking up the backend's kernels.
    pub kind: &'static str,
    /// Whether the host addresses the device's memory in place. If false, host access copies through
    /// [`Device::read`] and [`Device::write`].
    pub unified_memory: bool,
    /// Whether the closure of a native command runs on the host when its turn in the stream comes, and
    /// accesses its views in place. If false, the closure runs when the command is submitted and may only
    /// enqueue device work; its views have no host address.
    pub native_commands: bool,
    /// Bytes of memory that the device has.
    pub total_memory: usize,
    /// Alignment of every allocation.
    pub alignment: usize,
    /// The largest single allocation.
    pub max_buffer: usize,
    /// The number of multiprocessors, for choosing a launch size; 1 where the notion does not apply.
    pub multiprocessors: u32,
    /// The largest number of threads in a threadgroup; 0 if the device dispatches no kernels.
    pub max_threads_per_group: usize,
    /// The number of threads in a SIMD group (a warp).
    pub simd_width: u32,
    /// The largest shared memory of a threadgroup in bytes; 0 if the device states no limit.
    pub shared_memory: usize,
    /// The number of commands after which an open submission is committed automatically.
    pub batch: usize,
    /// The number of submissions of one stream that may be in flight before its users wait.
    pub max_in_flight: usize,
}

/// A device's allocation.
#[derive(Debug, Clone, Copy)]
pub struct RawMemory {
    /// The device's identifier (an address, an object), never zero.
    pub id: u64,
    /// The host address, if the device has unified memory or the memory was imported.
    pub host: Option<NonNull<u8>>,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: `host` is an address, not an access; the guards and bindings of this crate order every access.
unsafe impl Send for RawMemory {}
// SAFETY: as above.
unsafe impl Sync for RawMemory {}

/// A device's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// A device's compiled kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawPipeline(pub u64);

/// A compiled kernel and its size.
#[derive(Debug, Clone, Copy)]
pub struct CompiledPipeline {
    /// The device's identifier.
    pub raw: RawPipeline,
    /// The approximate size in bytes, for the cache's limit.
    pub bytes: usize,
}

/// Why a device refused a call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// No memory for this call; other calls may still succeed.
    #[error("{0}")]
    OutOfMemory(String),
    /// The kernel's text is invalid.
    #[error("{0}")]
    Compile(String),
    /// The call failed and changed nothing.
    #[error("{0}")]
    Failed(String),
    /// The device is lost: everything on it fails with this first cause.
    #[error("device lost: {0}")]
    Lost(String),
    /// The device does not implement the call.
    #[error("{0} is not supported by this device")]
    Unsupported(&'static str),
}

/// The outcome of [`Device::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The submission has been finished.
    Done,
    /// Another thread runs the submission and will finish it.
    Delegated,
}

/// An event in the life of a lease; see [`Device::note_lease`].
#[derive(Debug, Clone, Copy)]
pub enum LeaseNote<'a> {
    /// A buffer acquired the memory.
    Acquired {
        /// The buffer's label.
        label: &'a str,
        /// The caller that allocated it.
        location: &'static std::panic::Location<'static>,
    },
    /// The host is about to read a range.
    HostRead {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// The host is about to write all of it.
    HostWrite,
    /// The host filled all of it.
    Filled,
    /// The last handle was dropped.
    Released,
}
