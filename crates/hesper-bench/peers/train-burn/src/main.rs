//! Training steps in burn, with the sizes of `hesper-bench --bin train`, which runs this program:
//! `train-burn mlp|cnn|transformer [SECONDS]` prints one line of JSON.

#[allow(dead_code, reason = "compiled only")]
mod porting;
#[path = "../../train_sizes.rs"]
mod train_sizes;

use std::time::Instant;

use burn::module::Module;
use burn::nn::attention::{
    MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask,
};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, PaddingConfig2d,
};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Bool, Device, Distribution, Int, Tensor, TensorData, activation};

use train_sizes::{HEAD, Sizes, VOCABULARY};

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
    fn model(sizes: Sizes, device: &Device) -> Self::Model;
    fn batch(sizes: Sizes, device: &Device) -> Self;
    fn loss(&self, model: &Self::Model) -> Tensor<1>;
}

#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
}

struct MlpBatch(Tensor<2>, Tensor<1, Int>, CrossEntropyLoss);

impl Workload for MlpBatch {
    type Model = Mlp;

    fn model(sizes: Sizes, device: &Device) -> Mlp {
        let Sizes { width, layers, .. } = sizes;
        let mut sizes = vec![width; layers + 1];
        (sizes[0], sizes[layers]) = (784, 10);
        Mlp {
            layers: sizes.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect(),
        }
    }

    fn batch(Sizes { batch, .. }: Sizes, device: &Device) -> Self {
        let loss = CrossEntropyLossConfig::new().init(device);
        MlpBatch(normal([batch, 784], device), classes(batch, 10, device), loss)
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

    fn model(Sizes { width, length, .. }: Sizes, device: &Device) -> Cnn {
        let conv = |channels: [usize; 2]| {
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Conv2dConfig::new(channels, [3, 3]).with_padding(padding).init(device)
        };
        Cnn {
            conv1: conv([1, width]),
            conv2: conv([width, 2 * width]),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            linear: LinearConfig::new(2 * width * (length / 4) * (length / 4), 128).init(device),
            output: LinearConfig::new(128, 10).init(device),
        }
    }

    fn batch(Sizes { batch, length, .. }: Sizes, device: &Device) -> Self {
        let loss = CrossEntropyLossConfig::new().init(device);
        CnnBatch(normal([batch, 1, length, length], device), classes(batch, 10, device), loss)
    }

    fn loss(&self, model: &Cnn) -> Tensor<1> {
        let h = model.pool.forward(activation::relu(model.conv1.forward(self.0.clone())));
        let h = model.pool.forward(activation::relu(model.conv2.forward(h)));
        let h = activation::relu(model.linear.forward(h.flatten::<2>(1, 3)));
        self.2.forward(model.output.forward(h), self.1.clone())
    }
}

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

    fn model(sizes: Sizes, device: &Device) -> Transformer {
        let Sizes { width, layers, length, .. } = sizes;
        let block = || Block {
            attention: MultiHeadAttentionConfig::new(width, width / HEAD)
                .with_dropout(0.0)
                .with_query_bias(false)
                .with_key_bias(false)
                .with_value_bias(false)
                .with_output_bias(false)
                .init(device),
            ln1: LayerNormConfig::new(width).init(device),
            ln2: LayerNormConfig::new(width).init(device),
            linear1: LinearConfig::new(width, 4 * width).init(device),
            linear2: LinearConfig::new(4 * width, width).init(device),
        };
        Transformer {
            tokens: EmbeddingConfig::new(VOCABULARY, width).init(device),
            positions: EmbeddingConfig::new(length, width).init(device),
            blocks: (0..layers).map(|_| block()).collect(),
            ln: LayerNormConfig::new(width).init(device),
            output: LinearConfig::new(width, VOCABULARY).init(device),
        }
    }

    fn batch(sizes: Sizes, device: &Device) -> Self {
        let Sizes { batch, length, .. } = sizes;
        TransformerBatch {
            ids: classes(batch * length, VOCABULARY, device).reshape([batch, length]),
            places: Tensor::arange(0..length as i64, device).reshape([1, length]),
            targets: classes(batch * length, 251, device),
            mask: generate_autoregressive_mask(batch, length, device),
            loss: CrossEntropyLossConfig::new().init(device),
        }
    }

    fn loss(&self, model: &Transformer) -> Tensor<1> {
        let [batch, length] = self.ids.dims();
        let mut x = model.tokens.forward(self.ids.clone()) + model.positions.forward(self.places.clone());
        for block in &model.blocks {
            let input = MhaInput::self_attn(block.ln1.forward(x.clone())).mask_attn(self.mask.clone());
            x = x + block.attention.forward(input).context;
            let y = activation::relu(block.linear1.forward(block.ln2.forward(x.clone())));
            x = x + block.linear2.forward(y);
        }
        let logits = model.output.forward(model.ln.forward(x));
        self.loss.forward(logits.reshape([batch * length, VOCABULARY]), self.targets.clone())
    }
}

fn measure<W: Workload>(workload: &str, sizes: Sizes, seconds: f64) {
    let device = Device::flex().autodiff();
    let (mut model, batch) = (W::model(sizes, &device), W::batch(sizes, &device));
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
    match Sizes::parse(&workload) {
        Ok(("mlp", sizes)) => measure::<MlpBatch>(&workload, sizes, seconds),
        Ok(("cnn", sizes)) => measure::<CnnBatch>(&workload, sizes, seconds),
        Ok((_, sizes)) => measure::<TransformerBatch>(&workload, sizes, seconds),
        Err(error) => eprintln!("{error}"),
    }
}
