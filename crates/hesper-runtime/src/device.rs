//! The device trait: the thin, unsafe floor of the runtime.
//!
//! A device does what it is told and checks nothing. It names memory, streams and pipelines by
//! opaque numbers; it executes [`Work`]; it knows nothing of handles, pools or hazards. All safety
//! is made above it, once, for every device.
//!
//! What every implementation promises:
//!
//! * Submissions of one stream take effect in the order in which they were submitted, each after
//!   all of the one before it. Different streams are not ordered, except by [`Work::waits`].
//! * Within one submission a command may overlap or overtake any other, except that it starts after
//!   what its [`barrier`](CommandRef::barrier) or its [`after`](CommandRef::after) edges name. A
//!   device honours either of the two forms: barriers suit a concurrent encoder, edges a graph.
//! * Each [`Work`] is finished exactly once, by [`Work::finish`] or [`Work::fail`], never from
//!   inside [`Device::submit`], in stream order, and after the submissions it waited for.
//!   Dropping a `Work` unfinished reports it as lost.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::pipeline::PipelineSource;
use crate::work::Work;

/// What a device is and what it can take.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// A name for people: `cpu`, `NVIDIA H200`.
    pub name: String,
    /// Whether the host reads and writes the device's memory in place.
    pub host_visible: bool,
    /// Bytes of memory that the device has.
    pub total_memory: usize,
    /// Alignment of every allocation.
    pub alignment: usize,
    /// The largest single allocation.
    pub max_buffer: usize,
    /// The largest number of threads in a threadgroup; 0 if the device dispatches no kernels.
    pub max_threads: usize,
    /// After how many commands an open submission is committed by itself.
    pub batch: usize,
    /// How many submissions of one stream may be in flight before its users have to wait.
    pub max_in_flight: usize,
}

/// A device's allocation.
#[derive(Debug, Clone, Copy)]
pub struct RawMemory {
    /// The device's name for it (an address, an object), never zero.
    pub id: u64,
    /// Where the host sees it, on devices whose memory is host-visible.
    pub host: Option<NonNull<u8>>,
    /// Length in bytes.
    pub len: usize,
}

// SAFETY: `host` is an address, not an access; every access goes through the guards and bindings of
// this crate, which order them.
unsafe impl Send for RawMemory {}
// SAFETY: as above.
unsafe impl Sync for RawMemory {}

/// A device's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawStream(pub u64);

/// A device's compiled kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawPipeline(pub u64);

/// A compiled kernel and what it occupies.
#[derive(Debug, Clone, Copy)]
pub struct CompiledPipeline {
    /// The device's name for it.
    pub raw: RawPipeline,
    /// Roughly how many bytes it holds, for the cache's limit.
    pub bytes: usize,
}

/// Why a device refused a call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// No memory for this call; others may still succeed.
    #[error("{0}")]
    OutOfMemory(String),
    /// The kernel's text is at fault.
    #[error("{0}")]
    Compile(String),
    /// The call failed and left no trace.
    #[error("{0}")]
    Failed(String),
    /// The device is gone: everything on it fails with this first cause.
    #[error("device lost: {0}")]
    Lost(String),
    /// The device does not do this.
    #[error("{0} is not supported by this device")]
    Unsupported(&'static str),
}

/// What [`Device::wait`] achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The submission has been finished.
    Done,
    /// Another thread is at it, and will finish it.
    Elsewhere,
}

/// A device: memory, streams, pipelines and the execution of work.
///
/// # Safety
/// Implementations keep the promises of this module. The memory that [`allocate`](Device::allocate)
/// returns is valid, exclusive and aligned as [`DeviceInfo`] says until it is freed; where `host` is
/// given, the host may access all of it.
pub unsafe trait Device: Send + Sync + 'static {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Allocates `len` bytes, more than zero.
    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `memory` came from [`allocate`](Device::allocate) or [`import`](Device::import) of this
    /// device, no unfinished work names it, and it is not used again.
    unsafe fn free(&self, memory: RawMemory);

    /// Makes host memory that the device does not own nameable in commands, without a copy.
    ///
    /// # Safety
    /// `len` bytes at `host` stay valid and unchanged until the memory is freed.
    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        let _ = (host, len);
        Err(DeviceError::Unsupported("import of host memory"))
    }

    /// Copies bytes of the device's memory to the host, at once. Called only where the memory is not
    /// host-visible and no unfinished work writes these bytes.
    ///
    /// # Safety
    /// The range lies inside of `memory`.
    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        let _ = (memory, offset, out);
        Err(DeviceError::Unsupported("read"))
    }

    /// Copies bytes of the host to the device's memory, at once. Called only where the memory is
    /// not host-visible and no unfinished work names these bytes.
    ///
    /// # Safety
    /// The range lies inside of `memory`.
    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        let _ = (memory, offset, data);
        Err(DeviceError::Unsupported("write"))
    }

    /// Opens a stream.
    fn create_stream(&self) -> Result<RawStream, DeviceError>;

    /// Closes a stream.
    ///
    /// # Safety
    /// All its work is finished, and it is not used again.
    unsafe fn destroy_stream(&self, stream: RawStream);

    /// Compiles a kernel. May take long; may be called from many threads.
    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError>;

    /// Gives a pipeline back.
    ///
    /// # Safety
    /// `pipeline` came from [`compile`](Device::compile), no unfinished work names it, and it is not
    /// used again.
    unsafe fn release(&self, pipeline: RawPipeline);

    /// Takes work for a stream. Does not wait for it, and does not finish it before it returns. A
    /// refused work is handed back.
    ///
    /// # Safety
    /// The memory and pipelines that `work` names belong to this device and stay alive until the
    /// work is finished; the submissions it waits for have been submitted.
    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)>;

    /// Helps or waits until the submission `index` of `stream` has been finished, or says that another
    /// thread will do so.
    fn wait(&self, stream: RawStream, index: u64) -> Progress;

    /// Finishes what has completed, without waiting. Called now and then by devices' users; a device
    /// with threads of its own need not do anything.
    fn poll(&self) {}

    /// Something device-specific: libraries, contexts. For crates that know the device.
    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Told which pipeline answered a request. Only the validation layer looks.
    fn check_pipeline(&self, pipeline: RawPipeline, source: &PipelineSource) -> Result<(), DeviceError> {
        let _ = (pipeline, source);
        Ok(())
    }

    /// Told when a buffer takes (`lease` given) or gives back a piece of memory. Only the validation
    /// layer listens.
    fn note_lease(&self, memory: &RawMemory, lease: u64, note: LeaseNote<'_>) {
        let _ = (memory, lease, note);
    }
}

/// What happened to a lease on memory; see [`Device::note_lease`].
#[derive(Debug, Clone, Copy)]
pub enum LeaseNote<'a> {
    /// A buffer took the memory.
    Taken {
        /// The buffer's label.
        label: &'a str,
        /// Where in the program it was allocated.
        place: &'static std::panic::Location<'static>,
    },
    /// The host is about to read some bytes.
    HostRead {
        /// First byte.
        start: usize,
        /// End of the bytes.
        end: usize,
    },
    /// The host is about to write it.
    HostWrite,
    /// The host filled it.
    Filled,
    /// The last handle was dropped.
    Returned,
}
