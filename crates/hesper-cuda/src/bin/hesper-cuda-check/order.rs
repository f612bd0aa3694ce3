//! Hazards against a host reference, many threads, reuse of memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hesper_cuda::CudaOptions;
use hesper_runtime::{Buffer, Runtime};

use crate::basics::shared;
use crate::kernels::{self, Random, bump, mix, mix_host, open, pipeline, values};
use crate::report::{Outcome, ensure, to_text};

const BUFFERS: usize = 6;
const WORDS: u64 = 4096;

/// One command of a random program: out[o..] = mix(a[x..], b[y..]), or a copy.
struct Step {
    stream: usize,
    copy: bool,
    a: (usize, u64),
    b: (usize, u64),
    out: (usize, u64),
    n: u64,
}

fn program(random: &mut Random, steps: usize, streams: usize) -> Vec<Step> {
    let mut program = Vec::new();
    while program.len() < steps {
        let n = 1 + random.below(WORDS / 2);
        let mut place = || (random.below(BUFFERS as u64) as usize, random.below(WORDS - n));
        let (a, b, out) = (place(), place(), place());
        let apart = |x: (usize, u64)| x.0 != out.0 || x.1 + n <= out.1 || out.1 + n <= x.1;
        if apart(a) && apart(b) {
            let (copy, stream) = (random.below(5) == 0, random.below(streams as u64) as usize);
            program.push(Step { stream, copy, a, b, out, n });
        }
    }
    program
}

/// Random programs with overlapping ranges equal sequential execution on the host.
pub fn hazards(options: &CudaOptions, streams: usize, seeds: u64) -> Outcome {
    let runtime = open(options.clone())?;
    let kernel = pipeline(&runtime, "mix")?;
    let lanes = (0..streams).map(|_| runtime.stream().map_err(to_text)).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random(streams as u64);
    for seed in 0..seeds {
        let steps = program(&mut random, 150, streams);
        let mut host: Vec<Vec<u32>> =
            (0..BUFFERS as u32).map(|which| (0..WORDS as u32).map(|at| at * 7 + which).collect()).collect();
        let buffers: Vec<Buffer> =
            host.iter().map(|data| runtime.upload(data).map_err(to_text)).collect::<Result<_, _>>()?;
        // The same shape four times, so that graphs are built, updated and reused.
        for round in 0..4u32 {
            for (position, step) in steps.iter().enumerate() {
                let salt = round * 1000 + position as u32;
                let range = |place: (usize, u64)| 4 * place.1 as usize..4 * (place.1 + step.n) as usize;
                let encoder = lanes[step.stream].encode(if step.copy { "copy" } else { "mix" });
                let encoder = encoder.read_range(&buffers[step.a.0], range(step.a));
                if step.copy {
                    encoder.write_range(&buffers[step.out.0], range(step.out)).copy().map_err(to_text)?;
                } else {
                    encoder
                        .read_range(&buffers[step.b.0], range(step.b))
                        .write_range(&buffers[step.out.0], range(step.out))
                        .constants(&salt.to_ne_bytes())
                        .constants(&(step.n as u32).to_ne_bytes())
                        .dispatch(&kernel, [step.n, 1, 1], [128, 1, 1])
                        .map_err(to_text)?;
                }
                for at in 0..step.n as usize {
                    let a = host[step.a.0][step.a.1 as usize + at];
                    let b = host[step.b.0][step.b.1 as usize + at];
                    host[step.out.0][step.out.1 as usize + at] =
                        if step.copy { a } else { mix_host(a, b, salt) };
                }
            }
            for lane in &lanes {
                lane.commit().map_err(to_text)?;
            }
        }
        for (which, buffer) in buffers.iter().enumerate() {
            let got = values(buffer)?;
            let wrong = (0..WORDS as usize).find(|at| got[*at] != host[which][*at]);
            ensure(wrong.is_none(), || format!("seed {seed}: buffer {which} differs at {wrong:?}"))?;
        }
    }
    let counters = runtime.counters();
    let device = shared(&runtime)?.counters();
    if options.graph_from < 1000 && streams == 1 {
        ensure(device.graphs.launched > 0, || format!("no graph was launched: {device:?}"))?;
    }
    ensure(device.graph_failures == 0, || format!("{device:?}"))?;
    clean(&runtime)?;
    Ok(format!("{} commands, {} barriers, {device:?}", counters.encoded, counters.barriers))
}

/// An error if the validation layer found anything.
pub fn clean(runtime: &Runtime) -> Result<(), String> {
    match runtime.validation() {
        Some(report) if report.count() > 0 => Err(format!("validation: {:?}", report.violations().first())),
        _ => Ok(()),
    }
}

/// Many threads, temporaries, dropped handles, shared streams.
pub fn stress(options: &CudaOptions, threads: u64, iterations: u64, limit: Duration) -> Outcome {
    let runtime = open(options.clone())?;
    let kernel = pipeline(&runtime, "mix")?;
    let lanes = (0..16).map(|_| runtime.stream().map_err(to_text)).collect::<Result<Vec<_>, _>>()?;
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    let outcome = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (runtime, kernel, lanes, done) = (&runtime, &kernel, &lanes, &done);
                scope.spawn(move || -> Result<(), String> {
                    let n = 512 + 64 * thread as usize;
                    let data: Vec<u32> = (0..n as u32).map(|at| at ^ (thread as u32) << 20).collect();
                    let x = runtime.upload(&data).map_err(to_text)?;
                    let mut state = runtime.upload(&data).map_err(to_text)?;
                    let mut host = data.clone();
                    for iteration in 0..iterations {
                        if begun.elapsed() > limit {
                            break;
                        }
                        let salt = (thread * 7919 + iteration) as u32;
                        // Most iterations stay on one stream; some switch, and so cross streams.
                        let lane = &lanes[((thread + iteration / 8) % 16) as usize];
                        let first = lane.alloc(4 * n).map_err(to_text)?;
                        mix(lane, kernel, &state, &x, &first, salt)?;
                        let second = lane.alloc(4 * n).map_err(to_text)?;
                        mix(lane, kernel, &first, &state, &second, salt + 1)?;
                        drop(first);
                        let third = lane.alloc(4 * n).map_err(to_text)?;
                        mix(lane, kernel, &second, &x, &third, salt + 2)?;
                        drop(second);
                        state = third;
                        for (value, x) in host.iter_mut().zip(&data) {
                            let one = mix_host(*value, *x, salt);
                            let two = mix_host(one, *value, salt + 1);
                            *value = mix_host(two, *x, salt + 2);
                        }
                        if iteration % 16 == thread % 16 {
                            let got = values(&state)?;
                            ensure(got == host, || format!("thread {thread}, iteration {iteration}: wrong"))?;
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    ensure(values(&state)? == host, || format!("thread {thread}: wrong at the end"))
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread panicked".to_string())?)
    });
    outcome?;
    let took = begun.elapsed();
    let done = done.load(Ordering::Relaxed);
    clean(&runtime)?;
    drop(lanes);
    runtime.synchronize().map_err(to_text)?;
    let counters = runtime.counters();
    ensure(counters.active < 1 << 20, || format!("memory is still active: {counters:?}"))?;
    Ok(format!(
        "{threads} threads, {done} of {} iterations of 3 kernels, {:.2} us per kernel, peak {} bytes, {:?}",
        threads * iterations,
        took.as_secs_f64() * 1e6 / (3 * done) as f64,
        counters.peak,
        shared(&runtime)?.counters()
    ))
}

/// A chain of dropped temporaries needs the memory of two.
pub fn reuse(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let stream = runtime.stream().map_err(to_text)?;
    let kernel = pipeline(&runtime, "mix")?;
    let size = 1 << 20;
    let x = runtime.upload(&vec![1u32; size / 4]).map_err(to_text)?;
    let mut state = runtime.upload(&vec![2u32; size / 4]).map_err(to_text)?;
    let mut host = 2u32;
    for round in 0..2000 {
        let next = stream.alloc(size).map_err(to_text)?;
        mix(&stream, &kernel, &state, &x, &next, round)?;
        state = next;
        host = mix_host(host, 1, round);
    }
    ensure(values(&state)?.iter().all(|v| *v == host), || "wrong values".into())?;
    let counters = runtime.counters();
    ensure(counters.peak <= 4 * size, || format!("peak {} bytes for {} of chain", counters.peak, size))?;
    clean(&runtime)?;
    Ok(format!("2000 temporaries of 1 MiB, peak {} bytes", counters.peak))
}

/// Work of two streams that wait for each other, many times.
pub fn ping_pong(options: &CudaOptions) -> Outcome {
    let runtime = open(options.clone())?;
    let (one, two) = (runtime.stream().map_err(to_text)?, runtime.stream().map_err(to_text)?);
    let (add, grind) = (pipeline(&runtime, "bump")?, pipeline(&runtime, "grind")?);
    let x = runtime.upload(&[0u32; 64]).map_err(to_text)?;
    let begun = Instant::now();
    let mut host = 0u32;
    for round in 0..2000 {
        bump(if round % 2 == 0 { &one } else { &two }, &add, &x)?;
        host = host.wrapping_add(1);
        if round % 100 == 0 {
            kernels::grind(&one, &grind, &x, 50)?;
            host = kernels::grind_host(host, 50);
        }
    }
    ensure(values(&x)?.iter().all(|v| *v == host), || "wrong values".into())?;
    clean(&runtime)?;
    Ok(format!("2000 hand-overs, {:.2} us each", begun.elapsed().as_secs_f64() * 1e6 / 2000.0))
}
