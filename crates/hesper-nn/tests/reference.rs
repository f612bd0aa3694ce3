//! Compares layers, losses and optimizers with MLX. `reference/make.py` writes the expected values to
//! `reference/reference.json`. Parameters have the same names as in MLX, so that either loads files of the
//! other.

use std::collections::BTreeMap;

use hesper::fast::AttentionMask;
use hesper::{Array, Dtype};
use hesper_nn::loss::{self, CrossEntropy, Reduction};
use hesper_nn::optim::{
    AdaDelta, Adafactor, Adagrad, Adam, Adamax, Lion, Muon, Optimizer, RmsProp, Schedule, Sgd,
};
use hesper_nn::*;
use serde_json::Value;

fn reference() -> Value {
    serde_json::from_str(include_str!("reference/reference.json")).unwrap()
}

/// The formula of `make.py`.
fn values(shape: &[usize], seed: usize) -> Array {
    let count = shape.iter().product::<usize>();
    let list: Vec<f32> =
        (0..count).map(|at| ((at * 37 + 11 + seed * 53) % 101) as f32 / 50.0 - 1.0).collect();
    Array::try_from_slice(&list, shape).unwrap()
}

fn positive(shape: &[usize], seed: usize) -> Array {
    values(shape, seed).abs().unwrap().add(0.1).unwrap()
}

/// Fills the parameters of a module by the formula, in the order of their names.
fn fill(module: &mut dyn Module) {
    let made: BTreeMap<String, Array> = module
        .parameters()
        .into_iter()
        .enumerate()
        .map(|(seed, (name, old))| {
            let make = if name.ends_with("running_var") { positive } else { values };
            let new = make(old.shape(), seed);
            (name, new)
        })
        .collect();
    module.load(&made, true).unwrap();
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap() as f32).collect()
}

fn assert_close(name: &str, given: &Array, expected: &[f32], bound: f32) {
    let given = given.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(given.len(), expected.len(), "{name}");
    for (at, (a, b)) in given.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= bound * b.abs().max(1.0), "{name}[{at}]: {a}, MLX has {b}");
    }
}

/// Compares a layer with MLX's: names and shapes of parameters, outputs, and buffers afterwards.
fn compare<M: Module>(
    name: &str,
    inputs: &[&[usize]],
    layer: impl FnOnce() -> Result<M>,
    forward: impl Fn(&M, &[Array]) -> Result<Vec<Array>>,
) {
    let reference = &reference()["layers"][name];
    let mut layer = layer().unwrap();
    let shapes: BTreeMap<String, Vec<usize>> =
        layer.parameters().into_iter().map(|(name, array)| (name, array.shape().to_vec())).collect();
    let expected: BTreeMap<String, Vec<usize>> =
        serde_json::from_value(reference["parameters"].clone()).unwrap();
    assert_eq!(shapes, expected, "{name}");
    fill(&mut layer);
    let inputs: Vec<Array> = inputs.iter().enumerate().map(|(at, shape)| values(shape, 20 + at)).collect();
    let outputs = forward(&layer, &inputs).unwrap();
    for (at, (output, expected)) in outputs.iter().zip(reference["outputs"].as_array().unwrap()).enumerate() {
        assert_close(&format!("{name} output {at}"), output, &numbers(expected), 2e-5);
    }
    for (path, expected) in reference["buffers"].as_object().unwrap() {
        assert_close(path, &layer.parameters()[path], &numbers(expected), 1e-5);
    }
}

macro_rules! layer {
    ($name:literal, $inputs:expr, $layer:expr) => {
        compare($name, $inputs, || Ok($layer), |layer, x| Ok(vec![layer.forward(&x[0])?]))
    };
    ($name:literal, $inputs:expr, $layer:expr, |$own:ident, $x:ident| $forward:expr) => {
        compare($name, $inputs, || Ok($layer), |$own, $x| Ok($forward))
    };
}

const NO_MASK: AttentionMask<'static> = AttentionMask::None;

#[test]
fn layers_compute_what_mlx_computes() {
    layer!("Linear", &[&[2, 4]], Linear::new(4, 3)?);
    layer!("Bilinear", &[&[5, 3], &[5, 2]], Bilinear::new(3, 2, 4)?, |own, x| vec![
        own.forward(&x[0], &x[1])?
    ]);
    layer!("LayerNorm", &[&[2, 6]], LayerNorm::new(6)?);
    layer!("RMSNorm", &[&[2, 6]], RmsNorm::new(6)?);
    layer!("InstanceNorm", &[&[2, 4, 5, 3]], InstanceNorm::with_affine(3)?);
    layer!("GroupNorm", &[&[2, 3, 3, 4]], GroupNorm::new(2, 4)?);
    layer!("GroupNormAdjacent", &[&[2, 3, 3, 4]], GroupNorm::new(2, 4)?.with_adjacent_channels());
    layer!("BatchNorm", &[&[2, 4, 4, 3]], BatchNorm::new(3)?);
    layer!("BatchNormEval", &[&[2, 4, 4, 3]], {
        let mut norm = BatchNorm::new(3)?;
        norm.train(false);
        norm
    });
    layer!("Conv1d", &[&[2, 9, 4]], Conv1d::grouped(4, 6, 3, 2)?.with_stride(2).with_padding(1));
    layer!("Conv2d", &[&[1, 6, 5, 2]], Conv2d::new(2, 3, [3, 2])?.with_stride([2, 1]).with_padding(1));
    layer!("Conv3d", &[&[1, 3, 3, 3, 2]], Conv3d::new(2, 2, 2)?.with_padding(1));
    layer!(
        "ConvTranspose1d",
        &[&[2, 5, 3]],
        ConvTranspose1d::new(3, 2, 3)?.with_stride(2).with_padding(1).with_output_padding(1)
    );
    layer!(
        "ConvTranspose2d",
        &[&[1, 3, 4, 2]],
        ConvTranspose2d::new(2, 3, 3)?.with_stride(2).with_padding(1)
    );
    layer!("ConvTranspose3d", &[&[1, 2, 2, 2, 1]], ConvTranspose3d::new(1, 2, 2)?.with_stride(2));
    layer!("MaxPool1d", &[&[2, 7, 2]], Pool::max_1d(3)?.with_stride(&[2])?.with_padding(&[1])?);
    layer!("MaxPool2d", &[&[1, 4, 6, 2]], Pool::max_2d(2)?);
    layer!("AvgPool2d", &[&[1, 7, 7, 2]], Pool::mean_2d(3)?.with_stride(&[2, 2])?);
    layer!("AvgPool3d", &[&[1, 4, 4, 4, 1]], Pool::mean_3d(2)?.with_padding(&[1, 1, 1])?);
    layer!("PReLU", &[&[4, 3]], PRelu::new(3)?);
    layer!("UpsampleNearest", &[&[1, 4, 5, 2]], Upsample::new(&[1.7], Interpolation::Nearest)?);
    layer!("UpsampleLinear", &[&[1, 4, 4, 2]], Upsample::new(&[2.0, 1.5], Interpolation::Linear)?);
    layer!(
        "UpsampleLinearCorners",
        &[&[1, 3, 4, 1]],
        Upsample::new(&[2.0], Interpolation::Linear)?.with_align_corners()?
    );
    layer!("UpsampleCubic", &[&[1, 4, 4, 1]], Upsample::new(&[2.0], Interpolation::Cubic)?);
}

#[test]
fn recurrent_layers_and_transformers_compute_what_mlx_computes() {
    layer!("RNN", &[&[2, 5, 3]], Rnn::new(3, 4)?, |own, x| vec![own.forward(&x[0], None)?]);
    layer!("GRU", &[&[2, 5, 3]], Gru::new(3, 4)?, |own, x| vec![own.forward(&x[0], None)?]);
    layer!("LSTM", &[&[2, 5, 3]], Lstm::new(3, 4)?, |own, x| {
        let (hidden, cell) = own.forward(&x[0], None, None)?;
        vec![hidden, cell]
    });
    layer!(
        "MultiHeadAttention",
        &[&[2, 5, 8], &[2, 6, 8], &[2, 6, 8]],
        MultiHeadAttention::new(8, 2)?,
        |own, x| vec![own.forward(&x[0], &x[1], &x[2], NO_MASK)?]
    );
    let config = |mlp: usize| TransformerConfig { mlp_dims: Some(mlp), ..TransformerConfig::new(8, 2) };
    for checkpoint in [false, true] {
        layer!(
            "TransformerEncoder",
            &[&[2, 5, 8]],
            TransformerEncoder::new(2, &TransformerConfig { checkpoint, ..config(12) })?,
            |own, x| vec![own.forward(&x[0], NO_MASK)?]
        );
        layer!(
            "TransformerDecoderLast",
            &[&[2, 5, 8], &[2, 4, 8]],
            TransformerDecoder::new(1, &TransformerConfig { norm_first: false, checkpoint, ..config(12) })?,
            |own, x| vec![own.forward(&x[0], &x[1], NO_MASK, NO_MASK)?]
        );
    }
    layer!("Transformer", &[&[1, 4, 8], &[1, 3, 8]], Transformer::new(1, 1, &config(8))?, |own, x| {
        vec![own.forward(&x[0], &x[1], NO_MASK, NO_MASK, NO_MASK)?]
    });
    layer!("SinusoidalPositionalEncoding", &[&[5]], SinusoidalPositions::new(8)?);
    layer!("ALiBi", &[&[1, 6, 3, 4]], Alibi::default(), |own, x| vec![own.forward(&x[0], 0, None)?]);
}

#[test]
fn activations_compute_what_mlx_computes() {
    use Activation::*;
    let all = [
        Celu(0.7),
        Elu(0.7),
        Gelu,
        GeluTanh,
        GeluFast,
        Glu,
        HardShrink(0.5),
        HardSwish,
        HardTanh,
        LeakyRelu(0.01),
        LogSigmoid,
        LogSoftmax,
        Mish,
        Relu,
        Relu2,
        Relu6,
        Selu,
        Sigmoid,
        Silu,
        Softmax,
        Softmin,
        Softplus,
        SoftShrink(0.5),
        Softsign,
        Step(0.2),
        Tanh,
    ];
    let reference = &reference()["activations"];
    let x = values(&[3, 8], 5).multiply(2.0).unwrap();
    assert_eq!(reference.as_object().unwrap().len(), all.len());
    for activation in all {
        let name = format!("{activation:?}");
        let name = name.split('(').next().unwrap();
        assert_close(name, &activation.forward(&x).unwrap(), &numbers(&reference[name]), 1e-5);
    }
}

#[test]
fn losses_compute_what_mlx_computes() {
    let (x, y, z) = (values(&[4, 3], 1), values(&[4, 3], 2), values(&[4, 3], 3));
    let classes = Array::from_slice(&[0, 2, 1, 2]);
    let log_softmax = |x: &Array| Activation::LogSoftmax.forward(x).unwrap();
    let (mean, sum) = (Reduction::Mean, Reduction::Sum);
    let smooth = CrossEntropy { label_smoothing: 0.2, reduction: sum, ..CrossEntropy::default() };
    let sizes = y.abs().unwrap();
    let all = [
        ("cross_entropy", loss::cross_entropy(&x, &classes)),
        ("cross_entropy_smooth", loss::cross_entropy_with(&x, &classes, smooth)),
        ("cross_entropy_dense", loss::cross_entropy(&x, &Activation::Softmax.forward(&y).unwrap())),
        ("binary_cross_entropy", loss::binary_cross_entropy(&x, &sizes, mean)),
        (
            "binary_cross_entropy_probabilities",
            loss::binary_cross_entropy_of_probabilities(&x.sigmoid().unwrap(), &sizes, mean),
        ),
        ("l1", loss::l1(&x, &y, mean)),
        ("mse", loss::mse(&x, &y, mean)),
        ("nll", loss::nll(&log_softmax(&x), &classes, -1, mean)),
        ("gaussian_nll", loss::gaussian_nll(&x, &y, &positive(&[4, 3], 4), true, mean)),
        ("kl_div", loss::kl_div(&log_softmax(&x), &log_softmax(&y), -1, mean)),
        ("smooth_l1", loss::smooth_l1(&x, &y, 0.7, mean)),
        ("triplet", loss::triplet(&x, &y, &z, -1, 2.0, 1.0, mean)),
        ("hinge", loss::hinge(&x, &y, mean)),
        ("huber", loss::huber(&x, &y, 0.6, mean)),
        ("log_cosh", loss::log_cosh(&x, &y, mean)),
        ("cosine_similarity", loss::cosine_similarity(&x, &y, 1, sum)),
        ("margin_ranking", loss::margin_ranking(&x, &y, &z.sign().unwrap(), 0.1, mean)),
    ];
    let reference = &reference()["losses"];
    assert_eq!(reference.as_object().unwrap().len(), all.len());
    for (name, value) in all {
        assert_close(name, &value.unwrap(), &[reference[name].as_f64().unwrap() as f32], 1e-5);
    }
}

#[derive(Module, Clone)]
struct Pair {
    bias: Parameter,
    weight: Parameter,
}

fn optimizer(name: &str) -> Result<Optimizer> {
    match name {
        "sgd" => Optimizer::new(Sgd::new(0.1)),
        "sgd_momentum" => {
            Optimizer::new(Sgd { momentum: 0.9, weight_decay: 0.01, nesterov: true, ..Sgd::new(0.1) })
        }
        "sgd_dampening" => Optimizer::new(Sgd { momentum: 0.9, dampening: 0.3, ..Sgd::new(0.1) }),
        "rmsprop" => Optimizer::new(RmsProp::new(0.01)),
        "adagrad" => Optimizer::new(Adagrad::new(0.1)),
        "adadelta" => Optimizer::new(AdaDelta::new(1.0)),
        "adam" => Optimizer::new(Adam::new(0.01)),
        "adam_corrected" => Optimizer::new(Adam { bias_correction: true, ..Adam::new(0.01) }),
        "adamw" => Optimizer::new(Adam::with_weight_decay(0.01)),
        "adamax" => Optimizer::new(Adamax::new(0.01)),
        "lion" => Optimizer::new(Lion { weight_decay: 0.1, ..Lion::new(0.01) }),
        "adafactor" => Optimizer::new(Adafactor::default()),
        "adafactor_momentum" => Optimizer::new(Adafactor {
            learning_rate: Some(0.05.into()),
            beta_1: Some(0.9),
            weight_decay: 0.01,
            ..Adafactor::default()
        }),
        "muon" => Optimizer::new(Muon::new(0.02)),
        "schedule" => {
            let parts = vec![Schedule::linear(0.0, 0.1, 2)?, Schedule::cosine(0.1, 4, 0.0)?];
            Optimizer::new(Sgd::new(Schedule::join(parts, &[2])?))
        }
        other => panic!("no optimizer {other}"),
    }
}

#[test]
fn optimizers_compute_what_mlx_computes() {
    for (name, expected) in reference()["optimizers"].as_object().unwrap() {
        let mut optimizer = optimizer(name).unwrap();
        let mut model = Pair { bias: values(&[3], 1).into(), weight: values(&[3, 4], 2).into() };
        for step in 0..5 {
            let gradients =
                Pair { bias: values(&[3], 10 + step).into(), weight: values(&[3, 4], 11 + step).into() };
            optimizer.update(&mut model, &gradients).unwrap();
        }
        assert_eq!(optimizer.step().unwrap(), 5);
        assert_close(&format!("{name} bias"), &model.bias, &numbers(&expected["bias"]), 2e-5);
        assert_close(&format!("{name} weight"), &model.weight, &numbers(&expected["weight"]), 2e-4);
    }
}
