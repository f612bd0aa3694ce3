//! Checks arrays on a GPU (NVIDIA, or Metal where there is one): every op against the host, stress, faults,
//! and benchmarks.
//!
//! Prints one line per check; the exit status is the number of failures. Without a device it says so and
//! succeeds. Arguments: nothing or `check [PART] [K/N]` for the ops (those whose name contains PART; of these
//! the K-th, counted from 1, and every N-th after it, so that N processes share them), `slots [PART]`
//! (kernels with fused element-wise ops against op by op, bit for bit), `stress [ROUNDS]`, `faults`, `open`
//! (the GPU, or why it cannot be used), `failures` (on NVIDIA GPUs: a mixed program with a failure at each
//! position, then everything again), `bench [PART]`, `networks [PART]` (a training step, a decoder), `all`.
//!
//! `hash DEVICE [PART] [K/N]` prints a hash of each case's results on a device (`cpu`, `gpu`); it needs no
//! GPU for `cpu`. `scripts/op-hashes` compares them with a stored baseline.

mod attention;
mod bench;
mod cases;
mod compare;
mod decoder_cases;
mod failures;
mod linalg_cases;
mod more_cases;
mod networks;
mod product_cases;
mod reduction_cases;
mod slots;
mod stress;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hesper::placement::{self, Device};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let share = arguments.last().and_then(|last| Share::parse(last));
    if share.is_some() {
        arguments.pop();
    }
    let share = share.unwrap_or(Share { first: 0, step: 1 });
    let what = arguments.first().map_or("check", String::as_str);
    let part = arguments.get(1).map_or("", String::as_str);
    if what == "hash" {
        let part = arguments.get(2).map_or("", String::as_str);
        return ExitCode::from(
            hash(arguments.get(1).map_or("cpu", String::as_str), part, share).min(255) as u8
        );
    }
    if what == "open" {
        return open();
    }
    if placement::gpu_count() == 0 {
        println!("skipped: no GPU");
        return ExitCode::SUCCESS;
    }
    if what == "failures" {
        hesper_cuda::inject::install();
    }
    let runtime = match placement::gpu(0) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("FAIL open: {error}");
            return ExitCode::FAILURE;
        }
    };
    if what == "failures" && failures::is_child() {
        failures::exit_as_requested();
        return ExitCode::SUCCESS;
    }
    if what == "failures" && runtime.info().kind != "cuda" {
        println!(
            "skipped: failures are injected into CUDA's driver; those of Metal are in the tests of hesper-metal"
        );
        return ExitCode::SUCCESS;
    }
    println!("{} of {} GPUs", runtime.info().name, placement::gpu_count());
    let start = Instant::now();
    let failures = match what {
        "check" => check(part, share),
        "slots" => slots::run(part),
        "stress" => stress::run(part.parse().unwrap_or(stress::ROUNDS)),
        "faults" => stress::faults(),
        "failures" => failures::run(),
        "bench" => bench::run(part),
        "networks" => networks::run(part),
        "all" => {
            check(part, share)
                + slots::run(part)
                + stress::run(stress::ROUNDS)
                + bench::run(part)
                + stress::faults()
        }
        other => {
            println!(
                "unknown argument {other:?}: expected check, slots, open, stress, faults, failures, bench, networks or all"
            );
            1
        }
    };
    println!("{failures} failures, {:.1} s", start.elapsed().as_secs_f64());
    ExitCode::from(failures.min(255) as u8)
}

/// Prints the name of the first GPU, or why it cannot be used: then the exit status is not 0.
fn open() -> ExitCode {
    if placement::gpu_count() == 0 {
        println!("no GPU found");
        return ExitCode::FAILURE;
    }
    match placement::gpu(0) {
        Ok(runtime) => {
            println!("{}", runtime.info().name);
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The share of the cases that one of several processes runs.
#[derive(Clone, Copy)]
struct Share {
    first: usize,
    step: usize,
}

impl Share {
    /// `2/8`: the second of eight.
    fn parse(text: &str) -> Option<Self> {
        let (which, of) = text.split_once('/')?;
        let (which, step): (usize, usize) = (which.parse().ok()?, of.parse().ok()?);
        (1..=step).contains(&which).then(|| Share { first: which - 1, step })
    }
}

/// Prints the hash of each case's results on a device. Returns the number of failures.
fn hash(device: &str, part: &str, share: Share) -> usize {
    let device: Device = match device.parse() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return 1;
        }
    };
    let failures = AtomicUsize::new(0);
    each(part, share, |_, case| match compare::hash(case, device) {
        Ok(hash) => println!("{hash:016x} {}", case.name),
        Err(why) => {
            failures.fetch_add(1, Ordering::Relaxed);
            println!("FAIL {}: {}", case.name, why.replace('\n', " | "));
        }
    });
    failures.into_inner()
}

/// Calls `f` with each case of a share and its index, several at a time: compilation dominates. Returns the
/// number of cases.
fn each(part: &str, share: Share, f: impl Fn(usize, &compare::Case) + Sync) -> usize {
    let cases = cases::all().into_iter().filter(|case| case.name.contains(part));
    let cases: Vec<_> = cases.skip(share.first).step_by(share.step).collect();
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..cores.div_ceil(share.step) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { break };
                    f(at, case);
                }
            });
        }
    });
    cases.len()
}

/// Compares every case on the host and on one of the GPUs in turn.
fn check(part: &str, share: Share) -> usize {
    let failures = AtomicUsize::new(0);
    let count = each(part, share, |at, case| {
        let start = Instant::now();
        let outcome = compare::compare(case, Device::Gpu(at % placement::gpu_count()));
        let seconds = start.elapsed().as_secs();
        let slow = if seconds > 0 { format!(", {seconds} s") } else { String::new() };
        match outcome {
            Ok(how) => println!("ok   {}: {how}{slow}", case.name),
            Err(why) => {
                failures.fetch_add(1, Ordering::Relaxed);
                let why: String = why.replace('\n', " | ").chars().take(600).collect();
                println!("FAIL {}: {why}", case.name);
            }
        }
    });
    let failures = failures.into_inner();
    println!("{} passed, {failures} failed", count - failures);
    println!("computed on the host: {:?}", placement::fallbacks());
    failures
}
