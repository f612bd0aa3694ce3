//! The speed of whole networks on the device: a training step of an MLP, and a decoder of the shape of
//! Llama-3-8B with random weights.

use std::time::Instant;

use hesper::fast;
use hesper::ops::step::{RotaryFrequencies, keep_token};
use hesper::placement::{self, Device};
use hesper::{Activations, Array, Dtype, Error, concatenate, random, transform};
use hesper_nn::{
    Activation, Attention, Embedding, Heads, KvCache, KvMask, KvRows, KvView, Linear, Mlp, ModuleExt, Norm,
    Positions, Projections, Quantization, RmsNorm, Rope, RowView, Weight,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn noise(shape: &[usize], dtype: Dtype, size: f64) -> Result<Array, Error> {
    let x = random::uniform(-size, size, shape, Dtype::Float32, None)?.astype(dtype)?;
    x.eval()?;
    Ok(x)
}

/// Runs all lines whose name contains `part`; returns the number of failures.
pub fn run(part: &str) -> usize {
    let done = placement::with_device(Device::Gpu(0), || -> Outcome<()> {
        if "MLP training step".contains(part) {
            training()?;
        }
        llama(part)
    });
    println!("computed on the host: {:?}", placement::fallbacks());
    match done.map_err(Into::into).and_then(|done| done) {
        Ok(()) => 0,
        Err(error) => {
            println!("FAIL networks: {error}");
            1
        }
    }
}

/// The training step: 1024-4096-4096-1024, batch 256, AdamW, bfloat16.
fn training() -> Outcome<()> {
    const SIZES: [usize; 4] = [1024, 4096, 4096, 1024];
    const BATCH: usize = 256;
    let layers = SIZES.len() - 1;
    let mut state = Vec::new();
    for pair in SIZES.windows(2) {
        state.push(noise(&[pair[1], pair[0]], Dtype::Bfloat16, 1.0 / (pair[0] as f64).sqrt())?);
        state.push(Array::zeros(&[pair[1]], Dtype::Bfloat16)?);
    }
    let moments: Vec<Array> = state.iter().chain(&state).map(Array::zeros_like).collect::<Result<_, _>>()?;
    state.extend(moments);
    let (x, y) = (noise(&[BATCH, 1024], Dtype::Bfloat16, 1.0)?, noise(&[BATCH, 1024], Dtype::Bfloat16, 1.0)?);
    hesper::eval(&state)?;
    let step = move |inputs: &[Array]| -> Result<Vec<Array>, Error> {
        let (state, data) = inputs.split_at(inputs.len() - 2);
        let parameters = 2 * layers;
        let loss = |p: &[Array]| -> Result<Vec<Array>, Error> {
            let mut h = data[0].clone();
            for at in 0..layers {
                h = p[2 * at + 1].addmm(&h, &p[2 * at].t()?, 1.0, 1.0)?;
                if at + 1 < layers {
                    h = h.maximum(0.0)?;
                }
            }
            Ok(vec![h.subtract(&data[1])?.square()?.mean(())?])
        };
        let every: Vec<usize> = (0..parameters).collect();
        let (mut outputs, gradients) = transform::value_and_grad(loss, &every)(&state[..parameters])?;
        let (mut means, mut squares) = (Vec::new(), Vec::new());
        for (at, gradient) in gradients.iter().enumerate() {
            let mean = state[parameters + at].multiply(0.9)?.add(gradient.multiply(0.1)?)?;
            let square =
                state[2 * parameters + at].multiply(0.999)?.add(gradient.square()?.multiply(0.001)?)?;
            let kept = state[at].multiply(1.0 - 1e-3 * 0.01)?;
            outputs.push(kept.subtract(mean.multiply(1e-3)?.divide(square.sqrt()?.add(1e-8)?)?)?);
            means.push(mean);
            squares.push(square);
        }
        outputs.extend(means.into_iter().chain(squares));
        Ok(outputs)
    };
    let compiled = transform::compile(step);
    let mut first = 0.0;
    let mut best = f64::INFINITY;
    for round in 0..8 {
        let count = if round == 0 { 1 } else { 40 };
        let start = Instant::now();
        for _ in 0..count {
            // The state is donated: nothing else holds it.
            let mut inputs = std::mem::take(&mut state);
            inputs.extend([x.clone(), y.clone()]);
            let mut outputs = compiled(&inputs)?;
            drop(inputs);
            hesper::async_eval(&outputs)?;
            outputs.remove(0);
            state = outputs;
        }
        hesper::eval(&state)?;
        let took = start.elapsed().as_secs_f64() / f64::from(count);
        match round {
            0 => first = took,
            _ => best = best.min(took),
        }
    }
    println!(
        "bench MLP training step, AdamW, bf16, compiled {:19.1} us (first {:.1} ms)",
        best * 1e6,
        first * 1e3
    );
    Ok(())
}

/// A block of keys and values for each layer, with room for all tokens.
#[derive(Debug)]
struct FixedCache {
    positions: Positions,
    layers: Vec<Array>,
}

impl KvCache for FixedCache {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().collect()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        _window: Option<usize>,
    ) -> hesper_nn::Result<KvView> {
        let (step, block) = (self.positions.step()?, &mut self.layers[layer]);
        let (heads, rows) = (keys.shape()[1] as isize, step.rows() as isize);
        let new = concatenate(&[keys.clone(), values.clone()], 1)?;
        *block = fast::append(block, &new, step.starts(), block.shape()[2])?;
        let end = [block.shape()[0] as isize, 0, rows, block.shape()[3] as isize];
        let part = |from: isize, to: isize| {
            block.slice(&[0, from, 0, 0], &[end[0], to, end[2], end[3]], &[1; 4]).map(KvRows::Dense)
        };
        Ok(KvView { keys: part(0, heads)?, values: part(heads, 2 * heads)?, mask: KvMask::None })
    }

    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> hesper_nn::Result<Option<RowView<'_>>> {
        let (step, block) = (self.positions.step()?, &mut self.layers[layer]);
        if !step.is_decode() {
            return Ok(None);
        }
        *block = keep_token(block, tokens, step.starts(), None, heads.into(), rotation)?;
        Ok(Some(RowView { rows: block.clone(), positions: step.positions(), pages: None }))
    }
}

struct Layer {
    before: Norm,
    attention: Attention,
    between: Norm,
    mlp: Mlp,
}

/// A decoder of the shape of Llama-3-8B.
struct Decoder {
    tokens: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
}

const WIDTH: usize = 4096;
const HEADS: Heads = Heads { queries: 32, kv: 8, dim: 128 };
const LAYERS: usize = 32;
const VOCABULARY: usize = 128_256;
const CONTEXT: usize = 512;

fn weight(outputs: usize, inputs: usize, bits: Option<usize>) -> Outcome<Weight> {
    let of = Dtype::Bfloat16;
    let Some(bits) = bits else { return Ok(noise(&[outputs, inputs], of, 0.02)?.into()) };
    let codes = random::bits(&[outputs, inputs * bits / 32], None)?;
    codes.eval()?;
    let (scales, biases) =
        (noise(&[outputs, inputs / 64], of, 0.004)?, noise(&[outputs, inputs / 64], of, 0.02)?);
    let quantization = Quantization::new(64, bits, "affine")?;
    Ok(Weight::quantized(codes, scales, Some(biases), quantization, Activations::Exact))
}

impl Decoder {
    fn new(layers: usize, bits: Option<usize>) -> Outcome<Self> {
        let linear = |outputs: usize, inputs: usize| -> Outcome<Linear> {
            Ok(Linear::from_weight(weight(outputs, inputs, bits)?, None)?)
        };
        let norm = || -> Outcome<Norm> {
            Ok(Norm::Rms(RmsNorm::from_weight(noise(&[WIDTH], Dtype::Bfloat16, 1.0)?, 1e-5)))
        };
        let rope = Rope::new(HEADS.dim, false, 500_000.0, None)?;
        let one = || -> Outcome<Layer> {
            let projections = Projections::Separate {
                queries: linear(HEADS.queries * HEADS.dim, WIDTH)?,
                keys: linear(HEADS.kv * HEADS.dim, WIDTH)?,
                values: linear(HEADS.kv * HEADS.dim, WIDTH)?,
            };
            let output = linear(WIDTH, WIDTH)?;
            let mut attention = Attention::new(HEADS, projections, output, None, Some(rope.clone()))?;
            let (gate, up) = (linear(14336, WIDTH)?, linear(14336, WIDTH)?);
            let mut mlp = Mlp::new(Some(gate), up, linear(WIDTH, 14336)?, Activation::Silu);
            attention.fuse_projections()?;
            mlp.fuse_projections()?;
            // Evaluate layer by layer, so that the parts of only one layer exist twice.
            for weight in attention.parameters().values().chain(mlp.parameters().values()) {
                weight.eval()?;
            }
            Ok(Layer { before: norm()?, attention, between: norm()?, mlp })
        };
        Ok(Decoder {
            tokens: Embedding::from_weight(weight(VOCABULARY, WIDTH, bits)?),
            layers: (0..layers).map(|_| one()).collect::<Outcome<_>>()?,
            norm: norm()?,
            head: linear(VOCABULARY, WIDTH)?,
        })
    }

    /// Decodes one token of every sequence, greedily.
    fn step(&self, ids: &Array, cache: &mut FixedCache) -> Outcome<Array> {
        let mut x = self.tokens.forward(ids)?;
        cache.begin(&vec![1; cache.lengths().len()])?;
        for (at, layer) in self.layers.iter().enumerate() {
            x = x.add(layer.attention.forward(&layer.before.forward(&x)?, at, cache)?)?;
            x = x.add(layer.mlp.forward(&layer.between.forward(&x)?)?)?;
        }
        cache.end();
        cache.commit(1);
        let logits = self.head.forward(&self.norm.forward(&x)?)?;
        Ok(logits.argmax(-1)?)
    }
}

/// Decoding after a context of 512 tokens; `part` selects widths and batches.
fn llama(part: &str) -> Outcome<()> {
    for (name, bits) in [("bf16", None), ("4 bits", Some(4))] {
        let wanted = |batch: usize| format!("Llama 8B {name}, batch {batch}").contains(part);
        if ![1, 16, 64].into_iter().any(wanted) {
            continue;
        }
        // Fewer layers on a GPU with little memory; the speed is then meaningless.
        let layers = std::env::var("HESPER_BENCH_LAYERS").ok().and_then(|text| text.parse().ok());
        let layers = layers.unwrap_or(LAYERS);
        let start = Instant::now();
        let decoder = Decoder::new(layers, bits)?;
        println!("bench Llama 8B {name}: weights made in {:.2} s", start.elapsed().as_secs_f64());
        for batch in [1usize, 16, 64].into_iter().filter(|batch| wanted(*batch)) {
            let shape = [batch, 2 * HEADS.kv, CONTEXT + 256, HEADS.dim];
            let mut cache = FixedCache { positions: Positions::new(batch), layers: Vec::new() };
            for _ in 0..layers {
                cache.layers.push(noise(&shape, Dtype::Bfloat16, 1.0)?);
            }
            // The context: its keys and values are noise.
            cache.begin(&vec![CONTEXT; batch])?;
            cache.end();
            cache.commit(CONTEXT);
            let mut ids = Array::from_slice(&vec![17i32; batch]);
            let (mut best, mut first) = (f64::INFINITY, 0.0);
            for round in 0..5 {
                let count = if round == 0 { 1 } else { 32 };
                let start = Instant::now();
                for _ in 0..count {
                    ids = decoder.step(&ids, &mut cache)?;
                    hesper::async_eval([&ids].into_iter().chain(&cache.layers))?;
                }
                ids.eval()?;
                let took = start.elapsed().as_secs_f64() / f64::from(count);
                match round {
                    0 => first = took,
                    _ => best = best.min(took),
                }
            }
            println!(
                "bench Llama 8B {name}, batch {batch:<2} {:9.2} ms a step {:9.0} tokens/s (first {:.1} ms)",
                best * 1e3,
                batch as f64 / best,
                first * 1e3
            );
        }
    }
    Ok(())
}
