//! Trees of parameters, and weights of every kind.

use std::collections::BTreeMap;

use hesper::transform::tree;
use hesper::{Activations, Array, Dtype, PackedArray, PackedFormat, stack};
use hesper_nn::{
    Activation, Dropout, Embedding, Layer, Linear, Mlp, Module, ModuleExt, Quantization, RmsNorm, Sequential,
    Weight, add_lora, quantize,
};

fn values(shape: &[usize]) -> Array {
    let count = shape.iter().product::<usize>();
    let list: Vec<f32> = (0..count).map(|at| ((at * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
    Array::try_from_slice(&list, shape).unwrap()
}

#[derive(Module, Clone)]
struct Net {
    table: Embedding,
    norms: Vec<RmsNorm>,
    mlp: Mlp,
}

fn net() -> Net {
    let linear = |shape: &[usize]| Linear::from_weight(values(shape).into(), None).unwrap();
    let up = Linear::from_weight(values(&[6, 4]).into(), Some(values(&[6]))).unwrap();
    Net {
        table: Embedding::from_weight(values(&[5, 4]).into()),
        norms: vec![RmsNorm::from_weight(values(&[4]), 1e-5), RmsNorm::from_weight(values(&[4]), 1e-5)],
        mlp: Mlp::new(Some(linear(&[6, 4])), up, linear(&[4, 6]), Activation::Silu),
    }
}

#[test]
fn parameters_have_the_paths_of_their_fields() {
    let net = net();
    let paths: Vec<String> = net.parameters().into_keys().collect();
    assert_eq!(
        paths,
        [
            "mlp.down_proj.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.bias",
            "mlp.up_proj.weight",
            "norms.0.weight",
            "norms.1.weight",
            "table.weight"
        ]
    );
    assert_eq!((net.count(), net.nbytes()), (20 + 8 + 24 * 3 + 6, 4 * 106));
}

#[test]
fn frozen_parameters_are_not_trained() {
    let mut net = net();
    net.freeze(|path| path.starts_with("norms"));
    assert!(!net.trainable_parameters().contains_key("norms.1.weight"));
    assert_eq!(net.trainable_parameters().len(), 5);
    net.unfreeze(|_| true);
    assert_eq!(net.trainable_parameters().len(), 7);
}

#[test]
fn a_load_that_does_not_fit_changes_nothing_and_names_the_parameter() {
    let mut net = net();
    let before = net.parameters();
    let doubled: BTreeMap<String, Array> =
        before.iter().map(|(path, array)| (path.clone(), array.multiply(2.0).unwrap())).collect();
    let mut missing = doubled.clone();
    missing.remove("table.weight");
    assert!(net.load(&missing, true).unwrap_err().to_string().contains("table.weight"));
    let mut wrong = doubled.clone();
    wrong.insert("norms.0.weight".into(), values(&[3]));
    assert!(net.load(&wrong, false).unwrap_err().to_string().contains("[3]"));
    let mut more = doubled.clone();
    more.insert("other".into(), values(&[1]));
    assert!(net.load(&more, true).unwrap_err().to_string().contains("other"));
    let sum = |net: &Net| net.parameters()["table.weight"].sum(()).unwrap().item::<f32>().unwrap();
    let old = sum(&net);
    more.remove("norms.1.weight");
    let report = net.load(&more, false).unwrap();
    assert!((sum(&net) - 2.0 * old).abs() < 1e-4);
    assert_eq!(
        (report.missing, report.unknown),
        (vec!["norms.1.weight".to_string()], vec!["other".to_string()])
    );
    let nothing = net.load(&BTreeMap::new(), false).unwrap();
    assert_eq!(nothing.missing.len(), 7);
}

#[derive(Module, Clone)]
struct Heads {
    by_name: BTreeMap<String, Linear>,
    chain: (Linear, Activation, RmsNorm),
    nothing: (),
}

#[test]
fn maps_and_tuples_of_modules_are_modules() {
    let linear = |shape: &[usize]| Linear::from_weight(values(shape).into(), None).unwrap();
    let heads = |names: &[&str]| Heads {
        by_name: names.iter().map(|name| (name.to_string(), linear(&[2, 4]))).collect(),
        chain: (linear(&[4, 4]), Activation::Silu, RmsNorm::from_weight(values(&[4]), 1e-5)),
        nothing: (),
    };
    let mut both = heads(&["b", "a"]);
    let paths: Vec<String> = both.parameters().into_keys().collect();
    assert_eq!(paths, ["by_name.a.weight", "by_name.b.weight", "chain.0.weight", "chain.2.weight"]);
    let zeros = both.parameters().into_iter().map(|(path, array)| (path, array.zeros_like().unwrap()));
    both.load(&zeros.collect(), true).unwrap();
    assert_eq!(both.parameters()["by_name.a.weight"].to_vec::<f32>().unwrap(), [0.0; 8]);
    // A compiled function is traced for each set of names.
    let sum = tree::compile(|heads: &Heads| {
        let x = Array::ones(&[4], Dtype::Float32)?;
        let all = heads.by_name.values().map(|head| head.forward(&x)).collect::<Result<Vec<_>, _>>()?;
        stack(&all, 0)
    });
    assert_eq!(sum(&both).unwrap().shape(), [2, 2]);
    assert_eq!(sum(&heads(&["c"])).unwrap().shape(), [1, 2]);
}

#[test]
fn saved_parameters_are_loaded_again() {
    let path = std::env::temp_dir().join(format!("hesper-nn-{}.safetensors", std::process::id()));
    let saved = net();
    saved.save(&path).unwrap();
    let mut loaded = net();
    loaded.map(|_, array| Ok(array.zeros_like()?)).unwrap();
    loaded.load_file(&path, true).unwrap();
    for (name, array) in saved.parameters() {
        let other = loaded.parameters()[&name].to_vec::<f32>().unwrap();
        assert_eq!(array.to_vec::<f32>().unwrap(), other, "{name}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn packed_and_quantized_weights_are_close_to_dense_ones() {
    let (dense, x) = (values(&[8, 64]), values(&[3, 64]));
    let expected = Weight::from(dense.clone()).apply(&x).unwrap().to_vec::<f32>().unwrap();
    let quantization = Quantization::new(32, 8, "affine").unwrap();
    let blocks = PackedArray::quantize(&dense, PackedFormat::Q8_0).unwrap();
    let ids = Array::from_slice(&[2u32, 7]);
    let rows = Weight::from(dense.clone()).rows(&ids).unwrap().to_vec::<f32>().unwrap();
    for activations in [Activations::Exact, Activations::Int8] {
        let quantized = Weight::from(dense.clone()).quantize(quantization, activations).unwrap();
        let packed = Weight::Packed { blocks: blocks.clone(), activations };
        for weight in [quantized, packed] {
            assert_eq!((weight.shape(), weight.dtype()), ([8, 64], Dtype::Float32));
            let close = |given: Vec<f32>, expected: &[f32], bound: f32| {
                let off = given.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(off < bound, "{weight:?} {activations:?}: off by {off}");
            };
            close(weight.apply(&x).unwrap().to_vec::<f32>().unwrap(), &expected, 0.4);
            close(weight.rows(&ids).unwrap().to_vec::<f32>().unwrap(), &rows, 0.01);
        }
    }
    let table = Embedding::from_weight(Weight::Packed { blocks, activations: Activations::Exact });
    assert_eq!(table.count(), 512);
    assert!(table.save(std::env::temp_dir().join("never")).unwrap_err().to_string().contains("packed"));
}

#[test]
fn invalid_arguments_are_refused() {
    assert!(Quantization::new(48, 4, "affine").is_err());
    assert!(Quantization::new(64, 7, "affine").is_err());
    assert!(Quantization::new(32, 4, "new").is_err());
    assert!(Activation::named("cube").is_err());
    let bias = Linear::from_weight(values(&[3, 2]).into(), Some(values(&[2])));
    assert!(bias.unwrap_err().to_string().contains("[2]"));
    assert!(hesper_nn::Rope::new(7, false, 10_000.0, None).is_err());
}

#[derive(Module, Clone)]
enum Head {
    Linear(Linear),
    Pair { first: Linear, second: Option<Linear> },
}

#[derive(Module, Clone)]
struct Attributes {
    #[module(name = "renamed")]
    layer: Linear,
    #[module(flatten)]
    head: Head,
    #[module(skip)]
    _note: std::time::Duration,
    #[module(cache)]
    sum: Option<f32>,
    dropout: Dropout,
}

#[test]
fn attributes_change_how_fields_take_part() {
    let linear = || Linear::from_weight(values(&[2, 2]).into(), None).unwrap();
    let mut net = Attributes {
        layer: linear(),
        head: Head::Pair { first: linear(), second: Some(linear()) },
        _note: std::time::Duration::ZERO,
        sum: Some(1.0),
        dropout: Dropout::new(0.5).unwrap(),
    };
    let paths = |net: &Attributes| net.parameters().into_keys().collect::<Vec<String>>();
    assert_eq!(paths(&net), ["first.weight", "renamed.weight", "second.weight"]);
    // The key of a dropout is state, but not a parameter.
    assert_eq!(net.state().len(), 4);
    assert_eq!(net.sum, Some(1.0));
    net.train(false);
    assert_eq!(net.sum, None);
    net.head = Head::Linear(linear());
    assert_eq!(paths(&net), ["renamed.weight", "weight"]);
}

#[test]
fn modules_print_their_shapes_and_counts() {
    let mut net = net();
    net.freeze(|path| path.starts_with("table"));
    assert_eq!(format!("{net:?}"), "Net (106 parameters, 86 trainable)");
    let text = format!("{net:#?}");
    for line in [
        "table.weight: float32 [5, 4], frozen",
        "norms.0.weight: float32 [4]",
        "norms.0.eps = 1e-5",
        "= Silu",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn modules_change_dtype_and_device() {
    let mut net = net();
    let before = net.parameters();
    net.to_dtype(Dtype::Bfloat16).unwrap();
    assert!(net.parameters().values().all(|array| array.dtype() == Dtype::Bfloat16));
    assert_eq!(net.nbytes(), 2 * 106);
    net.load(&before, true).unwrap();
    net.to_device(hesper::placement::Device::Cpu).unwrap();
    for (path, array) in net.parameters() {
        assert_eq!(array.shape(), before[&path].shape());
        assert_eq!(array.to_vec::<f32>().unwrap(), before[&path].to_vec::<f32>().unwrap(), "{path}");
    }
    // A failed conversion changes nothing.
    let failed = net.map(|path, array| match path {
        "table.weight" => Err(hesper_nn::Error::InvalidArgument("no".into())),
        _ => Ok(array.multiply(2.0)?),
    });
    assert!(failed.is_err());
    assert_eq!(
        net.parameters()["norms.0.weight"].to_vec::<f32>().unwrap(),
        values(&[4]).to_vec::<f32>().unwrap()
    );
}

#[test]
fn models_are_quantized_by_path() {
    let linear = || Linear::from_weight(values(&[8, 64]).into(), Some(values(&[8]))).unwrap();
    let mut layers = vec![linear(), linear()];
    let x = values(&[2, 64]);
    let before = layers[1].forward(&x).unwrap().to_vec::<f32>().unwrap();
    quantize(&mut layers, Quantization::new(64, 8, "affine").unwrap(), |path| path == "1").unwrap();
    let paths: Vec<String> = layers.parameters().into_keys().collect();
    assert_eq!(paths, ["0.bias", "0.weight", "1.bias", "1.biases", "1.scales", "1.weight"]);
    for (a, b) in layers[1].forward(&x).unwrap().to_vec::<f32>().unwrap().iter().zip(&before) {
        assert!((a - b).abs() < 0.4, "{a} {b}");
    }
    // Codes are integers: they are not trained.
    assert!(!layers.trainable_parameters().contains_key("1.weight"));
    // A LoRA on a quantized weight.
    add_lora(&mut layers, 2, 1.0, |path| path == "1").unwrap();
    let paths: Vec<String> = layers.trainable_parameters().into_keys().collect();
    assert_eq!(paths, ["1.lora_a", "1.lora_b"]);
}

#[derive(Module, Clone)]
struct Residual<L> {
    inner: Option<L>,
    #[module(skip)]
    label: Label,
}

/// No module.
#[derive(Clone)]
struct Label;

#[derive(Module, Clone)]
enum Either<A, B: Clone> {
    Left(A),
    Right { layers: Vec<(A, B)> },
}

impl<L: Layer + Clone + 'static> Layer for Residual<L> {
    fn forward(&self, x: &Array) -> hesper_nn::Result<Array> {
        let Residual { inner, label: Label } = self;
        Ok(inner.as_ref().map_or(Ok(x.clone()), |inner| inner.forward(x))?.add(x)?)
    }
}

#[test]
fn type_parameters_of_modules_need_no_bounds() {
    let linear = || Linear::from_weight(values(&[4, 4]).into(), None).unwrap();
    let residual = || Residual { inner: Some(linear()), label: Label };
    let net = Sequential::new().with(residual()).with(Residual { inner: Some(residual()), label: Label });
    let paths: Vec<String> = net.parameters().into_keys().collect();
    assert_eq!(paths, ["layers.0.inner.weight", "layers.1.inner.inner.weight"]);
    let run =
        tree::compile(|layer: &Residual<Linear>| Ok(layer.forward(&Array::ones(&[4], Dtype::Float32)?)?));
    assert_eq!(run(&residual()).unwrap().shape(), [4]);
    let either = [Either::Left(linear()), Either::Right { layers: vec![(linear(), Activation::Relu)] }];
    assert_eq!(either.each_ref().map(ModuleExt::count), [16, 16]);
    assert!(either[1].parameters().contains_key("layers.0.0.weight"));
}
