//! `hesper-soak [--threads N] [--seconds N] [--interval N] [--seed S] [--only ACTIVITY] [--variety N]
//! [--short-threads]` prints the memory and counters of the process while it works. `--sizes` adds the growth
//! of live allocations by size; `--growth KIB` fails if the peak of resident memory grows by more from the
//! second quarter to the last.

use std::process::ExitCode;
use std::time::Duration;

use hesper_fuzz::heap::CountingAllocator;
use hesper_fuzz::soak::{self, ACTIVITIES, Plan, Sample};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let number = |name: &str, default: u64| value(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let only = match value("--only") {
        None => None,
        Some(name) => match ACTIVITIES.iter().position(|(known, _)| known == name) {
            Some(at) => Some(at),
            None => {
                let names: Vec<&str> = ACTIVITIES.iter().map(|(name, _)| *name).collect();
                eprintln!("no activity is called {name}; there are {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    let plan = Plan {
        threads: number("--threads", 32) as usize,
        duration: Duration::from_secs(number("--seconds", 60)),
        interval: Duration::from_secs(number("--interval", 5)),
        only,
        short_threads: has("--short-threads"),
        variety: value("--variety").and_then(|text| text.parse().ok()),
    };
    let mut first: Option<Sample> = None;
    println!("   s    rounds  rss KiB  heap KiB  active KiB  cached KiB  blocks  streams  kernels");
    let outcome = soak::run(&plan, number("--seed", 1), |sample| {
        let counters = &sample.counters;
        println!(
            "{:4} {:9} {:8} {:9} {:11} {:11} {:7} {:8} {:8}",
            sample.at.as_secs(),
            sample.rounds,
            sample.resident.unwrap_or(0) >> 10,
            sample.heap >> 10,
            counters.active >> 10,
            counters.cached >> 10,
            counters.cached_blocks,
            counters.streams,
            counters.pipelines.count,
        );
        let first = first.get_or_insert_with(|| sample.clone());
        if has("--sizes") {
            let grown = sample.by_size.iter().zip(&first.by_size).enumerate();
            let grown = grown.filter(|(_, (now, then))| (*now - *then).abs() > 16);
            let grown: Vec<String> =
                grown.map(|(n, (now, then))| format!("<{}: {:+}", 1u64 << n, now - then)).collect();
            println!("     {}", grown.join("  "));
        }
    });
    match outcome {
        Ok(samples) => {
            let grown = soak::growth(&samples, |sample| sample.resident.unwrap_or(0) as i64) >> 10;
            let heap = soak::growth(&samples, |sample| sample.heap) >> 10;
            println!("from the second quarter to the last: resident {grown:+} KiB, heap {heap:+} KiB");
            let allowed: Option<i64> = value("--growth").and_then(|text| text.parse().ok());
            if allowed.is_some_and(|allowed| grown > allowed) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("a round failed: {error}");
            ExitCode::FAILURE
        }
    }
}
