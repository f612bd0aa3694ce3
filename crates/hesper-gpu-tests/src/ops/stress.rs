//! Many tasks at once with temporaries and dropped handles; and what is left of a device after a fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::place::{self, Device};
use hesper::{Array, CustomKernel, Dtype, Error, fast};

const TASKS: usize = 64;
/// How often each task does its work, unless that is said.
pub const ROUNDS: usize = 1000;

/// 64 tasks of so many rounds each.
pub fn run(rounds: usize) -> usize {
    let failures = AtomicUsize::new(0);
    for (name, task) in [
        ("S1 custom kernels with temporaries", custom as Task),
        ("S2 the same kernel name with other texts", renamed),
        ("S3 chains whose handles are dropped at once", dropped),
        ("S4 growing caches and shared weights", caches),
    ] {
        let start = std::time::Instant::now();
        let before = failures.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for number in 0..TASKS {
                let failures = &failures;
                scope.spawn(move || {
                    let run = || (0..rounds).try_for_each(|round| task(number, round));
                    if let Err(error) = place::with_device(Device::Gpu(0), run).and_then(|done| done) {
                        failures.fetch_add(1, Ordering::Relaxed);
                        println!("FAIL {name}: task {number}: {error}");
                    }
                });
            }
        });
        let all = failures.load(Ordering::Relaxed);
        let verdict = if all == before { "ok  " } else { "FAIL" };
        let counters = place::gpu(0).map(|runtime| runtime.counters()).unwrap_or_default();
        println!(
            "{verdict} {name}: {TASKS} tasks x {rounds}, {:.1} s, peak {} MiB, {} kernels",
            start.elapsed().as_secs_f64(),
            counters.peak >> 20,
            counters.pipelines.count
        );
    }
    failures.load(Ordering::Relaxed)
}

type Task = fn(usize, usize) -> Result<(), Error>;

fn expect(what: &str, found: f32, wanted: f32) -> Result<(), Error> {
    if (found - wanted).abs() <= 1e-3 * wanted.abs().max(1.0) {
        return Ok(());
    }
    Err(Error::Kernel(format!("{what}: {found} instead of {wanted}")))
}

fn custom(task: usize, round: usize) -> Result<(), Error> {
    let text = "uint i = thread_position_in_grid.x; out[i] = 2.0f * x[i] + y[i];";
    let kernel = CustomKernel::new("axpy", &["x", "y"], &["out"], text)?;
    let (a, b) = ((task % 7) as f32, (round % 11) as f32);
    let n = 256 + 64 * (task % 3);
    let x = Array::full(&[n], a, Some(Dtype::Float32))?;
    let y = Array::full(&[n], b, Some(Dtype::Float32))?.add(1.0)?;
    let launch = |x: &Array, y: &Array| -> Result<Array, Error> {
        let call = kernel.call(&[x.clone(), y.clone()]).grid([n as u64, 1, 1]).threadgroup([64, 1, 1]);
        Ok(call.output(&[n], Dtype::Float32).run()?.swap_remove(0))
    };
    let once = launch(&x, &y)?;
    hesper::async_eval([&once])?;
    drop((x, y));
    let twice = launch(&once, &once)?;
    drop(once);
    if round.is_multiple_of(50) {
        let sum = twice.sum(None, false)?.item::<f32>()?;
        expect("axpy of axpy", sum, n as f32 * 3.0 * (2.0 * a + b + 1.0))?;
    } else {
        hesper::async_eval([&twice])?;
    }
    Ok(())
}

fn renamed(task: usize, round: usize) -> Result<(), Error> {
    let factor = 1 + (task + round) % 4;
    let text = format!("uint i = thread_position_in_grid.x; out[i] = x[i] * {factor}.0f;");
    let kernel = CustomKernel::new("scale", &["x"], &["out"], &text)?;
    let x = Array::full(&[128], 3.0, Some(Dtype::Float32))?;
    let call = kernel.call(&[x]).grid([128, 1, 1]).threadgroup([128, 1, 1]);
    let out = call.output(&[128], Dtype::Float32).run()?.swap_remove(0);
    if round.is_multiple_of(50) {
        return expect("scale", out.sum(None, false)?.item::<f32>()?, 128.0 * 3.0 * factor as f32);
    }
    hesper::async_eval([&out])
}

fn dropped(task: usize, round: usize) -> Result<(), Error> {
    let mut x = Array::full(&[64, 64], 1.0, Some(Dtype::Float32))?;
    for _ in 0..4 {
        let y = x.add(1.0)?.t()?.multiply(0.5)?;
        hesper::async_eval([&y])?;
        x = y.sum(Some(&[0]), true)?.multiply(1.0 / 64.0)?.broadcast_to(&[64, 64])?;
    }
    if (task + round).is_multiple_of(50) {
        // 1 is where (x + 1) / 2 stays.
        return expect("mean of means", x.mean(None, false)?.item::<f32>()?, 1.0);
    }
    hesper::async_eval([&x])
}

fn caches(task: usize, round: usize) -> Result<(), Error> {
    if !round.is_multiple_of(10) {
        return Ok(());
    }
    let weight = Array::full(&[16, 16], 0.0625, Some(Dtype::Float32))?;
    let mut cache = Array::zeros(&[1, 1, 0, 16], Dtype::Float32)?;
    for step in 0..8 {
        let row = Array::full(&[1, 16], (step + task % 5) as f32, Some(Dtype::Float32))?.matmul(&weight)?;
        cache = fast::append(&cache, &row.reshape(&[1, 1, 1, 16])?, &[step], 8)?;
        hesper::async_eval([&cache])?;
    }
    let wanted: usize = (0..8).map(|step| step + task % 5).sum();
    expect("the cache's sum", cache.sum(None, false)?.item::<f32>()?, 16.0 * wanted as f32)
}

/// A kernel that writes past the end of its output, between others that do not: it alone fails, alone and in graphs.
fn checked_write() -> Result<String, Error> {
    let text = "uint i = thread_position_in_grid.x;\nout[indices[i]] = x[i];";
    let kernel = CustomKernel::new("scatter", &["x", "indices"], &["out"], text)?;
    let x = Array::full(&[1024], 3.0, Some(Dtype::Float32))?;
    let scatter = |shift: i64| -> Result<Array, Error> {
        let indices = Array::arange(shift..shift + 1024, Some(Dtype::Int32))?;
        let call = kernel.call(&[x.clone(), indices]).grid([1024, 1, 1]).threadgroup([256, 1, 1]);
        Ok(call.output(&[1024], Dtype::Float32).run()?.swap_remove(0))
    };
    let mut told = String::new();
    for round in 0..4 {
        let shifts = [0, 0, 1, 0, -1, 0, 1 << 29, 0, 0, 0, 0, 0];
        let outputs = shifts.iter().map(|shift| scatter(*shift)).collect::<Result<Vec<_>, _>>()?;
        // Their failures are seen below.
        let _ = hesper::async_eval(&outputs);
        for (shift, out) in shifts.iter().zip(&outputs) {
            for _ in 0..2 {
                match (shift, out.sum(None, false).and_then(|sum| sum.item::<f32>())) {
                    (0, Ok(sum)) => expect("a sum", sum, 3072.0)?,
                    (0, Err(error)) => return Err(error),
                    (_, Ok(_)) => {
                        return Err(Error::Kernel(format!("round {round}: {shift} was not noticed")));
                    }
                    (_, Err(error)) => {
                        told = error.to_string();
                        let named = ["scatter", "body:2", "`out` (4096 bytes)"];
                        if let Some(part) = named.iter().find(|part| !told.contains(**part)) {
                            return Err(Error::Kernel(format!("no {part:?} in {told}")));
                        }
                    }
                }
            }
        }
    }
    Ok(told.replace('\n', " "))
}

/// Faults: too much memory, a kernel's mistake, kernels that write where they must not. The last of them is not checked
/// and ends the device: the process lives, and the host goes on.
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
    let scattered = place::with_device(Device::Gpu(0), checked_write).and_then(|told| told);
    tell(
        "a checked kernel that writes out of bounds",
        scattered
            .map_err(|error| error.to_string())
            .and_then(|told| works().map(|how| format!("{told}; {how}"))),
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
    tell(
        "an unchecked kernel that writes out of bounds",
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
