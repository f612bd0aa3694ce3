//! Concurrent tasks with temporaries and dropped handles, and faults of the device.

use hesper::placement::{self, Device};
use hesper::{Array, CustomKernel, Dtype, Error};
use hesper_gpu_tests::scenarios::{self, TASKS};

/// The default number of rounds per task.
pub const ROUNDS: usize = 200;

/// Runs the scenarios of 64 tasks on the first GPU.
pub fn run(rounds: usize) -> usize {
    let outcomes = scenarios::run(Device::Gpu(0), rounds, |outcome| {
        for failure in &outcome.failures {
            println!("FAIL {}: {failure}", outcome.name);
        }
        let verdict = if outcome.failures.is_empty() { "ok  " } else { "FAIL" };
        let counters = placement::gpu(0).map(|runtime| runtime.counters()).unwrap_or_default();
        println!(
            "{verdict} {}: {TASKS} tasks x {rounds}, {:.1} s, peak {} MiB, {} kernels",
            outcome.name,
            outcome.time.as_secs_f64(),
            counters.peak >> 20,
            counters.pipelines.count
        );
    });
    match outcomes {
        Ok(outcomes) => outcomes.iter().map(|outcome| outcome.failures.len()).sum(),
        Err(error) => {
            println!("FAIL stress: {error}");
            1
        }
    }
}

/// A kernel that writes out of range, among others that do not: only it fails, launched alone and in graphs.
fn checked_write() -> Result<String, Error> {
    let text = "uint i = thread_position_in_grid.x;\nout[indices[i]] = x[i];";
    let kernel = CustomKernel::new("scatter", &["x", "indices"], &["out"], text)?;
    let x = Array::full(&[1024], 3.0, Some(Dtype::Float32))?;
    let scatter = |shift: i64| -> Result<Array, Error> {
        let indices = Array::arange(shift..shift + 1024, Some(Dtype::Int32))?;
        let call = kernel.call(&[x.clone(), indices]).grid([1024, 1, 1]).threadgroup([256, 1, 1]);
        Ok(call.output(&[1024], Dtype::Float32).run()?.swap_remove(0))
    };
    let mut reported = String::new();
    for round in 0..4 {
        let shifts = [0, 0, 1, 0, -1, 0, 1 << 29, 0, 0, 0, 0, 0];
        let outputs = shifts.iter().map(|shift| scatter(*shift)).collect::<Result<Vec<_>, _>>()?;
        // Failures are checked below.
        let _ = hesper::async_eval(&outputs);
        for (shift, out) in shifts.iter().zip(&outputs) {
            for _ in 0..2 {
                match (shift, out.sum(()).and_then(|sum| sum.item::<f32>())) {
                    (0, Ok(3072.0)) => {}
                    (0, Ok(sum)) => {
                        return Err(Error::Kernel(format!("round {round}: a sum of {sum}, not of 3072")));
                    }
                    (0, Err(error)) => return Err(error),
                    (_, Ok(_)) => {
                        return Err(Error::Kernel(format!(
                            "round {round}: indices shifted by {shift} were not reported"
                        )));
                    }
                    (_, Err(error)) => {
                        reported = error.to_string();
                        let named = ["scatter", "body:2", "`out` (4096 bytes)"];
                        if let Some(part) = named.iter().find(|part| !reported.contains(**part)) {
                            return Err(Error::Kernel(format!("no {part:?} in {reported}")));
                        }
                    }
                }
            }
        }
    }
    Ok(reported.replace('\n', " "))
}

/// Faults: too much memory, an invalid kernel, out-of-range writes. The last one is unchecked and loses the
/// device: the process and the host continue.
pub fn faults() -> usize {
    let mut failures = 0;
    let mut report = |name: &str, outcome: Result<String, String>| match outcome {
        Ok(how) => println!("ok   {name}: {how}"),
        Err(why) => {
            failures += 1;
            println!("FAIL {name}: {why}");
        }
    };
    let gpu = |f: &dyn Fn() -> Result<Array, Error>| {
        placement::with_device(Device::Gpu(0), f).and_then(|result| result)
    };
    let works = || {
        let sum = gpu(&|| Array::full(&[1000], 2.0, Some(Dtype::Float32))?.sum(()))
            .and_then(|sum| sum.item::<f32>());
        match sum {
            Ok(2000.0) => Ok("the device still works".to_string()),
            other => Err(format!("{other:?} instead of 2000")),
        }
    };
    let huge = gpu(&|| {
        let x = Array::full(&[1 << 38], 1.0, Some(Dtype::Float32))?;
        x.eval()?;
        Ok(x)
    });
    report(
        "out of memory",
        match huge {
            Err(error) => works().map(|how| format!("{error}; {how}")),
            Ok(_) => Err("a terabyte was allocated".into()),
        },
    );
    let wrong =
        CustomKernel::new("wrong", &["x"], &["out"], "out[0] = nothing_here(x[0]);").and_then(|kernel| {
            let x = Array::full(&[4], 1.0, Some(Dtype::Float32))?;
            kernel.call(&[x]).grid([4, 1, 1]).output(&[4], Dtype::Float32).run()
        });
    report(
        "a kernel that does not compile",
        match wrong {
            Err(_) => works(),
            Ok(_) => Err("it was compiled".into()),
        },
    );
    let scattered = placement::with_device(Device::Gpu(0), checked_write).and_then(|reported| reported);
    report(
        "a checked kernel that writes out of bounds",
        scattered
            .map_err(|error| error.to_string())
            .and_then(|reported| works().map(|how| format!("{reported}; {how}"))),
    );
    let outside = gpu(&|| {
        let text = "uint i = thread_position_in_grid.x; out[i + (1u << 30) * 200u] = x[i]; \
                    for (uint k = 0; k < 64; ++k) out[(ulong)k * 1000000000ul] = 1.0f;";
        let kernel = CustomKernel::new("outside", &["x"], &["out"], text)?.unchecked();
        let x = Array::full(&[64], 1.0, Some(Dtype::Float32))?;
        let call = kernel.call(&[x]).grid([64, 1, 1]).threadgroup([64, 1, 1]);
        let out = call.output(&[64], Dtype::Float32).run()?.swap_remove(0);
        out.eval()?;
        Ok(out)
    });
    report(
        "an unchecked kernel that writes out of bounds",
        match outside {
            Err(error) => {
                let host = placement::with_device(Device::Cpu, || {
                    Array::full(&[4], 1.0, Some(Dtype::Float32))?.sum(())
                });
                match host.and_then(|sum| sum).and_then(|sum| sum.item::<f32>()) {
                    Ok(4.0) => Ok(format!("{error}; the host still works")),
                    other => Err(format!("the host gives {other:?}")),
                }
            }
            Ok(_) => Err("no error was reported".into()),
        },
    );
    failures
}
