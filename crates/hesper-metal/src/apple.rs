//! The edge on Metal itself, through `objc2-metal`.
//!
//! A handle is the address of a retained object. Every call that may autorelease an object has a pool of its
//! own, and the calls of an encoder one together: threads of a Rust program have none.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;

use block2::RcBlock;
use dispatch2::{
    DispatchObject, DispatchQoS, DispatchQueue, DispatchRetained, DispatchSource, GlobalQueueIdentifier,
};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyClass, AnyObject, ProtocolObject};
use objc2_foundation::{NSArray, NSDictionary, NSError, NSObject, NSProcessInfo, NSString, NSURL};
use objc2_metal::*;

use crate::edge::*;
use crate::error::MetalError;
use crate::host::is_validating;

/// The number of buffers that a process can have where the system does not state it.
const DEFAULT_MAX_BUFFERS: usize = 400_000;
/// Pressure that asks programs to free memory: `DISPATCH_MEMORYPRESSURE_WARN` and
/// `DISPATCH_MEMORYPRESSURE_CRITICAL`.
const PRESSURE: usize = 0x2 | 0x4;
/// The newest GPU family to ask for.
const LAST_FAMILY: u32 = 16;

// On macOS there is no default GPU in a program that does not link this framework.
#[cfg(target_os = "macos")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// The system's default GPU.
pub(crate) struct AppleMetal {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    properties: Properties,
    /// Whether a failed command buffer tells which commands it was running, which costs some speed.
    diagnoses: bool,
    pressure: Mutex<Vec<DispatchRetained<DispatchSource>>>,
}

/// Hands a retained object out as a handle.
fn handle<P: ?Sized>(object: Retained<ProtocolObject<P>>) -> u64 {
    Retained::into_raw(object).cast::<c_void>().expose_provenance() as u64
}

/// The object of a handle, seen through one of its protocols.
///
/// # Safety
/// The object is alive as long as the reference is used, and implements the protocol.
unsafe fn object<'a, P: ?Sized>(handle: u64) -> &'a ProtocolObject<P> {
    let address = std::ptr::with_exposed_provenance::<ProtocolObject<P>>(handle as usize);
    // SAFETY: upheld by the caller.
    unsafe { &*address }
}

fn message(error: &NSError) -> String {
    error.localizedDescription().to_string()
}

fn url(path: &Path) -> Result<Retained<NSURL>, String> {
    NSURL::from_file_path(path).ok_or_else(|| format!("{} is no path of a file", path.display()))
}

/// A number that the kernel states.
fn system_number(name: &std::ffi::CStr) -> Option<usize> {
    let mut value = 0u64;
    let mut len = size_of::<u64>();
    // SAFETY: the name ends in zero, and `len` bytes at `value` are writable.
    let outcome = unsafe {
        libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    (outcome == 0 && value > 0).then_some(value as usize)
}

impl AppleMetal {
    /// Whether the system has a GPU.
    pub(crate) fn is_available() -> bool {
        autoreleasepool(|_| MTLCreateSystemDefaultDevice().is_some())
    }

    /// Opens the system's default GPU.
    pub(crate) fn open() -> Result<Self, MetalError> {
        autoreleasepool(|_| {
            let device = MTLCreateSystemDefaultDevice()
                .ok_or_else(|| MetalError::NoDevice("the system has no GPU for Metal".into()))?;
            let family = (1..=LAST_FAMILY)
                .rev()
                .find(|family| device.supportsFamily(MTLGPUFamily(1000 + *family as isize)))
                .unwrap_or(0);
            // SAFETY: asks for a constant of the system.
            let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let properties = Properties {
                name: device.name().to_string(),
                apple_family: family,
                unified_memory: device.hasUnifiedMemory(),
                recommended_working_set: device.recommendedMaxWorkingSetSize() as usize,
                max_buffer: device.maxBufferLength(),
                max_buffers: system_number(c"iogpu.rsrc_limit").unwrap_or(DEFAULT_MAX_BUFFERS),
                max_threads: device.maxThreadsPerThreadgroup().width,
                threadgroup_memory: device.maxThreadgroupMemoryLength(),
                page_size: usize::try_from(page_size).unwrap_or(16384).max(1),
                system: NSProcessInfo::processInfo().operatingSystemVersionString().to_string(),
            };
            Ok(AppleMetal { device, properties, diagnoses: is_validating(), pressure: Mutex::default() })
        })
    }

    /// The descriptor of a pipeline.
    ///
    /// # Safety
    /// The library of the request is alive.
    unsafe fn descriptor(
        &self,
        request: &PipelineRequest<'_>,
    ) -> Result<Retained<MTLComputePipelineDescriptor>, String> {
        let constants = MTLFunctionConstantValues::new();
        for constant in request.constants {
            let ty = match constant.ty {
                ConstantType::Bool => MTLDataType::Bool,
                ConstantType::Char => MTLDataType::Char,
                ConstantType::UChar => MTLDataType::UChar,
                ConstantType::Short => MTLDataType::Short,
                ConstantType::UShort => MTLDataType::UShort,
                ConstantType::Int => MTLDataType::Int,
                ConstantType::UInt => MTLDataType::UInt,
                ConstantType::Long => MTLDataType::Long,
                ConstantType::ULong => MTLDataType::ULong,
                ConstantType::Float => MTLDataType::Float,
            };
            let value = NonNull::from(&constant.bytes[..]).cast::<c_void>();
            // SAFETY: the value has the bytes of its type, and Metal copies it.
            unsafe { constants.setConstantValue_type_atIndex(value, ty, constant.index) };
        }
        // SAFETY: upheld by the caller.
        let library = unsafe { object::<dyn MTLLibrary>(request.library.0) };
        let function = library
            .newFunctionWithName_constantValues_error(&NSString::from_str(request.entry), &constants)
            .map_err(|error| message(&error))?;
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str(request.label)));
        descriptor.setComputeFunction(Some(&function));
        if let Some(threads) = request.max_threads {
            descriptor.setMaxTotalThreadsPerThreadgroup(threads.min(self.properties.max_threads));
        }
        Ok(descriptor)
    }
}

impl Drop for AppleMetal {
    fn drop(&mut self) {
        let sources = self.pressure.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        sources.iter().for_each(|source| source.cancel());
    }
}

fn size([width, height, depth]: [u64; 3]) -> MTLSize {
    MTLSize { width: width as usize, height: height as usize, depth: depth as usize }
}

fn options() -> MTLResourceOptions {
    MTLResourceOptions::StorageModeShared | MTLResourceOptions::HazardTrackingModeUntracked
}

fn command_error(error: &NSError) -> CommandError {
    // SAFETY: a constant of the framework.
    let known = unsafe { MTLCommandBufferErrorDomain }.isEqualToString(&error.domain());
    let number = error.code();
    let code = match MTLCommandBufferError(number as usize) {
        _ if !known => ErrorCode::Other(number as i64),
        MTLCommandBufferError::Internal => ErrorCode::Internal,
        MTLCommandBufferError::Timeout => ErrorCode::Timeout,
        MTLCommandBufferError::PageFault => ErrorCode::PageFault,
        MTLCommandBufferError::AccessRevoked => ErrorCode::AccessRevoked,
        MTLCommandBufferError::NotPermitted => ErrorCode::NotPermitted,
        MTLCommandBufferError::OutOfMemory => ErrorCode::OutOfMemory,
        MTLCommandBufferError::InvalidResource => ErrorCode::InvalidResource,
        MTLCommandBufferError::DeviceRemoved => ErrorCode::DeviceRemoved,
        MTLCommandBufferError::StackOverflow => ErrorCode::StackOverflow,
        _ => ErrorCode::Other(number as i64),
    };
    CommandError { code, message: message(error) + &running(error) }
}

/// The commands that a failed command buffer was running, where it was asked to note them.
fn running(error: &NSError) -> String {
    // SAFETY: a constant of the framework.
    let key = unsafe { MTLCommandBufferEncoderInfoErrorKey };
    let infos = error.userInfo().objectForKey(key).and_then(|infos| infos.downcast::<NSArray>().ok());
    let mut text = String::new();
    for info in infos.iter().flat_map(|infos| infos.iter()) {
        let info: *const AnyObject = &*info;
        // SAFETY: Metal documents the elements of this list, which lives as long as the error, as encoder
        // infos.
        let info = unsafe { &*info.cast::<ProtocolObject<dyn MTLCommandBufferEncoderInfo>>() };
        let state = match info.errorState() {
            MTLCommandEncoderErrorState::Faulted => "faulted",
            MTLCommandEncoderErrorState::Affected => "affected",
            MTLCommandEncoderErrorState::Pending => "not started",
            _ => continue,
        };
        let commands: Vec<String> = info.debugSignposts().iter().map(|name| name.to_string()).collect();
        text += &format!("; {state}: {}", commands.join(", "));
    }
    text
}

// SAFETY: Metal keeps the promises of the trait, whose calls are its own. Completion handlers run on threads
// of Metal, once, after the commit has returned or on another thread.
unsafe impl Metal for AppleMetal {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn new_buffer(&self, len: usize) -> Option<(Buffer, NonNull<u8>)> {
        autoreleasepool(|_| {
            let buffer = self.device.newBufferWithLength_options(len, options())?;
            let host = buffer.contents().cast::<u8>();
            Some((Buffer(handle(buffer)), host))
        })
    }

    unsafe fn new_buffer_no_copy(&self, host: NonNull<u8>, len: usize) -> Option<Buffer> {
        autoreleasepool(|_| {
            // SAFETY: the caller passes whole pages that are valid until the buffer is released; there is no
            // deallocator.
            let buffer = unsafe {
                self.device.newBufferWithBytesNoCopy_length_options_deallocator(
                    host.cast(),
                    len,
                    options(),
                    None,
                )
            };
            buffer.map(|buffer| Buffer(handle(buffer)))
        })
    }

    fn new_queue(&self, max: usize) -> Option<Queue> {
        autoreleasepool(|_| {
            self.device.newCommandQueueWithMaxCommandBufferCount(max).map(|queue| Queue(handle(queue)))
        })
    }

    fn new_fence(&self) -> Option<Fence> {
        autoreleasepool(|_| self.device.newFence().map(|fence| Fence(handle(fence))))
    }

    fn new_event(&self) -> Option<Event> {
        autoreleasepool(|_| self.device.newSharedEvent().map(|event| Event(handle(event))))
    }

    unsafe fn event_value(&self, event: Event) -> u64 {
        // SAFETY: the event is alive.
        unsafe { object::<dyn MTLSharedEvent>(event.0) }.signaledValue()
    }

    unsafe fn set_event_value(&self, event: Event, value: u64) {
        // SAFETY: the event is alive.
        unsafe { object::<dyn MTLSharedEvent>(event.0) }.setSignaledValue(value);
    }

    unsafe fn release(&self, object: Object) {
        let address = std::ptr::with_exposed_provenance_mut::<AnyObject>(object.0 as usize);
        // SAFETY: the handle owns one reference, and is not used again.
        autoreleasepool(|_| drop(unsafe { Retained::from_raw(address) }));
    }

    unsafe fn command_buffer(&self, queue: Queue, label: &str) -> Option<CommandBuffer> {
        autoreleasepool(|_| {
            // SAFETY: the queue is alive.
            let queue = unsafe { object::<dyn MTLCommandQueue>(queue.0) };
            let commands = if self.diagnoses {
                let descriptor = MTLCommandBufferDescriptor::new();
                descriptor.setRetainedReferences(false);
                descriptor.setErrorOptions(MTLCommandBufferErrorOption::EncoderExecutionStatus);
                queue.commandBufferWithDescriptor(&descriptor)?
            } else {
                queue.commandBufferWithUnretainedReferences()?
            };
            commands.setLabel(Some(&NSString::from_str(label)));
            Some(CommandBuffer(handle(commands)))
        })
    }

    unsafe fn encode_wait(&self, commands: CommandBuffer, event: Event, value: u64) {
        // SAFETY: both are alive; a shared event is an event.
        unsafe {
            let commands = object::<dyn MTLCommandBuffer>(commands.0);
            commands.encodeWaitForEvent_value(object::<dyn MTLEvent>(event.0), value);
        }
    }

    unsafe fn encode_signal(&self, commands: CommandBuffer, event: Event, value: u64) {
        // SAFETY: both are alive; a shared event is an event.
        unsafe {
            let commands = object::<dyn MTLCommandBuffer>(commands.0);
            commands.encodeSignalEvent_value(object::<dyn MTLEvent>(event.0), value);
        }
    }

    unsafe fn compute_encoder(&self, commands: CommandBuffer) -> Option<Encoder> {
        autoreleasepool(|_| {
            // SAFETY: the command buffer is alive.
            let commands = unsafe { object::<dyn MTLCommandBuffer>(commands.0) };
            let encoder = commands.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent)?;
            Some(Encoder(handle(encoder)))
        })
    }

    unsafe fn wait_fence(&self, encoder: Encoder, fence: Fence) {
        // SAFETY: both are alive.
        unsafe {
            object::<dyn MTLComputeCommandEncoder>(encoder.0).waitForFence(object::<dyn MTLFence>(fence.0))
        }
    }

    unsafe fn update_fence(&self, encoder: Encoder, fence: Fence) {
        // SAFETY: both are alive.
        unsafe {
            object::<dyn MTLComputeCommandEncoder>(encoder.0).updateFence(object::<dyn MTLFence>(fence.0))
        }
    }

    unsafe fn set_pipeline(&self, encoder: Encoder, pipeline: Pipeline) {
        // SAFETY: both are alive.
        unsafe {
            let encoder = object::<dyn MTLComputeCommandEncoder>(encoder.0);
            encoder.setComputePipelineState(object::<dyn MTLComputePipelineState>(pipeline.0));
        }
    }

    unsafe fn set_buffer(&self, encoder: Encoder, buffer: Option<Buffer>, offset: usize, index: usize) {
        // SAFETY: both are alive, and the offset lies inside of the buffer.
        unsafe {
            let encoder = object::<dyn MTLComputeCommandEncoder>(encoder.0);
            let buffer = buffer.map(|buffer| object::<dyn MTLBuffer>(buffer.0));
            encoder.setBuffer_offset_atIndex(buffer, offset, index);
        }
    }

    unsafe fn set_bytes(&self, encoder: Encoder, bytes: &[u8], index: usize) {
        // SAFETY: the encoder is alive, and Metal copies the bytes.
        unsafe {
            let encoder = object::<dyn MTLComputeCommandEncoder>(encoder.0);
            encoder.setBytes_length_atIndex(NonNull::from(bytes).cast(), bytes.len(), index);
        }
    }

    unsafe fn set_threadgroup_memory(&self, encoder: Encoder, len: usize, index: usize) {
        // SAFETY: the encoder is alive, and the length within the GPU's limit.
        unsafe {
            let encoder = object::<dyn MTLComputeCommandEncoder>(encoder.0);
            encoder.setThreadgroupMemoryLength_atIndex(len, index);
        }
    }

    unsafe fn dispatch(&self, encoder: Encoder, grid: [u64; 3], threadgroup: [u64; 3]) {
        // SAFETY: the encoder is alive.
        let encoder = unsafe { object::<dyn MTLComputeCommandEncoder>(encoder.0) };
        encoder.dispatchThreads_threadsPerThreadgroup(size(grid), size(threadgroup));
    }

    unsafe fn barrier(&self, encoder: Encoder) {
        // SAFETY: the encoder is alive.
        let encoder = unsafe { object::<dyn MTLComputeCommandEncoder>(encoder.0) };
        encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
    }

    unsafe fn signpost(&self, encoder: Encoder, label: &str) {
        // SAFETY: the encoder is alive.
        let encoder = unsafe { object::<dyn MTLComputeCommandEncoder>(encoder.0) };
        autoreleasepool(|_| encoder.insertDebugSignpost(&NSString::from_str(label)));
    }

    unsafe fn end_encoding(&self, encoder: Encoder) {
        // SAFETY: the encoder is alive.
        unsafe { object::<dyn MTLComputeCommandEncoder>(encoder.0) }.endEncoding();
    }

    unsafe fn on_completed(&self, commands: CommandBuffer, handler: CompletedHandler) {
        let handler = Mutex::new(Some(handler));
        let block = RcBlock::new(move |commands: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
            // What a thread of Metal autoreleases is not returned before the thread ends, without a pool.
            autoreleasepool(|_| {
                // SAFETY: Metal passes the command buffer that has completed.
                let error = unsafe { commands.as_ref() }.error().map(|error| command_error(&error));
                let handler = handler.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                if let Some(handler) = handler {
                    // A panic must not unwind into Metal.
                    let _ = catch_unwind(AssertUnwindSafe(|| handler(error.map_or(Ok(()), Err))));
                }
            });
        });
        // SAFETY: the command buffer is alive and not committed, and the block can be called on any thread.
        unsafe {
            object::<dyn MTLCommandBuffer>(commands.0).addCompletedHandler(RcBlock::as_ptr(&block));
        }
    }

    unsafe fn commit(&self, commands: CommandBuffer) {
        // SAFETY: the command buffer is alive.
        let commands = unsafe { object::<dyn MTLCommandBuffer>(commands.0) };
        autoreleasepool(|_| commands.commit());
    }

    fn library_from_source(&self, text: &str, options: &LibraryOptions) -> Result<Library, String> {
        autoreleasepool(|_| {
            let compile = MTLCompileOptions::new();
            #[allow(deprecated, reason = "its successor does not exist before macOS 15")]
            compile.setFastMathEnabled(options.fast_math);
            if !options.macros.is_empty() {
                let strings = |text: &String| NSString::from_str(text);
                let names: Vec<_> = options.macros.iter().map(|(name, _)| strings(name)).collect();
                let values: Vec<_> = options.macros.iter().map(|(_, value)| strings(value)).collect();
                let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
                let values: Vec<&NSObject> = values.iter().map(|value| -> &NSObject { value }).collect();
                let macros = NSDictionary::<NSString, NSObject>::from_slices(&names, &values);
                // SAFETY: names and values are strings, as Metal asks.
                unsafe { compile.setPreprocessorMacros(Some(&macros)) };
            }
            let library =
                self.device.newLibraryWithSource_options_error(&NSString::from_str(text), Some(&compile));
            library.map(|library| Library(handle(library))).map_err(|error| message(&error))
        })
    }

    unsafe fn function_names(&self, library: Library) -> Vec<String> {
        // SAFETY: the library is alive.
        let library = unsafe { object::<dyn MTLLibrary>(library.0) };
        autoreleasepool(|_| library.functionNames().iter().map(|name| name.to_string()).collect())
    }

    unsafe fn pipeline(
        &self,
        request: &PipelineRequest<'_>,
        archive: Option<Archive>,
    ) -> Result<(Pipeline, PipelineLimits), String> {
        autoreleasepool(|_| {
            // SAFETY: the library is alive.
            let descriptor = unsafe { self.descriptor(request) }?;
            let mut options = MTLPipelineOption::empty();
            if let Some(archive) = archive {
                // SAFETY: the archive is alive.
                let archive = unsafe { object::<dyn MTLBinaryArchive>(archive.0) };
                descriptor.setBinaryArchives(Some(&NSArray::from_slice(&[archive])));
                options |= MTLPipelineOption::FailOnBinaryArchiveMiss;
            }
            let pipeline = self
                .device
                .newComputePipelineStateWithDescriptor_options_reflection_error(&descriptor, options, None)
                .map_err(|error| message(&error))?;
            let limits = PipelineLimits {
                max_threads: pipeline.maxTotalThreadsPerThreadgroup(),
                threadgroup_memory: pipeline.staticThreadgroupMemoryLength(),
                simd_width: pipeline.threadExecutionWidth(),
            };
            Ok((Pipeline(handle(pipeline)), limits))
        })
    }

    fn archive(&self, path: Option<&Path>) -> Result<Archive, String> {
        autoreleasepool(|_| {
            let descriptor = MTLBinaryArchiveDescriptor::new();
            if let Some(path) = path {
                descriptor.setUrl(Some(&*url(path)?));
            }
            let archive = self.device.newBinaryArchiveWithDescriptor_error(&descriptor);
            archive.map(|archive| Archive(handle(archive))).map_err(|error| message(&error))
        })
    }

    unsafe fn archive_add(&self, archive: Archive, request: &PipelineRequest<'_>) -> Result<(), String> {
        autoreleasepool(|_| {
            // SAFETY: the library and the archive are alive.
            let (descriptor, archive) =
                unsafe { (self.descriptor(request)?, object::<dyn MTLBinaryArchive>(archive.0)) };
            archive
                .addComputePipelineFunctionsWithDescriptor_error(&descriptor)
                .map_err(|error| message(&error))
        })
    }

    unsafe fn archive_save(&self, archive: Archive, path: &Path) -> Result<(), String> {
        autoreleasepool(|_| {
            // SAFETY: the archive is alive.
            let archive = unsafe { object::<dyn MTLBinaryArchive>(archive.0) };
            archive.serializeToURL_error(&*url(path)?).map_err(|error| message(&error))
        })
    }

    fn new_residency_set(&self) -> Option<ResidencySet> {
        // The class is missing on systems before macOS 15.
        AnyClass::get(c"MTLResidencySetDescriptor")?;
        autoreleasepool(|_| {
            let descriptor = MTLResidencySetDescriptor::new();
            let set = self.device.newResidencySetWithDescriptor_error(&descriptor).ok()?;
            Some(ResidencySet(handle(set)))
        })
    }

    unsafe fn use_residency_set(&self, queue: Queue, set: ResidencySet) {
        // SAFETY: both are alive.
        unsafe {
            object::<dyn MTLCommandQueue>(queue.0).addResidencySet(object::<dyn MTLResidencySet>(set.0));
        }
    }

    unsafe fn set_resident(&self, set: ResidencySet, buffers: &[Buffer], resident: bool) {
        // SAFETY: the set is alive.
        let set = unsafe { object::<dyn MTLResidencySet>(set.0) };
        autoreleasepool(|_| {
            for buffer in buffers {
                // SAFETY: the buffer is alive; a buffer is an allocation.
                let buffer = unsafe { object::<dyn MTLAllocation>(buffer.0) };
                if resident {
                    set.addAllocation(buffer);
                } else {
                    set.removeAllocation(buffer);
                }
            }
            set.commit();
            if resident {
                set.requestResidency();
            }
        });
    }

    fn on_memory_pressure(&self, handler: PressureHandler) {
        let block = RcBlock::new(move || {
            // A panic must not unwind into the system.
            autoreleasepool(|_| drop(catch_unwind(AssertUnwindSafe(&handler))));
        });
        // SAFETY: the type takes no handle and this mask, and the block can be called on any thread.
        let source = unsafe {
            let ty = &raw const dispatch2::_dispatch_source_type_memorypressure;
            let source = DispatchSource::new(ty.cast_mut(), 0, PRESSURE, None);
            source.set_event_handler_with_block(RcBlock::as_ptr(&block));
            source
        };
        source.resume();
        self.pressure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(source);
    }

    fn start_capture(&self, path: &Path) -> Result<(), String> {
        autoreleasepool(|_| {
            let descriptor = MTLCaptureDescriptor::new();
            let device: *const ProtocolObject<dyn MTLDevice> = &*self.device;
            // SAFETY: the device is an object, and one that can be captured.
            unsafe { descriptor.setCaptureObject(Some(&*device.cast::<AnyObject>())) };
            descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
            descriptor.setOutputURL(Some(&*url(path)?));
            // SAFETY: the manager of the process.
            let manager = unsafe { MTLCaptureManager::sharedCaptureManager() };
            if !manager.supportsDestination(MTLCaptureDestination::GPUTraceDocument) {
                return Err("the system does not let this process write GPU traces".into());
            }
            manager.startCaptureWithDescriptor_error(&descriptor).map_err(|error| message(&error))
        })
    }

    fn stop_capture(&self) {
        // SAFETY: the manager of the process.
        autoreleasepool(|_| unsafe { MTLCaptureManager::sharedCaptureManager() }.stopCapture());
    }

    fn run_async(&self, task: Box<dyn FnOnce() + Send>) {
        let queue = GlobalQueueIdentifier::QualityOfService(DispatchQoS::UserInitiated);
        // A panic must not unwind into the system.
        DispatchQueue::global_queue(queue)
            .exec_async(move || autoreleasepool(|_| drop(catch_unwind(AssertUnwindSafe(task)))));
    }

    fn pooled(&self, task: &mut dyn FnMut()) {
        autoreleasepool(|_| task());
    }
}
