//! A training step of GPT-2 small with random weights on a GPU: 124 million parameters, sequences of 1,024
//! tokens, AdamW.
//!
//! `gpt2 [--pure] [--batch N] [--steps N] [--layers N] [--length N] [--cpu]` prints a line of JSON with the
//! median of the steps after the first few. Parameters are float32 and the loss is computed in bfloat16; with
//! `--pure` everything is bfloat16. `--parts` prints the time of each part of a layer with its derivative
//! instead. `peers/gpt2.py` runs the same step in PyTorch, compiled, and both in turn.

use std::time::Instant;

use hesper::fast::{AttentionMask, scaled_dot_product_attention};
use hesper::placement::{self, Device};
use hesper::transform::{Tree, tree};
use hesper::{Array, Dtype, Split, random};
use hesper_nn::optim::{Adam, Optimizer};
use hesper_nn::train::Trainer;
use hesper_nn::{self as nn, Activation, Embedding, LayerNorm, Linear, Module, ModuleExt, loss};

type Failure = Box<dyn std::error::Error>;

const DIMS: usize = 768;
const HEADS: usize = 12;
/// The 50,257 tokens of GPT-2, padded to a multiple of 64.
const VOCABULARY: usize = 50_304;

#[derive(Module, Clone)]
struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: LayerNorm,
    c_fc: Linear,
    mlp_proj: Linear,
}

impl Block {
    fn new() -> nn::Result<Self> {
        Ok(Block {
            ln_1: LayerNorm::new(DIMS)?,
            c_attn: Linear::new(DIMS, 3 * DIMS)?,
            c_proj: Linear::new(DIMS, DIMS)?,
            ln_2: LayerNorm::new(DIMS)?,
            c_fc: Linear::new(DIMS, 4 * DIMS)?,
            mlp_proj: Linear::new(4 * DIMS, DIMS)?,
        })
    }

    fn forward(&self, x: &Array) -> nn::Result<Array> {
        let together = self.c_attn.forward(&self.ln_1.forward(x)?)?;
        let heads = |x: &Array| x.unflatten(-1, &[HEADS as isize, -1])?.transpose(&[0, 2, 1, 3]);
        let parts = together.split(Split::Sections(3), -1)?;
        let (q, k, v) = (heads(&parts[0])?, heads(&parts[1])?, heads(&parts[2])?);
        let scale = (1.0 / (DIMS / HEADS) as f32).sqrt();
        let y = scaled_dot_product_attention(&q, &k, &v, scale, AttentionMask::Causal, None)?;
        let x = x.add(self.c_proj.forward(&y.transpose(&[0, 2, 1, 3])?.flatten(-2, -1)?)?)?;
        let y = Activation::GeluTanh.forward(&self.c_fc.forward(&self.ln_2.forward(&x)?)?)?;
        Ok(x.add(self.mlp_proj.forward(&y)?)?)
    }
}

#[derive(Module, Clone)]
struct Gpt2 {
    wte: Embedding,
    wpe: Embedding,
    blocks: Vec<Block>,
    ln_f: LayerNorm,
}

impl Gpt2 {
    fn new(layers: usize, length: usize) -> nn::Result<Self> {
        let mut model = Gpt2 {
            wte: Embedding::new(VOCABULARY, DIMS)?,
            wpe: Embedding::new(length, DIMS)?,
            blocks: (0..layers).map(|_| Block::new()).collect::<nn::Result<_>>()?,
            ln_f: LayerNorm::new(DIMS)?,
        };
        // Initialize matrices and tables as GPT-2 does.
        model.map(|_, x| match x.ndim() {
            2 => Ok(random::normal(x.shape(), Dtype::Float32, 0.0, 0.02, None)?),
            _ => Ok(x.clone()),
        })?;
        Ok(model)
    }

    fn forward(&self, ids: &Array) -> nn::Result<Array> {
        let positions = Array::arange(ids.shape()[1] as i64, None)?;
        let mut x = self.wte.forward(ids)?.add(self.wpe.forward(&positions)?)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.wte.as_linear(&self.ln_f.forward(&x)?)
    }
}

struct Options {
    pure: bool,
    parts: bool,
    cpu: bool,
    batch: usize,
    steps: usize,
    layers: usize,
    length: usize,
}

impl Options {
    fn read() -> Result<Self, Failure> {
        let (pure, parts, cpu) = (false, false, false);
        let mut options = Options { pure, parts, cpu, batch: 8, steps: 30, layers: 12, length: 1024 };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || Ok::<usize, Failure>(arguments.next().unwrap_or_default().parse()?);
            match argument.as_str() {
                "--pure" => options.pure = true,
                "--parts" => options.parts = true,
                "--cpu" => options.cpu = true,
                "--batch" => options.batch = number()?,
                "--steps" => options.steps = number()?.max(4),
                "--layers" => options.layers = number()?,
                "--length" => options.length = number()?,
                other => return Err(format!("unknown argument {other:?}").into()),
            }
        }
        Ok(options)
    }
}

/// The time of each part of a layer, with its derivative by parameters and input.
fn parts(options: &Options) -> Result<(), Failure> {
    let (rows, half) = (options.batch * options.length, Dtype::Bfloat16);
    let noise = |shape: &[usize]| -> nn::Result<Array> {
        let x = random::normal(shape, Dtype::Float32, 0.0, 1.0, None)?.astype(half)?;
        x.eval()?;
        Ok(x)
    };
    let linear = |from: usize, to: usize| -> nn::Result<Linear> {
        let mut layer = Linear::new(from, to)?;
        layer.to_dtype(half)?;
        Ok(layer)
    };
    let mut norm = LayerNorm::new(DIMS)?;
    norm.to_dtype(half)?;
    let mut block = Block::new()?;
    block.to_dtype(half)?;
    let mut table = Embedding::new(VOCABULARY, DIMS)?;
    table.to_dtype(half)?;
    let targets = random::randint(0, VOCABULARY as i64, &[rows], Dtype::Int32, None)?;
    targets.eval()?;
    let (narrow, wide) = (noise(&[rows, DIMS])?, noise(&[rows, 4 * DIMS])?);
    let (last, cotangent) = (noise(&[rows, VOCABULARY])?, noise(&[rows, DIMS])?);
    let apart = noise(&[options.batch, options.length, DIMS])?;
    timed("linear 768 -> 768", (linear(DIMS, DIMS)?, narrow.clone()), |(m, x)| m.forward(x))?;
    timed("linear 768 -> 3072", (linear(DIMS, 4 * DIMS)?, narrow.clone()), |(m, x)| m.forward(x))?;
    timed("linear without a bias", (linear(DIMS, DIMS)?.without_bias(), narrow.clone()), |(m, x)| {
        m.forward(x)
    })?;
    timed("layer norm", (norm, narrow.clone()), |(m, x)| m.forward(x))?;
    timed("gelu", wide, |x| Activation::GeluTanh.forward(x))?;
    timed("residual", (narrow.clone(), cotangent), |(x, y)| Ok(x.add(y)?))?;
    timed("block", (block, apart), |(m, x)| m.forward(x))?;
    timed("cross entropy", last, move |x| loss::cross_entropy(x, &targets))?;
    timed("logits", (table, narrow), |(m, x)| m.as_linear(x))
}

fn timed<T: Tree + 'static>(
    name: &str,
    input: T,
    forward: impl Fn(&T) -> nn::Result<Array> + 'static,
) -> Result<(), Failure> {
    let loss = move |input: &T| -> hesper::Result<Array> { forward(input)?.sum(()) };
    let step = tree::compile(tree::value_and_grad(loss));
    tree::eval(&step(&input)?)?;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..19 {
            hesper::async_eval(&step(&input)?.arrays())?;
        }
        tree::eval(&step(&input)?)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3 / 20.0);
    }
    println!("{name:<24}{best:>9.3} ms");
    Ok(())
}

fn main() -> Result<(), Failure> {
    let options = Options::read()?;
    if !options.cpu {
        placement::set_default_device(Device::Gpu(0))?;
    }
    random::seed(0);
    if options.parts {
        return parts(&options);
    }
    let mut model = Gpt2::new(options.layers, options.length)?;
    if options.pure {
        model.to_dtype(Dtype::Bfloat16)?;
    }
    let parameters = model.count();
    let optimizer = Optimizer::new(Adam { bias_correction: true, ..Adam::with_weight_decay(3e-4) })?;
    let loss = |model: &Gpt2, batch: &[Array]| loss::cross_entropy(&model.forward(&batch[0])?, &batch[1]);
    let mut trainer = Trainer::new(model, optimizer, loss)?;
    if !options.pure {
        trainer = trainer.with_precision(Dtype::Bfloat16, None);
    }
    let shape = [options.batch, options.length];
    let tokens =
        |seed| random::randint(0, VOCABULARY as i64, &shape, Dtype::Int32, Some(&random::key(seed)?));
    let batch = [tokens(1)?, tokens(2)?];
    hesper::eval(&batch)?;
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..options.steps {
        let start = Instant::now();
        losses.push(trainer.step(&batch)?.loss);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let first = times[0];
    let mut times = times.split_off(options.steps / 4);
    times.sort_by(f64::total_cmp);
    let peak = placement::current_stream()?.runtime().counters().peak;
    println!(
        "{{\"peer\": \"hesper\", \"precision\": \"{}\", \"parameters\": {parameters}, \"batch\": {}, \
         \"length\": {}, \"layers\": {}, \"first_ms\": {first:.1}, \"median_ms\": {:.3}, \"min_ms\": {:.3}, \
         \"first_loss\": {:.4}, \"loss\": {:.4}, \"peak_gib\": {:.2}, \"on_host\": \"{:?}\"}}",
        if options.pure { "pure" } else { "mixed" },
        options.batch,
        options.length,
        options.layers,
        times[times.len() / 2],
        times[0],
        losses[0],
        losses[losses.len() - 1],
        peak as f64 / f64::from(1 << 30),
        placement::fallbacks(),
    );
    Ok(())
}
