//! Training steps in candle, with the sizes of `hesper-bench --bin train`, which runs this program:
//! `train-candle mlp|cnn|transformer [SECONDS]` prints one line of JSON.

#[allow(dead_code, reason = "compiled only")]
mod porting;
#[path = "../../train_sizes.rs"]
mod train_sizes;

use std::time::Instant;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Embedding, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap};

use train_sizes::{HEAD, Sizes, VOCABULARY};

const DEVICE: Device = Device::Cpu;

fn normal(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1f32, shape, &DEVICE)
}

fn classes(count: usize, below: usize) -> Result<Tensor> {
    Tensor::from_vec((0..count).map(|at| (at * 7 % below) as u32).collect::<Vec<_>>(), count, &DEVICE)
}

/// Layer norm written in ops with derivatives: the fused one of candle-nn has none.
struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    fn new(dims: usize, vars: VarBuilder) -> Result<Self> {
        let weight = vars.get_with_hints(dims, "weight", candle_nn::Init::Const(1.0))?;
        let bias = vars.get_with_hints(dims, "bias", candle_nn::Init::Const(0.0))?;
        Ok(LayerNorm { weight, bias })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let deviation = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
        x.broadcast_div(&deviation)?.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)
    }
}

fn mlp(vars: VarBuilder, sizes: Sizes) -> Result<Box<dyn Fn() -> Result<Tensor>>> {
    let Sizes { batch, width, layers, .. } = sizes;
    let mut sizes = vec![width; layers + 1];
    (sizes[0], sizes[layers]) = (784, 10);
    let layers: Vec<Linear> = sizes
        .windows(2)
        .enumerate()
        .map(|(at, pair)| candle_nn::linear(pair[0], pair[1], vars.pp(at)))
        .collect::<Result<_>>()?;
    let (x, y) = (normal(&[batch, 784])?, classes(batch, 10)?);
    Ok(Box::new(move || {
        let mut h = x.clone();
        for (at, layer) in layers.iter().enumerate() {
            h = layer.forward(&h)?;
            if at + 1 < layers.len() {
                h = h.relu()?;
            }
        }
        candle_nn::loss::cross_entropy(&h, &y)
    }))
}

fn cnn(vars: VarBuilder, sizes: Sizes) -> Result<Box<dyn Fn() -> Result<Tensor>>> {
    let Sizes { batch, width, length, .. } = sizes;
    let padded = Conv2dConfig { padding: 1, ..Default::default() };
    let conv1: Conv2d = candle_nn::conv2d(1, width, 3, padded, vars.pp("conv1"))?;
    let conv2: Conv2d = candle_nn::conv2d(width, 2 * width, 3, padded, vars.pp("conv2"))?;
    let linear = candle_nn::linear(2 * width * (length / 4) * (length / 4), 128, vars.pp("linear"))?;
    let output = candle_nn::linear(128, 10, vars.pp("output"))?;
    let (x, y) = (normal(&[batch, 1, length, length])?, classes(batch, 10)?);
    Ok(Box::new(move || {
        let h = conv1.forward(&x)?.relu()?.max_pool2d(2)?;
        let h = conv2.forward(&h)?.relu()?.max_pool2d(2)?;
        let h = linear.forward(&h.flatten_from(1)?)?.relu()?;
        candle_nn::loss::cross_entropy(&output.forward(&h)?, &y)
    }))
}

struct Block {
    projections: [Linear; 4],
    norms: [LayerNorm; 2],
    linears: [Linear; 2],
}

impl Block {
    fn new(dims: usize, vars: VarBuilder) -> Result<Self> {
        let projection = |name: &str| candle_nn::linear_no_bias(dims, dims, vars.pp(name));
        Ok(Block {
            projections: [projection("q")?, projection("k")?, projection("v")?, projection("o")?],
            norms: [LayerNorm::new(dims, vars.pp("ln1"))?, LayerNorm::new(dims, vars.pp("ln2"))?],
            linears: [
                candle_nn::linear(dims, 4 * dims, vars.pp("linear1"))?,
                candle_nn::linear(4 * dims, dims, vars.pp("linear2"))?,
            ],
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (batch, length, dims) = x.dims3()?;
        let y = self.norms[0].forward(x)?;
        let heads = |at: usize| -> Result<Tensor> {
            let y = self.projections[at].forward(&y)?;
            y.reshape((batch, length, dims / HEAD, HEAD))?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (heads(0)?, heads(1)?, heads(2)?);
        let scores = (q.matmul(&k.t()?)? * (1.0 / (HEAD as f64).sqrt()))?.broadcast_add(mask)?;
        let y = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
        let y = y.transpose(1, 2)?.reshape((batch, length, dims))?;
        let x = (x + self.projections[3].forward(&y)?)?;
        let y = self.linears[0].forward(&self.norms[1].forward(&x)?)?.relu()?;
        &x + self.linears[1].forward(&y)?
    }
}

fn transformer(vars: VarBuilder, sizes: Sizes) -> Result<Box<dyn Fn() -> Result<Tensor>>> {
    let Sizes { batch, width, layers, length } = sizes;
    let tokens: Embedding = candle_nn::embedding(VOCABULARY, width, vars.pp("tokens"))?;
    let positions: Embedding = candle_nn::embedding(length, width, vars.pp("positions"))?;
    let blocks: Vec<Block> = (0..layers).map(|at| Block::new(width, vars.pp(at))).collect::<Result<_>>()?;
    let norm = LayerNorm::new(width, vars.pp("ln"))?;
    let output = candle_nn::linear(width, VOCABULARY, vars.pp("output"))?;
    let ids = classes(batch * length, VOCABULARY)?.reshape((batch, length))?;
    let targets = classes(batch * length, 251)?;
    let places = Tensor::arange(0u32, length as u32, &DEVICE)?;
    let later = |at: usize| if at % length > at / length { f32::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f32> = (0..length * length).map(later).collect();
    let mask = Tensor::from_vec(mask, (1, 1, length, length), &DEVICE)?;
    Ok(Box::new(move || {
        let mut x = tokens.forward(&ids)?.broadcast_add(&positions.forward(&places)?)?;
        for block in &blocks {
            x = block.forward(&x, &mask)?;
        }
        let logits = output.forward(&norm.forward(&x)?)?.reshape((batch * length, VOCABULARY))?;
        candle_nn::loss::cross_entropy(&logits, &targets)
    }))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().unwrap_or_default();
    let seconds: f64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let map = VarMap::new();
    let vars = VarBuilder::from_varmap(&map, DType::F32, &DEVICE);
    let (kind, sizes) = Sizes::parse(&workload).map_err(candle_core::Error::msg)?;
    let loss = match kind {
        "mlp" => mlp(vars, sizes)?,
        "cnn" => cnn(vars, sizes)?,
        _ => transformer(vars, sizes)?,
    };
    let mut optimizer = AdamW::new(map.all_vars(), ParamsAdamW { lr: 1e-3, ..Default::default() })?;
    let mut step = || -> Result<f32> {
        let loss = loss()?;
        optimizer.backward_step(&loss)?;
        loss.to_scalar::<f32>()
    };
    let mut times = Vec::new();
    let mut last = f32::NAN;
    let begun = Instant::now();
    while times.len() < 4 || begun.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        last = step()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"peer\": \"candle\", \"workload\": \"{workload}\", \"first_ms\": {first:.4}, \"median_ms\": {:.4}, \
         \"min_ms\": {:.4}, \"reps\": {}, \"loss\": {last:.4}}}",
        times[times.len() / 2],
        times[0],
        times.len()
    );
    Ok(())
}
