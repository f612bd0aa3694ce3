//! A workload for the simulator: many decode-like tasks on shared weights.
//!
//! Each task chains kernels through temporaries whose handles it drops at once, updates in place, reads
//! results of other tasks on their streams, clears the memory pool, and requests kernels that share a
//! label and differ in text. With every buffer it keeps the elements that sequential execution computes:
//! those are the oracle.

use std::sync::{Arc, Mutex};

use super::tasks::{self, Outcome, Task};
use super::{Ablation, Rng, Sim, Simulated};
use crate::command::Dispatch;
use crate::native::View;
use crate::report::Violation;
use crate::source::PipelineSource;
use crate::state::{CacheLimits, Device};
use crate::{Buffer, Result, Runtime, Stream};

/// Elements of a buffer.
const LEN: usize = 24;
/// The constants of every kernel. Devices bind them behind the buffers.
const COUNT: [u8; 4] = (LEN as u32).to_le_bytes();
/// Weight matrices in the one stacked buffer.
const LAYERS: usize = 3;
/// The device refuses one submission in this many; the affected task then starts again.
pub const REFUSE_ONE_IN: usize = 12;
/// The text of a kernel that fails.
pub const FAILING_TEXT: &str = "fails on purpose";
/// Kernels that share the label `layer`.
const VARIANTS: u32 = 4;

/// The result of the kernel `mix K` for the values that it reads at one position.
pub fn mix(k: u32, values: impl IntoIterator<Item = u32>) -> u32 {
    values.into_iter().fold(k, |hash, value| hash.rotate_left(5).wrapping_mul(0x9e37_79b1) ^ value)
}

/// Runs kernels whose text is `mix K`: each element of the last binding becomes the mix of all bindings
/// that are read. `half K` leaves its second half unwritten; any other text is an error.
pub fn execute(
    source: &PipelineSource,
    _: &Dispatch,
    views: &mut [View<'_>],
) -> std::result::Result<(), String> {
    let (name, k) = source.text.as_str().split_once(' ').unwrap_or_default();
    let known = matches!(name, "mix" | "half").then(|| k.parse().ok()).flatten();
    let k = known.ok_or_else(|| source.text.as_str().to_string())?;
    let Some((out, inputs)) = views.split_last_mut() else { return Ok(()) };
    let keep = out.access().reads();
    let inputs: Vec<&[u32]> = inputs
        .iter()
        .map(|view| view.as_slice::<u32>())
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| error.message)?;
    let out = out.as_mut_slice::<u32>().map_err(|error| error.message)?;
    let count = if name == "half" { out.len() / 2 } else { out.len() };
    for (at, value) in out[..count].iter_mut().enumerate() {
        let old = keep.then_some(*value);
        *value = mix(k, inputs.iter().map(|input| input[at]).chain(old));
    }
    Ok(())
}

/// One run of the workload.
#[derive(Debug, Clone, Copy)]
pub struct Decode {
    /// Concurrent tasks, each with a stream of its own.
    pub tasks: usize,
    /// Steps of each task.
    pub steps: usize,
    /// The mechanism that is ablated.
    pub ablation: Ablation,
    /// Whether the validation layer is on.
    pub validate: bool,
    /// The seed of all other choices.
    pub seed: u64,
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Results that differ from sequential execution.
    pub wrong: Vec<String>,
    /// Errors of calls.
    pub errors: Vec<String>,
    /// Violations found by the simulator and the validation layer.
    pub violations: Vec<Violation>,
    /// The outcome of the tasks.
    pub outcome: Outcome,
    /// See [`Sim::fingerprint`].
    pub fingerprint: u64,
    /// Whether nothing is left on the device.
    pub clean: bool,
}

impl Verdict {
    /// Whether nothing went wrong.
    pub fn survived(&self) -> bool {
        self.wrong.is_empty()
            && self.errors.is_empty()
            && self.violations.is_empty()
            && self.outcome == Outcome::default()
            && self.clean
    }
}

/// A buffer and its expected elements.
#[derive(Clone)]
struct Checked {
    buffer: Buffer,
    elements: Vec<u32>,
}

/// The state shared by all tasks of a run.
struct World {
    runtime: Runtime,
    sim: Arc<dyn Simulated>,
    weights: Checked,
    published: Mutex<Vec<Checked>>,
    wrong: Mutex<Vec<String>>,
    errors: Mutex<Vec<String>>,
}

impl Decode {
    /// Runs the workload on a [`Sim`].
    pub fn run(&self) -> Verdict {
        // Every other run is on a discrete card.
        let sim = Sim::builder(self.seed)
            .batch(6)
            .refuse(REFUSE_ONE_IN)
            .unified_memory(self.seed.is_multiple_of(2))
            .build();
        self.run_on(sim.clone(), Arc::new(sim))
    }

    /// Runs the workload on a device that `sim` simulates.
    pub fn run_on(&self, device: impl Device, sim: Arc<dyn Simulated>) -> Verdict {
        let runtime = Runtime::builder(device)
            .ablate(self.ablation)
            .validate(self.validate)
            .pipelines(CacheLimits { count: 2, bytes: usize::MAX })
            .build();
        let report = runtime.validation();
        let mut rng = Rng::new(self.seed);
        let elements: Vec<u32> = (0..LEN * LAYERS).map(|_| rng.bits() as u32).collect();
        let mut outcome = Outcome::default();
        let (mut wrong, mut errors) = (Vec::new(), Vec::new());
        match runtime.upload(&elements) {
            Err(error) => errors.push(error.to_string()),
            Ok(buffer) => {
                let world = Arc::new(World {
                    runtime: runtime.clone(),
                    sim: sim.clone(),
                    weights: Checked { buffer, elements },
                    published: Mutex::default(),
                    wrong: Mutex::default(),
                    errors: Mutex::default(),
                });
                let list: Vec<Task> = (0..self.tasks)
                    .map(|task| {
                        let (world, steps, seed) = (world.clone(), self.steps, self.seed);
                        Box::new(move || {
                            if let Err(error) = decode(&world, task, steps, seed) {
                                world.errors.lock().expect("no task panics here").push(error.to_string());
                            }
                        }) as Task
                    })
                    .collect();
                outcome = tasks::run(&sim, self.seed, list);
                wrong = std::mem::take(&mut world.wrong.lock().expect("no task panics here"));
                errors = std::mem::take(&mut world.errors.lock().expect("no task panics here"));
            }
        }
        while sim.step() {}
        drop(runtime);
        while sim.step() {}
        let mut violations = sim.violations();
        violations.extend(report.iter().flat_map(|report| report.violations()));
        Verdict { wrong, errors, violations, outcome, fingerprint: sim.fingerprint(), clean: sim.is_empty() }
    }
}

/// One task: a chain of steps, checked at some steps and at its end.
fn decode(world: &World, task: usize, steps: usize, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(task as u64));
    let stream = world.runtime.stream()?;
    let mut x = upload(world, &mut rng)?;
    for step in 0..steps {
        let outcome = one_step(world, &stream, &mut rng, &mut x, (task, step));
        match outcome {
            Err(error) if is_refusal(world, &error) => x = upload(world, &mut rng)?,
            outcome => outcome?,
        }
    }
    match check(world, &x, (task, steps)) {
        Err(error) if is_refusal(world, &error) => Ok(()),
        outcome => outcome,
    }
}

/// Whether an error comes from a submission that the device refused.
fn is_refusal(world: &World, error: &crate::Error) -> bool {
    error.fault().is_some_and(|fault| world.sim.is_refusal(fault))
}

fn upload(world: &World, rng: &mut Rng) -> Result<Checked> {
    let elements: Vec<u32> = (0..LEN).map(|_| rng.bits() as u32).collect();
    Ok(Checked { buffer: world.runtime.upload(&elements)?, elements })
}

fn one_step(
    world: &World,
    stream: &Stream,
    rng: &mut Rng,
    x: &mut Checked,
    place: (usize, usize),
) -> Result<()> {
    match rng.below(18) {
        0..=4 => *x = layer(world, stream, rng, x)?,
        5 => *x = hidden_input(world, stream, rng, x)?,
        6 | 7 => *x = exchange(world, stream, rng, x)?,
        15 | 16 => {
            *x = two_streams(world, stream, rng, x)?;
            check(world, x, place)?;
        }
        8 if x.buffer.is_unique() => update(world, stream, rng, x)?,
        9 if world.runtime.info().native_commands => *x = native(stream, x)?,
        10 => *x = sparse(world, stream, x)?,
        11 => *x = after_a_failed_update(world, stream, x)?,
        12 => {
            // A host allocation takes retired blocks only.
            let fresh = upload(world, rng)?;
            *x = join(world, stream, rng, &fresh, x)?;
        }
        13 => world.runtime.clear_cache(),
        14 => check(world, x, place)?,
        _ => drop(stream.commit()?),
    }
    Ok(())
}

fn kernel(world: &World, rng: &mut Rng) -> Result<(u32, Arc<crate::Pipeline>)> {
    let k = rng.below(VARIANTS as usize) as u32;
    let source = world.sim.source("layer", &format!("mix {k}"));
    Ok((k, world.runtime.pipeline(&source)?))
}

/// Two kernels with a temporary between them, whose handle is dropped before anything runs; the weights
/// are a slice of one stacked buffer.
fn layer(world: &World, stream: &Stream, rng: &mut Rng, x: &Checked) -> Result<Checked> {
    let which = rng.below(LAYERS);
    let range = which * LEN * 4..(which + 1) * LEN * 4;
    let weights = &world.weights.elements[which * LEN..(which + 1) * LEN];
    let (k, pipeline) = kernel(world, rng)?;
    let temporary = stream.alloc_labelled(LEN * 4, "temporary")?;
    stream
        .encode("project")
        .read(&x.buffer)
        .read_range(&world.weights.buffer, range)
        .write(&temporary)
        .constants(&COUNT)
        .dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])?;
    let between: Vec<u32> = x.elements.iter().zip(weights).map(|(x, w)| mix(k, [*x, *w])).collect();
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "activation")?;
    stream.encode("activate").read(&temporary).read(&x.buffer).write(&out).constants(&COUNT).dispatch(
        &pipeline,
        [LEN as u64, 1, 1],
        [LEN as u64, 1, 1],
    )?;
    let elements = between.iter().zip(&x.elements).map(|(t, x)| mix(k, [*t, *x])).collect();
    Ok(Checked { buffer: out, elements })
}

/// An op with an input that only its command names: the one that the ablation of declared inputs hides.
fn hidden_input(world: &World, stream: &Stream, rng: &mut Rng, x: &Checked) -> Result<Checked> {
    let (k, pipeline) = kernel(world, rng)?;
    let hidden = stream.alloc_labelled(LEN * 4, "hidden")?;
    let size = [LEN as u64, 1, 1];
    stream
        .encode("prepare")
        .read(&x.buffer)
        .write(&hidden)
        .constants(&COUNT)
        .dispatch(&pipeline, size, size)?;
    let between: Vec<u32> = x.elements.iter().map(|x| mix(k, [*x])).collect();
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "activation")?;
    stream
        .encode("apply")
        .read(&hidden)
        .read(&x.buffer)
        .write(&out)
        .constants(&COUNT)
        .dispatch(&pipeline, size, size)?;
    let elements = between.iter().zip(&x.elements).map(|(h, x)| mix(k, [*h, *x])).collect();
    Ok(Checked { buffer: out, elements })
}

/// Publishes the result of this task, and reads that of another task on this stream.
fn exchange(world: &World, stream: &Stream, rng: &mut Rng, x: &Checked) -> Result<Checked> {
    let (other, replaced) = {
        let mut published = world.published.lock().expect("no task panics here");
        let replaced = (published.len() >= 4).then(|| published.remove(0));
        let count = published.len();
        let other = if count > 0 { Some(published[rng.below(count)].clone()) } else { None };
        published.push(x.clone());
        (other, replaced)
    };
    // Dropping a handle calls the runtime, so it happens outside of the lock.
    drop(replaced);
    let Some(other) = other else { return Ok(x.clone()) };
    join(world, stream, rng, &other, x)
}

/// Reads the result of a second stream twice, in separate submissions: the second read relies on the wait of
/// the first, which the device may have refused.
fn two_streams(world: &World, stream: &Stream, rng: &mut Rng, x: &Checked) -> Result<Checked> {
    let second = world.runtime.stream()?;
    let copy = second.alloc_labelled(LEN * 4, "copy")?;
    stream.commit()?;
    second.encode("copy").read(&x.buffer).write(&copy).copy()?;
    let copy = Checked { buffer: copy, elements: x.elements.clone() };
    second.commit()?;
    drop(join(world, stream, rng, &copy, x)?);
    stream.commit()?;
    join(world, stream, rng, &copy, x)
}

fn join(world: &World, stream: &Stream, rng: &mut Rng, other: &Checked, x: &Checked) -> Result<Checked> {
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "exchanged")?;
    let size = [LEN as u64, 1, 1];
    stream
        .encode("join")
        .read(&other.buffer)
        .read(&x.buffer)
        .write(&out)
        .constants(&COUNT)
        .dispatch(&pipeline, size, size)?;
    let elements = other.elements.iter().zip(&x.elements).map(|(o, x)| mix(k, [*o, *x])).collect();
    Ok(Checked { buffer: out, elements })
}

/// Updates a buffer in place whose only handle this task holds.
fn update(world: &World, stream: &Stream, rng: &mut Rng, x: &mut Checked) -> Result<()> {
    let (k, pipeline) = kernel(world, rng)?;
    let size = [LEN as u64, 1, 1];
    stream.encode("update").read_write(&x.buffer).constants(&COUNT).dispatch(&pipeline, size, size)?;
    x.elements.iter_mut().for_each(|x| *x = mix(k, [*x]));
    Ok(())
}

/// A native command.
fn native(stream: &Stream, x: &Checked) -> Result<Checked> {
    let out = stream.alloc_labelled(LEN * 4, "native")?;
    stream.encode("negate").read(&x.buffer).write(&out).run(|native| {
        let [from, to] = native.take()?;
        for (to, from) in to.as_mut_slice::<u32>()?.iter_mut().zip(from.as_slice::<u32>()?) {
            *to = !*from;
        }
        Ok(())
    })?;
    Ok(Checked { buffer: out, elements: x.elements.iter().map(|x| !x).collect() })
}

/// A command that leaves half of its output unwritten.
fn sparse(world: &World, stream: &Stream, x: &Checked) -> Result<Checked> {
    let out = stream.alloc_labelled(LEN * 4, "sparse")?;
    run(world, stream.encode("half").read(&x.buffer).write(&out), "half 1")?;
    let mut elements: Vec<u32> = x.elements.iter().map(|x| mix(1, [*x])).collect();
    elements[LEN / 2..].fill(0);
    Ok(Checked { buffer: out, elements })
}

/// A command, and a later one that fails while it updates the input of the first.
fn after_a_failed_update(world: &World, stream: &Stream, x: &Checked) -> Result<Checked> {
    let (copy, out) = (stream.alloc_labelled(LEN * 4, "copy")?, stream.alloc_labelled(LEN * 4, "good")?);
    stream.encode("copy").read(&x.buffer).write(&copy).copy()?;
    run(world, stream.encode("good").read(&copy).write(&out), "mix 2")?;
    run(world, stream.encode("fails").read_write(&copy), FAILING_TEXT)?;
    Ok(Checked { buffer: out, elements: x.elements.iter().map(|x| mix(2, [*x])).collect() })
}

fn run(world: &World, command: crate::Encoder<'_>, text: &str) -> Result<()> {
    let pipeline = world.runtime.pipeline(&world.sim.source("layer", text))?;
    command.constants(&COUNT).dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])
}

/// Compares a result with sequential execution.
fn check(world: &World, x: &Checked, (task, step): (usize, usize)) -> Result<()> {
    let guard = x.buffer.read()?;
    let elements = guard.as_slice::<u32>().unwrap_or_default();
    if elements != x.elements {
        let at = elements.iter().zip(&x.elements).position(|(a, b)| a != b).unwrap_or(0);
        let text = format!(
            "task {task}, step {step}: {:#x} instead of {:#x} at {at}",
            elements.get(at).copied().unwrap_or(0),
            x.elements[at]
        );
        world.wrong.lock().expect("no task panics here").push(text);
    }
    Ok(())
}
