//! A workload for the simulator: many decode-like tasks on shared weights.
//!
//! Each task chains kernels through temporaries whose handles it drops at once, updates in place,
//! reads what other tasks computed on their streams, clears caches under everybody's feet, and asks for
//! kernels that share a label and differ in their text. Beside every buffer it keeps the numbers that
//! sequential execution gives: those are the oracle.

use std::sync::{Arc, Mutex};

use super::tasks::{self, Outcome, Task};
use super::{Ablation, Rng, Sim};
use crate::native::View;
use crate::pipeline::{CacheLimits, PipelineSource};
use crate::validate::Violation;
use crate::work::Dispatch;
use crate::{Buffer, Result, Runtime, Stream};

/// Elements of a buffer.
const LEN: usize = 24;
/// Weight matrices in the one stacked buffer.
const LAYERS: usize = 3;
/// The device refuses one submission in so many: whoever computed with it starts again, and all goes on.
const REFUSED: usize = 12;
/// The text of a kernel that fails.
const ON_PURPOSE: &str = "fails on purpose";
/// Kernels that share the label `layer`.
const VARIANTS: u32 = 4;

/// What the kernel `mix K` computes of the values it reads at one position.
pub fn mix(k: u32, values: impl IntoIterator<Item = u32>) -> u32 {
    values.into_iter().fold(k, |hash, value| hash.rotate_left(5).wrapping_mul(0x9e37_79b1) ^ value)
}

/// Runs kernels whose text is `mix K`: the last binding gets, element by element, the mix of all
/// bindings that are read. `half K` leaves the second half of it unwritten; any other text is an error.
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
    /// The mechanism that is switched off.
    pub ablation: Ablation,
    /// Whether the validation layer looks on.
    pub validate: bool,
    /// Decides everything else.
    pub seed: u64,
}

/// What became of a run.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Results that differ from sequential execution.
    pub wrong: Vec<String>,
    /// Calls that were answered with an error.
    pub errors: Vec<String>,
    /// What simulator and validation layer noticed.
    pub violations: Vec<Violation>,
    /// How the tasks ended.
    pub outcome: Outcome,
    /// See [`Sim::fingerprint`].
    pub fingerprint: u64,
    /// Whether everything was given back.
    pub clean: bool,
}

impl Verdict {
    /// Whether nothing at all went wrong.
    pub fn survived(&self) -> bool {
        self.wrong.is_empty()
            && self.errors.is_empty()
            && self.violations.is_empty()
            && self.outcome == Outcome::default()
            && self.clean
    }
}

/// A buffer and the numbers that must be in it.
#[derive(Clone)]
struct Known {
    buffer: Buffer,
    numbers: Vec<u32>,
}

/// What all tasks of a run share.
struct World {
    runtime: Runtime,
    weights: Known,
    published: Mutex<Vec<Known>>,
    wrong: Mutex<Vec<String>>,
    errors: Mutex<Vec<String>>,
}

impl Decode {
    /// Runs it.
    pub fn run(&self) -> Verdict {
        // Every other run is on a discrete card, whose memory the host cannot see.
        let sim = Sim::builder(self.seed)
            .batch(6)
            .refuse(REFUSED)
            .host_visible(self.seed.is_multiple_of(2))
            .build();
        let runtime = Runtime::builder(sim.clone())
            .ablate(self.ablation)
            .validate(self.validate)
            .pipelines(CacheLimits { count: 2, bytes: usize::MAX })
            .build();
        let report = runtime.validation();
        let mut rng = Rng::new(self.seed);
        let numbers: Vec<u32> = (0..LEN * LAYERS).map(|_| rng.bits() as u32).collect();
        let mut outcome = Outcome::default();
        let (mut wrong, mut errors) = (Vec::new(), Vec::new());
        match runtime.upload(&numbers) {
            Err(error) => errors.push(error.to_string()),
            Ok(buffer) => {
                let world = Arc::new(World {
                    runtime: runtime.clone(),
                    weights: Known { buffer, numbers },
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

/// One task: a chain of steps, checked now and then and at its end.
fn decode(world: &World, task: usize, steps: usize, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed.wrapping_mul(31).wrapping_add(task as u64));
    let stream = world.runtime.stream()?;
    let mut x = upload(world, &mut rng)?;
    for step in 0..steps {
        let outcome = one_step(world, &stream, &mut rng, &mut x, (task, step));
        match outcome {
            Err(error) if is_refusal(&error) => x = upload(world, &mut rng)?,
            outcome => outcome?,
        }
    }
    match check(world, &x, (task, steps)) {
        Err(error) if is_refusal(&error) => Ok(()),
        outcome => outcome,
    }
}

/// Whether an error comes from a submission that the device refused.
fn is_refusal(error: &crate::Error) -> bool {
    error.fault().is_some_and(|fault| fault.message() == super::engine::REFUSAL)
}

fn upload(world: &World, rng: &mut Rng) -> Result<Known> {
    let numbers: Vec<u32> = (0..LEN).map(|_| rng.bits() as u32).collect();
    Ok(Known { buffer: world.runtime.upload(&numbers)?, numbers })
}

fn one_step(
    world: &World,
    stream: &Stream,
    rng: &mut Rng,
    x: &mut Known,
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
        9 if world.runtime.info().host_visible => *x = native(stream, x)?,
        10 => *x = sparse(world, stream, x)?,
        11 => *x = after_a_failed_update(world, stream, x)?,
        12 => {
            // The host takes memory that nothing uses any more.
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
    let source = PipelineSource::new("layer", "mix", format!("mix {k}").as_str());
    Ok((k, world.runtime.pipeline(&source)?))
}

/// Two kernels with a temporary between them, whose handle is dropped before anything has run; the
/// weights are a slice of one stacked buffer.
fn layer(world: &World, stream: &Stream, rng: &mut Rng, x: &Known) -> Result<Known> {
    let which = rng.below(LAYERS);
    let range = which * LEN * 4..(which + 1) * LEN * 4;
    let weights = &world.weights.numbers[which * LEN..(which + 1) * LEN];
    let (k, pipeline) = kernel(world, rng)?;
    let temporary = stream.alloc_labelled(LEN * 4, "temporary")?;
    stream
        .encode("project")
        .read(&x.buffer)
        .read_range(&world.weights.buffer, range)
        .write(&temporary)
        .dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])?;
    let between: Vec<u32> = x.numbers.iter().zip(weights).map(|(x, w)| mix(k, [*x, *w])).collect();
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "activation")?;
    stream.encode("activate").read(&temporary).read(&x.buffer).write(&out).dispatch(
        &pipeline,
        [LEN as u64, 1, 1],
        [LEN as u64, 1, 1],
    )?;
    let numbers = between.iter().zip(&x.numbers).map(|(t, x)| mix(k, [*t, *x])).collect();
    Ok(Known { buffer: out, numbers })
}

/// An op with an input that nothing but its command names: the one that the ablation of declared inputs hides.
fn hidden_input(world: &World, stream: &Stream, rng: &mut Rng, x: &Known) -> Result<Known> {
    let (k, pipeline) = kernel(world, rng)?;
    let hidden = stream.alloc_labelled(LEN * 4, "hidden")?;
    let size = [LEN as u64, 1, 1];
    stream.encode("prepare").read(&x.buffer).write(&hidden).dispatch(&pipeline, size, size)?;
    let between: Vec<u32> = x.numbers.iter().map(|x| mix(k, [*x])).collect();
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "activation")?;
    stream.encode("apply").read(&hidden).read(&x.buffer).write(&out).dispatch(&pipeline, size, size)?;
    let numbers = between.iter().zip(&x.numbers).map(|(h, x)| mix(k, [*h, *x])).collect();
    Ok(Known { buffer: out, numbers })
}

/// Publishes what this task has, and reads what another published from its own stream.
fn exchange(world: &World, stream: &Stream, rng: &mut Rng, x: &Known) -> Result<Known> {
    let (other, replaced) = {
        let mut published = world.published.lock().expect("no task panics here");
        let replaced = (published.len() >= 4).then(|| published.remove(0));
        let count = published.len();
        let other = if count > 0 { Some(published[rng.below(count)].clone()) } else { None };
        published.push(x.clone());
        (other, replaced)
    };
    // Dropping a handle calls the runtime, so not under the lock.
    drop(replaced);
    let Some(other) = other else { return Ok(x.clone()) };
    join(world, stream, rng, &other, x)
}

/// Reads what a second stream computes, twice, in submissions of their own: the second read counts on the wait of the
/// first, which the device may have refused.
fn two_streams(world: &World, stream: &Stream, rng: &mut Rng, x: &Known) -> Result<Known> {
    let second = world.runtime.stream()?;
    let copy = second.alloc_labelled(LEN * 4, "copy")?;
    stream.commit()?;
    second.encode("copy").read(&x.buffer).write(&copy).copy()?;
    let copy = Known { buffer: copy, numbers: x.numbers.clone() };
    second.commit()?;
    drop(join(world, stream, rng, &copy, x)?);
    stream.commit()?;
    join(world, stream, rng, &copy, x)
}

fn join(world: &World, stream: &Stream, rng: &mut Rng, other: &Known, x: &Known) -> Result<Known> {
    let (k, pipeline) = kernel(world, rng)?;
    let out = stream.alloc_labelled(LEN * 4, "exchanged")?;
    let size = [LEN as u64, 1, 1];
    stream.encode("join").read(&other.buffer).read(&x.buffer).write(&out).dispatch(&pipeline, size, size)?;
    let numbers = other.numbers.iter().zip(&x.numbers).map(|(o, x)| mix(k, [*o, *x])).collect();
    Ok(Known { buffer: out, numbers })
}

/// Updates in place what nobody else holds.
fn update(world: &World, stream: &Stream, rng: &mut Rng, x: &mut Known) -> Result<()> {
    let (k, pipeline) = kernel(world, rng)?;
    let size = [LEN as u64, 1, 1];
    stream.encode("update").read_write(&x.buffer).dispatch(&pipeline, size, size)?;
    x.numbers.iter_mut().for_each(|x| *x = mix(k, [*x]));
    Ok(())
}

/// A native command.
fn native(stream: &Stream, x: &Known) -> Result<Known> {
    let out = stream.alloc_labelled(LEN * 4, "native")?;
    stream.encode("negate").read(&x.buffer).write(&out).run(|native| {
        let [from, to] = native.take()?;
        for (to, from) in to.as_mut_slice::<u32>()?.iter_mut().zip(from.as_slice::<u32>()?) {
            *to = !*from;
        }
        Ok(())
    })?;
    Ok(Known { buffer: out, numbers: x.numbers.iter().map(|x| !x).collect() })
}

/// A command that leaves half of what it binds unwritten.
fn sparse(world: &World, stream: &Stream, x: &Known) -> Result<Known> {
    let out = stream.alloc_labelled(LEN * 4, "sparse")?;
    run(world, stream.encode("half").read(&x.buffer).write(&out), "half 1")?;
    let mut numbers: Vec<u32> = x.numbers.iter().map(|x| mix(1, [*x])).collect();
    numbers[LEN / 2..].fill(0);
    Ok(Known { buffer: out, numbers })
}

/// A command, and a later one that fails to update what the first has read.
fn after_a_failed_update(world: &World, stream: &Stream, x: &Known) -> Result<Known> {
    let (copy, out) = (stream.alloc_labelled(LEN * 4, "copy")?, stream.alloc_labelled(LEN * 4, "good")?);
    stream.encode("copy").read(&x.buffer).write(&copy).copy()?;
    run(world, stream.encode("good").read(&copy).write(&out), "mix 2")?;
    run(world, stream.encode("fails").read_write(&copy), ON_PURPOSE)?;
    Ok(Known { buffer: out, numbers: x.numbers.iter().map(|x| mix(2, [*x])).collect() })
}

fn run(world: &World, command: crate::Encoder<'_>, text: &str) -> Result<()> {
    let pipeline = world.runtime.pipeline(&PipelineSource::new("layer", "mix", text))?;
    command.dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])
}

/// Compares what the device computed with sequential execution.
fn check(world: &World, x: &Known, (task, step): (usize, usize)) -> Result<()> {
    let guard = x.buffer.read()?;
    let numbers = guard.as_slice::<u32>().unwrap_or_default();
    if numbers != x.numbers {
        let at = numbers.iter().zip(&x.numbers).position(|(a, b)| a != b).unwrap_or(0);
        let text = format!(
            "task {task}, step {step}: {:#x} instead of {:#x} at {at}",
            numbers.get(at).copied().unwrap_or(0),
            x.numbers[at]
        );
        world.wrong.lock().expect("no task panics here").push(text);
    }
    Ok(())
}
