//! Many tasks at once with temporaries and dropped handles; and what is left of a device after a fault.

use hesper::place::{self, Device};
use hesper::{Array, CustomKernel, Dtype, Error};
use hesper_gpu_tests::scenarios::{self, TASKS};

/// How often each task does its work, unless that is said.
pub const ROUNDS: usize = 200;

/// The scenarios of 64 tasks, so many rounds each, on the first GPU.
pub fn run(rounds: usize) -> usize {
    let outcomes = scenarios::run(Device::Gpu(0), rounds, |outcome| {
        for failure in &outcome.failures {
            println!("FAIL {}: {failure}", outcome.name);
        }
        let verdict = if outcome.failures.is_empty() { "ok  " } else { "FAIL" };
        let counters = place::gpu(0).map(|runtime| runtime.counters()).unwrap_or_default();
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

/// Faults: too much memory, a kernel's mistake, and last a kernel that writes where it must not, which ends
/// the device: the process lives, and the host goes on.
pub fn faults() -> usize {
    let mut failures = 0;
    let mut tell = |name: &str, outcome: Result<String, String>| match outcome {
        Ok(how) => println!("ok   {name}: {how}"),
        Err(why) => {
            failures += 1;
            println!("FAIL {name}: {why}");
        }
    };
    let gpu =
        |f: &dyn Fn() -> Result<Array, Error>| place::with_device(Device::Gpu(0), f).and_then(|made| made);
    let works = || {
        let sum = gpu(&|| Array::full(&[1000], 2.0, Some(Dtype::Float32))?.sum(None, false))
            .and_then(|sum| sum.item::<f32>());
        match sum {
            Ok(2000.0) => Ok("the device goes on".to_string()),
            other => Err(format!("{other:?} instead of 2000")),
        }
    };
    let huge = gpu(&|| {
        let x = Array::full(&[1 << 38], 1.0, Some(Dtype::Float32))?;
        x.eval()?;
        Ok(x)
    });
    tell(
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
    tell(
        "a kernel with a mistake",
        match wrong {
            Err(_) => works(),
            Ok(_) => Err("it was compiled".into()),
        },
    );
    let outside = gpu(&|| {
        let text = "uint i = thread_position_in_grid.x; out[i + (1u << 30) * 200u] = x[i]; \
                    for (uint k = 0; k < 64; ++k) out[(ulong)k * 1000000000ul] = 1.0f;";
        let kernel = CustomKernel::new("outside", &["x"], &["out"], text)?;
        let x = Array::full(&[64], 1.0, Some(Dtype::Float32))?;
        let call = kernel.call(&[x]).grid([64, 1, 1]).threadgroup([64, 1, 1]);
        let out = call.output(&[64], Dtype::Float32).run()?.swap_remove(0);
        out.eval()?;
        Ok(out)
    });
    tell(
        "a kernel that writes out of bounds",
        match outside {
            Err(error) => {
                let host = place::with_device(Device::Cpu, || {
                    Array::full(&[4], 1.0, Some(Dtype::Float32))?.sum(None, false)
                });
                match host.and_then(|sum| sum).and_then(|sum| sum.item::<f32>()) {
                    Ok(4.0) => Ok(format!("{error}; the host goes on")),
                    other => Err(format!("the host gives {other:?}")),
                }
            }
            Ok(_) => Err("nothing was told".into()),
        },
    );
    failures
}
