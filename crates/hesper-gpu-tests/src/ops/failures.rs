//! A mixed program under failures: a driver call refused at each position, memory limits lowered and raised,
//! out-of-range kernels, exit with work in flight. After each failure everything is evaluated again: results
//! are right, or errors with a cause; nothing hangs or leaks.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hesper::fast::{self, AttentionMask};
use hesper::placement::{self, Device};
use hesper::transform::compile;
use hesper::{Array, CustomKernel, Dtype, Error, QuantMode, axes};
use hesper_cuda::inject::{self, Call};

/// The time limit of the sweep over all positions; the number of skipped positions is reported.
const SWEEP_LIMIT: Duration = Duration::from_secs(40);
/// The time limit after which a watchdog ends the process.
const WATCHDOG_LIMIT: Duration = Duration::from_secs(150);
/// About how many positions of each kind of call are tested per case.
const POSITIONS: u64 = 10;
const OUT_OF_MEMORY: u32 = 2;
const INVALID_VALUE: u32 = 1;

type Build = fn() -> Result<Vec<Array>, Error>;

/// A part of the checks. Takes the expected results of each case, and counts failures.
type Part = fn(&[Vec<Vec<f32>>], &mut Sums);

/// The cases of the program. Each has the same result on every device.
const CASES: [(&str, Build); 12] = [
    ("chains", chains),
    ("compiled on temporaries", compiled),
    ("updates in place", updates),
    ("custom kernels", custom),
    ("products", products),
    ("quantised products", quantised),
    ("attention", attention),
    ("transfers between devices", transfers),
    ("two streams", streams),
    ("sorts and scans", sorts),
    ("growing caches", caches),
    ("dependent launches", dependent_launches),
];

fn ramp(n: usize, shape: &[isize], step: f32) -> Result<Array, Error> {
    Array::arange(n as f64, Some(Dtype::Float32))?.multiply(step)?.subtract(1.0)?.reshape(shape)
}

fn chains() -> Result<Vec<Array>, Error> {
    let x = ramp(4096, &[64, 64], 1.0 / 2048.0)?;
    let mut y = x.clone();
    for _ in 0..6 {
        y = y.multiply(1.5)?.tanh()?.add(&x)?;
        y = y.subtract(y.mean(axes(1).keepdims())?)?.t()?;
    }
    Ok(vec![y.sum(0)?, y.softmax(-1)?, y])
}

fn compiled() -> Result<Vec<Array>, Error> {
    let w = ramp(1024, &[32, 32], 1.0 / 4096.0)?;
    let base = ramp(1024, &[32, 32], 1.0 / 512.0)?;
    let f = compile(move |x: &[Array]| {
        let y = x[0].add(1.0)?.matmul(&w)?;
        let z = y.multiply(0.5)?.add(&x[0])?;
        Ok(vec![z.matmul(&w)?.tanh()?, z])
    });
    // The argument is a temporary that the run may overwrite.
    let mut results = f(&[base.add(1.0)?])?;
    results.extend(f(&[results[0].multiply(2.0)?])?);
    Ok(results)
}

fn updates() -> Result<Vec<Array>, Error> {
    let mut x = Array::zeros(&[16, 64], Dtype::Float32)?;
    for at in 0..8isize {
        let row = Array::full(&[1, 64], at as f32, Some(Dtype::Float32))?;
        x = x.slice_update(&row, &[at, 0], &[at + 1, 64], &[1, 1])?.add(0.25)?;
    }
    let before = x.clone();
    let patch = Array::full(&[4, 4], 9.0, Some(Dtype::Float32))?;
    let after = x.slice_update(&patch, &[2, 2], &[6, 6], &[1, 1])?;
    Ok(vec![before, after])
}

fn custom() -> Result<Vec<Array>, Error> {
    let kernel = CustomKernel::new(
        "evens",
        &["x"],
        &["out"],
        "uint i = thread_position_in_grid.x; if (i % 2 == 0) out[i] = 2.0f * x[i];",
    )?;
    let mut x = ramp(3000, &[3000], 1.0 / 1500.0)?;
    let mut results = Vec::new();
    for _ in 0..3 {
        let call = kernel.call(&[x.add(1.0)?]).grid([3000, 1, 1]).threadgroup([64, 1, 1]);
        // Odd elements are never written, so they must be zero, whatever the memory held.
        x = call.output(&[3000], Dtype::Float32).run()?.swap_remove(0);
        results.push(x.clone());
    }
    Ok(results)
}

fn products() -> Result<Vec<Array>, Error> {
    let (a, b) = (ramp(96 * 128, &[96, 128], 1.0 / 8192.0)?, ramp(128 * 80, &[128, 80], 1.0 / 8192.0)?);
    let wide = a.matmul(&b)?;
    let row = ramp(128, &[1, 128], 1.0 / 64.0)?.matmul(&b)?;
    let batch = ramp(4 * 64 * 64, &[4, 64, 64], 1.0 / 16384.0)?;
    let chain = batch.matmul(&batch)?.add(&batch)?.matmul(&batch)?;
    Ok(vec![wide, row, chain])
}

fn quantised() -> Result<Vec<Array>, Error> {
    let w = ramp(64 * 128, &[64, 128], 1.0 / 4096.0)?;
    let (codes, scales, biases) = w.quantize(Some(64), Some(4), QuantMode::Affine)?;
    let x = ramp(3 * 128, &[3, 128], 1.0 / 192.0)?;
    let y =
        x.quantized_matmul(&codes, &scales, biases.as_ref(), true, Some(64), Some(4), QuantMode::Affine)?;
    Ok(vec![y])
}

fn attention() -> Result<Vec<Array>, Error> {
    let kv = ramp(2 * 4 * 256 * 64, &[2, 4, 256, 64], 1.0 / 65536.0)?;
    let q = ramp(2 * 8 * 64, &[2, 8, 1, 64], 1.0 / 512.0)?;
    let one = fast::scaled_dot_product_attention(&q, &kv, &kv, 0.125, AttentionMask::None, None)?;
    let all = kv.slice(&[0, 0, 0, 0], &[2, 4, 64, 64], &[1; 4])?;
    let many = fast::scaled_dot_product_attention(&all, &kv, &kv, 0.125, AttentionMask::Causal, None)?;
    Ok(vec![one, many])
}

fn transfers() -> Result<Vec<Array>, Error> {
    let here = ramp(20_000, &[100, 200], 1.0 / 10_000.0)?.add(1.0)?;
    let there = placement::with_device(Device::Cpu, || here.multiply(2.0)?.sort(Some(1)))??;
    let back = there.add(&here)?;
    let again = placement::with_device(Device::Cpu, || back.sum(0))??;
    Ok(vec![back, again.multiply(0.5)?])
}

fn streams() -> Result<Vec<Array>, Error> {
    let runtime = placement::current_stream()?.runtime();
    let (one, two) = (runtime.stream()?, runtime.stream()?);
    let x = ramp(4096, &[64, 64], 1.0 / 4096.0)?;
    let mut y = x.clone();
    for round in 0..6 {
        let stream = if round % 2 == 0 { &one } else { &two };
        y = placement::with_stream(stream, || y.add(&x)?.multiply(0.5)?.cumsum(Some(1), false, true))?;
        y = y.multiply(1.0 / 64.0)?;
    }
    Ok(vec![y])
}

fn sorts() -> Result<Vec<Array>, Error> {
    let x = ramp(8000, &[8, 1000], 0.37)?.sin()?;
    let order = x.argsort(Some(1))?;
    let index = Array::arange(500.0, Some(Dtype::Int32))?.multiply(2)?;
    Ok(vec![x.sort(Some(1))?, order, x.take(&index, Some(1))?, x.cumsum(Some(1), true, true)?])
}

fn caches() -> Result<Vec<Array>, Error> {
    let mut cache = Array::zeros(&[2, 2, 0, 16], Dtype::Float32)?;
    for step in 0..6 {
        let rows = ramp(64, &[2, 2, 1, 16], 0.01)?.add(step as f32)?;
        cache = fast::append(&cache, &rows, &[step, step], 8)?;
    }
    Ok(vec![cache])
}

/// A chain of products of a row and a matrix. With dependent launch a kernel reads its weights before it
/// waits for earlier kernels; weights that an earlier kernel computes must not be read early.
fn dependent_launches() -> Result<Vec<Array>, Error> {
    let w = ramp(1 << 20, &[1024, 1024], 1.0 / (1 << 20) as f32)?;
    let mut x = ramp(1024, &[1, 1024], 1.0 / 512.0)?;
    let mut results = Vec::new();
    for step in 0..6 {
        let weights = if step % 2 == 0 { w.clone() } else { w.add(step as f32)? };
        x = x.matmul(&weights.t()?)?.multiply(1.0 / 256.0)?.tanh()?;
        results.push(x.clone());
    }
    Ok(results)
}

/// The results of each case on the host.
fn expected() -> Result<Vec<Vec<Vec<f32>>>, Error> {
    placement::with_device(Device::Cpu, || {
        let of = |(_, build): &(&str, Build)| -> Result<Vec<Vec<f32>>, Error> {
            build()?.iter().map(values).collect()
        };
        CASES.iter().map(of).collect()
    })?
}

fn values(array: &Array) -> Result<Vec<f32>, Error> {
    placement::with_device(Device::Cpu, || array.astype(Dtype::Float32)?.to_vec::<f32>())?
}

/// The numbers of right results and of errors; wrong results, and errors without a message, are failures.
struct Judged {
    right: u64,
    errors: u64,
    wrong: Vec<String>,
}

fn judge(result: &Result<Vec<Array>, Error>, wanted: &[Vec<f32>]) -> Judged {
    let mut judged = Judged { right: 0, errors: 0, wrong: Vec::new() };
    let arrays = match result {
        Ok(arrays) => arrays,
        Err(error) => {
            judged.errors += 1;
            if error.to_string().is_empty() {
                judged.wrong.push("an error without a message".into());
            }
            return judged;
        }
    };
    for (at, (array, wanted)) in arrays.iter().zip(wanted).enumerate() {
        match values(array) {
            Err(_) => judged.errors += 1,
            Ok(found) => {
                let size = wanted.iter().map(|x| x.abs()).sum::<f32>() / wanted.len().max(1) as f32;
                let off = |(x, y): (&f32, &f32)| (x - y).abs() > 0.02 * (y.abs() + size) + 1e-4 || x.is_nan();
                match found.iter().zip(wanted).position(off) {
                    None if found.len() == wanted.len() => judged.right += 1,
                    None => judged.wrong.push(format!("result {at} has {} elements", found.len())),
                    Some(place) => judged.wrong.push(format!(
                        "result {at} at {place}: {} instead of {}",
                        found[place], wanted[place]
                    )),
                }
            }
        }
    }
    judged
}

fn on_gpu(build: Build) -> Result<Vec<Array>, Error> {
    let result = placement::with_device(Device::Gpu(0), build)??;
    placement::with_device(Device::Gpu(0), || hesper::async_eval(&result))??;
    Ok(result)
}

#[derive(Default)]
struct Sums {
    positions: u64,
    refused: u64,
    right: u64,
    errors: u64,
    failures: usize,
}

impl Sums {
    fn fail(&mut self, what: String) {
        self.failures += 1;
        if self.failures <= 20 {
            println!("FAIL {what}");
        }
    }

    fn add(&mut self, what: &str, judged: Judged) {
        self.right += judged.right;
        self.errors += judged.errors;
        for wrong in judged.wrong {
            self.fail(format!("{what}: {wrong}"));
        }
    }

    /// Runs a case without injected failures: an error or a wrong result is a failure.
    fn again(&mut self, what: &str, case: usize, wanted: &[Vec<Vec<f32>>]) {
        let result = on_gpu(CASES[case].1);
        let judged = judge(&result, &wanted[case]);
        let reported = result.as_ref().err().map(ToString::to_string);
        if judged.errors > 0 || !judged.wrong.is_empty() {
            let why = reported.or_else(|| {
                result.ok()?.iter().find_map(|array| values(array).err().map(|error| error.to_string()))
            });
            self.fail(format!("{what}: wrong or failed afterwards: {:?} {why:?}", judged.wrong.first()));
        }
    }
}

/// Runs all checks; returns the number of failures.
pub fn run() -> usize {
    let begun = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(WATCHDOG_LIMIT);
        println!("FAIL failures: still running after {} s", WATCHDOG_LIMIT.as_secs());
        std::process::exit(101);
    });
    let wanted = match expected() {
        Ok(wanted) => wanted,
        Err(error) => {
            println!("FAIL on the host: {error}");
            return 1;
        }
    };
    let mut sums = Sums::default();
    for (case, (name, _)) in CASES.iter().enumerate() {
        sums.again(&format!("{name}, before all"), case, &wanted);
    }
    let parts: [(&str, Part); 7] = [
        ("calls refused one by one", refused),
        ("memory limits", limits),
        ("16 threads with failures", threads),
        ("fresh outputs are cleared", cleared),
        ("kernels out of bounds", out_of_bounds),
        ("memory comes back", returned),
        ("exit with work in flight", exits),
    ];
    for (name, part) in parts {
        let (start, before) = (Instant::now(), sums.failures);
        part(&wanted, &mut sums);
        let verdict = if sums.failures == before { "ok  " } else { "FAIL" };
        println!("{verdict} {name} [{:.1} s]", start.elapsed().as_secs_f64());
    }
    println!(
        "failures: {} positions, {} calls refused, {} results right, {} errors, {} wrong, {:.1} s",
        sums.positions,
        sums.refused,
        sums.right,
        sums.errors,
        sums.failures,
        begun.elapsed().as_secs_f64()
    );
    sums.failures
}

/// Refuses a call at each position of each case, then evaluates the same arrays again, then new ones.
fn refused(wanted: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let Ok(runtime) = placement::gpu(0) else { return sums.fail("no device".into()) };
    let begun = Instant::now();
    let mut left_out = 0;
    for (case, (name, build)) in CASES.iter().enumerate() {
        // Count the calls of a run with compiled kernels and an empty pool.
        runtime.clear_cache();
        let before = Call::ALL.map(inject::calls);
        sums.again(name, case, wanted);
        let counts = Call::ALL.map(|call| inject::calls(call) - before[call as usize]);
        for call in Call::ALL {
            let count = counts[call as usize];
            let step = count.div_ceil(POSITIONS).max(1);
            for nth in (1..=count).step_by(step as usize) {
                for (code, persistent) in [(OUT_OF_MEMORY, false), (INVALID_VALUE, true)] {
                    if begun.elapsed() > SWEEP_LIMIT {
                        left_out += 1;
                        continue;
                    }
                    let what =
                        format!("{name}, {call:?} {nth} of {count}, code {code}, persistent {persistent}");
                    runtime.clear_cache();
                    let refused = inject::refused();
                    inject::fail(call, nth, code, persistent);
                    let result = on_gpu(*build);
                    let first = judge(&result, &wanted[case]);
                    inject::stop();
                    sums.add(&what, first);
                    // The same arrays: those that became lazy again are computed now.
                    sums.add(&format!("{what}, again"), judge(&result, &wanted[case]));
                    drop(result);
                    sums.again(&what, case, wanted);
                    sums.positions += 1;
                    sums.refused += inject::refused() - refused;
                }
            }
        }
        if let Some(fault) = runtime.lost() {
            return sums.fail(format!("{name}: the device is lost: {fault}"));
        }
    }
    println!("     {} positions, {left_out} left out for time", sums.positions);
}

/// Lowers the memory limit step by step, then raises it.
fn limits(wanted: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let Ok(runtime) = placement::gpu(0) else { return sums.fail("no device".into()) };
    let old = runtime.memory_limit();
    for (case, (name, build)) in CASES.iter().enumerate() {
        let mut errors = 0;
        for room in
            [0usize, 1 << 12, 1 << 14, 1 << 16, 1 << 17, 1 << 18, 1 << 20, 1 << 22, 40 << 20, 80 << 20]
        {
            runtime.clear_cache();
            runtime.set_memory_limit(runtime.counters().active + room);
            let result = on_gpu(*build);
            let first = judge(&result, &wanted[case]);
            errors += first.errors;
            runtime.set_memory_limit(old);
            sums.add(&format!("{name}, {room} bytes"), first);
            sums.add(&format!("{name}, {room} bytes, again"), judge(&result, &wanted[case]));
            drop(result);
            sums.again(&format!("{name}, {room} bytes"), case, wanted);
            sums.positions += 1;
        }
        if errors == 0 {
            sums.fail(format!("{name}: no limit refused anything"));
        }
    }
}

/// Threads that run all cases while calls are refused at random, then without.
fn threads(wanted: &[Vec<Vec<f32>>], sums: &mut Sums) {
    for faulty in [true, false] {
        let (right, errors) = (AtomicU64::new(0), AtomicU64::new(0));
        let begun = Instant::now();
        let wrong: Vec<String> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..16usize)
                .map(|thread| {
                    let (right, errors) = (&right, &errors);
                    scope.spawn(move || {
                        let mut wrong = Vec::new();
                        let mut round = 0u64;
                        while begun.elapsed() < Duration::from_secs(4) {
                            let case = (thread + round as usize) % CASES.len();
                            if faulty && thread == 0 {
                                let call = Call::ALL[round as usize % Call::ALL.len()];
                                inject::fail(call, 1 + round * 7 % 40, OUT_OF_MEMORY, false);
                            }
                            let result = on_gpu(CASES[case].1);
                            let judged = judge(&result, &wanted[case]);
                            right.fetch_add(judged.right, Ordering::Relaxed);
                            errors.fetch_add(judged.errors, Ordering::Relaxed);
                            wrong.extend(
                                judged.wrong.into_iter().map(|what| format!("{}: {what}", CASES[case].0)),
                            );
                            if !faulty && judged.errors > 0 {
                                let lost = placement::gpu(0).ok().and_then(|runtime| runtime.lost());
                                wrong.push(format!("{}: an error without a failure {lost:?}", CASES[case].0));
                            }
                            round += 1;
                        }
                        wrong
                    })
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["a thread panicked".into()]))
                .collect()
        });
        // A failure that was not met yet would hit the threads that expect none.
        inject::stop();
        wrong.into_iter().for_each(|what| sums.fail(format!("threads: {what}")));
        sums.right += right.into_inner();
        sums.errors += errors.into_inner();
    }
    for (case, (name, _)) in CASES.iter().enumerate() {
        sums.again(&format!("{name}, after threads"), case, wanted);
    }
}

/// Outputs that a kernel writes only in part are cleared, although their memory was used before.
fn cleared(_: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let text =
        "uint i = thread_position_in_grid.x; if (i % 5 == 0) out[i] = 1.0f; if (i == 3) other[1] = 2.0f;";
    let outcome = placement::with_device(Device::Gpu(0), || -> Result<(), Error> {
        let kernel = CustomKernel::new("fifths", &["x"], &["out", "other"], text)?;
        for n in [5usize, 257, 4096, 100_003] {
            for _ in 0..20 {
                Array::full(&[n], 7.0, Some(Dtype::Float32))?.add(0.0)?.eval()?;
            }
            let x = Array::zeros(&[1], Dtype::Float32)?;
            let call = kernel.call(&[x]).grid([n as u64, 1, 1]).threadgroup([32, 1, 1]);
            let outputs = call.output(&[n], Dtype::Float32).output(&[9], Dtype::Float32).run()?;
            let (out, other) = (outputs[0].to_vec::<f32>()?, outputs[1].to_vec::<f32>()?);
            let wrong = out.iter().enumerate().find(|(at, x)| **x != if at % 5 == 0 { 1.0 } else { 0.0 });
            if wrong.is_some() || other != [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
                return Err(Error::Kernel(format!("{n} elements: {wrong:?}, {other:?}")));
            }
        }
        Ok(())
    });
    if let Err(error) = outcome.and_then(|inner| inner) {
        sums.fail(format!("fresh outputs: {error}"));
    }
}

/// Kernels of the kernel language with out-of-range accesses: writes fail by name, reads return zero, and no
/// other memory changes.
fn out_of_bounds(wanted: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let outcome = placement::with_device(Device::Gpu(0), || -> Result<(), Error> {
        let neighbours: Vec<Array> = (0..64)
            .map(|value| Array::full(&[4096], value as f32, Some(Dtype::Float32))?.add(1.0))
            .collect::<Result<_, _>>()?;
        hesper::eval(&neighbours)?;
        let x = Array::full(&[64], 5.0, Some(Dtype::Float32))?.add(0.0)?;
        x.eval()?;
        for (name, text, writes) in [
            (
                "far_writer",
                "uint i = thread_position_in_grid.x; out[i] = x[i];\nout[i + 4096u] = 3.0f;",
                true,
            ),
            (
                "low_writer",
                "int i = int(thread_position_in_grid.x);\nout[i - 64] = 3.0f;\nout[i] = x[i];",
                true,
            ),
            (
                "huge_writer",
                "uint i = thread_position_in_grid.x; out[i] = x[i];\nout[(ulong)i * 1000000007ul] = 3.0f;",
                true,
            ),
            ("far_reader", "uint i = thread_position_in_grid.x;\nout[i] = x[i + 100000000u];", false),
        ] {
            let kernel = CustomKernel::new(name, &["x"], &["out"], text)?;
            let call = kernel.call(&[x.clone()]).grid([64, 1, 1]).threadgroup([64, 1, 1]);
            let out = call.output(&[64], Dtype::Float32).run()?.swap_remove(0);
            match (values(&out), writes) {
                (Err(error), _) => {
                    let reported = error.to_string();
                    let buffer = if writes { "out" } else { "x" };
                    let line = ["line 2", ":2:", "(2)"].iter().any(|form| reported.contains(form));
                    if !reported.contains(name) || !reported.contains(buffer) || !line {
                        sums.fail(format!("{name}: the error names no kernel, line and buffer: {reported}"));
                    }
                }
                (Ok(_), true) => sums.fail(format!("{name}: no error was reported")),
                (Ok(found), false) if found.iter().any(|value| *value != 0.0) => {
                    sums.fail(format!("{name}: read something: {:?}", &found[..4]));
                }
                (Ok(_), false) => {}
            }
            for (value, array) in neighbours.iter().enumerate() {
                let found = values(array)?;
                if let Some(wrong) = found.iter().find(|found| **found != value as f32 + 1.0) {
                    sums.fail(format!("{name}: neighbour {value} holds {wrong}"));
                    break;
                }
            }
            if values(&x)?.iter().any(|found| *found != 5.0) {
                sums.fail(format!("{name}: its input changed"));
            }
        }
        Ok(())
    });
    if let Err(error) = outcome.and_then(|inner| inner) {
        sums.fail(format!("out of bounds: {error}"));
    }
    for (case, (name, _)) in CASES.iter().enumerate() {
        sums.again(&format!("{name}, after kernels out of bounds"), case, wanted);
    }
}

/// Checks that all memory is returned.
fn returned(_: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let Ok(runtime) = placement::gpu(0) else { return sums.fail("no device".into()) };
    if let Err(error) = runtime.synchronize() {
        // Faults of submissions that failed on purpose are reported here; a lost device is an error.
        if runtime.lost().is_some() {
            return sums.fail(format!("synchronize: {error}"));
        }
    }
    runtime.clear_cache();
    let counters = runtime.counters();
    println!(
        "     {} bytes active, {} cached, {} streams",
        counters.active, counters.cached, counters.streams
    );
    if counters.active > 4 << 20 || counters.cached > 4 << 20 {
        sums.fail(format!("memory is still held: {counters:?}"));
    }
}

/// The environment variable that selects how a child process exits.
const CHILD: &str = "HESPER_OPS_CHECK_EXIT";

/// Ways to exit with work in flight, and the expected statuses.
const EXITS: [(&str, i32); 11] = [
    ("exit", 7),
    ("return", 0),
    ("panic", 101),
    ("threads", 5),
    ("dropped", 3),
    ("compiling 0", 6),
    ("compiling 3", 6),
    ("compiling 10", 6),
    ("compiling 30", 6),
    ("compiling 100", 6),
    ("compiling 300", 6),
];

/// Starts child processes that exit with work in flight, and checks their statuses.
fn exits(_: &[Vec<Vec<f32>>], sums: &mut Sums) {
    let Ok(program) = std::env::current_exe() else {
        return sums.fail("the path of this program is unknown".into());
    };
    for (way, status) in EXITS {
        let mut command = Command::new(&program);
        command.arg("failures").env(CHILD, way).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let Ok(mut child) = command.spawn() else { return sums.fail("cannot start a child process".into()) };
        let exit_status = loop {
            match child.try_wait() {
                Ok(Some(exit_status)) => break Some(exit_status),
                Ok(None) if begun.elapsed() < Duration::from_secs(25) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => break None,
            }
        };
        let Some(exit_status) = exit_status else {
            let _ = child.kill();
            sums.fail(format!("exit by {way}: hangs"));
            continue;
        };
        if exit_status.code() != Some(status) {
            let reported =
                child.wait_with_output().map(|out| String::from_utf8_lossy(&out.stderr).into_owned());
            sums.fail(format!(
                "exit by {way}: {exit_status} instead of {status}: {}",
                reported.unwrap_or_default()
            ));
        }
    }
}

/// Whether this is a child process that must exit with work in flight.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Compiles and runs kernels that no process had before, until one fails.
fn compile_new_kernels(thread: u32) -> Result<(), Error> {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let first = since.as_nanos() as u32 ^ thread << 28;
    let run = |number: u32| -> Result<(), Error> {
        let text = format!("out[thread_position_in_grid.x] = {}u;", first.wrapping_add(number));
        let kernel = CustomKernel::new("unique", &[], &["out"], &text)?;
        hesper::eval(
            &kernel.call(&[]).grid([4, 1, 1]).threadgroup([4, 1, 1]).output(&[4], Dtype::Uint32).run()?,
        )
    };
    (0..).try_for_each(|number| placement::with_device(Device::Gpu(0), || run(number))?)
}

/// Exits as requested, or lets the caller return.
pub fn exit_as_requested() {
    let Ok(way) = std::env::var(CHILD) else { return };
    let busy = || -> Result<Vec<Array>, Error> {
        let mut x = Array::full(&[2048, 2048], 0.001, Some(Dtype::Float32))?;
        for _ in 0..200 {
            x = x.matmul(&x)?.tanh()?;
        }
        hesper::async_eval([&x])?;
        Ok(vec![x])
    };
    let busy = move || placement::with_device(Device::Gpu(0), busy).and_then(|result| result);
    match way.as_str() {
        "exit" => {
            let _held = busy();
            std::process::exit(7);
        }
        "panic" => {
            let _held = busy();
            panic!("on purpose");
        }
        "threads" => {
            for _ in 0..8 {
                std::thread::spawn(move || {
                    loop {
                        let _ = busy().map(|arrays| values(&arrays[0]));
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(1500));
            std::process::exit(5);
        }
        "dropped" => {
            drop(busy());
            std::process::exit(3);
        }
        // Threads compile kernels that are on no disk, and the process exits after some milliseconds.
        _ if way.starts_with("compiling ") => {
            for thread in 0..8 {
                std::thread::spawn(move || compile_new_kernels(thread));
            }
            let delay = way.trim_start_matches("compiling ").parse().unwrap_or_default();
            std::thread::sleep(Duration::from_millis(delay));
            std::process::exit(6);
        }
        _ => {
            // Thread-local arrays are dropped after `main` has returned.
            thread_local!(static HELD: std::cell::RefCell<Vec<Array>> = const { std::cell::RefCell::new(Vec::new()) });
            if let Ok(arrays) = busy() {
                HELD.with(|held| held.borrow_mut().extend(arrays));
            }
        }
    }
}
