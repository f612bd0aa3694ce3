//! The thin edge: the calls of Metal that the device needs, as one trait.
//!
//! Objects are opaque numbers; an implementation checks nothing. `apple` implements the trait on
//! `objc2-metal`, and `sim` on host memory, with Metal's freedoms and its validation layer. Everything above
//! is plain Rust and runs on any machine.
//!
//! Resources are untracked and command buffers hold no references: the caller keeps every object alive until
//! the command buffers that name it have completed, and orders their commands itself.
//!
//! | order | by |
//! |---|---|
//! | dispatches of one encoder | [`barrier`](Metal::barrier); without it they run concurrently |
//! | encoders of one queue | a fence: [`wait_fence`](Metal::wait_fence), [`update_fence`](Metal::update_fence) |
//! | command buffers of different queues | an event: [`encode_wait`](Metal::encode_wait), [`encode_signal`](Metal::encode_signal) |

use std::path::Path;
use std::ptr::NonNull;

/// Threads of a SIMD group, on every GPU of these families. Kernels rely on it.
pub(crate) const SIMD_WIDTH: usize = 32;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name(pub u64);

            impl From<$name> for Object {
                fn from(handle: $name) -> Object {
                    Object(handle.0)
                }
            }
        )*
    };
}

/// Any object, to release it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Object(pub u64);

handles! {
    /// A buffer.
    Buffer,
    /// A command queue.
    Queue,
    /// A command buffer.
    CommandBuffer,
    /// A concurrent compute encoder.
    Encoder,
    /// A fence between encoders of one queue.
    Fence,
    /// A shared event: a value that only grows.
    Event,
    /// A library of functions, compiled from text.
    Library,
    /// A compute pipeline.
    Pipeline,
    /// A binary archive of compiled pipelines.
    Archive,
    /// A set of buffers that stay resident.
    ResidencySet,
}

/// Identity and limits of a GPU.
#[derive(Debug, Clone)]
pub struct Properties {
    /// The display name: `Apple M3 Max`.
    pub name: String,
    /// The GPU family: 7 for M1 and A14; 0 if it is none of Apple's.
    pub apple_family: u32,
    /// Whether host and GPU share one memory.
    pub unified_memory: bool,
    /// The bytes that can be used without a loss of speed.
    pub recommended_working_set: usize,
    /// The largest buffer.
    pub max_buffer: usize,
    /// The largest number of buffers that a process can have.
    pub max_buffers: usize,
    /// The largest number of threads in a threadgroup.
    pub max_threads: usize,
    /// The bytes of threadgroup memory.
    pub threadgroup_memory: usize,
    /// The size of a page of host memory.
    pub page_size: usize,
    /// The version of the operating system, whose compiler made the archives.
    pub system: String,
}

/// What a compute pipeline allows.
#[derive(Debug, Clone, Copy)]
pub struct PipelineLimits {
    /// The largest number of threads in a threadgroup.
    pub max_threads: usize,
    /// Bytes of threadgroup memory that the function declares.
    pub threadgroup_memory: usize,
    /// Threads of a SIMD group.
    pub simd_width: usize,
}

/// How the text of a library is compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryOptions {
    /// Macros: name and value.
    pub macros: Vec<(String, String)>,
    /// Whether floating-point rules may be relaxed.
    pub fast_math: bool,
}

/// The value of a function constant, in the bytes of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionConstant {
    /// The index that the text gives it.
    pub index: usize,
    /// Its type.
    pub ty: ConstantType,
    /// Its value.
    pub bytes: Vec<u8>,
}

/// The type of a function constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstantType {
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// `uchar`.
    UChar,
    /// `short`.
    Short,
    /// `ushort`.
    UShort,
    /// `int`.
    Int,
    /// `uint`.
    UInt,
    /// `long`.
    Long,
    /// `ulong`.
    ULong,
    /// `float`.
    Float,
}

/// A pipeline to make.
#[derive(Debug, Clone, Copy)]
pub struct PipelineRequest<'a> {
    /// For diagnostics.
    pub label: &'a str,
    /// The library.
    pub library: Library,
    /// The name of the function.
    pub entry: &'a str,
    /// Values of its function constants.
    pub constants: &'a [FunctionConstant],
    /// The largest threadgroup that will be dispatched, if the author states it.
    pub max_threads: Option<usize>,
}

/// Why a command buffer failed, as Metal classifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The driver failed, or the command buffer was the victim of another one's fault.
    Internal,
    /// It ran for too long.
    Timeout,
    /// It accessed memory that is not mapped.
    PageFault,
    /// The process caused too many faults and may not use the GPU any more.
    AccessRevoked,
    /// The application may not use the GPU now: it is in the background.
    NotPermitted,
    /// There was no memory to run it.
    OutOfMemory,
    /// It named a resource that does not exist.
    InvalidResource,
    /// The GPU was removed.
    DeviceRemoved,
    /// A kernel used too much stack.
    StackOverflow,
    /// A code that this crate does not know.
    Other(i64),
}

/// The failure of a command buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandError {
    /// Its class.
    pub code: ErrorCode,
    /// The system's message.
    pub message: String,
}

/// Called once when a command buffer has completed.
pub type CompletedHandler = Box<dyn FnOnce(Result<(), CommandError>) + Send>;

/// Called when the system runs out of memory.
pub type PressureHandler = Box<dyn Fn() + Send + Sync>;

/// The calls of Metal that the device needs. `None` and `Err` mean that Metal refused the call, which changed
/// nothing.
///
/// # Safety
/// Implementations follow Metal: a command buffer runs after its commit, in the order of this module's table
/// and no other. Its handler is called once, on any thread, and never inside of [`commit`](Metal::commit).
/// The memory of a buffer is exclusive and valid until the buffer is released.
///
/// Every unsafe call asks that the objects it names are alive, that encoders and command buffers are used by
/// one thread at a time, and that the call is valid in their state.
#[allow(clippy::missing_safety_doc, reason = "the contract of all calls stands at the trait")]
pub unsafe trait Metal: Send + Sync + 'static {
    /// Identity and limits.
    fn properties(&self) -> &Properties;

    /// An untracked buffer in shared memory, and its host address.
    fn new_buffer(&self, len: usize) -> Option<(Buffer, NonNull<u8>)>;

    /// An untracked buffer on host memory: whole pages of one mapping, which no allocator owns, valid until
    /// the buffer is released.
    unsafe fn new_buffer_no_copy(&self, host: NonNull<u8>, len: usize) -> Option<Buffer>;

    /// A command queue for up to `max` command buffers that have not completed.
    fn new_queue(&self, max: usize) -> Option<Queue>;

    /// A fence.
    fn new_fence(&self) -> Option<Fence>;

    /// A shared event with the value 0.
    fn new_event(&self) -> Option<Event>;

    /// The value of an event.
    unsafe fn event_value(&self, event: Event) -> u64;

    /// Sets the value of an event, to a larger one.
    unsafe fn set_event_value(&self, event: Event, value: u64);

    /// Releases an object.
    unsafe fn release(&self, object: Object);

    /// A command buffer with unretained references.
    unsafe fn command_buffer(&self, queue: Queue, label: &str) -> Option<CommandBuffer>;

    /// Lets what follows in the command buffer wait for the value of an event.
    unsafe fn encode_wait(&self, commands: CommandBuffer, event: Event, value: u64);

    /// Sets the value of an event after everything before it in the command buffer.
    unsafe fn encode_signal(&self, commands: CommandBuffer, event: Event, value: u64);

    /// A compute encoder whose dispatches run concurrently.
    unsafe fn compute_encoder(&self, commands: CommandBuffer) -> Option<Encoder>;

    /// Lets the encoder wait for the last encoder that updates the fence. One that was committed before
    /// updates it.
    unsafe fn wait_fence(&self, encoder: Encoder, fence: Fence);

    /// Updates the fence when all dispatches of the encoder have ended.
    unsafe fn update_fence(&self, encoder: Encoder, fence: Fence);

    /// Sets the pipeline of later dispatches.
    unsafe fn set_pipeline(&self, encoder: Encoder, pipeline: Pipeline);

    /// Binds a buffer; `None` unbinds.
    unsafe fn set_buffer(&self, encoder: Encoder, buffer: Option<Buffer>, offset: usize, index: usize);

    /// Binds a copy of bytes, at most 4096.
    unsafe fn set_bytes(&self, encoder: Encoder, bytes: &[u8], index: usize);

    /// Sets the length of a threadgroup argument.
    unsafe fn set_threadgroup_memory(&self, encoder: Encoder, len: usize, index: usize);

    /// Dispatches `grid` threads in threadgroups, the last of which may be partial.
    unsafe fn dispatch(&self, encoder: Encoder, grid: [u64; 3], threadgroup: [u64; 3]);

    /// Orders later dispatches of the encoder after all earlier ones.
    unsafe fn barrier(&self, encoder: Encoder);

    /// Names what follows in diagnostics and captures.
    unsafe fn signpost(&self, encoder: Encoder, label: &str);

    /// Ends the encoder.
    unsafe fn end_encoding(&self, encoder: Encoder);

    /// Sets what is called when the command buffer has completed; before its commit.
    unsafe fn on_completed(&self, commands: CommandBuffer, handler: CompletedHandler);

    /// Hands the command buffer to its queue.
    unsafe fn commit(&self, commands: CommandBuffer);

    /// Compiles a text. The error is the compiler's message, in which the text is called `program_source`.
    fn library_from_source(&self, text: &str, options: &LibraryOptions) -> Result<Library, String>;

    /// The names of a library's functions.
    unsafe fn function_names(&self, library: Library) -> Vec<String>;

    /// A compute pipeline. With an archive, one that the archive has; a miss is an error.
    unsafe fn pipeline(
        &self,
        request: &PipelineRequest<'_>,
        archive: Option<Archive>,
    ) -> Result<(Pipeline, PipelineLimits), String>;

    /// A binary archive: empty, or from a file.
    fn archive(&self, path: Option<&Path>) -> Result<Archive, String>;

    /// Adds a pipeline to an archive.
    unsafe fn archive_add(&self, archive: Archive, request: &PipelineRequest<'_>) -> Result<(), String>;

    /// Writes an archive to a file.
    unsafe fn archive_save(&self, archive: Archive, path: &Path) -> Result<(), String>;

    /// A residency set; `None` where the system has none.
    fn new_residency_set(&self) -> Option<ResidencySet>;

    /// Lets the command buffers of a queue rely on a set.
    unsafe fn use_residency_set(&self, queue: Queue, set: ResidencySet);

    /// Adds buffers to a set (`resident`), or removes them; the set is committed once.
    unsafe fn set_resident(&self, set: ResidencySet, buffers: &[Buffer], resident: bool);

    /// Sets what is called under memory pressure.
    fn on_memory_pressure(&self, handler: PressureHandler);

    /// Starts a capture of all GPU work into a file.
    fn start_capture(&self, path: &Path) -> Result<(), String>;

    /// Ends the capture.
    fn stop_capture(&self);

    /// Runs a closure on another thread, soon.
    fn run_async(&self, task: Box<dyn FnOnce() + Send>);

    /// Runs a task and then returns what its calls have autoreleased. Every encoder is used inside of one:
    /// threads of a Rust program have no pool, and those of the system drain theirs when they please.
    fn pooled(&self, task: &mut dyn FnMut()) {
        task();
    }

    /// Notes that the host is about to access the memory of buffers in a native command. The simulation
    /// refuses one that was released; Metal would not notice.
    fn access_on_host(&self, buffers: &mut dyn Iterator<Item = Buffer>) -> Result<(), String> {
        let _ = buffers;
        Ok(())
    }

    /// Makes progress for a thread that waits, where the GPU has no thread of its own. False if it has one.
    fn step(&self) -> bool {
        false
    }
}
