//! The engine: makes inputs from a seed and a corpus, runs a target on each, and notices what must not happen.
//!
//! A finding is a panic on any thread, a wrong answer (the target says so), an input that takes too long, one that needs
//! more memory than its size justifies, or the end of the process. The worker writes each input to a file before it runs it, so the
//! supervising process ([`supervise`]) can keep what killed the worker, cut it down and tell how to run it again.
//!
//! A run is a function of its seed: inputs that a target accepts join the corpus in memory, and nothing else decides.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::{heap, mutate};

/// What became of an input that did no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was understood, and what it asks for was done or answered with an error.
    Accepted,
    /// It was refused with an error.
    Refused,
}

/// Something that takes bytes.
pub trait Target: Sync {
    /// Its name on the command line and of its folder in the corpus.
    fn name(&self) -> &'static str;

    /// What it takes and what it compares, in a line.
    fn about(&self) -> &'static str;

    /// Inputs that are there besides the corpus.
    fn seeds(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// A new input from nothing.
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let length = 1 + random.below(200);
        random.bytes(length)
    }

    /// One change of an input.
    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
        mutate::bytes(input, others, random);
    }

    /// How many of eight inputs are made from nothing instead of from the corpus.
    fn fresh(&self) -> usize {
        4
    }

    /// Bytes of heap that an input may need at once on the thread that runs it.
    fn memory(&self, input: &[u8]) -> usize {
        (64 << 20) + 64 * input.len()
    }

    /// Runs an input. A message tells of a wrong answer.
    fn run(&self, input: &[u8]) -> Result<Verdict, String>;

    /// What an input means, for a person.
    fn describe(&self, input: &[u8]) -> String {
        String::from_utf8_lossy(input).into_owned()
    }
}

/// How to run a target.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long; the corpus is run in any case.
    pub duration: Duration,
    /// How many inputs at most.
    pub runs: u64,
    /// Decides the inputs.
    pub seed: u64,
    /// How long one input may take.
    pub timeout: Duration,
    /// Where findings go.
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

/// Runs one input: a message is a finding.
fn judge(target: &dyn Target, input: &[u8]) -> Result<Verdict, String> {
    let before = PANICS.load(Ordering::SeqCst);
    let (outcome, peak) = heap::peak_of(|| catch_unwind(AssertUnwindSafe(|| target.run(input))));
    if PANICS.load(Ordering::SeqCst) != before {
        let last = LAST_PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        return Err(last.clone());
    }
    let verdict = outcome.unwrap_or_else(|_| Err("a panic without a message".into()))?;
    let limit = target.memory(input);
    if peak > limit {
        return Err(format!("{peak} bytes of heap for an input of {} bytes (limit {limit})", input.len()));
    }
    Ok(verdict)
}

/// Ends the process when an input takes too long.
struct Watchdog(AtomicU64);

impl Watchdog {
    fn start(timeout: Duration) -> &'static Watchdog {
        let dog: &'static Watchdog = Box::leak(Box::new(Watchdog(AtomicU64::new(0))));
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            loop {
                std::thread::sleep(Duration::from_millis(50));
                let now = dog.0.load(Ordering::Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if now % 2 == 1 && since.elapsed() > timeout {
                    println!("FINDING an input took longer than {} s", timeout.as_secs());
                    std::process::exit(3);
                }
            }
        });
        dog
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

/// The worker: runs the corpus, then new inputs until the time is over. True if nothing was found.
pub fn work(target: &dyn Target, options: &Options, current: &Path) -> std::io::Result<bool> {
    note_panics();
    let dog = Watchdog::start(options.timeout);
    let mut file = File::create(current)?;
    let mut counts = Counts::default();
    let mut run = |input: &[u8]| -> std::io::Result<Option<Verdict>> {
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(input)?;
        dog.step();
        let outcome = judge(target, input);
        dog.step();
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
    let mut random = Random::new(options.seed);
    let start = Instant::now();
    for _ in 0..options.runs {
        if start.elapsed() >= options.duration {
            break;
        }
        let mut input = if pool.is_empty() || random.below(8) < target.fresh() {
            target.generate(&mut random)
        } else {
            let mut input = random.pick(&pool);
            for _ in 0..1 + random.below(4) {
                target.mutate(&mut input, &pool, &mut random);
            }
            input
        };
        input.truncate(1 << 20);
        match run(&input)? {
            None => return Ok(false),
            // What was accepted is a place to go on from.
            Some(Verdict::Accepted) if input.len() < 1 << 14 && random.one_in(8) => {
                if pool.len() < fixed + 256 {
                    pool.push(input);
                } else {
                    let at = fixed + random.below(256);
                    pool[at] = input;
                }
            }
            Some(_) => {}
        }
    }
    println!("DONE {} {}", counts.runs, counts.accepted);
    Ok(true)
}

/// Runs one input and says what became of it. True if nothing was found.
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

/// What a worker said before it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The finding, if there is one.
    pub finding: Option<String>,
    /// Inputs run and inputs accepted.
    pub counts: (u64, u64),
}

/// Starts this program again with other arguments and waits for it.
fn child(args: &[&str]) -> std::io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(args).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut counts = (0, 0);
    if let Some(line) = said.lines().find_map(|line| line.strip_prefix("DONE ")) {
        let mut parts = line.split(' ').map(|part| part.parse().unwrap_or(0));
        counts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    }
    let finding = match said.find("FINDING ") {
        Some(at) => Some(said[at + 8..].trim_end().to_string()),
        None if output.status.success() => None,
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let tail: Vec<&str> = errors.lines().rev().take(3).collect();
            Some(format!("the process ended with {}: {}", output.status, tail.join(" | ")))
        }
    };
    Ok(Outcome { finding, counts })
}

/// Runs a target in a process of its own. What is found is cut down and written to a file.
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

/// A shorter input that still gives a finding: pieces are cut out and bytes set to zero while that is so.
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
