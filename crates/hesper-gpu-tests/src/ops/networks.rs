//! Speed of whole networks on the device: a training step of an MLP, and a decoder of Llama-3-8B's shape with random
//! weights that are made there.

use std::time::Instant;

use hesper::fast::{self, AttentionMask, Offset};
use hesper::place::{self, Device};
use hesper::{Activations, Array, Dtype, Error, random, transform};
use hesper_nn::{
    Activation, Attention, Embedding, Heads, KeyValues, Linear, Mlp, Projections, Quantization, RmsNorm,
    Rope, Weight,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn noise(shape: &[usize], dtype: Dtype, size: f64) -> Result<Array, Error> {
    let x = random::uniform(-size, size, shape, Dtype::Float32, None)?.astype(dtype)?;
    x.eval()?;
    Ok(x)
}

/// All lines whose name contains `part`; the number of failures.
pub fn run(part: &str) -> usize {
    let done = place::with_device(Device::Gpu(0), || -> Outcome<()> {
        if "MLP training step".contains(part) {
            training()?;
        }
        llama(part)
    });
    println!("computed on the host: {:?}", place::fallbacks());
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
            Ok(vec![h.subtract(&data[1])?.square()?.mean(None, false)?])
        };
        let every: Vec<usize> = (0..parameters).collect();
        let (mut outputs, slopes) = transform::value_and_grad(loss, &every)(&state[..parameters])?;
        let (mut means, mut squares) = (Vec::new(), Vec::new());
        for (at, slope) in slopes.iter().enumerate() {
            let mean = state[parameters + at].multiply(0.9)?.add(slope.multiply(0.1)?)?;
            let square = state[2 * parameters + at].multiply(0.999)?.add(slope.square()?.multiply(0.001)?)?;
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
            // The state is handed over: nobody else holds it.
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

/// Keys and values of texts of one length.
struct Memory<'a> {
    blocks: &'a mut [Array; 2],
    length: usize,
}

impl KeyValues for Memory<'_> {
    fn offset(&self) -> Offset {
        Offset::Number(self.length as i32)
    }

    fn sequences(&self) -> usize {
        self.blocks[0].shape()[0]
    }

    fn attend(&mut self, queries: &Array, keys: &Array, values: &Array, scale: f32) -> Result<Array, Error> {
        let rows = self.length + 1;
        let starts = vec![self.length; self.sequences()];
        let [old_keys, old_values] = self.blocks.clone();
        let room = old_keys.shape()[2];
        // The old blocks are handed over, so that rows are written in place.
        *self.blocks = [Array::zeros(&[0], Dtype::Float32)?, Array::zeros(&[0], Dtype::Float32)?];
        let new = [
            fast::append(&old_keys, keys, &starts, room)?,
            fast::append(&old_values, values, &starts, room)?,
        ];
        drop((old_keys, old_values));
        let head = |block: &Array| {
            let end: Vec<isize> = block.shape().iter().map(|length| *length as isize).collect();
            block.slice(&[0; 4], &[end[0], end[1], rows as isize, end[3]], &[1; 4])
        };
        let y = fast::scaled_dot_product_attention(
            queries,
            &head(&new[0])?,
            &head(&new[1])?,
            scale,
            AttentionMask::None,
            None,
        )?;
        *self.blocks = new;
        Ok(y)
    }
}

struct Layer {
    before: RmsNorm,
    attention: Attention,
    between: RmsNorm,
    mlp: Mlp,
}

/// A decoder of Llama-3-8B's shape.
struct Decoder {
    tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
}

const WIDTH: usize = 4096;
const HEADS: Heads = Heads { queries: 32, keys: 8, width: 128 };
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
            Ok(Linear::new(weight(outputs, inputs, bits)?, None)?)
        };
        let norm = || -> Outcome<RmsNorm> { Ok(RmsNorm::new(noise(&[WIDTH], Dtype::Bfloat16, 1.0)?, 1e-5)) };
        let rope = Rope::new(HEADS.width, false, 500_000.0, None)?;
        let one = || -> Outcome<Layer> {
            let projections = Projections::Separate {
                queries: linear(HEADS.queries * HEADS.width, WIDTH)?,
                keys: linear(HEADS.keys * HEADS.width, WIDTH)?,
                values: linear(HEADS.keys * HEADS.width, WIDTH)?,
            };
            let output = linear(WIDTH, WIDTH)?;
            Ok(Layer {
                before: norm()?,
                attention: Attention::new(HEADS, projections, output, None, Some(rope.clone()))?,
                between: norm()?,
                mlp: Mlp::new(
                    Some(linear(14336, WIDTH)?),
                    linear(14336, WIDTH)?,
                    linear(WIDTH, 14336)?,
                    Activation::Silu,
                ),
            })
        };
        Ok(Decoder {
            tokens: Embedding::new(weight(VOCABULARY, WIDTH, bits)?),
            layers: (0..layers).map(|_| one()).collect::<Outcome<_>>()?,
            norm: norm()?,
            head: linear(VOCABULARY, WIDTH)?,
        })
    }

    /// The best next token of every text.
    fn step(&self, ids: &Array, memory: &mut [[Array; 2]], length: usize) -> Outcome<Array> {
        let mut x = self.tokens.forward(ids)?;
        for (layer, blocks) in self.layers.iter().zip(memory) {
            let mut memory = Memory { blocks, length };
            x = x.add(&layer.attention.forward(&layer.before.forward(&x)?, &mut memory)?)?;
            x = x.add(&layer.mlp.forward(&layer.between.forward(&x)?)?)?;
        }
        let scores = self.head.forward(&self.norm.forward(&x)?)?;
        Ok(scores.argmax(Some(-1), false)?)
    }
}

/// Decoding behind a context of 512 tokens; `part` chooses among the widths and batches.
fn llama(part: &str) -> Outcome<()> {
    for (name, bits) in [("bf16", None), ("4 bits", Some(4))] {
        let wanted = |batch: usize| format!("Llama 8B {name}, batch {batch}").contains(part);
        if ![1, 16, 64].into_iter().any(wanted) {
            continue;
        }
        // Fewer layers where memory is short (a development machine); then speeds say nothing.
        let layers = std::env::var("HESPER_BENCH_LAYERS").ok().and_then(|text| text.parse().ok());
        let layers = layers.unwrap_or(LAYERS);
        let start = Instant::now();
        let decoder = Decoder::new(layers, bits)?;
        println!("bench Llama 8B {name}: weights made in {:.2} s", start.elapsed().as_secs_f64());
        for batch in [1usize, 16, 64].into_iter().filter(|batch| wanted(*batch)) {
            let shape = [batch, HEADS.keys, CONTEXT + 256, HEADS.width];
            let mut memory = Vec::new();
            for _ in 0..layers {
                let block = || noise(&shape, Dtype::Bfloat16, 1.0);
                memory.push([block()?, block()?]);
            }
            let mut ids = Array::from_slice(&vec![17i32; batch]);
            let (mut best, mut first, mut length) = (f64::INFINITY, 0.0, CONTEXT);
            for round in 0..5 {
                let count = if round == 0 { 1 } else { 32 };
                let start = Instant::now();
                for _ in 0..count {
                    ids = decoder.step(&ids, &mut memory, length)?;
                    hesper::async_eval([&ids].into_iter().chain(memory.iter().flatten()))?;
                    length += 1;
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
