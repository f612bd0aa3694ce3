//! Compares the executors of the host on one launch, bit for bit.

use std::time::{Duration, Instant};

use hesper_gpu_tests::job::Job;
use hesper_kernel::exec::{Cancel, Program, SimdLevel};
use hesper_kernel::interp;

/// The time after which an executor is cancelled.
const EXECUTOR_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs a kernel on the reference interpreter, as bytecode and as machine code; all of them must end. If the
/// sanitizer has no finding and the result is `ordered`, they must agree. Returns whether any results were
/// compared.
pub fn compare(job: &Job, ordered: bool) -> Result<bool, String> {
    let mut clean = false;
    let options = interp::Options { max_iterations: 1 << 10, ..interp::Options::checked() };
    let reference = job.run_on_host(|bindings| {
        let report = interp::run(&job.kernel, &job.launch, bindings, &options);
        clean = report.as_ref().is_ok_and(|report| report.is_clean());
        report.map(|_| ()).map_err(|error| error.to_string())
    });
    let level = SimdLevel::detect();
    let programs = [
        ("bytecode", Program::compile_bytecode(&job.kernel, level)),
        ("machine code", Program::compile_for(&job.kernel, level)),
        ("bytecode without SIMD", Program::compile_bytecode(&job.kernel, SimdLevel::Plain)),
    ];
    let mut compared = false;
    for (name, program) in programs {
        let Ok(program) = program else { continue };
        let start = Instant::now();
        let late = || start.elapsed() > EXECUTOR_TIMEOUT;
        let found = job.run_on_host(|bindings| {
            let outcome = program.run(bindings, &job.launch, &Cancel::watching(&late));
            outcome.map_err(|error| error.to_string())
        });
        if let (Ok(expected), Ok(found), true) = (&reference, &found, clean && ordered) {
            if let Some(difference) = job.difference(expected, found) {
                return Err(format!("{name} differs from the interpreter: {difference}"));
            }
            compared = true;
        }
    }
    Ok(compared)
}
