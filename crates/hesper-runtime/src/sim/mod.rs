//! The simulated device: an adversarial scheduler with a seed.
//!
//! [`Sim`] executes commands on host memory, as late as possible and in any order that streams, waits and
//! barriers allow (or edges: the seed selects the form that it honours). Fresh and freed memory is filled
//! with a pattern, and freed memory is never unmapped, so that a use after free is a wrong number and a
//! [`Violation`], not a crash. Any call can be made to fail. Together with [`tasks::run`], which schedules
//! client tasks from the same seed, a run is a function of its seed: a race is a unit test that fails
//! every time.
//!
//! The oracle is sequential execution of the same program ([`workload`]), never the hazard tracker under
//! test.

mod engine;
mod memory;
mod rng;
pub mod tasks;
pub mod workload;

use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::ablation::Ablation;
pub use rng::Rng;

use crate::command::Dispatch;
use crate::error::Fault;
use crate::native::View;
use crate::raw::{CompiledPipeline, DeviceError, DeviceInfo, Progress, RawMemory, RawPipeline, RawStream};
use crate::report::{Rule, Violation};
use crate::source::PipelineSource;
use crate::state::{Device, Work};
use crate::sync::{Lock, Rank};
use engine::Engine;

/// Runs a dispatched kernel: its source, the dispatch and the views in binding order.
pub type Executor =
    Arc<dyn Fn(&PipelineSource, &Dispatch, &mut [View<'_>]) -> Result<(), String> + Send + Sync>;

/// A kind of device call, for fault injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Device::allocate`].
    Allocate,
    /// [`Device::compile`].
    Compile,
    /// [`Device::create_stream`].
    CreateStream,
    /// [`Device::submit`].
    Submit,
    /// The execution of one command.
    Run,
    /// The completion of one submission.
    Complete,
    /// [`Device::read`] and [`Device::write`], without unified memory.
    Transfer,
}

/// The call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The n-th call of a kind, counted from zero.
    Nth(Call, u64),
    /// The n-th call of any kind.
    Any(u64),
    /// The n-th call of any kind, which loses the device.
    Lose(u64),
}

/// A simulated device, as the scheduler of client tasks and the workloads see it. Device crates implement it
/// for their own simulations and run the same workloads.
pub trait Simulated: Send + Sync {
    /// Runs one step, chosen by the seed. False if there is nothing to do.
    fn step(&self) -> bool;

    /// The violations that the device detected.
    fn violations(&self) -> Vec<Violation>;

    /// Whether no memory, pipeline, stream or work is left.
    fn is_empty(&self) -> bool;

    /// A hash of every choice of the device: equal for equal runs.
    fn fingerprint(&self) -> u64;

    /// Whether a fault is the refusal of a submission, at random.
    fn is_refusal(&self, fault: &Fault) -> bool;

    /// The source of a kernel of [`workload`] in the device's language; see [`workload::execute`] for the
    /// texts. A kernel of [`workload::FAILING_TEXT`] fails its command, and no other.
    fn source(&self, label: &str, text: &str) -> PipelineSource;
}

/// The simulated device. Clones are handles to the same one, so that a test can inspect it.
#[derive(Clone)]
pub struct Sim {
    info: Arc<DeviceInfo>,
    engine: Arc<Lock<Engine>>,
}

/// Configures a [`Sim`].
pub struct SimBuilder {
    seed: u64,
    info: DeviceInfo,
    executor: Option<Executor>,
    failure: Option<Failure>,
    refuse: Option<usize>,
}

impl SimBuilder {
    /// The bytes that can be allocated at once.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.info.total_memory = bytes;
        self
    }

    /// Whether the host addresses the memory; false simulates a discrete card, which runs no host closures.
    pub fn unified_memory(mut self, unified: bool) -> Self {
        self.info.unified_memory = unified;
        self.info.native_commands = unified;
        self
    }

    /// The number of commands after which a submission is committed automatically.
    pub fn batch(mut self, commands: usize) -> Self {
        self.info.batch = commands;
        self
    }

    /// Sets the executor of dispatched kernels. Default: [`workload::execute`].
    pub fn executor(mut self, executor: Executor) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Makes one call fail.
    pub fn fail(mut self, failure: Failure) -> Self {
        self.failure = Some(failure);
        self
    }

    /// Refuses one submission in `refuse`, chosen by the seed.
    pub fn refuse(mut self, refuse: usize) -> Self {
        self.refuse = Some(refuse);
        self
    }

    /// Builds the device.
    pub fn build(self) -> Sim {
        let executor = self.executor.unwrap_or_else(|| Arc::new(workload::execute));
        let engine = Engine::new(self.seed, self.info.clone(), executor, self.failure, self.refuse);
        Sim { info: Arc::new(self.info), engine: Arc::new(Lock::new(Rank::Leaf, engine)) }
    }
}

impl Sim {
    /// A device with the default configuration.
    pub fn new(seed: u64) -> Sim {
        Sim::builder(seed).build()
    }

    /// Configures a device.
    pub fn builder(seed: u64) -> SimBuilder {
        SimBuilder {
            seed,
            info: DeviceInfo {
                name: "sim".into(),
                kind: "sim",
                unified_memory: true,
                native_commands: true,
                total_memory: 1 << 30,
                alignment: 64,
                max_buffer: 1 << 40,
                multiprocessors: 1,
                max_threads_per_group: 1024,
                simd_width: 32,
                shared_memory: 0,
                batch: 16,
                max_in_flight: 8,
            },
            executor: None,
            failure: None,
            refuse: None,
        }
    }

    /// The violations that the device detected.
    pub fn violations(&self) -> Vec<Violation> {
        self.engine.lock().violations.clone()
    }

    /// The number of calls so far that can be made to fail.
    pub fn calls(&self) -> u64 {
        self.engine.lock().calls()
    }

    /// Whether no memory, pipeline, stream or work is left.
    pub fn is_empty(&self) -> bool {
        self.engine.lock().is_empty()
    }

    /// A hash of every choice of the device: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.engine.lock().fingerprint
    }

    /// The largest number of bytes allocated at once.
    pub fn peak(&self) -> usize {
        self.engine.lock().memory.peak
    }

    /// Runs a command or finishes a submission, chosen by the seed. False if there is nothing to do.
    pub fn step(&self) -> bool {
        let Some(step) = self.engine.lock().choose() else { return false };
        self.perform(step);
        true
    }

    fn perform(&self, step: engine::Step) {
        match step {
            engine::Step::Run { mut work, position, stream } => {
                let kernel = self.engine.lock().prepare(&work, position);
                engine::run(&mut work, position, kernel);
                self.engine.lock().put_back(stream, work, position);
            }
            engine::Step::Finish { work, error, stream } => {
                let index = work.index();
                match error {
                    None => work.finish(),
                    Some(error) => work.fail(&error),
                }
                self.engine.lock().finished(stream, index);
            }
        }
    }
}

impl Simulated for Sim {
    fn step(&self) -> bool {
        Sim::step(self)
    }

    fn violations(&self) -> Vec<Violation> {
        Sim::violations(self)
    }

    fn is_empty(&self) -> bool {
        Sim::is_empty(self)
    }

    fn fingerprint(&self) -> u64 {
        Sim::fingerprint(self)
    }

    fn is_refusal(&self, fault: &Fault) -> bool {
        fault.message() == engine::REFUSAL
    }

    fn source(&self, label: &str, text: &str) -> PipelineSource {
        PipelineSource::new(label, "mix", text)
    }
}

// SAFETY: the engine runs a command only when its order allows it, and allocated memory stays mapped for
// as long as the engine lives.
unsafe impl Device for Sim {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        self.engine.lock().allocate(len)
    }

    unsafe fn free(&self, memory: RawMemory) {
        self.engine.lock().free(memory);
    }

    unsafe fn import(&self, host: NonNull<u8>, len: usize) -> Result<RawMemory, DeviceError> {
        if !self.info.unified_memory {
            return Err(DeviceError::Unsupported("import of host memory"));
        }
        Ok(self.engine.lock().memory.import(host, len))
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        self.engine.lock().transfer(memory, offset, engine::Transfer::Read(out))
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.engine.lock().transfer(memory, offset, engine::Transfer::Write(data))
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        self.engine.lock().create_stream()
    }

    unsafe fn destroy_stream(&self, stream: RawStream) {
        self.engine.lock().destroy_stream(stream);
    }

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        // Compilation takes time: let other tasks run.
        crate::sync::coop::pause();
        self.engine.lock().compile(source)
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        self.engine.lock().release(pipeline);
    }

    unsafe fn submit(&self, stream: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        self.engine.lock().submit(stream, work)
    }

    fn wait(&self, stream: RawStream, index: u64) -> Progress {
        loop {
            // Read all state in one critical section: otherwise another thread could pass its step to this
            // one in between.
            let (step, busy) = {
                let mut engine = self.engine.lock();
                if engine.is_done(stream, index) {
                    return Progress::Done;
                }
                (engine.choose(), engine.is_busy())
            };
            match step {
                Some(step) => {
                    self.perform(step);
                    crate::sync::coop::pause();
                }
                None if busy && !crate::sync::coop::active() => crate::sync::yield_now(),
                None => return Progress::Delegated,
            }
        }
    }

    fn poll(&self) {
        self.step();
    }
}

pub(crate) fn violation(rule: Rule, command: &str, what: String) -> Violation {
    Violation::new(rule, command, what)
}
