//! The calls of Metal on the simulation. Misuse is reported as Metal's validation layer does.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::ptr::NonNull;

use hesper_runtime::Rule;

use super::objects::{
    CommandOp, Entry, SimBuffer, SimCommands, SimDispatch, SimEncoder, SimLibrary, SimObject, SimPipeline,
    Slot, Status,
};
use super::{Call, SimFunction, SimFunctions, SimMetal, SimText, kernel};
use crate::edge::*;
use crate::host::lock;

/// The number of buffer indices of a kernel.
const INDICES: usize = 31;
/// The first line of an archive's file.
const ARCHIVE_MAGIC: &str = "simulated archive";

thread_local! {
    /// The autorelease pools of this thread.
    static POOLS: Cell<usize> = const { Cell::new(0) };
}

impl SimMetal {
    /// The functions of a text: kernels of the simulation that it names, or what the compiler makes of it.
    fn functions(&self, text: &str, constants: &[FunctionConstant]) -> Result<SimFunctions, String> {
        let own = self.0.kernels.iter().map(|(name, function)| (name.as_str(), function.clone()));
        let named: HashMap<String, SimFunction> = own
            .chain(kernel::known(text))
            .filter(|(name, _)| text.contains(name))
            .map(|(name, function)| (name.to_string(), function))
            .collect();
        match &self.0.compiler {
            Some(compiler) if named.is_empty() => compiler(&SimText { text, constants }),
            _ => Ok(SimFunctions { functions: named, unspecialised: HashMap::new() }),
        }
    }

    /// A library's text.
    fn library_text(&self, library: Library) -> Option<String> {
        match lock(&self.0.engine).objects.get(library.0).map(|entry| &entry.kind) {
            Some(SimObject::Library(library)) => Some(library.text.clone()),
            _ => None,
        }
    }

    /// Changes an open encoder.
    fn encode(&self, encoder: Encoder, call: &str, change: impl FnOnce(&mut SimEncoder)) {
        let mut engine = lock(&self.0.engine);
        if POOLS.get() == 0 {
            engine.misuse(format!("{call} outside of an autorelease pool"));
        }
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
        if len == 0 || len > properties.max_buffer {
            engine.misuse(format!("newBuffer: {len} bytes, of {} at most", properties.max_buffer));
            return None;
        }
        let fits = engine.objects.live_bytes.saturating_add(len) <= properties.recommended_working_set
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
        if len > self.0.properties.max_buffer {
            engine.misuse(format!("newBufferWithBytesNoCopy of {len} bytes is too long"));
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
            number: 0,
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
        let mut updated = false;
        self.encode(encoder, "waitForFence", |encoder| {
            updated = encoder.updates.contains(&fence.0);
            encoder.waits.push(fence.0);
        });
        if updated {
            lock(&self.0.engine).misuse("waitForFence behind updateFence of the same encoder".into());
        }
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

    unsafe fn set_threadgroup_memory(&self, encoder: Encoder, len: usize, index: usize) {
        let most = self.0.properties.threadgroup_memory;
        if !len.is_multiple_of(16) || len > most || index >= INDICES {
            let what = format!("setThreadgroupMemoryLength: {len} bytes of {most} at index {index}");
            return lock(&self.0.engine).misuse(what);
        }
        self.encode(encoder, "setThreadgroupMemoryLength", |encoder| {
            encoder.threadgroup_memory.insert(index, len);
        });
    }

    unsafe fn dispatch(&self, encoder: Encoder, grid: [u64; 3], threadgroup: [u64; 3]) {
        let mut engine = lock(&self.0.engine);
        let Some(state) = engine.objects.encoder(encoder.0) else { return };
        let (open, pipeline, epoch) = (state.open, state.pipeline, state.epoch);
        let (slots, label) = (state.slots.clone(), state.label.clone());
        let threadgroup_memory = state.threadgroup_memory.clone();
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
        let declared = pipeline.function.as_ref().map_or(0, |function| function.threadgroup_memory);
        let shared = threadgroup_memory.values().sum::<usize>() + declared;
        if shared > self.0.properties.threadgroup_memory {
            return engine.misuse(format!("{name}: {shared} bytes of threadgroup memory"));
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
        let dispatch =
            SimDispatch { pipeline: id, slots, grid, threadgroup, threadgroup_memory, epoch, label, ran: 0 };
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
            Some(state) if state.handler.is_some() => engine.misuse("a second completed handler".into()),
            Some(state) if state.status == Status::Encoding => state.handler = Some(handler),
            _ => engine.misuse("addCompletedHandler after commit".into()),
        }
    }

    unsafe fn commit(&self, commands: CommandBuffer) {
        lock(&self.0.engine).commit(commands.0);
    }

    fn library_from_source(&self, text: &str, options: &LibraryOptions) -> Result<Library, String> {
        if !lock(&self.0.engine).allows(Call::Library) {
            return Err("the compiler service was interrupted".into());
        }
        let mut whole = String::new();
        for (name, value) in &options.macros {
            let _ = writeln!(whole, "#define {name} {value}");
        }
        if !whole.is_empty() {
            whole.push_str("#line 1 \"program_source\"\n");
        }
        whole.push_str(text);
        let functions = self.functions(&whole, &[])?;
        let library = SimLibrary { text: whole, functions };
        Ok(Library(lock(&self.0.engine).objects.add(SimObject::Library(library))))
    }

    unsafe fn function_names(&self, library: Library) -> Vec<String> {
        let engine = lock(&self.0.engine);
        let Some(SimObject::Library(library)) = engine.objects.get(library.0).map(|entry| &entry.kind) else {
            return Vec::new();
        };
        let SimFunctions { functions, unspecialised } = &library.functions;
        let mut names: Vec<String> = functions.keys().chain(unspecialised.keys()).cloned().collect();
        names.sort();
        names
    }

    unsafe fn pipeline(
        &self,
        request: &PipelineRequest<'_>,
        archive: Option<Archive>,
    ) -> Result<(Pipeline, PipelineLimits), String> {
        let (text, functions) = {
            let mut engine = lock(&self.0.engine);
            if !engine.allows(Call::Pipeline) {
                return Err("the compiler service was interrupted".into());
            }
            let Some(SimObject::Library(library)) =
                engine.objects.get(request.library.0).map(|entry| &entry.kind)
            else {
                return Err("no such library".into());
            };
            if let Some(archive) = archive {
                let known = match engine.objects.get(archive.0).map(|entry| &entry.kind) {
                    Some(SimObject::Archive(keys)) => keys.contains(&archive_key(&library.text, request)),
                    _ => false,
                };
                if !known {
                    return Err("the archive does not have the pipeline".into());
                }
            }
            (library.text.clone(), library.functions.clone())
        };
        let functions = match request.constants {
            [] => functions,
            constants => self.functions(&text, constants)?,
        };
        if let Some(message) = functions.unspecialised.get(request.entry) {
            return Err(message.clone());
        }
        let function = functions.functions.get(request.entry).cloned().ok_or("no such function")?;
        let most = self.0.properties.max_threads;
        let max_threads = request.max_threads.map_or(most, |threads| threads.min(most));
        let limits = PipelineLimits {
            max_threads,
            threadgroup_memory: function.threadgroup_memory,
            simd_width: self.0.simd_width,
        };
        let pipeline =
            SimPipeline { text, function: Some(function), label: request.label.into(), max_threads };
        let mut engine = lock(&self.0.engine);
        engine.compilations += u64::from(archive.is_none());
        Ok((Pipeline(engine.objects.add(SimObject::Pipeline(pipeline))), limits))
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
        if !lock(&self.0.engine).allows(Call::ArchiveAdd) {
            return Err("not added".into());
        }
        let text = self.library_text(request.library).ok_or("no such library")?;
        let key = archive_key(&text, request);
        let mut engine = lock(&self.0.engine);
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

    unsafe fn use_residency_set(&self, queue: Queue, set: ResidencySet) {
        let mut engine = lock(&self.0.engine);
        for object in [queue.0, set.0] {
            if !engine.objects.is_alive(object) {
                let name = engine.objects.name(object);
                engine.misuse(format!("addResidencySet: {name} was released"));
            }
        }
    }

    unsafe fn set_resident(&self, set: ResidencySet, buffers: &[Buffer], resident: bool) {
        let mut engine = lock(&self.0.engine);
        for buffer in buffers {
            if !engine.objects.is_alive(buffer.0) {
                let name = engine.objects.name(buffer.0);
                engine.misuse(format!("residency set: {name} was released"));
            }
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

    fn pooled(&self, task: &mut dyn FnMut()) {
        POOLS.set(POOLS.get() + 1);
        task();
        POOLS.set(POOLS.get() - 1);
    }

    fn access_on_host(&self, buffers: &mut dyn Iterator<Item = Buffer>) -> Result<(), String> {
        let mut engine = lock(&self.0.engine);
        let mut released = buffers.filter(|buffer| engine.objects.is_released(buffer.0));
        let Some(released) = released.next() else { return Ok(()) };
        let what = format!("uses {} after it was released", engine.objects.name(released.0));
        engine.violate(Rule::Retention, "native command", what.clone());
        Err(what)
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
