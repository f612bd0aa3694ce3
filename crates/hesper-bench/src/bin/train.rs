//! Training steps of small networks on the CPU beside candle and burn: forward, loss, backward and AdamW, in
//! float32.
//!
//! `train mlp|cnn|transformer [SECONDS]` measures one and prints a line of JSON; `--trace FILE` records a
//! step afterwards, for `hesper trace FILE`. `train --peers PROGRAM,... [--rounds N] [WORKLOAD]...` runs this
//! program and the given ones in turn, N rounds of a second each, and prints a table: the best median of a
//! round for each program, and its ratio to Hesper's. The programs are `peers/train-candle` and
//! `peers/train-burn`, which `cargo build --release` builds in their folders. On an idle machine all rounds
//! give the same ratios.
//!
//! A workload may name sizes: `mlp:batch=16,width=1024,layers=8`, `cnn:batch=128,width=16`,
//! `transformer:batch=2,width=256,layers=2,length=512`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use hesper::fast::AttentionMask;
use hesper::transform::Tree;
use hesper::{Array, Dtype, random, trace};
use hesper_nn::optim::{Adam, Optimizer};
use hesper_nn::train::Trainer;
use hesper_nn::{
    self as nn, Activation, Conv2d, Embedding, Linear, Module, Pool, TransformerConfig, TransformerEncoder,
    loss,
};

use train_sizes::{HEAD, Sizes, VOCABULARY, WORKLOADS};

#[path = "../../peers/train_sizes.rs"]
mod train_sizes;

type Failure = Box<dyn std::error::Error>;

fn classes(shape: &[usize], below: usize) -> nn::Result<Array> {
    let count = shape.iter().product();
    let numbers: Vec<i32> = (0..count).map(|at: usize| (at * 7 % below) as i32).collect();
    Ok(Array::try_from_slice(&numbers, shape)?)
}

fn normal(shape: &[usize]) -> nn::Result<Array> {
    Ok(random::normal(shape, Dtype::Float32, 0.0, 1.0, None)?)
}

#[derive(Module, Clone)]
struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn forward(&self, x: &Array) -> nn::Result<Array> {
        let mut h = x.clone();
        for (at, layer) in self.layers.iter().enumerate() {
            h = layer.forward(&h)?;
            if at + 1 < self.layers.len() {
                h = Activation::Relu.forward(&h)?;
            }
        }
        Ok(h)
    }
}

#[derive(Module, Clone)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: Pool,
    linear: Linear,
    output: Linear,
}

impl Cnn {
    fn forward(&self, x: &Array) -> nn::Result<Array> {
        let relu = |x: Array| Activation::Relu.forward(&x);
        let h = self.pool.forward(&relu(self.conv1.forward(x)?)?)?;
        let h = self.pool.forward(&relu(self.conv2.forward(&h)?)?)?;
        self.output.forward(&relu(self.linear.forward(&h.flatten(1, -1)?)?)?)
    }
}

#[derive(Module, Clone)]
struct Transformer {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
    length: usize,
}

impl Transformer {
    fn forward(&self, ids: &Array) -> nn::Result<Array> {
        let positions = Array::arange(self.length as i64, None)?;
        let x = self.tokens.forward(ids)?.add(self.positions.forward(&positions)?)?;
        self.output.forward(&self.encoder.forward(&x, AttentionMask::Causal)?)
    }
}

fn measure(workload: &str, seconds: f64, trace: Option<&str>) -> Result<(), Failure> {
    random::seed(0);
    let (kind, Sizes { batch, width, layers, length }) = Sizes::parse(workload)?;
    let run = Run { workload, seconds, trace };
    match kind {
        "mlp" => {
            let mut sizes = vec![width; layers + 1];
            (sizes[0], sizes[layers]) = (784, 10);
            let layers =
                sizes.windows(2).map(|pair| Linear::new(pair[0], pair[1])).collect::<nn::Result<_>>()?;
            let batch = [normal(&[batch, 784])?, classes(&[batch], 10)?];
            run.steps(Mlp { layers }, &batch, Mlp::forward)
        }
        "cnn" => {
            let model = Cnn {
                conv1: Conv2d::new(1, width, 3)?.with_padding(1),
                conv2: Conv2d::new(width, 2 * width, 3)?.with_padding(1),
                pool: Pool::max_2d(2)?,
                linear: Linear::new(2 * width * (length / 4) * (length / 4), 128)?,
                output: Linear::new(128, 10)?,
            };
            let batch = [normal(&[batch, length, length, 1])?, classes(&[batch], 10)?];
            run.steps(model, &batch, Cnn::forward)
        }
        _ => {
            let model = Transformer {
                tokens: Embedding::new(VOCABULARY, width)?,
                positions: Embedding::new(length, width)?,
                encoder: TransformerEncoder::new(layers, &TransformerConfig::new(width, width / HEAD))?,
                output: Linear::new(width, VOCABULARY)?,
                length,
            };
            let batch = [classes(&[batch, length], VOCABULARY)?, classes(&[batch, length], 251)?];
            run.steps(model, &batch, Transformer::forward)
        }
    }
}

/// How to measure a workload.
struct Run<'a> {
    workload: &'a str,
    seconds: f64,
    trace: Option<&'a str>,
}

impl Run<'_> {
    /// Trains for some seconds, and prints the line.
    fn steps<M: Module + Tree + Clone + Send + Sync + 'static>(
        &self,
        model: M,
        batch: &[Array],
        forward: impl Fn(&M, &Array) -> nn::Result<Array> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let optimizer = Optimizer::new(Adam { bias_correction: true, ..Adam::with_weight_decay(1e-3) })?;
        let loss =
            move |model: &M, batch: &[Array]| loss::cross_entropy(&forward(model, &batch[0])?, &batch[1]);
        let mut trainer = Trainer::new(model, optimizer, loss)?;
        hesper::eval(batch)?;
        let (mut times, mut last) = (Vec::new(), f64::NAN);
        let begun = Instant::now();
        while times.len() < 4 || begun.elapsed().as_secs_f64() < self.seconds {
            let start = Instant::now();
            last = trainer.step(batch)?.loss;
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        let first = times.remove(0);
        times.sort_by(f64::total_cmp);
        println!(
            "{{\"peer\": \"hesper\", \"workload\": \"{}\", \"first_ms\": {first:.4}, \"median_ms\": {:.4}, \
             \"min_ms\": {:.4}, \"reps\": {}, \"loss\": {last:.4}}}",
            self.workload,
            times[times.len() / 2],
            times[0],
            times.len()
        );
        if let Some(file) = self.trace {
            trace::start();
            trainer.step(batch)?;
            std::fs::write(file, trace::stop())?;
        }
        Ok(())
    }
}

/// A numeric field of a line of JSON.
fn field(line: &str, name: &str) -> Result<f64, Failure> {
    let value = line.split_once(&format!("\"{name}\": ")).and_then(|(_, rest)| rest.split([',', '}']).next());
    Ok(value.ok_or_else(|| format!("no {name} in {line:?}"))?.parse()?)
}

/// The best figures of a program.
#[derive(Debug, Clone, Copy)]
struct Best {
    first: f64,
    median: f64,
}

fn compare(peers: &[String], rounds: usize, workloads: &[String]) -> Result<(), Failure> {
    let own = std::env::current_exe()?.display().to_string();
    println!("| step | program | ms | first call, ms | beside Hesper |\n|---|---|---|---|---|");
    for workload in workloads {
        let mut best: BTreeMap<&str, Best> = BTreeMap::new();
        let programs: Vec<&str> =
            std::iter::once(own.as_str()).chain(peers.iter().map(String::as_str)).collect();
        for round in 0..rounds {
            // Each round starts with another program.
            for at in 0..programs.len() {
                let program = programs[(at + round) % programs.len()];
                let output = Command::new(program).args([workload.as_str(), "1"]).output()?;
                let line = String::from_utf8(output.stdout)?;
                let new = Best { first: field(&line, "first_ms")?, median: field(&line, "median_ms")? };
                let old = *best.entry(program).or_insert(new);
                let least = Best { first: old.first.min(new.first), median: old.median.min(new.median) };
                best.insert(program, least);
            }
        }
        let hesper = best[own.as_str()].median;
        for program in &programs {
            let Best { first, median } = best[program];
            let name = std::path::Path::new(program).file_name().unwrap_or_default().display();
            println!("| {workload} | {name} | {median:.3} | {first:.1} | {:.2} |", median / hesper);
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let (mut free, mut peers, mut rounds, mut trace) = (Vec::new(), Vec::new(), 5, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--peers" => {
                peers = arguments.next().unwrap_or_default().split(',').map(str::to_string).collect()
            }
            "--rounds" => rounds = arguments.next().unwrap_or_default().parse()?,
            "--trace" => trace = arguments.next(),
            _ => free.push(argument),
        }
    }
    match free.first() {
        None => compare(&peers, rounds, &WORKLOADS.map(String::from)),
        Some(_) if !peers.is_empty() => compare(&peers, rounds, &free),
        Some(workload) => {
            measure(workload, free.get(1).map_or(Ok(1.0), |text| text.parse())?, trace.as_deref())
        }
    }
}
