//! Evaluation after a failure. One call of the device fails, or an allocation of some size is refused; then
//! everything is evaluated again. Each array has the right elements, or the same error each time.
//! `HESPER_SWEEP=all` fails every call of every case, which takes minutes.

use crate::alone;
use crate::table;
use std::sync::{Arc, Barrier};

use crate::sim::interpret;
use crate::table::like;
use hesper::{Array, CustomKernel, Dtype, Result, Split, fast, placement, select, transform};
use hesper_cpu::CpuDevice;
use hesper_runtime::sim::{Failure, Sim};
use hesper_runtime::{CacheLimits, Runtime, Stream};

type Bits = Vec<u8>;

/// The arrays of a job: its inputs that stay in use, and its results.
type Arrays = Vec<Array>;

/// A graph to evaluate. It is built anew for each failure.
struct Job<'a> {
    name: String,
    build: Box<dyn Fn() -> Result<Arrays> + 'a>,
}

fn job<'a>(name: impl Into<String>, build: impl Fn() -> Result<Arrays> + 'a) -> Job<'a> {
    Job { name: name.into(), build: Box::new(build) }
}

fn bits(array: &Array) -> Result<Bits> {
    array.read_bytes(<[u8]>::to_vec)
}

fn everything() -> bool {
    std::env::var("HESPER_SWEEP").is_ok_and(|text| text == "all")
}

/// The same elements in memory with one handle.
fn temporary(x: &Array) -> Result<Array> {
    select(&Array::scalar(1.0, Dtype::Bool)?, x, x)
}

/// The same elements on the host, without replicas on devices.
fn fresh(x: &Array) -> Result<Array> {
    x.read_bytes(|bytes| Array::from_bytes(bytes, x.dtype(), x.shape()))?
}

/// The jobs of a case: the op on temporaries, on arrays with other handles, compiled and differentiated.
fn jobs(case: &table::Case) -> Vec<Job<'_>> {
    let inputs = move || case.inputs.iter().map(|x| temporary(&fresh(x)?)).collect::<Result<Vec<Array>>>();
    let mut jobs = vec![
        job(format!("{} on temporaries", case.name), move || (case.function)(&inputs()?)),
        job(format!("{} on held arrays", case.name), move || {
            let inputs = inputs()?;
            let outputs = (case.function)(&inputs)?;
            Ok(inputs.into_iter().step_by(2).chain(outputs).collect())
        }),
        job(
            format!("{} compiled", case.name),
            move || transform::compile(|x| (case.function)(x))(&inputs()?),
        ),
    ];
    if case.smooth {
        jobs.push(job(format!("cotangents of {}", case.name), move || {
            let inputs = inputs()?;
            let outputs = (case.function)(&inputs)?;
            let cotangents: Vec<Array> = outputs.iter().map(|y| like(80, y)).collect();
            Ok(transform::vjp(&case.function, &inputs, &cotangents)?.1)
        }));
    }
    jobs
}

/// The elements of a job without a failure, the bytes that it leaves on the device (replicas of constants),
/// and its peak memory there.
struct Expected {
    bits: Vec<Bits>,
    left: usize,
    peak: usize,
}

fn expected(job: &Job<'_>, runtime: &Runtime, stream: &Stream) -> Expected {
    let run = || -> Result<Vec<Bits>> { (job.build)()?.iter().map(bits).collect() };
    runtime.reset_peak();
    let bits = placement::with_stream(stream, run).unwrap_or_else(|error| panic!("{}: {error}", job.name));
    runtime.synchronize().unwrap();
    Expected { bits, left: runtime.counters().active, peak: runtime.counters().peak }
}

/// Evaluates a job while something fails, then without the failure. Each array has its elements, or the same
/// error each time. Returns the number of arrays with an error the last time.
fn retried(job: &Job<'_>, stream: &Stream, expected: &[Bits], what: &str, lift: impl FnOnce()) -> usize {
    placement::with_stream(stream, || {
        let built = (job.build)();
        if let Ok(arrays) = &built {
            let _ = hesper::eval(arrays);
        }
        lift();
        // A graph that could not be built before can be built now.
        let arrays = match built.or_else(|_| (job.build)()) {
            Ok(arrays) => arrays,
            Err(_) => return 1,
        };
        let look = |at: usize| match bits(&arrays[at]) {
            Ok(found) => {
                assert!(found == expected[at], "{}: other numbers in {at} after {what}", job.name);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let passes: Vec<Vec<Option<String>>> =
            (0..4).map(|_| (0..arrays.len()).map(look).collect()).collect();
        // From the second time on nothing changes, unless the failing call is one of the reads themselves:
        // reading an array that is not row-major copies it.
        let (mut failed, mut changed) = (0, 0);
        for ((one, two), three) in passes[1].iter().zip(&passes[2]).zip(&passes[3]) {
            let most = if one == two || one == three { one } else { two };
            changed += [one, two, three].iter().filter(|found| *found != &most).count();
            failed += usize::from(most.is_some());
        }
        assert!(changed <= 1, "{} changes after {what}: {passes:?}", job.name);
        failed
    })
}

/// Each call of the simulated device fails once.
fn fail_calls(jobs: &[Job<'_>], every: usize) -> (usize, usize) {
    let (mut runs, mut failed) = (0, 0);
    for (number, job) in jobs.iter().enumerate() {
        let open = |failure: Option<u64>| {
            let mut builder = Sim::builder(number as u64).executor(Arc::new(interpret)).batch(1 + number % 5);
            if let Some(call) = failure {
                builder = builder.fail(Failure::Any(call));
            }
            let sim = builder.build();
            (sim.clone(), Runtime::builder(sim).build())
        };
        let (sim, runtime) = open(None);
        let right = expected(job, &runtime, &runtime.stream().unwrap());
        let calls = sim.calls() as usize;
        for call in (number % every..calls).step_by(every) {
            let (sim, runtime) = open(Some(call as u64));
            let Ok(stream) = runtime.stream() else { continue };
            let what = format!("call {call} failed");
            runs += 1;
            failed += usize::from(retried(job, &stream, &right.bits, &what, || ()) > 0);
            let _ = runtime.synchronize();
            let left = runtime.counters().active;
            assert!(left <= right.left, "{}: {left} bytes stay behind after {what}", job.name);
            assert!(sim.violations().is_empty(), "{}: {:?} after {what}", job.name, sim.violations());
        }
    }
    (runs, failed)
}

/// The runtime of the host refuses allocations of some sizes.
fn refuse_memory(jobs: &[Job<'_>], sizes: usize) -> (usize, usize) {
    let runtime = Runtime::builder(CpuDevice::new()).cache_limit(0).build();
    let stream = runtime.stream().unwrap();
    let (mut runs, mut failed) = (0, 0);
    for job in jobs {
        // Run it twice: the first run copies constants to the runtime.
        expected(job, &runtime, &stream);
        let right = expected(job, &runtime, &stream);
        for size in 0..sizes {
            let room = (right.peak - right.left) * size / sizes;
            runtime.clear_cache();
            runtime.set_memory_limit(right.left + room);
            let what = format!("{room} bytes were left");
            runs += 1;
            let lift = || {
                runtime.set_memory_limit(usize::MAX);
            };
            failed += usize::from(retried(job, &stream, &right.bits, &what, lift) > 0);
            let _ = runtime.synchronize();
            let left = runtime.counters().active;
            assert!(left <= right.left, "{}: {left} bytes stay behind after {what}", job.name);
        }
    }
    (runs, failed)
}

fn sweep(group: &str, every: usize) {
    let cases = table::group(group);
    let jobs: Vec<Job<'_>> = cases.iter().flat_map(jobs).collect();
    let (every, sizes) = if everything() { (1, 24) } else { (every, 4) };
    let (runs, _) = fail_calls(&jobs, every);
    assert!(runs > 10, "{runs} calls failed");
    refuse_memory(&jobs, sizes);
}

#[test]
fn element_wise_ops_can_be_retried() {
    let _alone = alone();
    sweep("element-wise", 7);
}

#[test]
fn movements_can_be_retried() {
    let _alone = alone();
    sweep("movement", 5);
}

#[test]
fn reductions_can_be_retried() {
    let _alone = alone();
    sweep("reductions", 5);
}

#[test]
fn products_can_be_retried() {
    let _alone = alone();
    sweep("products", 5);
}

#[test]
fn matrices_can_be_retried() {
    let _alone = alone();
    sweep("matrices", 7);
}

#[test]
fn attention_quantization_and_kernels_can_be_retried() {
    let _alone = alone();
    sweep("others", 7);
}

fn numbers(seed: usize, shape: &[usize]) -> Array {
    table::numbers(seed, shape, Dtype::Float32)
}

/// Writes rows one after the other, into memory with one handle.
fn updates(x: &Array, count: usize) -> Result<Array> {
    let mut y = temporary(x)?;
    let list = Array::from_slice(&[1i32, 3]);
    let column = Array::zeros(&[x.shape()[0], 1], Dtype::Int32)?;
    for step in 0..count as isize {
        let row = numbers(step as usize, &[1, x.shape()[1]]);
        y = y.slice_update(&row, &[step % 4, 0], &[step % 4 + 1, x.shape()[1] as isize], &[1, 1])?;
        y = y.scatter_add(&[list.clone()], &numbers(7, &[2, 1, x.shape()[1]]), &[0])?;
        y = y.put_along_axis(&column, &numbers(3, &[x.shape()[0], 1]), Some(1))?;
    }
    Ok(y)
}

fn appended(count: usize) -> Result<Array> {
    let mut block = Array::zeros(&[1, 2, 0, 4], Dtype::Float32)?;
    for step in 0..count {
        block = fast::append(&block, &numbers(step, &[1, 2, 1, 4]), &[step], 8)?;
    }
    Ok(block)
}

/// Chains, functions and kernels that overwrite owned inputs.
fn chains() -> Vec<Job<'static>> {
    let w = numbers(2, &[6, 6]);
    w.eval().unwrap();
    let (other, weight) = (w.clone(), numbers(3, &[48, 48]));
    weight.eval().unwrap();
    let twice = "uint i = thread_position_in_grid.x; out[i] = x[i] * 2.0f;";
    let kernel = CustomKernel::new("twice", &["x"], &["out"], twice).unwrap();
    let x = || numbers(1, &[6, 6]);
    vec![
        job("a chain of ops", move || {
            let mut y = temporary(&x())?;
            for _ in 0..6 {
                y = y.add(1.0)?.sort(Some(0))?.multiply(0.5)?.t()?.exp()?;
            }
            Ok(vec![y])
        }),
        job("updates in place", move || Ok(vec![updates(&x(), 3)?])),
        job("updates in place, then a product", move || Ok(vec![updates(&x(), 2)?.matmul(&w)?.tanh()?])),
        job("compiled updates", move || {
            let f = transform::compile(|x| Ok(vec![updates(&x[0], 2)?.add(&x[0])?, x[1].sum(())?]));
            f(&[temporary(&x())?.add(1.0)?, temporary(&x())?])
        }),
        job("a compiled function of several steps", move || {
            let f = transform::compile(|x| {
                let y = x[0].add(1.0)?.matmul(&other)?;
                Ok(vec![y.softmax(-1)?, x[0].multiply(&x[1])?, y.t()?])
            });
            let mut all = f(&[temporary(&x())?, temporary(&x())?])?;
            all.extend(f(&[all[1].clone(), temporary(&x())?])?);
            Ok(all)
        }),
        job("a compiled product of a sum", move || {
            let f = transform::compile(|x| Ok(vec![x[0].add(1.0)?.matmul(&weight)?]));
            f(&[numbers(1, &[48, 48]).add(1.0)?])
        }),
        job("appended rows", || Ok(vec![appended(5)?])),
        job("compiled appends", || {
            let f = transform::compile(|x| Ok(vec![fast::append(&x[0], &x[1], &[5], 8)?.multiply(2.0)?]));
            f(&[appended(5)?, numbers(9, &[1, 2, 1, 4])])
        }),
        job("custom kernels", move || {
            let mut y = temporary(&x().reshape(&[-1])?)?;
            for _ in 0..3 {
                let call = kernel.call(&[y.add(1.0)?]).grid([36, 1, 1]).threadgroup([36, 1, 1]);
                y = call.output(&[36], Dtype::Float32).run()?.remove(0);
            }
            Ok(vec![y])
        }),
        job("a gradient of a mapped function", move || {
            let row = |x: &[Array]| Ok(vec![updates(&x[0].reshape(&[6, 1])?, 1)?.square()?.sum(())?]);
            let mapped = transform::vmap(row, &[Some(0)], &[Some(0)]);
            let loss = move |x: &[Array]| mapped(x)?[0].sum(());
            transform::grad(loss, &[0])(&[temporary(&x())?])
        }),
        job("an evaluation inside of a gradient", move || {
            let loss = |x: &[Array]| {
                let y = x[0].square()?.add(1.0)?;
                let sum = y.sum(())?;
                sum.eval()?;
                sum.multiply(y.log()?.mean(())?)
            };
            transform::grad(loss, &[0])(&[temporary(&x())?])
        }),
        job("outputs of one op", move || {
            let parts = temporary(&x())?.add(1.0)?.split(Split::Sections(3), 0)?;
            parts.into_iter().enumerate().map(|(at, part)| part.add(at as f64)).collect()
        }),
    ]
}

#[test]
fn chains_functions_and_kernels_can_be_retried() {
    let _alone = alone();
    let jobs = chains();
    let (runs, failed) = fail_calls(&jobs, if everything() { 1 } else { 3 });
    assert!(runs > 50 && failed > 0, "{failed} of {runs} runs");
    refuse_memory(&jobs, if everything() { 200 } else { 40 });
}

/// The first step of a function overwrites its argument; the second is refused memory.
#[test]
fn a_compiled_function_that_overwrote_its_argument_and_failed_gives_no_wrong_result() {
    let _alone = alone();
    let side = 64;
    let (base, w) = (numbers(1, &[side, side]), numbers(2, &[side, side]));
    hesper::eval([&base, &w]).unwrap();
    let f = transform::compile(move |x| Ok(vec![x[0].add(1.0)?.matmul(&w)?]));
    let run = || f(&[base.add(1.0).unwrap()]).unwrap().remove(0);
    let expected = run().to_vec::<f32>().unwrap();
    let cpu = placement::cpu();
    let mut failed = 0;
    for room in 0..8 {
        cpu.synchronize().unwrap();
        cpu.clear_cache();
        let y = run();
        let before = cpu.set_memory_limit(cpu.counters().active + room * side * side * 2);
        let first = y.eval().map_err(|error| error.to_string());
        cpu.set_memory_limit(before);
        for _ in 0..3 {
            match y.to_vec::<f32>() {
                Ok(found) => assert_eq!(found, expected, "room for {room}"),
                Err(error) => assert_eq!(Err(error.to_string()), first, "room for {room}"),
            }
        }
        failed += usize::from(first.is_err());
        assert_eq!(run().to_vec::<f32>().unwrap(), expected);
    }
    assert!(failed > 0, "no evaluation failed");
}

#[test]
fn a_number_that_the_host_knows_survives_a_refused_upload() {
    let _alone = alone();
    let cpu = placement::cpu();
    let x = Array::scalar(3.0, Dtype::Float32).unwrap();
    cpu.synchronize().unwrap();
    cpu.clear_cache();
    let before = cpu.set_memory_limit(0);
    let refused = x.item::<f32>();
    cpu.set_memory_limit(before);
    assert!(refused.is_err());
    assert_eq!(x.item::<f32>().unwrap(), 3.0);
    assert_eq!(x.add(1.0).unwrap().item::<f32>().unwrap(), 4.0);
}

/// One thread evaluates; others inspect the graph, print it and evaluate parts of it.
#[test]
fn graphs_can_be_inspected_while_they_are_evaluated() {
    let _alone = alone();
    let base = numbers(1, &[16, 16]);
    base.eval().unwrap();
    let build = || -> Result<(Array, Array)> {
        let start = temporary(&base)?.add(1.0)?;
        let mut y = start.clone();
        for step in 0..20 {
            y = updates(&y.multiply(0.5)?, 1)?.add(f64::from(step))?.sort(Some(0))?;
        }
        Ok((start, y))
    };
    let (start, y) = build().unwrap();
    let expected = (bits(&start).unwrap(), bits(&y).unwrap());
    drop((start, y));
    for _ in 0..40 {
        let (start, y) = build().unwrap();
        let gate = Barrier::new(4);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.wait();
                assert_eq!(bits(&y).unwrap(), expected.1);
            });
            scope.spawn(|| {
                gate.wait();
                for _ in 0..20 {
                    assert!(transform::to_dot(&[y.clone()]).starts_with("digraph"));
                }
                assert_eq!(bits(&start).unwrap(), expected.0);
            });
            scope.spawn(|| {
                gate.wait();
                let seen = y.add(0.0).unwrap();
                let (_, pulled) = transform::vjp(
                    |x| Ok(vec![x[0].multiply(&y)?]),
                    &[seen],
                    &[Array::ones(&[16, 16], Dtype::Float32).unwrap()],
                )
                .unwrap();
                assert_eq!(bits(&pulled[0]).unwrap(), expected.1);
            });
            gate.wait();
        });
    }
}

/// Two threads evaluate one graph while memory is short: the one that waits evaluates the graph itself if the
/// other fails.
#[test]
fn a_thread_that_waits_for_a_failed_evaluation_retries_it() {
    let _alone = alone();
    let runtime = Runtime::builder(CpuDevice::new()).cache_limit(0).build();
    let stream = runtime.stream().unwrap();
    let build = || {
        placement::with_stream(&stream, || updates(&numbers(1, &[64, 64]), 4)?.matmul(&numbers(2, &[64, 64])))
    };
    let expected = bits(&build().unwrap()).unwrap();
    for round in 0..60 {
        runtime.synchronize().unwrap();
        runtime.clear_cache();
        let y = build().unwrap();
        runtime.set_memory_limit(runtime.counters().active + round % 6 * 16384);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    if let Ok(found) = bits(&y) {
                        assert_eq!(found, expected, "round {round}");
                    }
                });
            }
            runtime.set_memory_limit(usize::MAX);
        });
        if let Ok(found) = bits(&y) {
            assert_eq!(found, expected, "round {round}");
        }
    }
}

#[test]
fn work_that_fails_after_async_eval_reports_its_cause_each_time() {
    let _alone = alone();
    let right = bits(&numbers(1, &[8]).add(1.0).unwrap().sort(Some(0)).unwrap()).unwrap();
    let mut failed = 0;
    for call in 0..24 {
        let sim = Sim::builder(call).executor(Arc::new(interpret)).fail(Failure::Any(call)).build();
        let runtime = Runtime::new(sim);
        let Ok(stream) = runtime.stream() else { continue };
        let y = placement::with_stream(&stream, || temporary(&numbers(1, &[8]))?.add(1.0)?.sort(Some(0)))
            .unwrap();
        let _ = hesper::async_eval([&y]);
        let _ = y.eval();
        let results: Vec<_> = (0..3).map(|_| bits(&y).map_err(|error| error.to_string())).collect();
        assert!(results.iter().all(|result| *result == results[0]), "call {call}: {results:?}");
        match &results[0] {
            Ok(found) => assert_eq!(*found, right, "call {call}"),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0);
}

fn address(array: &Array) -> usize {
    array.host().unwrap().as_ptr() as usize
}

/// Arrays with one handle are updated in place, in one evaluation and in a loop of them.
#[test]
fn chains_of_updates_take_no_memory() {
    let _alone = alone();
    let cpu = placement::cpu();
    let x = numbers(1, &[256, 256]);
    x.eval().unwrap();
    let bytes = 256 * 256 * 4;
    let run = || updates(&x, 12).unwrap().eval().unwrap();
    run();
    cpu.synchronize().unwrap();
    cpu.clear_cache();
    let before = cpu.counters().active;
    cpu.reset_peak();
    run();
    let peak = cpu.counters().peak - before;
    assert!(peak < bytes + bytes / 2, "{peak} bytes for updates of {bytes}");

    let mut y = temporary(&x).unwrap();
    y.eval().unwrap();
    let first = address(&y);
    for step in 0..8isize {
        y = y
            .slice_update(
                &Array::scalar(step as f64, Dtype::Float32).unwrap(),
                &[step, 0],
                &[step + 1, 256],
                &[1, 1],
            )
            .unwrap();
        y.eval().unwrap();
        assert_eq!(address(&y), first, "step {step} moved the array");
        y = y.add(1.0).unwrap();
        y.eval().unwrap();
        assert_eq!(address(&y), first, "an op moved the array in step {step}");
    }
}

/// A kernel that the runtime's cache has evicted is freed, whoever launched it.
#[test]
fn the_limits_of_the_cache_bound_pipelines() {
    let _alone = alone();
    let sim = Sim::builder(1).executor(Arc::new(interpret)).build();
    let runtime =
        Runtime::builder(sim.clone()).pipelines(CacheLimits { count: 2, bytes: usize::MAX }).build();
    let stream = runtime.stream().unwrap();
    placement::with_stream(&stream, || {
        let f = transform::compile(|x| Ok(vec![x[0].sin()?.cos()?.tan()?]));
        for _ in 0..2 {
            let x = Array::from_slice(&[1.0f32, 2.0]);
            for y in [x.exp(), x.sin(), x.cos(), x.log(), x.tanh(), x.sqrt()] {
                assert_eq!(y.unwrap().to_vec::<f32>().unwrap().len(), 2);
            }
            f(&[x]).unwrap()[0].eval().unwrap();
        }
        assert_eq!(runtime.counters().pipelines.count, 2);
        drop(f);
    });
    drop((stream, runtime));
    assert!(sim.is_empty(), "something is left on the device");
}
