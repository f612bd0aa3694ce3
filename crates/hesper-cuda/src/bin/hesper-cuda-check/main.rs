//! Checks and measures the CUDA device on the machine it runs on.
//!
//! Prints one line per check; the exit code is the number of failures. Without an NVIDIA device it says so
//! and succeeds. With `HESPER_VALIDATE=1` everything runs under the validation layer. An argument selects the
//! checks whose name contains it; only `failures` runs the checks with refused driver calls.

mod basics;
mod failures;
mod faults;
mod kernels;
mod measure;
mod order;
mod report;

use std::time::Duration;

use hesper_cuda::{CudaDevice, CudaError, CudaOptions};
use hesper_runtime::Runtime;

use report::{Outcome, Report};

fn main() {
    let failing = std::env::args().nth(1).is_some_and(|word| word == "failures");
    if failing {
        hesper_cuda::inject::install();
    }
    let options = CudaOptions::default();
    let device = match CudaDevice::open(options.clone()) {
        Ok(device) => device,
        Err(error @ (CudaError::MissingLibrary { .. } | CudaError::NoDevice)) => {
            println!("no NVIDIA device: skipped ({error})");
            return;
        }
        Err(error) => {
            println!("FAIL open: {error}");
            std::process::exit(1);
        }
    };
    let runtime = Runtime::new(device);
    if let Some(way) = failures::child() {
        return failures::end(&way, runtime);
    }
    if let Some((entry, graphs)) = faults::child() {
        let options = CudaOptions { graph_from: if graphs { 2 } else { options.graph_from }, ..options };
        match faults::lost(&options, &entry, &runtime) {
            Ok(text) => return println!("{text}"),
            Err(text) => {
                println!("{text}");
                std::process::exit(1);
            }
        }
    }
    let report = if failing { fail(&options) } else { run(&runtime, &options) };
    let found = runtime.validation();
    drop(runtime);
    if let Some(found) = found {
        println!("validation: {} violations {:?}", found.count(), found.violations().first());
    }
    std::process::exit(report.end());
}

fn fail(options: &CudaOptions) -> Report {
    let plain = CudaOptions { graph_from: usize::MAX, ..options.clone() };
    let graphs = CudaOptions { graph_from: 2, ..options.clone() };
    let calling = CudaOptions { launch_thread: false, ..graphs.clone() };
    let limit = Duration::from_secs(12);
    let mut report = Report::new();
    report.check("failures: calls refused, one by one", || failures::refused(&plain, limit));
    report.check("failures: calls refused, graphs", || failures::refused(&graphs, limit));
    report.check("failures: calls refused, launched by the caller", || failures::refused(&calling, limit));
    report.check("failures: memory limits", || failures::limits(options));
    report.check("failures: clears, one by one", || failures::clears(&plain));
    report.check("failures: clears, graphs", || failures::clears(&graphs));
    report.check("failures: early launches", || failures::early_launches(options));
    report.check("failures: a forked process", || failures::forked(options));
    report.check("failures: exit with work in flight", failures::exits);
    report.check("failures: everything again", || order::hazards(&graphs, 4, 2));
    report
}

fn run(runtime: &Runtime, options: &CudaOptions) -> Report {
    let plain = CudaOptions { graph_from: usize::MAX, ..options.clone() };
    let graphs = CudaOptions { graph_from: 2, ..options.clone() };
    let validated = std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0");
    let filter = std::env::args().nth(1).unwrap_or_default();
    let mut report = Report::new();
    let mut check = |name: &str, body: &mut dyn FnMut() -> Outcome| {
        // Measurements under validation are meaningless.
        if name.contains(&filter) && !(validated && name.starts_with("measure")) {
            report.check(name, body);
        }
    };
    check("device", &mut || basics::describe(runtime));
    check("memory round trips", &mut || basics::round_trips(runtime));
    check("kernel launches", &mut || basics::launches(runtime));
    check("wrong commands", &mut || basics::wrong_commands(runtime));
    check("compile errors", &mut || basics::compile_errors(runtime));
    check("half headers", &mut || basics::half_header(runtime));
    check("native commands", &mut || basics::natives(runtime));
    check("hazards, one stream, one by one", &mut || order::hazards(&plain, 1, 6));
    check("hazards, one stream, graphs", &mut || order::hazards(&graphs, 1, 6));
    check("hazards, four streams, one by one", &mut || order::hazards(&plain, 4, 6));
    check("hazards, four streams, graphs", &mut || order::hazards(&graphs, 4, 6));
    check("hand-over between two streams", &mut || order::ping_pong(options));
    let iterations = if validated { 60 } else { 1000 };
    let limit = Duration::from_secs(10);
    check("threads, one by one", &mut || order::stress(&plain, 64, iterations, limit));
    check("threads, graphs", &mut || order::stress(&graphs, 64, iterations, limit));
    check("memory used again", &mut || order::reuse(options));
    check("pipelines evicted in flight", &mut || basics::eviction(options));
    check("disk cache", &mut || basics::disk_cache(options));
    check("everything dropped in flight", &mut || basics::abandoned(options));
    check("idle", &mut || basics::idle(runtime));
    check("measure: driver calls", &mut || measure::driver_calls());
    for batch in [16, 64, 256] {
        check("measure: chains one by one", &mut || {
            measure::chains(&CudaOptions { batch, ..plain.clone() }, "one by one")
        });
        check("measure: chains as graphs", &mut || {
            measure::chains(&CudaOptions { batch, ..graphs.clone() }, "graphs")
        });
    }
    check("measure: submissions", &mut || measure::submissions(options));
    check("measure: latency", &mut || measure::latency(options));
    check("measure: overlap", &mut || measure::overlap(options));
    check("measure: allocation", &mut || measure::allocation(options));
    check("measure: transfers", &mut || measure::bandwidth(runtime));
    check("measure: device copies", &mut || measure::device_copies(runtime));
    check("out of memory", &mut || faults::out_of_memory(options));
    check("lost by an address nobody has", &mut || faults::in_child("wild", false));
    check("lost by a write out of bounds", &mut || faults::in_child("far", false));
    check("lost by a trap", &mut || faults::in_child("trap", false));
    check("lost by a misaligned write, graphs", &mut || faults::in_child("odd", true));
    check("after all faults", &mut || order::hazards(&graphs, 2, 2));
    report
}
