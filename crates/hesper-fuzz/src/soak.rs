//! A soak test: threads build, compile, differentiate, load, launch kernels and evaluate until the time is
//! over.
//!
//! It does everything that a long-running process does, with changing shapes, constants and texts, so that an
//! unbounded cache or a leaked node shows as growth.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hesper::{Array, CustomKernel, Dtype, Result, axes, io, placement, transform};
use hesper_runtime::sim::Rng;

use crate::heap;

/// The configuration of a soak test.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of concurrent threads.
    pub threads: usize,
    /// The duration.
    pub duration: Duration,
    /// The time between samples.
    pub interval: Duration,
    /// The index of the only activity in [`ACTIVITIES`]; `None` for all.
    pub only: Option<usize>,
    /// Whether a thread ends after a few rounds and another one replaces it.
    pub short_threads: bool,
    /// The number of different rounds. With few of them every cache is soon full, and further growth is a
    /// leak; without a limit shapes and texts keep changing.
    pub variety: Option<u64>,
}

/// A sample of the state of the process.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Time since the start.
    pub at: Duration,
    /// The number of rounds so far.
    pub rounds: u64,
    /// Resident bytes, where the system reports them.
    pub resident: Option<usize>,
    /// Live heap bytes.
    pub heap: i64,
    /// The counters of the host runtime.
    pub counters: hesper_runtime::Counters,
    /// Live allocations by size.
    pub by_size: Vec<i64>,
}

/// The growth of the maximum from the second quarter of the samples to the last one.
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
            counters: placement::cpu().counters(),
            by_size: heap::live_by_size(),
        }
    }
}

type Activity = fn(&mut Rng, &Path) -> Result<()>;

/// The activities of a round, by name.
pub const ACTIVITIES: [(&str, Activity); 7] = [
    ("build", build),
    ("compile", compile),
    ("differentiate", differentiate),
    ("map", map),
    ("load", load),
    ("kernel", kernel),
    ("streams", streams),
];

fn random_array(rng: &mut Rng, shape: &[usize]) -> Result<Array> {
    let list: Vec<f32> = (0..shape.iter().product()).map(|_| rng.below(17) as f32 - 8.0).collect();
    Array::try_from_slice(&list, shape)
}

fn chain(rng: &mut Rng, x: &Array) -> Result<Array> {
    let mut y = x.clone();
    for _ in 0..1 + rng.below(6) {
        y = match rng.below(9) {
            0 => y.add(rng.below(1000) as f32)?,
            1 => y.multiply(0.5)?,
            2 => y.tanh()?,
            3 => y.abs()?.add(1.0)?.log()?,
            4 => y.softmax(-1)?,
            5 => y.astype(Dtype::Float16)?.astype(Dtype::Float32)?,
            6 => y.t()?.add(1.0)?.t()?,
            7 => y.maximum(0.0)?,
            _ => y.subtract(&y.mean(axes(-1).keepdims())?)?,
        };
    }
    Ok(y)
}

fn build(rng: &mut Rng, _: &Path) -> Result<()> {
    let shape = [1 + rng.below(40), 1 + rng.below(70)];
    let x = random_array(rng, &shape)?;
    let y = chain(rng, &x)?;
    if rng.one_in(3) {
        hesper::async_eval([&y])?;
    }
    let sum = y.sum(())?.item::<f32>()?;
    debug_assert!(sum.is_finite());
    Ok(())
}

fn network(x: &[Array]) -> Result<Array> {
    x[0].matmul(&x[1])?.tanh()?.softmax(-1)?.square()?.sum(())
}

fn compile(rng: &mut Rng, _: &Path) -> Result<()> {
    let scale = rng.below(100_000) as f32;
    let f = transform::compile(move |x: &[Array]| Ok(vec![x[0].multiply(scale)?.add(1.0)?.tanh()?]));
    for _ in 0..2 {
        let rows = 1 + rng.below(9);
        f(&[random_array(rng, &[rows, 8])?])?[0].eval()?;
    }
    Ok(())
}

fn differentiate(rng: &mut Rng, _: &Path) -> Result<()> {
    let rows = 1 + rng.below(12);
    let inputs = [random_array(rng, &[rows, 8])?, random_array(rng, &[8, 8])?];
    let pulled = transform::grad(network, &[0, 1])(&inputs)?;
    hesper::eval(&pulled)
}

fn map(rng: &mut Rng, _: &Path) -> Result<()> {
    let rows = 1 + rng.below(12);
    let x = random_array(rng, &[rows, 6, 6])?;
    let f = transform::vmap(|x| Ok(vec![x[0].matmul(&x[0])?.tanh()?]), &[Some(0)], &[Some(0)]);
    f(&[x])?[0].eval()
}

fn load(rng: &mut Rng, file: &Path) -> Result<()> {
    let loaded = io::load(file)?;
    let name = format!("weight.{}", rng.below(4));
    let weight = loaded.require(&name)?;
    chain(rng, weight)?.eval()
}

fn kernel(rng: &mut Rng, _: &Path) -> Result<()> {
    // A new text each time, so that an unbounded cache would grow.
    let number = rng.below(1 << 20);
    let text = format!("uint i = thread_position_in_grid.x; out[i] = x[i] + {number}.0f;");
    let kernel = CustomKernel::new("offset", &["x"], &["out"], &text)?;
    let x = random_array(rng, &[64])?;
    let call = kernel.call(&[x]).grid([64, 1, 1]).threadgroup([32, 1, 1]);
    call.output(&[64], Dtype::Float32).run()?[0].eval()
}

fn streams(rng: &mut Rng, _: &Path) -> Result<()> {
    let x = random_array(rng, &[16, 16])?;
    let (one, other) = (placement::cpu().stream()?, placement::cpu().stream()?);
    let y = placement::with_stream(&one, || chain(rng, &x))?;
    hesper::async_eval([&y])?;
    let z = placement::with_stream(&other, || y.add(&x))?;
    drop(y);
    z.eval()
}

/// The file that [`load`] reads, removed on drop.
struct Weights(PathBuf);

impl Weights {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("hesper-soak-{}.safetensors", std::process::id()));
        let mut rng = Rng::new(1);
        let list = (0..4).map(|i| Ok((format!("weight.{i}"), random_array(&mut rng, &[32, 48])?)));
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

/// Runs the soak test and calls `report` with each sample. The first error ends it.
pub fn run(plan: &Plan, seed: u64, mut report: impl FnMut(&Sample)) -> Result<Vec<Sample>> {
    let file = Weights::new()?;
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let failure = std::sync::Mutex::new(None);
    let start = Instant::now();
    let work = |number: usize, life: usize| {
        let mut rng = Rng::new(seed ^ (number as u64) << 32 ^ (life as u64) << 48);
        let mut left = if plan.short_threads { 50 } else { usize::MAX };
        while left > 0 && !stop.load(Ordering::Relaxed) {
            left -= 1;
            let number = rng.bits();
            let mut rng = Rng::new(plan.variety.map_or(number, |variety| number % variety));
            let which = plan.only.unwrap_or_else(|| rng.below(ACTIVITIES.len()));
            if let Err(error) = ACTIVITIES[which].1(&mut rng, &file.0) {
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
    placement::cpu().synchronize()?;
    match failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(samples),
    }
}
