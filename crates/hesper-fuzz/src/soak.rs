//! A soak: threads that build, compile, differentiate, load, launch kernels and evaluate until their time is over.
//!
//! Everything that a long-running process does is in it, with shapes, constants and texts that keep changing, so a cache
//! without a limit, a list that nobody shortens or a node that nobody drops shows as growth.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hesper::{Array, CustomKernel, Dtype, Result, io, place, transform};

use crate::heap;
use crate::random::Random;

/// How long, and by how many.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Threads that work at the same time.
    pub threads: usize,
    /// How long they work.
    pub duration: Duration,
    /// Time between two samples.
    pub interval: Duration,
    /// The activities, by their number in [`ACTIVITIES`]; none for all of them.
    pub only: Option<usize>,
    /// Whether a thread ends after a few rounds and another one takes its place.
    pub short_threads: bool,
    /// How many different rounds there are. With few of them every cache is soon as full as it gets, and whatever still
    /// grows is a leak; without a limit shapes and texts keep changing.
    pub variety: Option<u64>,
}

/// What a process holds at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time since the start.
    pub at: Duration,
    /// Rounds of all threads so far.
    pub rounds: u64,
    /// Resident bytes, where the system tells.
    pub resident: Option<usize>,
    /// Live bytes on the heap.
    pub heap: i64,
    /// The counters of the CPU's runtime.
    pub counters: hesper_runtime::Counters,
    /// Live allocations by size.
    pub by_size: Vec<i64>,
}

/// How much the largest value grew from the second quarter of the samples to the last one.
pub fn growth(samples: &[Sample], value: impl Fn(&Sample) -> i64) -> i64 {
    let quarter = samples.len() / 4;
    let most = |part: &[Sample]| part.iter().map(&value).max().unwrap_or(0);
    most(&samples[samples.len() - quarter..]) - most(&samples[quarter..2 * quarter])
}

impl Sample {
    fn new(start: Instant, rounds: u64) -> Self {
        Sample {
            at: start.elapsed(),
            rounds,
            resident: heap::resident(),
            heap: heap::live_bytes(),
            counters: place::cpu().counters(),
            by_size: heap::live_by_size(),
        }
    }
}

type Activity = fn(&mut Random, &Path) -> Result<()>;

/// What a thread does in a round, by name.
pub const ACTIVITIES: [(&str, Activity); 7] = [
    ("build", build),
    ("compile", compile),
    ("differentiate", differentiate),
    ("map", map),
    ("load", load),
    ("kernel", kernel),
    ("streams", streams),
];

fn numbers(random: &mut Random, shape: &[usize]) -> Result<Array> {
    let list: Vec<f32> = (0..shape.iter().product()).map(|_| random.below(17) as f32 - 8.0).collect();
    Array::try_from_slice(&list, shape)
}

fn chain(random: &mut Random, x: &Array) -> Result<Array> {
    let mut y = x.clone();
    for _ in 0..1 + random.below(6) {
        y = match random.below(9) {
            0 => y.add(random.below(1000) as f32)?,
            1 => y.multiply(0.5)?,
            2 => y.tanh()?,
            3 => y.abs()?.add(1.0)?.log()?,
            4 => y.softmax(Some(&[-1]), false)?,
            5 => y.astype(Dtype::Float16)?.astype(Dtype::Float32)?,
            6 => y.t()?.add(1.0)?.t()?,
            7 => y.maximum(0.0)?,
            _ => y.subtract(&y.mean(Some(&[-1]), true)?)?,
        };
    }
    Ok(y)
}

fn build(random: &mut Random, _: &Path) -> Result<()> {
    let shape = [1 + random.below(40), 1 + random.below(70)];
    let x = numbers(random, &shape)?;
    let y = chain(random, &x)?;
    if random.one_in(3) {
        hesper::async_eval([&y])?;
    }
    let sum = y.sum(None, false)?.item::<f32>()?;
    debug_assert!(sum.is_finite());
    Ok(())
}

fn network(x: &[Array]) -> Result<Array> {
    x[0].matmul(&x[1])?.tanh()?.softmax(Some(&[-1]), false)?.square()?.sum(None, false)
}

fn compile(random: &mut Random, _: &Path) -> Result<()> {
    let scale = random.below(100_000) as f32;
    let f = transform::compile(move |x: &[Array]| Ok(vec![x[0].multiply(scale)?.add(1.0)?.tanh()?]));
    for _ in 0..2 {
        let rows = 1 + random.below(9);
        f(&[numbers(random, &[rows, 8])?])?[0].eval()?;
    }
    Ok(())
}

fn differentiate(random: &mut Random, _: &Path) -> Result<()> {
    let rows = 1 + random.below(12);
    let inputs = [numbers(random, &[rows, 8])?, numbers(random, &[8, 8])?];
    let pulled = transform::grad(network, &[0, 1])(&inputs)?;
    hesper::eval(&pulled)
}

fn map(random: &mut Random, _: &Path) -> Result<()> {
    let rows = 1 + random.below(12);
    let x = numbers(random, &[rows, 6, 6])?;
    let f = transform::vmap(|x| Ok(vec![x[0].matmul(&x[0])?.tanh()?]), &[Some(0)], &[Some(0)]);
    f(&[x])?[0].eval()
}

fn load(random: &mut Random, file: &Path) -> Result<()> {
    let loaded = io::load(file)?;
    let name = format!("weight.{}", random.below(4));
    let weight = loaded.require(&name)?;
    chain(random, weight)?.eval()
}

fn kernel(random: &mut Random, _: &Path) -> Result<()> {
    // A new text each time: what a cache keeps of it has to be bounded.
    let number = random.below(1 << 20);
    let text = format!("uint i = thread_position_in_grid.x; out[i] = x[i] + {number}.0f;");
    let kernel = CustomKernel::new("offset", &["x"], &["out"], &text)?;
    let x = numbers(random, &[64])?;
    let call = kernel.call(&[x]).grid([64, 1, 1]).threadgroup([32, 1, 1]);
    call.output(&[64], Dtype::Float32).run()?[0].eval()
}

fn streams(random: &mut Random, _: &Path) -> Result<()> {
    let x = numbers(random, &[16, 16])?;
    let (one, other) = (place::cpu().stream()?, place::cpu().stream()?);
    let y = place::with_stream(&one, || chain(random, &x))?;
    hesper::async_eval([&y])?;
    let z = place::with_stream(&other, || y.add(&x))?;
    drop(y);
    z.eval()
}

/// The file that [`load`] reads, removed at the end.
struct Weights(PathBuf);

impl Weights {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("hesper-soak-{}.safetensors", std::process::id()));
        let mut random = Random::new(1);
        let list = (0..4).map(|i| Ok((format!("weight.{i}"), numbers(&mut random, &[32, 48])?)));
        let list = list.collect::<Result<Vec<_>>>()?;
        let list = list.iter().map(|(name, array)| (name.as_str(), array));
        io::save_safetensors(&path, list, &[])?;
        Ok(Weights(path))
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a plan and calls `report` with each sample. The first error of a round ends it.
pub fn run(plan: &Plan, seed: u64, mut report: impl FnMut(&Sample)) -> Result<Vec<Sample>> {
    let file = Weights::new()?;
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let failure = std::sync::Mutex::new(None);
    let start = Instant::now();
    let work = |number: usize, life: usize| {
        let mut random = Random::new(seed ^ (number as u64) << 32 ^ (life as u64) << 48);
        let mut left = if plan.short_threads { 50 } else { usize::MAX };
        while left > 0 && !stop.load(Ordering::Relaxed) {
            left -= 1;
            let number = random.next();
            let mut random = Random::new(plan.variety.map_or(number, |variety| number % variety));
            let which = plan.only.unwrap_or_else(|| random.below(ACTIVITIES.len()));
            if let Err(error) = ACTIVITIES[which].1(&mut random, &file.0) {
                stop.store(true, Ordering::Relaxed);
                let mut failure = failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                failure.get_or_insert(error);
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        for number in 0..plan.threads {
            let (work, stop) = (&work, &stop);
            scope.spawn(move || {
                for life in 0.. {
                    if !plan.short_threads {
                        return work(number, life);
                    }
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::scope(|inner| {
                        inner.spawn(|| work(number, life));
                    });
                }
            });
        }
        while start.elapsed() < plan.duration && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(plan.interval.min(plan.duration.saturating_sub(start.elapsed())));
            let sample = Sample::new(start, rounds.load(Ordering::Relaxed));
            report(&sample);
            samples.push(sample);
        }
        stop.store(true, Ordering::Relaxed);
    });
    place::cpu().synchronize()?;
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(samples),
    }
}
