//! The host as a device.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_runtime::{
    CompiledPipeline, Device, DeviceError, DeviceInfo, PipelineSource, Progress, RawMemory, RawPipeline,
    RawStream, Work,
};

use crate::kernel::{self, Compiled};
use crate::memory;
use crate::schedule::Schedule;

/// The host: its memory, its cores.
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
    /// The host as a device. All such devices of a process share one compute pool.
    pub fn new() -> Self {
        watch_forks();
        CpuDevice {
            info: DeviceInfo {
                name: "cpu".into(),
                host_visible: true,
                total_memory: memory::total(),
                alignment: memory::ALIGNMENT,
                max_buffer: isize::MAX as usize,
                max_threads: 1024,
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

/// Has the runtime told when this process is forked: the compute pool's threads do not exist in the child.
#[cfg(unix)]
fn watch_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn in_child() {
        hesper_runtime::fork::forked();
    }
    ONCE.call_once(|| {
        // SAFETY: the handler is a plain function of the program that stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(not(unix))]
fn watch_forks() {}

/// Marks memory that the device did not allocate.
const FOREIGN: u64 = 1 << 63;

// SAFETY: allocations are exclusive, aligned and live until they are freed; the schedule runs
// submissions of a stream one after the other, each after what it waits for, and finishes each
// work once.
unsafe impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        match memory::allocate(len) {
            Some(address) => Ok(RawMemory { id: self.new_id(), host: Some(address), len }),
            None => Err(DeviceError::OutOfMemory("the host has no memory left".into())),
        }
    }

    unsafe fn free(&self, memory: RawMemory) {
        if let Some(address) = memory.host.filter(|_| memory.id & FOREIGN == 0) {
            // SAFETY: the caller gives back what `allocate` gave.
            unsafe { memory::free(address, memory.len) };
        }
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        Ok(RawMemory { id: self.new_id() | FOREIGN, host: Some(host), len })
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
        let compiled = Box::new(kernel::compile(source)?);
        let bytes = compiled.0.bytes();
        Ok(CompiledPipeline { raw: RawPipeline(Box::into_raw(compiled) as u64), bytes })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: the number is the address that `compile` gave, and nobody uses it any more.
        drop(unsafe { Box::from_raw(pipeline.0 as *mut Compiled) });
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        self.schedule.submit(stream, work);
        Ok(())
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        self.schedule.help(stream, index)
    }
}
