//! A simulated Metal: the [edge](crate::edge) on host memory, with a seed.
//!
//! It takes every freedom that Metal has. Dispatches of an encoder run in parts and in any order that
//! barriers allow, encoders of a queue in any order that fences allow, command buffers of different queues
//! interleaved; completion handlers are called late and in any order; a command buffer may fail before it has
//! waited for anything, and one that failed later may or may not signal its events. Objects are destroyed
//! when they are released: a command that names one is reported. Calls that Metal's validation layer rejects
//! are reported, too. Any call can be refused and any command buffer can fail. A run is a function of its
//! seed.
//!
//! This file configures a simulation and observes it. `calls` has the calls of the edge, `engine` what can
//! happen next, `objects` what there is, `kernel` and [`language`] what kernels compute.

mod calls;
mod engine;
mod kernel;
pub mod language;
mod objects;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hesper_runtime::sim::{Simulated, workload};
use hesper_runtime::{Fault, PipelineSource, Violation};

pub use crate::ablation::DeviceAblation;
pub use crate::edge::ErrorCode;
use crate::edge::{Metal, PressureHandler, Properties, SIMD_WIDTH};
use crate::host::lock;
use engine::{Engine, Outside};
pub use kernel::{Launch, SimCompiler, SimFunction, SimFunctions, SimKernel, SimText};

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
    late: Vec<u64>,
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
        self.kernels.insert(name.into(), SimFunction::divisible(Arc::new(run)));
        self
    }

    /// Sets a compiler for texts that name no kernel of the simulation.
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

    /// Calls the completion handler of a command buffer, by its number in the order of commits, only when
    /// nothing else is left to do.
    pub fn late(mut self, command_buffer: u64) -> Self {
        self.late.push(command_buffer);
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
        let engine = Engine::new(self.seed, self.failure, self.faults, self.refuse, self.late);
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
            late: Vec::new(),
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

    /// Bytes of memory that buffers hold.
    pub fn held_bytes(&self) -> usize {
        lock(&self.0.engine).objects.held_bytes()
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
