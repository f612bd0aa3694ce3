//! CUDA contexts, and the driver's calls with results instead of error codes.
//!
//! Each opened device has a context of its own. A kernel fault is sticky: every later call on the context
//! fails. On current drivers the process can then create no other context, so the device stays lost until the
//! process exits.
//!
//! Every call that needs the context is a method of [`Current`], which makes the context current on the
//! thread and restores the previous one: other users of CUDA on the thread are not affected.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::{CudaError, Result};
use crate::inject;
use crate::library;
use crate::shutdown::{self, DriverGuard};
use crate::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUresult, CUstream, Driver,
};

impl Driver {
    /// Converts the result code of `call`.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<()> {
        if code == sys::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::from_driver(self, call, code)) }
    }
}

/// The number of devices that the driver finds.
pub fn device_count() -> Result<usize> {
    let driver = library::driver()?;
    let mut count = 0;
    // SAFETY: the driver stores one number.
    driver.check("cuDeviceGetCount", unsafe { (driver.device_get_count)(&mut count) })?;
    Ok(count.max(0) as usize)
}

/// The driver's properties of a device.
#[derive(Debug, Clone)]
pub struct Properties {
    /// The ordinal.
    pub ordinal: usize,
    /// The name.
    pub name: String,
    /// Bytes of memory.
    pub total_memory: usize,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u32,
    /// The largest number of threads of a block.
    pub max_threads: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// The largest shared memory of a block in bytes, with opt-in.
    pub max_shared: u32,
    /// The driver's CUDA version, as `1000 * major + 10 * minor`.
    pub driver_version: u32,
}

/// The compute capability of a device.
pub(crate) fn capability(ordinal: usize) -> Result<(u32, u32)> {
    let driver = library::driver()?;
    let mut device: CUdevice = 0;
    // SAFETY: the driver stores one number.
    driver.check("cuDeviceGet", unsafe { (driver.device_get)(&mut device, ordinal as c_int) })?;
    let attribute = |which: c_int| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the driver stores one number.
        let code = unsafe { (driver.device_get_attribute)(&mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code)?;
        Ok(value.max(0) as u32)
    };
    Ok((
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// A context of one device.
pub struct Context {
    driver: &'static Driver,
    raw: CUcontext,
    properties: Properties,
}

impl Context {
    /// Creates a context on a device.
    pub fn create(ordinal: usize) -> Result<Arc<Self>> {
        let driver = inject::driver(library::driver()?);
        let count = device_count()?;
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let mut device: CUdevice = 0;
        // SAFETY: the driver stores one number.
        driver.check("cuDeviceGet", unsafe { (driver.device_get)(&mut device, ordinal as c_int) })?;
        let properties = properties(driver, device, ordinal)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: the driver stores one handle.
        let created = unsafe { (driver.ctx_create)(&mut raw, sys::CU_CTX_SCHED_BLOCKING_SYNC, device) };
        driver.check("cuCtxCreate", created)?;
        let mut popped = CUcontext::NULL;
        // SAFETY: creation made the context current on this thread; the driver stores one handle.
        driver.check("cuCtxPopCurrent", unsafe { (driver.ctx_pop_current)(&mut popped) })?;
        shutdown::register();
        Ok(Arc::new(Context { driver, raw, properties }))
    }

    /// The device's properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The driver's functions.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// The raw context, for libraries.
    pub fn raw(&self) -> CUcontext {
        self.raw
    }

    /// Makes the context current on this thread until the result is dropped.
    pub fn enter(&self) -> Result<Current<'_>> {
        self.make_current(shutdown::enter()?)
    }

    /// As [`enter`](Context::enter), for destructors: fails during exit, when the process frees the resource.
    pub(crate) fn enter_to_release(&self) -> Result<Current<'_>> {
        self.make_current(shutdown::enter_to_release()?)
    }

    fn make_current(&self, guard: DriverGuard) -> Result<Current<'_>> {
        // SAFETY: the context lives as long as `self`.
        self.driver.check("cuCtxPushCurrent", unsafe { (self.driver.ctx_push_current)(self.raw) })?;
        Ok(Current { context: self, driver: self.driver, _guard: guard, thread: PhantomData })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // During exit the driver destroys the context.
        let Ok(_guard) = shutdown::enter_to_release() else { return };
        // SAFETY: the context is no longer used. On a lost one the call returns its fault again, which is
        // ignored.
        unsafe { (self.driver.ctx_destroy)(self.raw) };
    }
}

fn properties(driver: &Driver, device: CUdevice, ordinal: usize) -> Result<Properties> {
    let mut name = [0u8; 256];
    // SAFETY: the driver stores a string of at most this length.
    let named = unsafe { (driver.device_get_name)(name.as_mut_ptr().cast::<c_char>(), 256, device) };
    driver.check("cuDeviceGetName", named)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let mut total_memory = 0;
    // SAFETY: the driver stores one number.
    driver.check("cuDeviceTotalMem", unsafe { (driver.device_total_mem)(&mut total_memory, device) })?;
    let mut version = 0;
    // SAFETY: the driver stores one number.
    driver.check("cuDriverGetVersion", unsafe { (driver.driver_get_version)(&mut version) })?;
    let attribute = |which: c_int| -> u32 {
        let mut value = 0;
        // SAFETY: the driver stores one number; unknown attributes give an error and leave it.
        unsafe { (driver.device_get_attribute)(&mut value, which, device) };
        value.max(0) as u32
    };
    Ok(Properties {
        ordinal,
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        total_memory,
        capability: (
            attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
        multiprocessors: attribute(sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        l2_bytes: attribute(sys::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        max_threads: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        warp_size: attribute(sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        max_shared: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        driver_version: version.max(0) as u32,
    })
}

/// The context while it is current on this thread. Its methods are the driver's calls.
pub struct Current<'a> {
    context: &'a Context,
    driver: &'static Driver,
    _guard: DriverGuard,
    /// The current context is a property of the thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut popped = CUcontext::NULL;
        // SAFETY: `enter` pushed the context on this thread.
        unsafe { (self.driver.ctx_pop_current)(&mut popped) };
    }
}

/// The driver's calls. Handles belong to this context and are alive: the
/// callers guarantee that, and it makes every call below safe.
#[allow(clippy::missing_safety_doc, reason = "said once, above")]
impl Current<'_> {
    /// The context.
    pub fn context(&self) -> &Context {
        self.context
    }

    /// Free and total bytes of the device.
    pub fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver stores two numbers.
        self.driver.check("cuMemGetInfo", unsafe { (self.driver.mem_get_info)(&mut free, &mut total) })?;
        Ok((free, total))
    }

    /// Allocates device memory.
    pub fn allocate(&self, len: usize) -> Result<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: the driver stores one address.
        self.driver.check("cuMemAlloc", unsafe { (self.driver.mem_alloc)(&mut address, len) })?;
        Ok(address)
    }

    /// Frees device memory.
    pub unsafe fn free(&self, address: CUdeviceptr) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemFree", unsafe { (self.driver.mem_free)(address) })
    }

    /// Allocates page-locked host memory.
    pub fn allocate_host(&self, len: usize) -> Result<*mut c_void> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the driver stores one address.
        let code = unsafe { (self.driver.mem_host_alloc)(&mut address, len, sys::CU_MEMHOSTALLOC_PORTABLE) };
        self.driver.check("cuMemHostAlloc", code)?;
        Ok(address)
    }

    /// Frees page-locked host memory.
    pub unsafe fn free_host(&self, address: *mut c_void) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemFreeHost", unsafe { (self.driver.mem_free_host)(address) })
    }

    /// Copies from the host, in stream order.
    pub unsafe fn copy_in(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        len: usize,
        on: CUstream,
    ) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemcpyHtoDAsync", unsafe { (self.driver.memcpy_htod_async)(to, from, len, on) })
    }

    /// Copies to the host, in stream order.
    pub unsafe fn copy_out(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        len: usize,
        on: CUstream,
    ) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemcpyDtoHAsync", unsafe { (self.driver.memcpy_dtoh_async)(to, from, len, on) })
    }

    /// Copies inside of the device, in stream order.
    pub unsafe fn copy(&self, to: CUdeviceptr, from: CUdeviceptr, len: usize, on: CUstream) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemcpyDtoDAsync", unsafe { (self.driver.memcpy_dtod_async)(to, from, len, on) })
    }

    /// Sets bytes to zero, in stream order.
    pub unsafe fn clear(&self, to: CUdeviceptr, len: usize, on: CUstream) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuMemsetD8Async", unsafe { (self.driver.memset_d8_async)(to, 0, len, on) })
    }

    /// Creates a stream that does not synchronise with the legacy default stream.
    pub fn create_stream(&self) -> Result<CUstream> {
        let mut stream = CUstream::NULL;
        // SAFETY: the driver stores one handle.
        let code = unsafe { (self.driver.stream_create)(&mut stream, sys::CU_STREAM_NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        Ok(stream)
    }

    /// Destroys a stream.
    pub unsafe fn destroy_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuStreamDestroy", unsafe { (self.driver.stream_destroy)(stream) })
    }

    /// Waits until a stream is idle.
    pub unsafe fn synchronize_stream(&self, stream: CUstream) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuStreamSynchronize", unsafe { (self.driver.stream_synchronize)(stream) })
    }

    /// Makes a stream wait for an event.
    pub unsafe fn stream_wait(&self, stream: CUstream, event: CUevent) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuStreamWaitEvent", unsafe { (self.driver.stream_wait_event)(stream, event, 0) })
    }

    /// Creates an event with the driver's `flags`.
    pub fn create_event(&self, flags: c_uint) -> Result<CUevent> {
        let mut event = CUevent::NULL;
        // SAFETY: the driver stores one handle.
        self.driver.check("cuEventCreate", unsafe { (self.driver.event_create)(&mut event, flags) })?;
        Ok(event)
    }

    /// Destroys an event.
    pub unsafe fn destroy_event(&self, event: CUevent) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuEventDestroy", unsafe { (self.driver.event_destroy)(event) })
    }

    /// Records an event behind everything on a stream.
    pub unsafe fn record(&self, event: CUevent, stream: CUstream) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuEventRecord", unsafe { (self.driver.event_record)(event, stream) })
    }

    /// Whether an event has completed.
    pub unsafe fn query(&self, event: CUevent) -> Result<bool> {
        // SAFETY: upheld by the caller.
        match unsafe { (self.driver.event_query)(event) } {
            sys::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.driver.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits for an event.
    pub unsafe fn synchronize(&self, event: CUevent) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuEventSynchronize", unsafe { (self.driver.event_synchronize)(event) })
    }

    /// Milliseconds between two events with timing.
    pub unsafe fn elapsed(&self, from: CUevent, to: CUevent) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: upheld by the caller; the driver stores one number.
        let code = unsafe { (self.driver.event_elapsed_time)(&mut milliseconds, from, to) };
        self.driver.check("cuEventElapsedTime", code)?;
        Ok(milliseconds)
    }

    /// Loads compiled code.
    ///
    /// # Safety
    /// The driver gets an address without a length and does not validate the image. So `image` is complete
    /// and unchanged: a cubin, or PTX that ends with a zero byte, as the compiler produced it.
    /// [`Image`](crate::disk_cache::Image) guarantees that.
    pub unsafe fn load_module(&self, image: &[u8]) -> Result<CUmodule> {
        let mut module = CUmodule::NULL;
        // SAFETY: upheld by the caller; the driver stores one handle.
        let code = unsafe { (self.driver.module_load_data)(&mut module, image.as_ptr().cast()) };
        self.driver.check("cuModuleLoadData", code)?;
        Ok(module)
    }

    /// Unloads a module.
    pub unsafe fn unload_module(&self, module: CUmodule) -> Result<()> {
        // SAFETY: upheld by the caller.
        self.driver.check("cuModuleUnload", unsafe { (self.driver.module_unload)(module) })
    }

    /// Looks up a kernel of a module.
    pub unsafe fn function(&self, module: CUmodule, name: &CString) -> Result<CUfunction> {
        let mut function = CUfunction::NULL;
        // SAFETY: upheld by the caller; the driver stores one handle.
        let code = unsafe { (self.driver.module_get_function)(&mut function, module, name.as_ptr()) };
        self.driver.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// Reads an attribute of a kernel.
    pub unsafe fn function_attribute(&self, function: CUfunction, which: c_int) -> Result<usize> {
        let mut value = 0;
        // SAFETY: upheld by the caller; the driver stores one number.
        let code = unsafe { (self.driver.func_get_attribute)(&mut value, which, function) };
        self.driver.check("cuFuncGetAttribute", code)?;
        Ok(value.max(0) as usize)
    }

    /// Sets the limit of dynamic shared memory of a kernel.
    pub unsafe fn allow_shared(&self, function: CUfunction, bytes: usize) -> Result<()> {
        let which = sys::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: upheld by the caller.
        let code = unsafe { (self.driver.func_set_attribute)(function, which, bytes) };
        self.driver.check("cuFuncSetAttribute", code)
    }

    /// Offset and size of each parameter of a kernel.
    pub unsafe fn parameters(&self, function: CUfunction) -> Result<Vec<(usize, usize)>> {
        let mut found = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: upheld by the caller; the driver stores two numbers.
            let code =
                unsafe { (self.driver.func_get_param_info)(function, found.len(), &mut offset, &mut size) };
            // The driver has no call that counts the parameters: the first invalid index ends the list.
            if code == sys::CUDA_ERROR_INVALID_VALUE {
                return Ok(found);
            }
            self.driver.check("cuFuncGetParamInfo", code)?;
            found.push((offset, size));
        }
    }

    /// Launches a kernel. `parameters` points to one address for each parameter.
    pub unsafe fn launch(
        &self,
        function: CUfunction,
        extent: Extent,
        on: CUstream,
        parameters: *mut *mut c_void,
    ) -> Result<()> {
        let Extent { grid, block, shared } = extent;
        // SAFETY: upheld by the caller; the driver copies the parameters before it returns.
        let code = unsafe {
            (self.driver.launch_kernel)(
                function,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared,
                on,
                parameters,
                std::ptr::null_mut(),
            )
        };
        self.driver.check("cuLaunchKernel", code)
    }

    /// Launches a dependent kernel: it waits itself for the previous kernel on the stream.
    pub unsafe fn launch_dependent(
        &self,
        function: CUfunction,
        extent: Extent,
        on: CUstream,
        parameters: *mut *mut c_void,
    ) -> Result<()> {
        let config = sys::LaunchConfig {
            grid_dim: extent.grid,
            block_dim: extent.block,
            shared_mem_bytes: extent.shared,
            stream: on,
            attributes: &sys::LaunchAttribute::PROGRAMMATIC,
            count: 1,
        };
        // SAFETY: upheld by the caller; the driver copies configuration and parameters before it returns.
        let code =
            unsafe { (self.driver.launch_kernel_ex)(&config, function, parameters, std::ptr::null_mut()) };
        self.driver.check("cuLaunchKernelEx", code)
    }
}

/// The extent of a launch: blocks, threads per block and dynamic shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
}
