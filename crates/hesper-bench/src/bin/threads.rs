//! Throughput of 1 to 64 threads that build, evaluate and drop small graphs, call a compiled function, and
//! decode.
//!
//!     cargo run --release -p hesper-bench --bin threads [-- MILLISECONDS]
//!
//! Each cell is the number of calls that all threads made together in a second.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hesper::{Array, Result, transform};
use hesper_bench::llama::Llama;

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A call that one thread repeats.
type Worker<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// Calls per second of `count` threads.
fn rate<'a>(count: usize, time: Duration, worker: impl Fn() -> Result<Worker<'a>> + Sync) -> Result<f64> {
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
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut total = 0.0;
        for thread in threads {
            let (calls, took) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            total += calls as f64 / took.as_secs_f64();
        }
        Ok(total)
    })
}

/// A short chain that reads a shared array.
fn chain(shared: &Array, x: &Array) -> Result<Array> {
    x.multiply(2.0)?.add(shared)?.exp()?.sum(())
}

fn main() -> Result<()> {
    let time = std::env::args().nth(1).and_then(|time| time.parse().ok()).unwrap_or(500);
    let time = Duration::from_millis(time);
    let shared = Array::from_slice(&[0.5f32; 64]);
    let compiled = transform::compile(|inputs| Ok(vec![chain(&inputs[0], &inputs[1])?]));
    println!("threads    graphs/s  own stream/s  compiled/s  decode steps/s");
    for count in THREADS {
        let graphs = rate(count, time, || {
            let (shared, x) = (shared.clone(), Array::from_slice(&[1.0f32; 64]));
            Ok(Box::new(move || chain(&shared, &x)?.item::<f32>().map(|_| ())))
        })?;
        let streams = rate(count, time, || {
            let (shared, x) = (shared.clone(), Array::from_slice(&[1.0f32; 64]));
            let stream = hesper::placement::Device::Cpu.stream()?;
            Ok(Box::new(move || {
                let result = hesper::placement::with_stream(&stream, || chain(&shared, &x))?;
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
        println!("{count:7} {graphs:11.0} {streams:13.0} {calls:11.0} {steps:15.0}");
    }
    Ok(())
}
