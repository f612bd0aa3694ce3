//! The engine: generates inputs from a seed and a corpus, runs a target on each, and detects findings.
//!
//! A finding is a panic on any thread, a wrong result that the target reports, an input that exceeds the time
//! or memory limit, or a crash of the process. The worker writes each input to a file before it runs it, so
//! the supervising process ([`supervise`]) can keep an input that crashes the worker, shrink it and print how
//! to replay it.
//!
//! A run is a function of its seed: accepted inputs join the corpus in memory, and nothing else affects it.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hesper_runtime::panics;
use hesper_runtime::sim::Rng;

use crate::{heap, mutate};

/// The verdict on an input without a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was valid, and was executed or answered with an error.
    Accepted,
    /// It was refused with an error.
    Refused,
}

/// A fuzz target: it takes bytes.
pub trait Target: Sync {
    /// The name on the command line and of the corpus folder.
    fn name(&self) -> &'static str;

    /// A one-line description.
    fn about(&self) -> &'static str;

    /// Inputs in addition to the corpus.
    fn seeds(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Generates an input.
    fn generate(&self, rng: &mut Rng) -> Vec<u8> {
        let length = 1 + rng.below(200);
        rng.bytes(length)
    }

    /// Mutates an input.
    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
        mutate::bytes(input, others, rng);
    }

    /// The number of generated inputs in eight; the others are mutations of the corpus.
    fn fresh(&self) -> usize {
        4
    }

    /// The heap bytes that an input may use at once on the thread that runs it.
    fn memory(&self, input: &[u8]) -> usize {
        (64 << 20) + 64 * input.len()
    }

    /// Runs an input. An error describes a wrong result.
    fn run(&self, input: &[u8]) -> Result<Verdict, String>;

    /// Describes an input.
    fn describe(&self, input: &[u8]) -> String {
        String::from_utf8_lossy(input).into_owned()
    }
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The duration; the corpus always runs.
    pub duration: Duration,
    /// The largest number of inputs.
    pub runs: u64,
    /// The seed of the inputs.
    pub seed: u64,
    /// The time limit of one input.
    pub timeout: Duration,
    /// The folder of findings.
    pub findings: PathBuf,
}

/// The folder of a target's corpus.
pub fn corpus_folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn corpus(target: &dyn Target) -> Vec<Vec<u8>> {
    let mut all = target.seeds();
    let entries = std::fs::read_dir(corpus_folder(target.name())).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    all.extend(paths.iter().filter_map(|path| std::fs::read(path).ok()));
    all
}

static PANICS: AtomicU64 = AtomicU64::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        let mut last = LAST_PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *last = info.to_string();
    }));
}

/// Runs one input; an error is a finding.
fn judge(target: &dyn Target, input: &[u8]) -> Result<Verdict, String> {
    let before = PANICS.load(Ordering::SeqCst);
    let (outcome, peak) = heap::peak_of(|| panics::catch(|| target.run(input)));
    if PANICS.load(Ordering::SeqCst) != before {
        let last = LAST_PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        return Err(last.clone());
    }
    let verdict = outcome.unwrap_or_else(Err)?;
    let limit = target.memory(input);
    if peak > limit {
        return Err(format!("{peak} bytes of heap for an input of {} bytes (limit {limit})", input.len()));
    }
    Ok(verdict)
}

/// Ends the process when an input exceeds its time limit.
struct Watchdog(AtomicU64);

impl Watchdog {
    fn start(timeout: Duration) -> &'static Watchdog {
        let watchdog: &'static Watchdog = Box::leak(Box::new(Watchdog(AtomicU64::new(0))));
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            loop {
                std::thread::sleep(Duration::from_millis(50));
                let now = watchdog.0.load(Ordering::Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if now % 2 == 1 && since.elapsed() > timeout {
                    println!("FINDING an input took longer than {} s", timeout.as_secs());
                    std::process::exit(3);
                }
            }
        });
        watchdog
    }

    /// Odd while an input runs.
    fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    runs: u64,
    accepted: u64,
}

/// The worker: runs the corpus, then new inputs until the time is over. Returns whether there was no finding.
pub fn work(target: &dyn Target, options: &Options, current: &Path) -> std::io::Result<bool> {
    note_panics();
    let watchdog = Watchdog::start(options.timeout);
    let mut file = File::create(current)?;
    let mut counts = Counts::default();
    let mut run = |input: &[u8]| -> std::io::Result<Option<Verdict>> {
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(input)?;
        watchdog.step();
        let outcome = judge(target, input);
        watchdog.step();
        counts.runs += 1;
        match outcome {
            Ok(verdict) => {
                counts.accepted += u64::from(verdict == Verdict::Accepted);
                Ok(Some(verdict))
            }
            Err(message) => {
                println!("FINDING {message}");
                Ok(None)
            }
        }
    };
    let mut pool = corpus(target);
    for input in &pool {
        if run(input)?.is_none() {
            return Ok(false);
        }
    }
    let fixed = pool.len();
    let mut rng = Rng::new(options.seed);
    let start = Instant::now();
    for _ in 0..options.runs {
        if start.elapsed() >= options.duration {
            break;
        }
        let mut input = if pool.is_empty() || rng.below(8) < target.fresh() {
            target.generate(&mut rng)
        } else {
            let mut input = rng.pick(&pool);
            for _ in 0..1 + rng.below(4) {
                target.mutate(&mut input, &pool, &mut rng);
            }
            input
        };
        input.truncate(1 << 20);
        match run(&input)? {
            None => return Ok(false),
            // Mutate accepted inputs further.
            Some(Verdict::Accepted) if input.len() < 1 << 14 && rng.one_in(8) => {
                if pool.len() < fixed + 256 {
                    pool.push(input);
                } else {
                    let at = fixed + rng.below(256);
                    pool[at] = input;
                }
            }
            Some(_) => {}
        }
    }
    println!("DONE {} {}", counts.runs, counts.accepted);
    Ok(true)
}

/// Runs one input and prints its outcome. Returns whether there was no finding.
pub fn replay(target: &dyn Target, input: &[u8], timeout: Duration) -> bool {
    note_panics();
    Watchdog::start(timeout).step();
    match judge(target, input) {
        Ok(verdict) => {
            println!("DONE {verdict:?}");
            true
        }
        Err(message) => {
            println!("FINDING {message}");
            false
        }
    }
}

/// The output of a worker.
#[derive(Debug)]
pub struct Outcome {
    /// The finding, if any.
    pub finding: Option<String>,
    /// Inputs run and inputs accepted.
    pub counts: (u64, u64),
}

/// Runs this program with other arguments.
fn child(args: &[&str]) -> std::io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(args).stdin(Stdio::null()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut counts = (0, 0);
    if let Some(line) = stdout.lines().find_map(|line| line.strip_prefix("DONE ")) {
        let mut parts = line.split(' ').map(|part| part.parse().unwrap_or(0));
        counts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    }
    let finding = match stdout.find("FINDING ") {
        Some(at) => Some(stdout[at + 8..].trim_end().to_string()),
        None if output.status.success() => None,
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let tail: Vec<&str> = errors.lines().rev().take(3).collect();
            Some(format!("the process ended with {}: {}", output.status, tail.join(" | ")))
        }
    };
    Ok(Outcome { finding, counts })
}

/// Runs a target in a child process. A finding is shrunk and written to a file.
pub fn supervise(target: &dyn Target, options: &Options) -> std::io::Result<Outcome> {
    std::fs::create_dir_all(&options.findings)?;
    let current = options.findings.join(format!("current-{}-{}", target.name(), std::process::id()));
    let outcome = child(&[
        target.name(),
        "--worker",
        &current.to_string_lossy(),
        "--seconds",
        &options.duration.as_secs_f64().to_string(),
        "--runs",
        &options.runs.to_string(),
        "--seed",
        &options.seed.to_string(),
        "--timeout",
        &options.timeout.as_secs().to_string(),
    ])?;
    let input = std::fs::read(&current).unwrap_or_default();
    if outcome.finding.is_some() {
        let small = shrink(target, input, options)?;
        let sum = small.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let path = options.findings.join(format!("{}-{:08x}", target.name(), sum as u32));
        std::fs::write(&path, &small)?;
        println!("FAIL {}: seed {}", target.name(), options.seed);
        println!("{}", outcome.finding.as_deref().unwrap_or_default());
        println!("{} bytes in {}; run it again by", small.len(), path.display());
        println!("    cargo run -p hesper-fuzz -- {} --replay {}", target.name(), path.display());
    }
    std::fs::remove_file(&current)?;
    Ok(outcome)
}

/// Shrinks an input by cutting out pieces while it still gives a finding.
fn shrink(target: &dyn Target, input: Vec<u8>, options: &Options) -> std::io::Result<Vec<u8>> {
    let trial = options.findings.join(format!("trial-{}-{}", target.name(), std::process::id()));
    let fails = |input: &[u8]| -> std::io::Result<bool> {
        std::fs::write(&trial, input)?;
        let path = trial.to_string_lossy();
        let timeout = options.timeout.as_secs().min(10).to_string();
        let outcome = child(&[target.name(), "--replay-quietly", &path, "--timeout", &timeout])?;
        Ok(outcome.finding.is_some())
    };
    let until = Instant::now() + Duration::from_secs(20);
    let mut best = input;
    if fails(&best)? {
        let mut piece = best.len() / 2;
        while piece > 0 && Instant::now() < until {
            let mut at = 0;
            while at < best.len() && Instant::now() < until {
                let mut shorter = best.clone();
                shorter.drain(at..(at + piece).min(best.len()));
                if fails(&shorter)? {
                    best = shorter;
                } else {
                    at += piece;
                }
            }
            piece /= 2;
        }
    }
    let _ = std::fs::remove_file(&trial);
    Ok(best)
}
