//! Checks the CUDA text of kernels on an NVIDIA device. Prints one line per check; the exit status is the
//! number of failures. Without a device it says so and succeeds.
//!
//! Every check compiles and launches a kernel, and compares its outputs with the reference interpreter and
//! the fast executor, bit for bit except for payloads of NaNs; kernels of the corpus are also compared with
//! their reference. A worker process runs the checks; a supervisor restarts it if a kernel hangs.
//!
//! Arguments: `--compile-only` compiles everything (needs NVRTC, no device), `--text NAME` prints the text of
//! a check, `--emulate NAME` runs the checks whose name contains it on the host instead (needs a C++
//! compiler), `--seeds N` sets the number of random kernels.

mod bandwidth;
mod checks;
mod emulate;
mod fuzz;
mod gpu;
mod supervisor;
mod sweep;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hesper_cuda::compiler::Compiler;
use hesper_cuda::{Properties, device_count};

use checks::{Check, PreparationQueue, brief, checks};
use gpu::{Gpu, LaunchError};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let seeds = value("--seeds").and_then(|s| s.parse().ok()).unwrap_or(150);
    let all = checks(seeds);
    if let Some(name) = value("--text") {
        return show(&all, name);
    }
    if let Some(part) = value("--emulate") {
        return emulate_all(&all, part);
    }
    if args.iter().any(|a| a == "--compile-only") {
        return compile_only(&all);
    }
    match device_count() {
        Ok(n) if n > 0 => {}
        Ok(_) => {
            println!("no NVIDIA device: skipped");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            println!("no NVIDIA device: skipped ({e})");
            return ExitCode::SUCCESS;
        }
    }
    match value("--worker").and_then(|s| s.parse().ok()) {
        Some(first) => work(&all, first),
        None => supervisor::supervise(&all, seeds),
    }
}

fn show(all: &[Check], name: &str) -> ExitCode {
    let Some(check) = all.iter().find(|c| c.name == name) else {
        eprintln!("unknown check {name:?}");
        return ExitCode::FAILURE;
    };
    match check.text() {
        Ok((job, source, _)) => {
            println!("{}", source.text);
            eprintln!("{}", job.kernel);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Runs checks on the emulation.
fn emulate_all(all: &[Check], part: &str) -> ExitCode {
    let folder = std::env::temp_dir().join(format!("hesper-emulate-{}", std::process::id()));
    let outcome = each(all.iter().filter(|c| c.name.contains(part)).collect(), |i, check| {
        let prepared = check.on_host()?;
        let outputs = emulate::run(&prepared.job, &prepared.source, &folder.join(i.to_string()))?;
        prepared.judge(&outputs)
    });
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

/// Runs checks on all cores, prints one line each, and counts the failures.
fn each(checks: Vec<&Check>, run: impl Fn(usize, &Check) -> Result<String, String> + Sync) -> ExitCode {
    let next = AtomicUsize::new(0);
    let failures = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = checks.get(i) else { return };
                    match run(i, check) {
                        Ok(how) => println!("ok   {}: {how}", check.name),
                        Err(why) => {
                            failures.fetch_add(1, Ordering::Relaxed);
                            println!("FAIL {}: {}", check.name, brief(&why));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner();
    println!("{} passed, {failures} failed", checks.len() - failures);
    ExitCode::from(failures.min(255) as u8)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().min(16))
}

/// Compiles every text for compute capability 9.0.
fn compile_only(all: &[Check]) -> ExitCode {
    let properties = Properties {
        ordinal: 0,
        name: "none".to_string(),
        total_memory: 0,
        capability: (9, 0),
        multiprocessors: 0,
        l2_bytes: 0,
        max_threads: 1024,
        warp_size: 32,
        max_shared: 0,
        driver_version: 0,
    };
    let compiler = Compiler::new(&properties, None);
    match compiler.describe() {
        Ok(what) => println!("{what}"),
        Err(e) => {
            println!("no compiler: skipped ({e})");
            return ExitCode::SUCCESS;
        }
    }
    each(all.iter().collect(), |_, check| {
        let start = Instant::now();
        let (_, source, _) = check.text()?;
        let code = gpu::compile(&compiler, &source)?;
        Ok(format!("{} bytes in {} ms", code.image.bytes().len(), start.elapsed().as_millis()))
    })
}

/// The worker: launches the checks from `first` on and prints the outcome of each.
fn work(all: &[Check], first: usize) -> ExitCode {
    let mut gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("FAIL open: {e}");
            return ExitCode::FAILURE;
        }
    };
    let compiler = Compiler::new(gpu.context().properties(), None);
    if first == 0 {
        let p = gpu.context().properties();
        let what = compiler.describe().unwrap_or_else(|e| e.to_string());
        println!("{} (compute {}.{}), {what}", p.name, p.capability.0, p.capability.1);
    }
    let queue = PreparationQueue::new(all, &compiler, first);
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| queue.work());
        }
        for (i, check) in all.iter().enumerate().skip(first) {
            let (prepared, code) = match queue.take(i) {
                Ok(pair) => pair,
                Err(e) => {
                    println!("@{i} FAIL {}: {}", check.name, brief(&e));
                    continue;
                }
            };
            println!("@{i} start");
            let start = Instant::now();
            match gpu.run(&prepared.job, &prepared.source, &code) {
                Ok((device, used)) => {
                    let ms = start.elapsed().as_secs_f64() * 1e3;
                    let resources =
                        format!("{} registers, {} B local, {ms:.1} ms", used.registers, used.local_bytes);
                    match prepared.judge(&device) {
                        Ok(how) => println!("@{i} ok   {}: {how} ({resources})", check.name),
                        Err(why) => println!("@{i} FAIL {}: {} ({resources})", check.name, brief(&why)),
                    }
                }
                Err(LaunchError::Failed(why)) => {
                    println!("@{i} FAIL {}: launch: {why}", check.name);
                    // The context may be lost. If no other can be created, the supervisor restarts the
                    // worker.
                    match Gpu::open() {
                        Ok(fresh) => gpu = fresh,
                        Err(e) => {
                            println!("FAIL open: {e}");
                            std::process::exit(1);
                        }
                    }
                }
                Err(LaunchError::Hangs) => {
                    println!("@{i} FAIL {}: hangs", check.name);
                    std::process::exit(3);
                }
            }
        }
    });
    bandwidth::measure(&gpu, &compiler);
    println!("@done");
    ExitCode::SUCCESS
}
