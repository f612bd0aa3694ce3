//! How fast functions of arrays are traced, compiled and run: a training step, first calls, chains.
//!
//!     cargo run --release -p hesper-bench --bin transforms [-- trace.json]
//!
//! With the name of a file it also writes a trace of some training steps, for Chrome or Perfetto.

use std::time::Instant;

use hesper::{Array, Dtype, Result, random, transform};
use hesper_bench::mlp::{Rule, Step, Training};

fn main() -> Result<()> {
    training()?;
    first_call()?;
    chain()
}

/// The best of some repetitions of `count` calls each, in seconds per call.
fn best(repetitions: usize, count: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..repetitions {
        let begun = Instant::now();
        for _ in 0..count {
            call()?;
        }
        least = least.min(begun.elapsed().as_secs_f64() / count as f64);
    }
    Ok(least)
}

fn training() -> Result<()> {
    for rule in [Rule::Sgd, Rule::Adam] {
        let mut training = Training::new(rule)?;
        let step = training.step();
        let compiled = transform::compile(training.step());
        for (name, run) in [("compiled", &compiled as Step<'_>), ("plain", &step)] {
            let mut last = 0.0;
            let seconds = best(8, 100, || {
                last = training.advance(run)?;
                Ok(())
            })?;
            let (rate, micros) = (1.0 / seconds, seconds * 1e6);
            println!("training step, {rule:?}, {name}: {rate:.0} steps/s ({micros:.0} us), loss {last:.4}");
        }
        if let Some(file) = std::env::args().nth(1) {
            hesper::placement::cpu().trace().start();
            for _ in 0..20 {
                training.advance(&compiled)?;
            }
            if let Err(error) = std::fs::write(&file, hesper::placement::cpu().trace().stop()) {
                eprintln!("{file}: {error}");
            }
        }
    }
    Ok(())
}

fn first_call() -> Result<()> {
    let x = random::uniform(0.0, 1.0, &[4096], Dtype::Float32, None)?;
    x.eval()?;
    let begun = Instant::now();
    let f = transform::compile(|x| {
        let y = x[0].multiply(1.5)?.add(0.25)?.tanh()?;
        Ok(vec![y.multiply(x[0].sigmoid()?)?.add(&x[0])?])
    });
    f(&[x])?[0].eval()?;
    println!("first call of a compiled element-wise function: {:.0} us", begun.elapsed().as_secs_f64() * 1e6);
    Ok(())
}

fn chain() -> Result<()> {
    const LENGTH: usize = 10_000;
    let one = Array::scalar(1.0, Dtype::Float32)?;
    let run = || {
        let mut x = Array::from_slice(&[0.0f32]).reshape::<isize>(&[])?;
        for _ in 0..LENGTH {
            x = x.add(&one)?;
        }
        x.eval()
    };
    let fused = best(10, 1, run)?;
    hesper::eval::set_fusion(false);
    let apart = best(10, 1, run)?;
    hesper::eval::set_fusion(true);
    let each = |seconds: f64| seconds / LENGTH as f64 * 1e6;
    println!("chain of additions: {:.3} us an op, with fusion off {:.3} us", each(fused), each(apart));
    Ok(())
}
