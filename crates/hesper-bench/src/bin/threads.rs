//! Throughput of 1 to 64 threads that build, evaluate and drop small graphs, call a compiled function, and
//! decode.
//!
//!     cargo run --release -p hesper-bench --bin threads [-- MILLISECONDS] [--gpu]
//!
//! With `--gpu` on the first GPU, else on the CPU. Each cell is the number of calls that all threads made
//! together in a second, and the microseconds of processor time that a call took (on Linux): what threads
//! cost each other shows there also on a machine with other work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hesper::placement::{self, Device};
use hesper::{Array, Result, transform};
use hesper_bench::llama::Llama;

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A call that one thread repeats.
type Worker<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// Seconds of processor time of the process, in steps of 10 ms; 0 where the system does not tell.
fn processor_time() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time, counted from the state, which follows the name of the program.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

/// Calls per second of `count` threads, and microseconds of processor time for a call.
fn rate<'a>(count: usize, time: Duration, worker: impl Fn() -> Result<Worker<'a>> + Sync) -> Result<String> {
    let (ready, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let run = || -> Result<(usize, Duration)> {
            let worker = worker().and_then(|mut worker| worker().map(|()| worker));
            ready.fetch_add(1, Ordering::SeqCst);
            let mut worker = worker?;
            while ready.load(Ordering::SeqCst) < count {
                thread::yield_now();
            }
            let (begun, mut calls) = (Instant::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                worker()?;
                calls += 1;
            }
            Ok((calls, begun.elapsed()))
        };
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(run)).collect();
        while ready.load(Ordering::SeqCst) < count {
            thread::yield_now();
        }
        let before = processor_time();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let (mut total, mut made) = (0.0, 0);
        for thread in threads {
            let (calls, took) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            total += calls as f64 / took.as_secs_f64();
            made += calls;
        }
        let each = (processor_time() - before) * 1e6 / made.max(1) as f64;
        Ok(format!("{total:9.0} ({each:6.1})"))
    })
}

/// A short chain that reads a shared array.
fn chain(shared: &Array, x: &Array) -> Result<Array> {
    x.multiply(2.0)?.add(shared)?.exp()?.sum(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let time = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(500);
    let time = Duration::from_millis(time);
    let device =
        if arguments.iter().any(|argument| argument == "--gpu") { Device::Gpu(0) } else { Device::Cpu };
    placement::set_default_device(device)?;
    let shared = Array::from_slice(&[0.5f32; 64]);
    let compiled = transform::compile(|inputs| Ok(vec![chain(&inputs[0], &inputs[1])?]));
    println!(
        "threads {:>18} {:>18} {:>18} {:>18}",
        "graphs/s (us)", "own stream/s (us)", "compiled/s (us)", "decode steps/s (us)"
    );
    for count in THREADS {
        let graphs = rate(count, time, || {
            let (shared, x) = (shared.clone(), Array::from_slice(&[1.0f32; 64]));
            Ok(Box::new(move || chain(&shared, &x)?.item::<f32>().map(|_| ())))
        })?;
        let streams = rate(count, time, || {
            let (shared, x) = (shared.clone(), Array::from_slice(&[1.0f32; 64]));
            let stream = device.stream()?;
            Ok(Box::new(move || {
                let result = placement::with_stream(&stream, || chain(&shared, &x))?;
                result.item::<f32>().map(|_| ())
            }))
        })?;
        let calls = rate(count, time, || {
            let (shared, x) = (shared.clone(), Array::from_slice(&[1.0f32; 64]));
            let compiled = &compiled;
            Ok(Box::new(move || compiled(&[shared.clone(), x.clone()])?[0].item::<f32>().map(|_| ())))
        })?;
        let steps = rate(count, time, || {
            let mut model = Llama::new(4)?;
            Ok(Box::new(move || {
                model.build()?;
                model.token().map(|_| ())
            }))
        })?;
        println!("{count:7} {graphs} {streams} {calls} {steps}");
    }
    Ok(())
}
