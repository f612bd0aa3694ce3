//! Checks arrays on an NVIDIA device: every op against the host, stress, faults, and benchmarks.
//!
//! One line for each check, the number of failures as exit status. Without a device it says so and
//! succeeds. Arguments: nothing or `check [PART]` for the ops (those whose name contains PART), `stress`,
//! `faults`, `bench [PART]`, `all`.

mod bench;
mod cases;
mod compare;
mod stress;

use std::process::ExitCode;
use std::time::Instant;

use hesper::place::{self, Device};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("check", String::as_str);
    let part = arguments.get(1).map_or("", String::as_str);
    if place::gpu_count() == 0 {
        println!("skipped: no GPU");
        return ExitCode::SUCCESS;
    }
    let runtime = match place::gpu(0) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("FAIL open: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{} of {} GPUs", runtime.info().name, place::gpu_count());
    let start = Instant::now();
    let failures = match what {
        "check" => check(part),
        "stress" => stress::run(),
        "faults" => stress::faults(),
        "bench" => bench::run(part),
        "all" => check(part) + stress::run() + bench::run(part) + stress::faults(),
        other => {
            println!("unknown argument {other:?}: expected check, stress, faults, bench or all");
            1
        }
    };
    println!("{failures} failures, {:.1} s", start.elapsed().as_secs_f64());
    ExitCode::from(failures.min(255) as u8)
}

/// Every case on both devices.
fn check(part: &str) -> usize {
    let mut failures = 0;
    let mut passed = 0;
    for case in cases::all().into_iter().filter(|case| case.name.contains(part)) {
        let before = place::fallbacks();
        match compare::compare(&case, Device::Gpu(0)) {
            Ok(how) => {
                passed += 1;
                let host = new_fallbacks(&before);
                println!("ok   {}: {how}{host}", case.name);
            }
            Err(why) => {
                failures += 1;
                println!(
                    "FAIL {}: {}",
                    case.name,
                    why.replace('\n', " | ").chars().take(600).collect::<String>()
                );
            }
        }
    }
    println!("{passed} passed, {failures} failed");
    println!("computed on the host: {:?}", place::fallbacks());
    failures
}

fn new_fallbacks(before: &[(&'static str, u64)]) -> String {
    let names: Vec<&str> =
        place::fallbacks().into_iter().filter(|one| !before.contains(one)).map(|(name, _)| name).collect();
    if names.is_empty() { String::new() } else { format!(" [host: {}]", names.join(", ")) }
}
