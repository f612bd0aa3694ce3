//! Fused projections give the results of separate ones.

use hesper::{Activations, Array, Dtype, random};
use hesper_nn::{
    Activation, Attention, Heads, Linear, Mlp, Module, ModuleExt, NoCache, Projections, Quantization, Weight,
};

fn linear(outputs: usize, inputs: usize, seed: u64, quantized: bool, bias: bool) -> Linear {
    let key = random::key(seed).unwrap();
    let weight: Weight =
        random::uniform(-0.2, 0.2, &[outputs, inputs], Dtype::Float32, Some(&key)).unwrap().into();
    let weight = match quantized {
        true => weight.quantize(Quantization::new(32, 4, "affine").unwrap(), Activations::Exact).unwrap(),
        false => weight,
    };
    let bias = bias.then(|| random::uniform(-1.0, 1.0, &[outputs], Dtype::Float32, Some(&key)).unwrap());
    Linear::from_weight(weight, bias).unwrap()
}

fn close(one: &Array, other: &Array) {
    let (a, b) = (one.to_vec::<f32>().unwrap(), other.to_vec::<f32>().unwrap());
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() < 1e-5, "{a} and {b}");
    }
}

fn names(module: &dyn Module) -> Vec<(String, Vec<usize>)> {
    module.parameters().into_iter().map(|(name, array)| (name, array.shape().to_vec())).collect()
}

#[test]
fn fused_layers_give_the_same_results_and_keep_their_parameters() {
    let x = random::uniform(-1.0, 1.0, &[5, 64], Dtype::Float32, Some(&random::key(9).unwrap())).unwrap();
    for (quantized, bias) in [(false, false), (false, true), (true, false), (true, true)] {
        let make = |outputs: usize, seed: u64| linear(outputs, 64, seed, quantized, bias);
        let mut mlp =
            Mlp::new(Some(make(96, 1)), make(96, 2), linear(64, 96, 3, quantized, bias), Activation::Silu);
        let (before, own) = (mlp.forward(&x).unwrap(), names(&mlp));
        mlp.fuse_projections().unwrap();
        close(&before, &mlp.forward(&x).unwrap());
        assert_eq!(own, names(&mlp));

        let heads = Heads { queries: 4, kv: 2, dim: 16 };
        let projections =
            Projections::Separate { queries: make(64, 4), keys: make(32, 5), values: make(32, 6) };
        let mut attention = Attention::new(heads, projections, make(64, 7), None, None).unwrap();
        let (before, own) = (attention.forward(&x, 0, &mut NoCache::default()).unwrap(), names(&attention));
        attention.fuse_projections().unwrap();
        close(&before, &attention.forward(&x, 0, &mut NoCache::default()).unwrap());
        assert_eq!(own, names(&attention));
    }
}

#[test]
fn changing_a_parameter_drops_the_fused_copy() {
    let x = Array::ones(&[1, 64], Dtype::Float32).unwrap();
    let mut mlp = Mlp::new(
        Some(linear(64, 64, 1, false, false)),
        linear(64, 64, 2, false, false),
        linear(64, 64, 3, false, false),
        Activation::Silu,
    );
    mlp.fuse_projections().unwrap();
    let zeros = |name: &str, array: &Array| match name.starts_with("up_proj") {
        true => Ok(array.zeros_like()?),
        false => Ok(array.clone()),
    };
    mlp.map(zeros).unwrap();
    assert!(mlp.forward(&x).unwrap().to_vec::<f32>().unwrap().iter().all(|y| *y == 0.0));
}

#[test]
fn layers_of_different_storage_are_not_fused() {
    let x = Array::ones(&[1, 64], Dtype::Float32).unwrap();
    let mut mlp = Mlp::new(
        Some(linear(64, 64, 1, true, false)),
        linear(64, 64, 2, false, false),
        linear(64, 64, 3, false, false),
        Activation::Silu,
    );
    let before = mlp.forward(&x).unwrap();
    mlp.fuse_projections().unwrap();
    close(&before, &mlp.forward(&x).unwrap());
}
