//! How fast functions of arrays are traced, compiled and run: a training step, first calls, chains.
//!
//!     cargo run --release -p hesper-bench --bin transforms [-- trace.json]
//!
//! With a file's name it also writes a trace of some training steps, for Chrome or Perfetto.

use std::time::Instant;

use hesper::{Array, Dtype, Result, random, transform};

/// Layers of the network.
const SIZES: [usize; 4] = [784, 256, 256, 10];
const BATCH: usize = 32;

fn main() -> Result<()> {
    training()?;
    first_call()?;
    chain()
}

/// The best of some repetitions of `count` calls each, in seconds a call.
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

/// The mean cross entropy of a network of three layers.
fn loss(parameters: &[Array], x: &Array, labels: &Array) -> Result<Array> {
    let mut y = x.clone();
    let layers = parameters.chunks(2);
    let last = layers.len() - 1;
    for (number, layer) in layers.enumerate() {
        y = layer[1].addmm(&y, &layer[0].t()?, 1.0, 1.0)?;
        if number < last {
            y = y.maximum(0.0)?;
        }
    }
    let chosen = y.take_along_axis(&labels.expand_dims(&[-1])?, Some(-1))?.squeeze(Some(&[-1]))?;
    y.logsumexp(Some(&[-1]), false)?.subtract(chosen)?.mean(None, false)
}

/// One step of Adam: parameters, then both moments, then the data; gives the loss and the new ones.
fn step(inputs: &[Array]) -> Result<Vec<Array>> {
    let count = 2 * (SIZES.len() - 1);
    let (state, data) = inputs.split_at(3 * count);
    let value = |parameters: &[Array]| Ok(vec![loss(parameters, &data[0], &data[1])?]);
    let arguments: Vec<usize> = (0..count).collect();
    let (value, slopes) = transform::value_and_grad(value, &arguments)(&state[..count])?;
    let (mut parameters, mut means, mut squares) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..count {
        let mean = state[count + at].multiply(0.9)?.add(slopes[at].multiply(0.1)?)?;
        let square = state[2 * count + at].multiply(0.999)?.add(slopes[at].square()?.multiply(0.001)?)?;
        parameters.push(state[at].subtract(mean.multiply(1e-3)?.divide(square.sqrt()?.add(1e-8)?)?)?);
        means.push(mean);
        squares.push(square);
    }
    Ok(value.into_iter().chain(parameters).chain(means).chain(squares).collect())
}

fn training() -> Result<()> {
    let mut state = Vec::new();
    for pair in SIZES.windows(2) {
        let bound = 1.0 / (pair[0] as f64).sqrt();
        state.push(random::normal(&[pair[1], pair[0]], Dtype::Float32, 0.0, bound, None)?);
        state.push(Array::zeros(&[pair[1]], Dtype::Float32)?);
    }
    let zeros: Vec<Array> = state.iter().map(Array::zeros_like).collect::<Result<_>>()?;
    state.extend(zeros.iter().chain(&zeros).cloned());
    let labels: Vec<i32> = (0..BATCH as i32).map(|at| at % 10).collect();
    let data =
        [random::normal(&[BATCH, SIZES[0]], Dtype::Float32, 0.0, 1.0, None)?, Array::from_slice(&labels)];
    hesper::eval(state.iter().chain(&data))?;
    let compiled = transform::compile(step);
    for (name, run) in [("compiled", &compiled as &dyn Fn(&[Array]) -> Result<Vec<Array>>), ("plain", &step)]
    {
        let mut own = state.clone();
        let mut last = 0.0f32;
        let seconds = best(8, 100, || {
            let inputs: Vec<Array> = own.iter().chain(&data).cloned().collect();
            let mut outputs = run(&inputs)?;
            hesper::eval(&outputs)?;
            let value = outputs.remove(0);
            own = outputs;
            last = value.item()?;
            Ok(())
        })?;
        println!(
            "training step, {name}: {:.0} steps/s ({:.0} us), loss {last:.4}",
            1.0 / seconds,
            seconds * 1e6
        );
    }
    if let Some(file) = std::env::args().nth(1) {
        let inputs: Vec<Array> = state.iter().chain(&data).cloned().collect();
        hesper::place::cpu().trace().start();
        for _ in 0..20 {
            hesper::eval(&compiled(&inputs)?)?;
        }
        if let Err(error) = std::fs::write(&file, hesper::place::cpu().trace().stop()) {
            eprintln!("{file}: {error}");
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
        let mut x = Array::from_slice(&[0.0f32]).reshape(&[])?;
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
