//! The device trait: the thin, unsafe floor of the runtime.
//!
//! A device executes [`Work`] and checks nothing. It names memory, streams and pipelines by opaque
//! numbers and knows nothing of handles, pools or hazards. The runtime above it makes every call safe.
//!
//! Every implementation guarantees:
//!
//! * Submissions of one stream take effect in submission order, each after all of the one before it.
//!   Different streams are not ordered, except by [`Work::waits`].
//! * Within one submission a command may overlap or overtake any other, except that it starts after
//!   the commands that its [`barrier`](CommandRef::barrier) or its [`after`](CommandRef::after) edges
//!   name. A device honours one of the two forms: barriers suit a concurrent encoder, edges a graph.
//! * Each [`Work`] is finished exactly once, by [`Work::finish`] or [`Work::fail`], never from
//!   inside [`Device::submit`], in stream order, and after the submissions it waited for.
//!   Dropping a `Work` unfinished reports it as lost.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::work::Work;
#[cfg(doc)]
use crate::command::CommandRef;
use crate::raw::{
    CompiledPipeline, DeviceError, DeviceInfo, LeaseNote, Progress, RawMemory, RawPipeline, RawStream,
};
use crate::source::PipelineSource;

/// A device: memory, streams, pipelines and the execution of work.
///
/// # Safety
/// Implementations keep the guarantees of this module. The memory that [`allocate`](Device::allocate)
/// returns is valid, exclusive and aligned as [`DeviceInfo`] says until it is freed; where `host` is
/// given, the host may access all of it.
pub unsafe trait Device: Send + Sync + 'static {
    /// Identity, capabilities and limits.
    fn info(&self) -> &DeviceInfo;

    /// Allocates `len` bytes, more than zero.
    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError>;

    /// Frees memory.
    ///
    /// # Safety
    /// `memory` came from [`allocate`](Device::allocate) or [`import`](Device::import) of this
    /// device, no unfinished work names it, and it is not used again.
    unsafe fn free(&self, memory: RawMemory);

    /// Imports host memory that the device does not own, without a copy, so that commands can bind it.
    ///
    /// # Safety
    /// `len` bytes at `host` stay valid and unchanged until the memory is freed.
    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        let _ = (host, len);
        Err(DeviceError::Unsupported("import of host memory"))
    }

    /// Whether [`import`](Device::import) takes mappings of the system only, and no memory of an allocator.
    fn imports_mappings_only(&self) -> bool {
        false
    }

    /// Copies bytes of device memory to the host before it returns. Called only if the memory has no host
    /// address and no unfinished work writes these bytes.
    ///
    /// # Safety
    /// The range lies inside of `memory`.
    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        let _ = (memory, offset, out);
        Err(DeviceError::Unsupported("read"))
    }

    /// Copies bytes of the host to device memory before it returns. Called only if the memory has no host
    /// address and no unfinished work names these bytes.
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

    /// Compiles a kernel. May take long; many threads may call it at once.
    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError>;

    /// Releases a pipeline.
    ///
    /// # Safety
    /// `pipeline` came from [`compile`](Device::compile), no unfinished work names it, and it is not
    /// used again.
    unsafe fn release(&self, pipeline: RawPipeline);

    /// Takes work for a stream. Neither waits for it nor finishes it before returning. An error returns the
    /// refused work.
    ///
    /// # Safety
    /// The memory and pipelines that `work` names belong to this device and stay alive until the
    /// work is finished; the submissions it waits for have been submitted.
    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)>;

    /// Runs or waits for the submission `index` of `stream` until it is finished, unless another thread will
    /// finish it.
    fn wait(&self, stream: RawStream, index: u64) -> Progress;

    /// Finishes completed work without waiting. A device with threads of its own need not implement it.
    fn poll(&self) {}

    /// Whether the system ran short of memory since the last call. The runtime then frees what it keeps for
    /// reuse.
    fn take_memory_pressure(&self) -> bool {
        false
    }

    /// A device-specific object (libraries, contexts) for crates that know the device.
    fn extension(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Checks that `pipeline` is the right answer to a request for `source`. Only the validation layer
    /// implements it.
    fn check_pipeline(&self, pipeline: RawPipeline, source: &PipelineSource) -> Result<(), DeviceError> {
        let _ = (pipeline, source);
        Ok(())
    }

    /// Reports an event in the life of a lease on `memory`. Only the validation layer implements it.
    fn note_lease(&self, memory: &RawMemory, lease: u64, note: LeaseNote<'_>) {
        let _ = (memory, lease, note);
    }
}
