//! What the tests share: a runtime on the simulated Metal, kernels, and client tasks.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::{Arc, Mutex};

use hesper_metal::sim::{DeviceAblation, SimBuilder, SimMetal};
use hesper_metal::{MetalDevice, MetalOptions, MetalShared};
use hesper_runtime::sim::tasks::{self, Outcome, Task};
use hesper_runtime::sim::{Ablation, Simulated};
use hesper_runtime::{Buffer, CacheLimits, Error, HostMemory, PipelineSource, Runtime, Stream, Violation};

/// Elements of a buffer.
pub const LEN: usize = 24;

pub fn options() -> MetalOptions {
    MetalOptions { batch: 6, cache: None, signposts: false, ..MetalOptions::default() }
}

/// A simulation and a runtime on it.
pub struct World {
    pub metal: SimMetal,
    pub runtime: Runtime,
}

impl World {
    pub fn new(builder: SimBuilder) -> World {
        World::with(builder, options())
    }

    pub fn with(builder: SimBuilder, options: MetalOptions) -> World {
        let metal = builder.build();
        let runtime = Runtime::new(MetalDevice::on(metal.edge(), options).unwrap());
        World { metal, runtime }
    }

    /// A world with one mechanism of the runtime or of the device switched off, stepped by its tasks. Its
    /// cache holds one pipeline.
    pub fn ablated(seed: u64, ablation: Ablation, device: DeviceAblation) -> World {
        let metal = SimMetal::builder(seed).stepped().build();
        let options = MetalOptions { ablation: device, ..options() };
        let runtime = Runtime::builder(MetalDevice::on(metal.edge(), options).unwrap())
            .ablate(ablation)
            // It would refuse the work whose failure the simulation is to show.
            .validate(false)
            .pipelines(CacheLimits { count: 1, bytes: usize::MAX })
            .build();
        World { metal, runtime }
    }

    pub fn device(&self) -> Arc<MetalShared> {
        self.runtime.extension().unwrap().downcast().unwrap()
    }

    /// Encodes the kernel `text` over `inputs` and returns its output.
    pub fn mix(&self, stream: &Stream, text: &str, inputs: &[&Buffer]) -> Result<Buffer, Error> {
        mix(&self.runtime, stream, text, inputs)
    }

    /// Ends everything and asserts that nothing was misused or left behind.
    pub fn end(self, what: &str) {
        let World { metal, runtime } = self;
        let _ = runtime.synchronize();
        drop(runtime);
        metal.drain();
        assert_eq!(metal.misuse(), [] as [String; 0], "{what}");
        assert_eq!(metal.violations(), [], "{what}");
        assert_eq!(metal.alive(), [] as [String; 0], "{what}");
    }
}

/// Bytes in place of a mapped file.
pub struct MappedFile(pub Vec<u8>);

// SAFETY: the heap allocation does not move with the vector, which nothing else can change.
unsafe impl HostMemory for MappedFile {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

/// The source of a kernel `NAME K`; all of them share one label.
pub fn source(text: &str) -> PipelineSource {
    let entry = text.split(' ').next().unwrap();
    PipelineSource::new("layer", hesper_metal::LANGUAGE, text).specialised(format!("entry {entry}").as_str())
}

pub fn mix(runtime: &Runtime, stream: &Stream, text: &str, inputs: &[&Buffer]) -> Result<Buffer, Error> {
    let pipeline = runtime.pipeline(&source(text))?;
    let out = stream.alloc(4 * LEN)?;
    let mut command = stream.encode("mix").constants(&[0; 4]);
    for input in inputs {
        command = command.read_range(input, 0..4 * LEN);
    }
    command = command.write(&out);
    if text.starts_with("mix") {
        // SAFETY: the kernel writes every element, and reads none of them.
        command = unsafe { command.covering() };
    }
    command.dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])?;
    Ok(out)
}

pub fn elements(first: u32) -> Vec<u32> {
    (0..LEN as u32).map(|at| first.wrapping_mul(0x9e37_79b9).wrapping_add(at)).collect()
}

pub fn bytes(elements: &[u32]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_le_bytes()).collect()
}

/// The elements that a kernel `mix K` computes.
pub fn mixed(k: u32, inputs: &[&[u32]]) -> Vec<u32> {
    let at = |at: usize| hesper_runtime::sim::workload::mix(k, inputs.iter().map(|input| input[at]));
    (0..LEN).map(at).collect()
}

pub fn read(buffer: &Buffer) -> Result<Vec<u32>, Error> {
    Ok(buffer.read()?.as_slice::<u32>().unwrap().to_vec())
}

/// What became of concurrent tasks.
#[derive(Debug)]
pub struct Report {
    pub wrong: usize,
    pub errors: Vec<String>,
    pub violations: Vec<Violation>,
    pub misuse: Vec<String>,
    pub outcome: Outcome,
    pub left: Vec<String>,
}

impl Report {
    pub fn survived(&self) -> bool {
        self.wrong == 0
            && self.errors.is_empty()
            && self.violations.is_empty()
            && self.misuse.is_empty()
            && self.outcome == Outcome::default()
            && self.left.is_empty()
    }
}

/// Runs `count` tasks, scheduled by the seed with the GPU. A task returns whether its results are right.
pub fn run_tasks(
    world: World,
    seed: u64,
    count: usize,
    task: impl Fn(&Runtime, usize) -> Result<bool, Error> + Send + Sync + 'static,
) -> Report {
    let World { metal, runtime } = world;
    let sim: Arc<dyn Simulated> = Arc::new(metal.clone());
    let outcomes = Arc::new(Mutex::new((0, Vec::new())));
    let task = Arc::new(task);
    let list: Vec<Task> = (0..count)
        .map(|at| {
            let (runtime, task, outcomes) = (runtime.clone(), task.clone(), outcomes.clone());
            Box::new(move || {
                let outcome = task(&runtime, at);
                let mut outcomes = outcomes.lock().unwrap();
                match outcome {
                    Ok(right) => outcomes.0 += usize::from(!right),
                    Err(error) => outcomes.1.push(error.to_string()),
                }
            }) as Task
        })
        .collect();
    let outcome = tasks::run(&sim, seed, list);
    metal.drain();
    drop((runtime, task));
    metal.drain();
    let (wrong, errors) = std::mem::take(&mut *outcomes.lock().unwrap());
    Report {
        wrong,
        errors,
        violations: metal.violations(),
        misuse: metal.misuse(),
        outcome,
        left: metal.alive(),
    }
}
