//! The device: compiles text and launches jobs through the driver's calls.
//!
//! A launch has a time limit. Only the end of the process can stop a kernel that hangs, so the caller must
//! exit.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hesper_cuda::compiler::Compiler;
use hesper_cuda::context::{Context, Current, Extent};
use hesper_cuda::disk_cache::Compiled;
use hesper_cuda::sys::{
    CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_NUM_REGS, CUdeviceptr, CUfunction, CUstream,
};
use hesper_cuda::{CudaError, Specialisation};
use hesper_kernel::cuda::{COMPILE_OPTIONS, CudaSource, Slot};
use hesper_kernel::launch::Launch;

use hesper_gpu_tests::job::{DeviceResult, Job};

/// The time limit of a launch.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The failure of a launch.
pub enum LaunchError {
    /// It was refused or failed; the context may be lost.
    Failed(String),
    /// It exceeded the time limit and still runs.
    Hangs,
}

impl From<CudaError> for LaunchError {
    fn from(error: CudaError) -> Self {
        LaunchError::Failed(error.to_string())
    }
}

/// Compiles a text.
pub fn compile(compiler: &Compiler, source: &CudaSource) -> Result<Compiled, String> {
    let wanted = Specialisation {
        entry: source.entry.clone(),
        options: COMPILE_OPTIONS.iter().map(|o| (*o).to_string()).collect(),
        shared: source.dynamic_shared as u32,
        turns: source.turns,
        ahead: None,
        grid: true,
        language: true,
        flat: true,
        plain: source.plain,
        minimal: true,
    };
    compiler.compile_afresh(&source.entry, &source.text, &wanted).map_err(|e| e.to_string())
}

/// A device with a stream.
pub struct Gpu {
    context: Arc<Context>,
    stream: CUstream,
}

/// The resources of a compiled kernel.
pub struct Resources {
    pub registers: usize,
    pub local_bytes: usize,
}

impl Gpu {
    pub fn open() -> Result<Gpu, CudaError> {
        let context = Context::create(0)?;
        let stream = context.enter()?.create_stream()?;
        Ok(Gpu { context, stream })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Runs a job.
    pub fn run(
        &self,
        job: &Job,
        source: &CudaSource,
        code: &Compiled,
    ) -> Result<(DeviceResult, Resources), LaunchError> {
        let current = self.context.enter()?;
        // SAFETY: the code comes from the compiler.
        let module = unsafe { current.load_module(code.image.bytes()) }?;
        let name = CString::new(code.name.as_str()).map_err(|e| LaunchError::Failed(e.to_string()))?;
        let mut buffers = Vec::new();
        // SAFETY: the module stays loaded and the buffers allocated until the launch has completed;
        // after a hang they are leaked.
        let outcome = unsafe {
            (|| -> Result<(DeviceResult, Resources), LaunchError> {
                let function = current.function(module, &name)?;
                if source.dynamic_shared > 0 {
                    current.allow_shared(function, source.dynamic_shared as usize)?;
                }
                for bytes in &job.args {
                    let at = current.allocate(bytes.len().max(16))?;
                    buffers.push(at);
                    current.copy_in(at, bytes.as_ptr().cast(), bytes.len(), self.stream)?;
                }
                let mut words = [0u64; 4];
                let report = current.allocate(32)?;
                buffers.push(report);
                current.copy_in(report, words.as_ptr().cast(), 32, self.stream)?;
                self.launch(&current, function, job, source, &buffers)?;
                self.wait(&current)?;
                current.copy_out(words.as_mut_ptr().cast(), report, 32, self.stream)?;
                let mut outputs = vec![Vec::new(); job.args.len()];
                for (i, bytes) in outputs.iter_mut().enumerate().filter(|(i, _)| job.writes(*i)) {
                    bytes.resize(job.args[i].len(), 0);
                    current.copy_out(bytes.as_mut_ptr().cast(), buffers[i], bytes.len(), self.stream)?;
                }
                current.synchronize_stream(self.stream)?;
                let resources = Resources {
                    registers: current.function_attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS)?,
                    local_bytes: current.function_attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
                };
                Ok((DeviceResult { outputs, report: words }, resources))
            })()
        };
        if !matches!(outcome, Err(LaunchError::Hangs)) {
            for at in buffers {
                // SAFETY: no launch is in flight.
                let _ = unsafe { current.free(at) };
            }
            // SAFETY: as above.
            let _ = unsafe { current.unload_module(module) };
        }
        outcome
    }

    /// # Safety
    /// The function is loaded and takes the job's parameters; the buffers, the last of them the report, are
    /// alive.
    unsafe fn launch(
        &self,
        current: &Current<'_>,
        function: CUfunction,
        job: &Job,
        source: &CudaSource,
        buffers: &[CUdeviceptr],
    ) -> Result<(), LaunchError> {
        // Each parameter has an array of its own; the driver knows their sizes.
        let mut values: Vec<[u64; 4]> = source
            .slots
            .iter()
            .map(|slot| match *slot {
                Slot::Buffer(i) => [buffers[i as usize], 0, 0, 0],
                Slot::Length(i) => [job.args[i as usize].len() as u64, 0, 0, 0],
                Slot::Value(i) => {
                    let mut words = [0u64; 4];
                    for (w, c) in words.iter_mut().zip(job.args[i as usize].chunks(8)) {
                        let mut bytes = [0; 8];
                        bytes[..c.len()].copy_from_slice(c);
                        *w = u64::from_le_bytes(bytes);
                    }
                    words
                }
                Slot::Report => [buffers.last().copied().unwrap_or(0), 0, 0, 0],
                Slot::Grid => [job.launch.grid[0], job.launch.grid[1], job.launch.grid[2], 0],
            })
            .collect();
        let mut addresses: Vec<*mut c_void> = values.iter_mut().map(|p| p.as_mut_ptr().cast()).collect();
        let (grid, block) = dimensions(&job.launch);
        let shared = source.dynamic_shared as u32;
        let extent = Extent { grid, block, shared };
        // SAFETY: upheld by the caller; the values outlive the call, which copies them.
        unsafe { current.launch(function, extent, self.stream, addresses.as_mut_ptr()) }?;
        Ok(())
    }

    /// # Safety
    /// The stream is alive.
    unsafe fn wait(&self, current: &Current<'_>) -> Result<(), LaunchError> {
        let event = current.create_event(CU_EVENT_DISABLE_TIMING)?;
        // SAFETY: event and stream are of this context and alive.
        unsafe {
            current.record(event, self.stream)?;
            let start = Instant::now();
            while !current.query(event)? {
                if start.elapsed() > LAUNCH_TIMEOUT {
                    return Err(LaunchError::Hangs);
                }
                if start.elapsed() > Duration::from_millis(2) {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            current.destroy_event(event)?;
        }
        Ok(())
    }

    /// The best time in milliseconds of several launches of a job, and of a copy of as many bytes.
    pub fn time(
        &self,
        job: &Job,
        source: &CudaSource,
        code: &Compiled,
        copied: usize,
    ) -> Result<(f32, f32), LaunchError> {
        let current = self.context.enter()?;
        // SAFETY: the code comes from the compiler.
        let module = unsafe { current.load_module(code.image.bytes()) }?;
        let name = CString::new(code.name.as_str()).map_err(|e| LaunchError::Failed(e.to_string()))?;
        let (mut best, mut best_copy) = (f32::INFINITY, f32::INFINITY);
        // SAFETY: everything that is used is created here and lives until the end of the block, where the
        // stream is idle.
        unsafe {
            let function = current.function(module, &name)?;
            let mut buffers = Vec::new();
            for bytes in &job.args {
                let at = current.allocate(bytes.len().max(16))?;
                buffers.push(at);
                current.copy_in(at, bytes.as_ptr().cast(), bytes.len(), self.stream)?;
            }
            let report = current.allocate(32)?;
            buffers.push(report);
            current.copy_in(report, [0u64; 4].as_ptr().cast(), 32, self.stream)?;
            let (from, to) = (current.allocate(copied)?, current.allocate(copied)?);
            let start = current.create_event(CU_EVENT_DEFAULT)?;
            let end = current.create_event(CU_EVENT_DEFAULT)?;
            for _ in 0..12 {
                current.record(start, self.stream)?;
                self.launch(&current, function, job, source, &buffers)?;
                current.record(end, self.stream)?;
                current.synchronize(end)?;
                best = best.min(current.elapsed(start, end)?);
                current.record(start, self.stream)?;
                current.copy(to, from, copied, self.stream)?;
                current.record(end, self.stream)?;
                current.synchronize(end)?;
                best_copy = best_copy.min(current.elapsed(start, end)?);
            }
            for at in buffers.into_iter().chain([from, to]) {
                current.free(at)?;
            }
            current.destroy_event(start)?;
            current.destroy_event(end)?;
            current.unload_module(module)?;
        }
        Ok((best, best_copy))
    }
}

/// Blocks and threads of a launch; all blocks along x if another axis has too many.
fn dimensions(launch: &Launch) -> ([u32; 3], [u32; 3]) {
    let groups = launch.groups();
    let grid = if groups[1] > 65535 || groups[2] > 65535 {
        [launch.group_count() as u32, 1, 1]
    } else {
        groups.map(|g| g as u32)
    };
    (grid, launch.threadgroup.map(|t| t as u32))
}
