//! Training steps in burn, with the sizes of `hesper-bench --bin train`, which runs this program:
//! `train-burn mlp|cnn|transformer [SECONDS]` prints one line of JSON.

#[allow(dead_code, reason = "compiled only")]
mod porting;

use std::time::Instant;

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d,
};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bool, Device, Distribution, Int, Tensor, TensorData, activation};

fn classes(count: usize, below: usize, device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i64> = (0..count).map(|at| (at * 7 % below) as i64).collect();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}

fn normal<const N: usize>(shape: [usize; N], device: &Device) -> Tensor<N> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

/// A model and its batch.
trait Workload: Sized {
    type Model: Module;
    fn model(device: &Device) -> Self::Model;
    fn batch(device: &Device) -> Self;
    fn loss(&self, model: &Self::Model) -> Tensor<1>;
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

struct MlpBatch(Tensor<2>, Tensor<1, Int>, CrossEntropyLoss);

impl Workload for MlpBatch {
    type Model = Mlp;

    fn model(device: &Device) -> Mlp {
        let sizes = [784, 512, 512, 10];
        Mlp { layers: sizes.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect() }
    }

    fn batch(device: &Device) -> Self {
        let loss = CrossEntropyLossConfig::new().init(device);
        MlpBatch(normal([64, 784], device), classes(64, 10, device), loss)
    }

    fn loss(&self, model: &Mlp) -> Tensor<1> {
        let mut h = self.0.clone();
        for (at, layer) in model.layers.iter().enumerate() {
            h = layer.forward(h);
            if at + 1 < model.layers.len() {
                h = activation::relu(h);
            }
        }
        self.2.forward(h, self.1.clone())
    }
}

#[derive(Module, Debug)]
struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    linear: Linear,
    output: Linear,
}

struct CnnBatch(Tensor<4>, Tensor<1, Int>, CrossEntropyLoss);

impl Workload for CnnBatch {
    type Model = Cnn;

    fn model(device: &Device) -> Cnn {
        let conv = |channels: [usize; 2]| {
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Conv2dConfig::new(channels, [3, 3]).with_padding(padding).init(device)
        };
        Cnn {
            conv1: conv([1, 32]),
            conv2: conv([32, 64]),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            linear: LinearConfig::new(64 * 7 * 7, 128).init(device),
            output: LinearConfig::new(128, 10).init(device),
        }
    }

    fn batch(device: &Device) -> Self {
        let loss = CrossEntropyLossConfig::new().init(device);
        CnnBatch(normal([32, 1, 28, 28], device), classes(32, 10, device), loss)
    }

    fn loss(&self, model: &Cnn) -> Tensor<1> {
        let h = model.pool.forward(activation::relu(model.conv1.forward(self.0.clone())));
        let h = model.pool.forward(activation::relu(model.conv2.forward(h)));
        let h = activation::relu(model.linear.forward(h.flatten::<2>(1, 3)));
        self.2.forward(model.output.forward(h), self.1.clone())
    }
}

const DIMS: usize = 128;
const VOCABULARY: usize = 256;
const BATCH: usize = 8;
const LENGTH: usize = 128;

#[derive(Module, Debug)]
struct Block {
    attention: MultiHeadAttention,
    ln1: LayerNorm,
    ln2: LayerNorm,
    linear1: Linear,
    linear2: Linear,
}

#[derive(Module, Debug)]
struct Transformer {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    ln: LayerNorm,
    output: Linear,
}

struct TransformerBatch {
    ids: Tensor<2, Int>,
    places: Tensor<2, Int>,
    targets: Tensor<1, Int>,
    mask: Tensor<3, Bool>,
    loss: CrossEntropyLoss,
}

impl Workload for TransformerBatch {
    type Model = Transformer;

    fn model(device: &Device) -> Transformer {
        let block = || Block {
            attention: MultiHeadAttentionConfig::new(DIMS, 4)
                .with_dropout(0.0)
                .with_query_bias(false)
                .with_key_bias(false)
                .with_value_bias(false)
                .with_output_bias(false)
                .init(device),
            ln1: LayerNormConfig::new(DIMS).init(device),
            ln2: LayerNormConfig::new(DIMS).init(device),
            linear1: LinearConfig::new(DIMS, 4 * DIMS).init(device),
            linear2: LinearConfig::new(4 * DIMS, DIMS).init(device),
        };
        Transformer {
            tokens: EmbeddingConfig::new(VOCABULARY, DIMS).init(device),
            positions: EmbeddingConfig::new(LENGTH, DIMS).init(device),
            blocks: (0..4).map(|_| block()).collect(),
            ln: LayerNormConfig::new(DIMS).init(device),
            output: LinearConfig::new(DIMS, VOCABULARY).init(device),
        }
    }

    fn batch(device: &Device) -> Self {
        TransformerBatch {
            ids: classes(BATCH * LENGTH, VOCABULARY, device).reshape([BATCH, LENGTH]),
            places: Tensor::arange(0..LENGTH as i64, device).reshape([1, LENGTH]),
            targets: classes(BATCH * LENGTH, 251, device),
            mask: generate_autoregressive_mask(BATCH, LENGTH, device),
            loss: CrossEntropyLossConfig::new().init(device),
        }
    }

    fn loss(&self, model: &Transformer) -> Tensor<1> {
        let mut x = model.tokens.forward(self.ids.clone()) + model.positions.forward(self.places.clone());
        for block in &model.blocks {
            let input = MhaInput::self_attn(block.ln1.forward(x.clone())).mask_attn(self.mask.clone());
            x = x + block.attention.forward(input).context;
            let y = activation::relu(block.linear1.forward(block.ln2.forward(x.clone())));
            x = x + block.linear2.forward(y);
        }
        let logits = model.output.forward(model.ln.forward(x));
        self.loss.forward(logits.reshape([BATCH * LENGTH, VOCABULARY]), self.targets.clone())
    }
}

fn measure<W: Workload>(workload: &str, seconds: f64) {
    let device = Device::flex().autodiff();
    let (mut model, batch) = (W::model(&device), W::batch(&device));
    let mut optimizer: ModuleOptimizer = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init();
    let mut times = Vec::new();
    let mut last = f32::NAN;
    let begun = Instant::now();
    while times.len() < 4 || begun.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        let loss = batch.loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        last = loss.into_scalar();
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"peer\": \"burn\", \"workload\": \"{workload}\", \"first_ms\": {first:.4}, \"median_ms\": {:.4}, \
         \"min_ms\": {:.4}, \"reps\": {}, \"loss\": {last:.4}}}",
        times[times.len() / 2],
        times[0],
        times.len()
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().unwrap_or_default();
    let seconds: f64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    match workload.as_str() {
        "mlp" => measure::<MlpBatch>(&workload, seconds),
        "cnn" => measure::<CnnBatch>(&workload, seconds),
        "transformer" => measure::<TransformerBatch>(&workload, seconds),
        _ => eprintln!("usage: train-burn mlp|cnn|transformer [SECONDS]"),
    }
}
