//! A simulated Metal: the [edge](crate::edge) on host memory, with a seed.
//!
//! It takes every freedom that Metal has. Dispatches of an encoder run in parts and in any order that
//! barriers allow, encoders of a queue in any order that fences allow, command buffers of different queues
//! interleaved; completion handlers are called late and in any order; a command buffer may fail before it has
//! waited for anything, and one that failed later may or may not signal its events. Objects are destroyed
//! when they are released: a command that names one is reported. Calls that Metal's validation layer rejects
//! are reported, too. Any call can be refused and any command buffer can fail. A run is a function of its
//! seed.

mod engine;
mod kernel;
pub mod language;
mod objects;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use hesper_runtime::sim::{Simulated, workload};
use hesper_runtime::{Fault, PipelineSource, Violation};

use crate::device::{SIMD_WIDTH, lock};
pub use crate::edge::ErrorCode;
use crate::edge::*;
use engine::{Engine, Outside};
pub use kernel::{Launch, SimCompiler, SimFunction, SimKernel, SimText};
use objects::{
    CommandOp, Entry, SimBuffer, SimCommands, SimDispatch, SimEncoder, SimLibrary, SimObject, SimPipeline,
    Slot, Status,
};

/// The number of buffer indices of a kernel.
const INDICES: usize = 31;
/// The first line of an archive's file.
const ARCHIVE_MAGIC: &str = "simulated archive";

/// The mechanism of the device that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceAblation {
    /// Nothing is switched off.
    #[default]
    None,
    /// No barriers between the dispatches of an encoder.
    Barriers,
    /// No fences between the encoders of a stream.
    Fences,
    /// No events between streams.
    Events,
    /// Imported memory gets no buffer, and null is bound in its place.
    RealMemory,
}

/// A kind of call that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the call of the edge with its name")]
pub enum Call {
    NewBuffer,
    NewBufferNoCopy,
    NewQueue,
    NewFence,
    NewEvent,
    CommandBuffer,
    ComputeEncoder,
    Library,
    Pipeline,
    Archive,
    ArchiveAdd,
    ArchiveSave,
    ResidencySet,
    Capture,
    /// The execution of a command buffer, which fails with [`ErrorCode::Internal`].
    Execute,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 15] = [
        Call::NewBuffer,
        Call::NewBufferNoCopy,
        Call::NewQueue,
        Call::NewFence,
        Call::NewEvent,
        Call::CommandBuffer,
        Call::ComputeEncoder,
        Call::Library,
        Call::Pipeline,
        Call::Archive,
        Call::ArchiveAdd,
        Call::ArchiveSave,
        Call::ResidencySet,
        Call::Capture,
        Call::Execute,
    ];
}

/// The call that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The n-th call of a kind, counted from zero.
    Nth(Call, u64),
    /// The n-th call of any kind.
    Any(u64),
}

/// A command buffer that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// Its number in the order of commits, from zero.
    pub command_buffer: u64,
    /// How it fails.
    pub code: ErrorCode,
}

/// Configures a [`SimMetal`].
pub struct SimBuilder {
    seed: u64,
    properties: Properties,
    kernels: HashMap<String, SimFunction>,
    compiler: Option<SimCompiler>,
    failure: Option<Failure>,
    faults: Vec<FaultPlan>,
    refuse: Option<usize>,
    simd_width: usize,
    stepped: bool,
}

impl SimBuilder {
    /// Changes the properties of the GPU.
    pub fn properties(mut self, change: impl FnOnce(&mut Properties)) -> Self {
        change(&mut self.properties);
        self
    }

    /// Adds a kernel that texts can name as their entry.
    pub fn kernel(
        mut self,
        name: &str,
        run: impl Fn(&Launch<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.kernels.insert(name.into(), SimFunction { run: Arc::new(run), divisible: true });
        self
    }

    /// Sets a compiler for texts whose entry is no known kernel.
    pub fn compiler(mut self, compiler: SimCompiler) -> Self {
        self.compiler = Some(compiler);
        self
    }

    /// Sets the threads of a SIMD group: 32, unless a test asks for others.
    pub fn simd_width(mut self, width: usize) -> Self {
        self.simd_width = width;
        self
    }

    /// Refuses one call.
    pub fn fail(mut self, failure: Failure) -> Self {
        self.failure = Some(failure);
        self
    }

    /// Fails a command buffer.
    pub fn fault(mut self, command_buffer: u64, code: ErrorCode) -> Self {
        self.faults.push(FaultPlan { command_buffer, code });
        self
    }

    /// Refuses one command buffer in `refuse`, chosen by the seed.
    pub fn refuse(mut self, refuse: usize) -> Self {
        self.refuse = Some(refuse);
        self
    }

    /// Only [`SimMetal::step`] makes progress, and threads that wait do not.
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// Builds the simulation.
    pub fn build(self) -> SimMetal {
        let engine = Engine::new(self.seed, self.failure, self.faults, self.refuse);
        SimMetal(Arc::new(Shared {
            properties: self.properties,
            kernels: self.kernels,
            compiler: self.compiler,
            stepped: self.stepped,
            simd_width: self.simd_width,
            engine: Mutex::new(engine),
            pressure: Mutex::default(),
        }))
    }
}

struct Shared {
    properties: Properties,
    kernels: HashMap<String, SimFunction>,
    compiler: Option<SimCompiler>,
    stepped: bool,
    simd_width: usize,
    engine: Mutex<Engine>,
    pressure: Mutex<Vec<PressureHandler>>,
}

/// The simulated Metal. Clones are handles to the same one.
#[derive(Clone)]
pub struct SimMetal(Arc<Shared>);

impl SimMetal {
    /// A simulation with the default configuration.
    pub fn new(seed: u64) -> SimMetal {
        SimMetal::builder(seed).build()
    }

    /// Configures a simulation: an M1 with little memory and small pages.
    pub fn builder(seed: u64) -> SimBuilder {
        SimBuilder {
            seed,
            properties: Properties {
                name: "Apple M1 (simulated)".into(),
                apple_family: 7,
                unified_memory: true,
                recommended_working_set: 1 << 30,
                max_buffer: 1 << 29,
                max_buffers: 100_000,
                max_threads: 1024,
                threadgroup_memory: 32 << 10,
                page_size: 4096,
                system: "simulation".into(),
            },
            kernels: HashMap::new(),
            compiler: None,
            failure: None,
            faults: Vec::new(),
            refuse: None,
            simd_width: SIMD_WIDTH,
            stepped: false,
        }
    }

    /// The edge, for [`MetalDevice::on`](crate::MetalDevice::on).
    pub fn edge(&self) -> Arc<dyn Metal> {
        Arc::new(self.clone())
    }

    /// The calls that Metal's validation layer would have rejected.
    pub fn misuse(&self) -> Vec<String> {
        lock(&self.0.engine).misuse.clone()
    }

    /// The number of calls so far that can be refused.
    pub fn calls(&self) -> u64 {
        lock(&self.0.engine).calls()
    }

    /// How often a pipeline was compiled.
    pub fn compilations(&self) -> u64 {
        lock(&self.0.engine).compilations
    }

    /// The live objects.
    pub fn alive(&self) -> Vec<String> {
        lock(&self.0.engine).objects.alive()
    }

    /// Calls the handlers of memory pressure.
    pub fn press(&self) {
        lock(&self.0.pressure).iter().for_each(|handler| handler());
    }

    /// Fails every command buffer that is committed from now on, or none: an application that goes to the
    /// background.
    pub fn set_outage(&self, code: Option<ErrorCode>) {
        lock(&self.0.engine).outage = code;
    }

    /// The buffers of the residency set.
    pub fn resident(&self) -> usize {
        let engine = lock(&self.0.engine);
        engine.objects.residents()
    }

    /// Runs until nothing is left to do.
    pub fn drain(&self) {
        while self.perform_step() {}
    }

    fn perform_step(&self) -> bool {
        let step = {
            let mut engine = lock(&self.0.engine);
            let step = engine.step();
            engine.busy += usize::from(matches!(step, Some(Some(_))));
            step
        };
        let Some(step) = step else { return false };
        if let Some(outside) = step {
            match outside {
                Outside::Handler(handler, outcome) => handler(outcome),
                Outside::Task(task) => task(),
            }
            lock(&self.0.engine).busy -= 1;
        }
        true
    }

    fn function(&self, text: &str, request: &PipelineRequest<'_>) -> Option<Result<SimFunction, String>> {
        let entry = request.entry;
        if let Some(function) = self.0.kernels.get(entry).cloned().or_else(|| kernel::known(entry))
            && text.contains(entry)
        {
            return Some(Ok(function));
        }
        let compiler = self.0.compiler.as_ref()?;
        compiler(&SimText { text, entry, constants: request.constants })
    }

    /// Changes an open encoder.
    fn encode(&self, encoder: Encoder, call: &str, change: impl FnOnce(&mut SimEncoder)) {
        let mut engine = lock(&self.0.engine);
        let name = engine.objects.name(encoder.0);
        match engine.objects.encoder(encoder.0) {
            Some(state) if state.open => change(state),
            _ => engine.misuse(format!("{call} on {name} after endEncoding")),
        }
    }

    /// Notes an object that an encoder names.
    fn encode_use(&self, encoder: Encoder, object: u64, call: &str) {
        let mut engine = lock(&self.0.engine);
        if let Some(commands) = engine.objects.encoder(encoder.0).map(|encoder| encoder.commands) {
            engine.use_object(commands, object, call);
        }
    }

    /// Adds an operation to a command buffer without an open encoder.
    fn encode_event(&self, commands: CommandBuffer, event: Event, call: &str, op: CommandOp) {
        let mut engine = lock(&self.0.engine);
        engine.use_object(commands.0, event.0, call);
        let name = engine.objects.name(commands.0);
        match engine.objects.commands(commands.0) {
            Some(state) if state.status != Status::Encoding => {
                engine.misuse(format!("{call} on {name} after its commit"));
            }
            Some(state) if state.open_encoder.is_some() => {
                engine.misuse(format!("{call} on {name} while an encoder is open"));
            }
            Some(state) => state.ops.push(op),
            None => {}
        }
    }
}

/// The message of a text with an `#error`, whose place follows `#line NUMBER "FILE"`.
fn refusal(text: &str) -> Option<String> {
    let (mut file, mut number) = ("program_source", 0);
    for line in text.lines() {
        number += 1;
        if let Some((first, name)) = line.strip_prefix("#line ").and_then(|rest| rest.split_once(' ')) {
            (file, number) = (name.trim_matches('"'), first.parse::<usize>().unwrap_or(1) - 1);
        }
        if let Some(what) = line.strip_prefix("#error ") {
            return Some(format!("{file}:{number}:2: error: {what}"));
        }
    }
    None
}

/// What an archive calls a pipeline.
fn archive_key(text: &str, request: &PipelineRequest<'_>) -> String {
    format!("{text:?} {:?} {:?} {:?}", request.entry, request.constants, request.max_threads)
}

// SAFETY: the engine runs a command buffer after its commit and in the order of the edge's table, calls each
// handler once from a step, and keeps owned memory mapped as long as it lives.
unsafe impl Metal for SimMetal {
    fn properties(&self) -> &Properties {
        &self.0.properties
    }

    fn new_buffer(&self, len: usize) -> Option<(Buffer, NonNull<u8>)> {
        let properties = &self.0.properties;
        let mut engine = lock(&self.0.engine);
        let fits = engine.objects.live_bytes.saturating_add(len) <= properties.recommended_working_set
            && len <= properties.max_buffer
            && engine.objects.live_buffers < properties.max_buffers;
        if !engine.allows(Call::NewBuffer) || !fits {
            return None;
        }
        let buffer = SimBuffer::new(len, 256)?;
        let address = buffer.address;
        Some((Buffer(engine.objects.add(SimObject::Buffer(buffer))), address))
    }

    unsafe fn new_buffer_no_copy(&self, host: NonNull<u8>, len: usize) -> Option<Buffer> {
        let page = self.0.properties.page_size;
        let mut engine = lock(&self.0.engine);
        if !host.as_ptr().addr().is_multiple_of(page) || !len.is_multiple_of(page) {
            engine.misuse(format!("newBufferWithBytesNoCopy of {len} bytes at {host:?} is no whole pages"));
            return None;
        }
        if !engine.allows(Call::NewBufferNoCopy) {
            return None;
        }
        Some(Buffer(engine.objects.add(SimObject::Buffer(SimBuffer::foreign(host, len)))))
    }

    fn new_queue(&self, max: usize) -> Option<Queue> {
        let mut engine = lock(&self.0.engine);
        let allowed = engine.allows(Call::NewQueue);
        allowed.then(|| Queue(engine.objects.add(SimObject::Queue { last_update: HashMap::new(), max })))
    }

    fn new_fence(&self) -> Option<Fence> {
        let mut engine = lock(&self.0.engine);
        engine.allows(Call::NewFence).then(|| Fence(engine.objects.add(SimObject::Fence)))
    }

    fn new_event(&self) -> Option<Event> {
        let mut engine = lock(&self.0.engine);
        engine.allows(Call::NewEvent).then(|| Event(engine.objects.add(SimObject::Event(0))))
    }

    unsafe fn event_value(&self, event: Event) -> u64 {
        lock(&self.0.engine).objects.event(event.0)
    }

    unsafe fn set_event_value(&self, event: Event, value: u64) {
        lock(&self.0.engine).set_event(event.0, value);
    }

    unsafe fn release(&self, object: Object) {
        lock(&self.0.engine).release(object.0);
    }

    unsafe fn command_buffer(&self, queue: Queue, _: &str) -> Option<CommandBuffer> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::CommandBuffer) {
            return None;
        }
        if !engine.objects.is_alive(queue.0) {
            let name = engine.objects.name(queue.0);
            engine.misuse(format!("commandBuffer on {name}, which was released"));
        }
        if let Some(Entry { kind: SimObject::Queue { max, .. }, used, .. }) = engine.objects.get(queue.0)
            && used >= max
        {
            let (name, used) = (engine.objects.name(queue.0), *used);
            engine.misuse(format!("{name} has {used} command buffers that have not completed: Metal blocks"));
        }
        let commands = SimCommands {
            queue: queue.0,
            ops: Vec::new(),
            open_encoder: None,
            status: Status::Encoding,
            handler: None,
            uses: Vec::new(),
            fault: None,
            failed: false,
            signals: false,
        };
        let id = engine.objects.add(SimObject::Commands(Box::new(commands)));
        engine.use_object(id, queue.0, "commandBuffer");
        Some(CommandBuffer(id))
    }

    unsafe fn encode_wait(&self, commands: CommandBuffer, event: Event, value: u64) {
        self.encode_event(commands, event, "encodeWaitForEvent", CommandOp::Wait(event.0, value));
    }

    unsafe fn encode_signal(&self, commands: CommandBuffer, event: Event, value: u64) {
        self.encode_event(commands, event, "encodeSignalEvent", CommandOp::Signal(event.0, value, false));
    }

    unsafe fn compute_encoder(&self, commands: CommandBuffer) -> Option<Encoder> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::ComputeEncoder) {
            return None;
        }
        let name = engine.objects.name(commands.0);
        let state = engine.objects.commands(commands.0)?;
        if state.open_encoder.is_some() || state.status != Status::Encoding {
            engine.misuse(format!(
                "computeCommandEncoder on {name}, which has an open encoder or is committed"
            ));
            return None;
        }
        let encoder = SimEncoder {
            commands: commands.0,
            open: true,
            slots: vec![Slot::Unset; INDICES],
            ..SimEncoder::default()
        };
        let id = engine.objects.add(SimObject::Encoder(Box::new(encoder)));
        engine.objects.commands(commands.0)?.open_encoder = Some(id);
        Some(Encoder(id))
    }

    unsafe fn wait_fence(&self, encoder: Encoder, fence: Fence) {
        self.encode_use(encoder, fence.0, "waitForFence");
        self.encode(encoder, "waitForFence", |encoder| encoder.waits.push(fence.0));
    }

    unsafe fn update_fence(&self, encoder: Encoder, fence: Fence) {
        self.encode_use(encoder, fence.0, "updateFence");
        self.encode(encoder, "updateFence", |encoder| encoder.updates.push(fence.0));
    }

    unsafe fn set_pipeline(&self, encoder: Encoder, pipeline: Pipeline) {
        self.encode_use(encoder, pipeline.0, "setComputePipelineState");
        self.encode(encoder, "setComputePipelineState", |encoder| encoder.pipeline = Some(pipeline.0));
    }

    unsafe fn set_buffer(&self, encoder: Encoder, buffer: Option<Buffer>, offset: usize, index: usize) {
        if let Some(buffer) = buffer {
            self.encode_use(encoder, buffer.0, "setBuffer");
            let mut engine = lock(&self.0.engine);
            if let Some(SimObject::Buffer(state)) = engine.objects.get(buffer.0).map(|entry| &entry.kind)
                && offset >= state.len
            {
                let len = state.len;
                engine.misuse(format!("setBuffer: offset {offset} is not inside of the {len} bytes"));
            }
        }
        if index >= INDICES {
            return lock(&self.0.engine).misuse(format!("setBuffer: there is no index {index}"));
        }
        let slot = buffer.map_or(Slot::Nil, |buffer| Slot::Buffer(buffer.0, offset));
        self.encode(encoder, "setBuffer", |encoder| encoder.slots[index] = slot);
    }

    unsafe fn set_bytes(&self, encoder: Encoder, bytes: &[u8], index: usize) {
        if index >= INDICES || bytes.is_empty() || bytes.len() > 4096 {
            let len = bytes.len();
            return lock(&self.0.engine).misuse(format!("setBytes: {len} bytes at index {index}"));
        }
        self.encode(encoder, "setBytes", |encoder| encoder.slots[index] = Slot::Bytes(bytes.to_vec()));
    }

    unsafe fn set_threadgroup_memory(&self, encoder: Encoder, len: usize, _: usize) {
        let most = self.0.properties.threadgroup_memory;
        if !len.is_multiple_of(16) || len > most {
            lock(&self.0.engine).misuse(format!("setThreadgroupMemoryLength: {len} bytes of {most}"));
        }
        self.encode(encoder, "setThreadgroupMemoryLength", |encoder| encoder.threadgroup_memory = len);
    }

    unsafe fn dispatch(&self, encoder: Encoder, grid: [u64; 3], threadgroup: [u64; 3]) {
        let mut engine = lock(&self.0.engine);
        let Some(state) = engine.objects.encoder(encoder.0) else { return };
        let (open, pipeline, epoch) = (state.open, state.pipeline, state.epoch);
        let (slots, label) = (state.slots.clone(), state.label.clone());
        if !open {
            return engine.misuse("dispatchThreads after endEncoding".into());
        }
        let Some(id) = pipeline else {
            return engine.misuse("dispatchThreads without a pipeline".into());
        };
        let Some(pipeline) = engine.objects.pipeline(id) else { return };
        let (name, most) = (pipeline.label.clone(), pipeline.max_threads as u64);
        let threads: u64 = threadgroup.iter().product();
        if threads == 0 || threads > most {
            return engine.misuse(format!("{name}: a threadgroup of {threads} threads, of {most} at most"));
        }
        if grid.contains(&0) {
            return engine.misuse(format!("{name}: the grid {grid:?} is empty"));
        }
        // A kernel uses the indices up to its constants, or to its last buffer.
        let set = |slot: &Slot| !matches!(slot, Slot::Unset);
        let last = slots.iter().position(|slot| matches!(slot, Slot::Bytes(_)));
        let last = last.or_else(|| slots.iter().rposition(set)).unwrap_or(0);
        if slots[..last].iter().any(|slot| !set(slot)) {
            engine.misuse(format!("{name}: a buffer index below {last} is not bound"));
        }
        let label = if label.is_empty() { name } else { label };
        let dispatch = SimDispatch { pipeline: id, slots, grid, threadgroup, epoch, label, ran: 0 };
        if let Some(state) = engine.objects.encoder(encoder.0) {
            state.dispatches.push(dispatch);
        }
    }

    unsafe fn barrier(&self, encoder: Encoder) {
        self.encode(encoder, "memoryBarrier", |encoder| encoder.epoch += 1);
    }

    unsafe fn signpost(&self, encoder: Encoder, label: &str) {
        self.encode(encoder, "insertDebugSignpost", |encoder| encoder.label = label.into());
    }

    unsafe fn end_encoding(&self, encoder: Encoder) {
        let mut ended = None;
        self.encode(encoder, "endEncoding", |encoder| {
            encoder.open = false;
            ended = Some(encoder.clone());
        });
        let Some(ended) = ended else { return };
        let mut engine = lock(&self.0.engine);
        if let Some(commands) = engine.objects.commands(ended.commands) {
            commands.open_encoder = None;
            commands.ops.push(CommandOp::Encode(ended));
        }
    }

    unsafe fn on_completed(&self, commands: CommandBuffer, handler: CompletedHandler) {
        let mut engine = lock(&self.0.engine);
        match engine.objects.commands(commands.0) {
            Some(state) if state.status == Status::Encoding => state.handler = Some(handler),
            _ => engine.misuse("addCompletedHandler after commit".into()),
        }
    }

    unsafe fn commit(&self, commands: CommandBuffer) {
        lock(&self.0.engine).commit(commands.0);
    }

    /// A line `#error TEXT` is the one error that this compiler knows.
    fn library_from_source(&self, text: &str, _: &LibraryOptions) -> Result<Library, String> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::Library) {
            return Err("the compiler service was interrupted".into());
        }
        if let Some(refusal) = refusal(text) {
            return Err(refusal);
        }
        Ok(Library(engine.objects.add(SimObject::Library(SimLibrary { text: text.into() }))))
    }

    unsafe fn function_names(&self, library: Library) -> Vec<String> {
        let engine = lock(&self.0.engine);
        let Some(SimObject::Library(library)) = engine.objects.get(library.0).map(|entry| &entry.kind) else {
            return Vec::new();
        };
        let mut names: Vec<String> = library
            .text
            .split("kernel void ")
            .skip(1)
            .filter_map(|rest| rest.split('(').next())
            .map(str::to_string)
            .chain(self.0.kernels.keys().filter(|name| library.text.contains(*name)).cloned())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    unsafe fn pipeline(
        &self,
        request: &PipelineRequest<'_>,
        archive: Option<Archive>,
    ) -> Result<(Pipeline, PipelineLimits), String> {
        let text = {
            let mut engine = lock(&self.0.engine);
            if !engine.allows(Call::Pipeline) {
                return Err("the compiler service was interrupted".into());
            }
            let Some(SimObject::Library(library)) =
                engine.objects.get(request.library.0).map(|entry| &entry.kind)
            else {
                return Err("no such library".into());
            };
            let text = library.text.clone();
            if let Some(archive) = archive {
                let known = match engine.objects.get(archive.0).map(|entry| &entry.kind) {
                    Some(SimObject::Archive(keys)) => keys.contains(&archive_key(&text, request)),
                    _ => false,
                };
                if !known {
                    return Err("the archive does not have the pipeline".into());
                }
            }
            text
        };
        let function = self.function(&text, request).unwrap_or_else(|| Err("no such function".into()))?;
        let most = self.0.properties.max_threads;
        let max_threads = request.max_threads.map_or(most, |threads| threads.min(most));
        let pipeline = SimPipeline { text, function, label: request.label.into(), max_threads };
        let mut engine = lock(&self.0.engine);
        engine.compilations += u64::from(archive.is_none());
        let id = engine.objects.add(SimObject::Pipeline(pipeline));
        Ok((
            Pipeline(id),
            PipelineLimits { max_threads, threadgroup_memory: 0, simd_width: self.0.simd_width },
        ))
    }

    fn archive(&self, path: Option<&Path>) -> Result<Archive, String> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::Archive) {
            return Err("no archive".into());
        }
        let mut keys = Vec::new();
        if let Some(path) = path {
            let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
            let mut lines = text.lines().map(str::to_string);
            if lines.next().as_deref() != Some(ARCHIVE_MAGIC) {
                return Err("not an archive".into());
            }
            keys = lines.collect();
        }
        Ok(Archive(engine.objects.add(SimObject::Archive(keys))))
    }

    unsafe fn archive_add(&self, archive: Archive, request: &PipelineRequest<'_>) -> Result<(), String> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::ArchiveAdd) {
            return Err("not added".into());
        }
        let Some(SimObject::Library(library)) =
            engine.objects.get(request.library.0).map(|entry| &entry.kind)
        else {
            return Err("no such library".into());
        };
        let key = archive_key(&library.text, request);
        if let Some(SimObject::Archive(keys)) = engine.objects.get_mut(archive.0).map(|entry| &mut entry.kind)
        {
            keys.push(key);
        }
        engine.compilations += 1;
        Ok(())
    }

    unsafe fn archive_save(&self, archive: Archive, path: &Path) -> Result<(), String> {
        let mut engine = lock(&self.0.engine);
        if !engine.allows(Call::ArchiveSave) {
            return Err("not saved".into());
        }
        let Some(SimObject::Archive(keys)) = engine.objects.get(archive.0).map(|entry| &entry.kind) else {
            return Err("no such archive".into());
        };
        let text = [&[ARCHIVE_MAGIC.to_string()], &keys[..]].concat().join("\n");
        fs::write(path, text).map_err(|error| error.to_string())
    }

    fn new_residency_set(&self) -> Option<ResidencySet> {
        let mut engine = lock(&self.0.engine);
        let allowed = engine.allows(Call::ResidencySet);
        allowed.then(|| ResidencySet(engine.objects.add(SimObject::ResidencySet(Vec::new()))))
    }

    unsafe fn use_residency_set(&self, _: Queue, _: ResidencySet) {}

    unsafe fn set_resident(&self, set: ResidencySet, buffers: &[Buffer], resident: bool) {
        let mut engine = lock(&self.0.engine);
        for buffer in buffers {
            let Some(SimObject::ResidencySet(members)) =
                engine.objects.get_mut(set.0).map(|entry| &mut entry.kind)
            else {
                return;
            };
            if members.contains(&buffer.0) == resident {
                engine.misuse(format!("buffer {} is added or removed twice", buffer.0));
            } else if resident {
                members.push(buffer.0);
            } else {
                members.retain(|member| *member != buffer.0);
            }
        }
    }

    fn on_memory_pressure(&self, handler: PressureHandler) {
        lock(&self.0.pressure).push(handler);
    }

    fn start_capture(&self, path: &Path) -> Result<(), String> {
        if !lock(&self.0.engine).allows(Call::Capture) {
            return Err("capturing is not enabled".into());
        }
        fs::write(path, "trace").map_err(|error| error.to_string())
    }

    fn stop_capture(&self) {}

    fn run_async(&self, task: Box<dyn FnOnce() + Send>) {
        lock(&self.0.engine).add_task(task);
    }

    fn step(&self) -> bool {
        if self.0.stepped {
            return false;
        }
        if self.perform_step() {
            return true;
        }
        // Another thread may be about to make more to do.
        let busy = lock(&self.0.engine).busy > 0;
        if busy {
            std::thread::yield_now();
        }
        busy
    }
}

impl Simulated for SimMetal {
    fn step(&self) -> bool {
        self.perform_step()
    }

    fn violations(&self) -> Vec<Violation> {
        lock(&self.0.engine).violations.clone()
    }

    fn is_empty(&self) -> bool {
        let engine = lock(&self.0.engine);
        engine.is_idle() && engine.objects.alive().is_empty()
    }

    fn fingerprint(&self) -> u64 {
        lock(&self.0.engine).fingerprint
    }

    fn is_refusal(&self, fault: &Fault) -> bool {
        fault.message() == "Metal refused a command buffer"
    }

    fn source(&self, label: &str, text: &str) -> PipelineSource {
        let entry = text.split(' ').next().unwrap_or_default();
        match text {
            // No threadgroup of the workload is so small.
            workload::FAILING_TEXT => {
                PipelineSource::new(label, crate::LANGUAGE, "mix 0").specialised("entry mix\nmax_threads 1")
            }
            _ => PipelineSource::new(label, crate::LANGUAGE, text)
                .specialised(format!("entry {entry}").as_str()),
        }
    }
}
