//! The host as a device.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::kernel::HostKernel;
use crate::memory;
use crate::schedule::Schedule;

/// The host as a device: its memory and its cores.
///
/// ```
/// use hesper_cpu::CpuDevice;
/// use hesper_runtime::Runtime;
///
/// let cpu = Runtime::new(CpuDevice::new());
/// let stream = cpu.stream()?;
/// let answer = stream.alloc(1)?;
/// stream.encode("answer").write(&answer).run(|native| {
///     let [out] = native.take()?;
///     out.bytes_mut()?[0] = 42;
///     Ok(())
/// })?;
/// assert_eq!(answer.read()?.bytes(), [42]);
/// # Ok::<(), hesper_runtime::Error>(())
/// ```
pub struct CpuDevice {
    info: DeviceInfo,
    schedule: Arc<Schedule>,
    ids: AtomicU64,
}

impl CpuDevice {
    /// A host device. All host devices of a process share one compute pool.
    pub fn new() -> Self {
        register_fork_handler();
        CpuDevice {
            info: DeviceInfo {
                name: "cpu".into(),
                kind: "cpu",
                unified_memory: true,
                native_commands: true,
                total_memory: memory::total(),
                alignment: memory::ALIGNMENT,
                max_buffer: isize::MAX as usize,
                multiprocessors: 1,
                max_threads_per_group: 1024,
                simd_width: 32,
                shared_memory: 0,
                batch: 64,
                max_in_flight: 64,
            },
            schedule: Arc::new(Schedule::default()),
            ids: AtomicU64::new(1),
        }
    }

    fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        CpuDevice::new()
    }
}

/// Registers a handler that reports a fork to the runtime: the threads of the compute pool do not exist in
/// the child.
#[cfg(unix)]
fn register_fork_handler() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        hesper_runtime::fork::forked();
    }
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(not(unix))]
fn register_fork_handler() {}

/// Set in the id of imported memory, which the device does not free.
const IMPORTED_BIT: u64 = 1 << 63;

// SAFETY: allocations are exclusive, aligned and live until they are freed; the schedule runs
// submissions of a stream in order, each after its waits, and finishes each work once.
unsafe impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        match memory::allocate(len) {
            Some(address) => Ok(RawMemory { id: self.new_id(), host: Some(address), len }),
            None => Err(DeviceError::OutOfMemory("the host is out of memory".into())),
        }
    }

    unsafe fn free(&self, memory: RawMemory) {
        if let Some(address) = memory.host.filter(|_| memory.id & IMPORTED_BIT == 0) {
            // SAFETY: by the caller's contract the memory came from `allocate`.
            unsafe { memory::free(address, memory.len) };
        }
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        Ok(RawMemory { id: self.new_id() | IMPORTED_BIT, host: Some(host), len })
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        let id = self.new_id();
        self.schedule.open(id);
        Ok(RawStream(id))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.schedule.close(stream.0);
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        let kernel = Box::new(HostKernel::compile(source)?);
        let bytes = kernel.bytes();
        Ok(CompiledPipeline { raw: RawPipeline(Box::into_raw(kernel) as u64), bytes })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: the number is the address that `compile` returned, and it is no longer used.
        drop(unsafe { Box::from_raw(pipeline.0 as *mut HostKernel) });
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        self.schedule.submit(stream, work);
        Ok(())
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        self.schedule.help(stream, index)
    }
}
