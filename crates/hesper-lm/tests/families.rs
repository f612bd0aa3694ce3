//! Every model type against plain loops, through files, with every kind of cache.

use crate::support::{Folder, Small, Tensor, difference, reference, some_tokens};
use hesper::{Array, io};
use hesper_lm::{CacheKind, LanguageModel, LoadOptions, quantize};
use hesper_nn::{ModuleExt, Quantization};
use serde_json::{Value, json};

const EXACT: LoadOptions = LoadOptions { round_activations: false };
const TOKENS: usize = 21;

fn ids(tokens: &[u32]) -> Array {
    Array::try_from_slice(tokens, &[1, tokens.len()]).unwrap()
}

/// Logits after every token of a sequence that goes through the model in pieces of these lengths.
fn logits(language: &LanguageModel, tokens: &[u32], pieces: &[usize], kind: CacheKind) -> Vec<f32> {
    let mut cache = kind.create(language.model().config()).unwrap();
    let (mut all, mut rest) = (Vec::new(), tokens);
    for piece in pieces {
        let (now, later) = rest.split_at(*piece);
        let logits = language.model().forward(&ids(now), &mut *cache).unwrap();
        all.extend(logits.to_vec::<f32>().unwrap());
        rest = later;
    }
    assert!(rest.is_empty());
    all
}

fn check(name: &str, small: &Small) {
    let folder = Folder::new(name);
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &EXACT).unwrap();
    let tokens = some_tokens(TOKENS, small.vocabulary, 5);
    let expected = reference(small, &tokens);
    let largest = expected.concat().iter().fold(0.0f64, |a, b| a.max(b.abs()));
    assert!(largest > 1.0, "{name}: the logits are too small to compare");
    let ones = [1; TOKENS];
    for pieces in [&[TOKENS][..], &[7, 9, 5], &[16, 1, 1, 3], &ones] {
        let given = logits(&language, &tokens, pieces, CacheKind::Growing);
        let off = difference(&given, &expected);
        assert!(off < 2e-4 * largest, "{name} in pieces of {pieces:?}: off by {off} of {largest}");
    }
}

#[test]
fn llama_computes_what_plain_loops_compute() {
    check("llama", &Small::new("llama", 1, false, None));
    check("llama-tied", &Small::new("llama", 2, true, None));
    check("mistral", &Small::new("mistral", 17, false, None));
    check("smollm2", &Small::new("smollm2", 18, true, None));
}

#[test]
fn scaled_rotary_positions_compute_what_plain_loops_compute() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64 });
    check("llama3", &Small::new("llama", 3, true, Some(llama3)));
    check("linear", &Small::new("llama", 4, true, Some(json!({ "rope_type": "linear", "factor": 2.5 }))));
    let yarn = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256 });
    check("yarn", &Small::new("llama", 8, true, Some(yarn)));
}

#[test]
fn a_model_with_a_window_sees_the_last_tokens_only() {
    let mut small = Small::new("llama", 9, true, None);
    small.window = Some(6);
    check("window", &small);
    let seen = reference(&small, &some_tokens(TOKENS, small.vocabulary, 5));
    small.window = None;
    let all = reference(&small, &some_tokens(TOKENS, small.vocabulary, 5));
    assert!(seen[5] == all[5] && seen[TOKENS - 1] != all[TOKENS - 1], "the window makes no difference");
}

#[test]
fn qwen_computes_what_plain_loops_compute() {
    check("qwen2", &Small::new("qwen2", 5, true, None));
    check("qwen3", &Small::new("qwen3", 6, false, None));
}

#[test]
fn gpt2_computes_what_plain_loops_compute() {
    check("gpt2", &Small::new("gpt2", 7, true, None));
}

/// The model with dequantized weights.
fn rounded(small: &Small, language: &LanguageModel, quantization: Quantization) -> Small {
    let mut new = Small::new(small.family, 0, small.tied, small.scaling.clone());
    new.weights = small.weights.clone();
    assert!(language.model().count() > 0);
    for (name, tensor) in &mut new.weights {
        let transposed = small.family == "gpt2" && name.contains(".h.");
        if tensor.shape.len() != 2 || name.contains("wpe") {
            continue;
        }
        let elements: Vec<f32> = tensor.data.iter().map(|element| *element as f32).collect();
        let mut array = Array::try_from_slice(&elements, &tensor.shape).unwrap();
        if transposed {
            array = array.t().unwrap();
        }
        let (group, bits) = (Some(quantization.group()), Some(quantization.bits()));
        let mode = quantization.mode();
        let (codes, scales, biases) = array.quantize(group, bits, mode).unwrap();
        array = codes.dequantize(&scales, biases.as_ref(), group, bits, mode, None).unwrap();
        if transposed {
            array = array.t().unwrap();
        }
        let data = array.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
        *tensor = Tensor { shape: tensor.shape.clone(), data };
    }
    new
}

#[test]
fn quantized_checkpoints_compute_with_the_rounded_weights() {
    for (family, bits, mode) in [("llama", 4, "affine"), ("qwen2", 8, "affine"), ("gpt2", 4, "affine")] {
        let small = Small::new(family, 8, true, None);
        let (from, to) = (Folder::new(&format!("dense-{family}")), Folder::new(&format!("codes-{family}")));
        small.write(&from.0);
        let quantization = Quantization::new(32, bits, mode).unwrap();
        let report = quantize(&from.0, &to.0, quantization).unwrap();
        assert!(report.matrices > 8 && report.after < report.before / 2, "{family}: {report:?}");
        assert!(quantize(&from.0, &to.0, quantization).is_err(), "a model was overwritten");
        let tokens = some_tokens(TOKENS, small.vocabulary, 9);
        let exact = LanguageModel::load(&to.0, &EXACT).unwrap();
        let expected = reference(&rounded(&small, &exact, quantization), &tokens);
        let largest = expected.concat().iter().fold(0.0f64, |a, b| a.max(b.abs()));
        let off = difference(&logits(&exact, &tokens, &[TOKENS], CacheKind::Growing), &expected);
        assert!(off < 5e-4 * largest, "{family}: off by {off} of {largest}");
        // Rounded activations are off by about a hundredth, and not exactly right by chance.
        let fast = LanguageModel::load(&to.0, &LoadOptions::default()).unwrap();
        let off = difference(&logits(&fast, &tokens, &[TOKENS], CacheKind::Growing), &expected);
        assert!(off > 0.0 && off < 0.06 * largest, "{family}: off by {off} of {largest}");
        assert!(quantize(&to.0, &from.0.join("again"), quantization).is_err(), "quantized twice");
    }
}

#[test]
fn a_window_larger_than_the_sequence_changes_nothing() {
    let small = Small::new("llama", 10, true, None);
    let folder = Folder::new("window");
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &EXACT).unwrap();
    let tokens = some_tokens(TOKENS, small.vocabulary, 11);
    let expected = reference(&small, &tokens);
    let kind = CacheKind::Rotating { keep: 2, window: 64 };
    for pieces in [&[TOKENS][..], &[5, 1, 1, 8, 6]] {
        let off = difference(&logits(&language, &tokens, pieces, kind), &expected);
        assert!(off < 1e-2, "off by {off}");
    }
}

#[test]
fn a_window_gives_the_same_logits_for_any_chunks() {
    let small = Small::new("llama", 12, true, None);
    let folder = Folder::new("cuts");
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &EXACT).unwrap();
    let tokens = some_tokens(30, small.vocabulary, 13);
    let kind = CacheKind::Rotating { keep: 2, window: 9 };
    let one_by_one = logits(&language, &tokens, &[1; 30], kind);
    let whole = logits(&language, &tokens, &[30], CacheKind::Growing);
    let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off(&one_by_one, &whole) > 0.1, "the window has no effect");
    for pieces in [&[30][..], &[12, 1, 1, 1, 7, 8], &[4, 20, 6]] {
        let given = logits(&language, &tokens, pieces, kind);
        assert!(off(&given, &one_by_one) < 1e-3, "pieces of {pieces:?}: {}", off(&given, &one_by_one));
    }
}

#[test]
fn a_quantized_cache_is_close_and_smaller() {
    let small = Small::new("qwen3", 14, true, None);
    let folder = Folder::new("kv");
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &EXACT).unwrap();
    let tokens = some_tokens(TOKENS, small.vocabulary, 15);
    let expected = reference(&small, &tokens);
    let largest = expected.concat().iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let mut bytes = Vec::new();
    for (bits, bound) in [(8, 0.02), (4, 0.3)] {
        let kind = CacheKind::Quantized { bits, group: 32 };
        let off = difference(&logits(&language, &tokens, &[16, 1, 4], kind), &expected);
        assert!(off > 0.0 && off < bound * largest, "{bits} bits: off by {off} of {largest}");
    }
    for kind in [CacheKind::Growing, CacheKind::Quantized { bits: 8, group: 32 }] {
        let mut cache = kind.create(language.model().config()).unwrap();
        language.model().step(&ids(&tokens), &mut *cache).unwrap().eval().unwrap();
        bytes.push(cache.nbytes());
    }
    assert!(bytes[1] * 2 < bytes[0], "{bytes:?}");
    assert!(CacheKind::Quantized { bits: 3, group: 32 }.create(language.model().config()).is_err());
}

#[test]
fn an_unknown_model_type_is_named_with_the_known_ones() {
    let folder = Folder::new("unknown");
    let small = Small::new("mamba", 19, true, None);
    small.write(&folder.0);
    let error = LanguageModel::load(&folder.0, &EXACT).unwrap_err().to_string();
    assert!(error.contains("mamba") && error.contains("llama, mistral, qwen2"), "{error}");
    let error = quantize(&folder.0, &folder.0.join("to"), Quantization::new(32, 4, "affine").unwrap());
    assert!(error.unwrap_err().to_string().contains("mamba"));
    assert!(!folder.0.join("to").exists());
}

#[test]
fn tensors_of_the_wrong_shape_and_missing_ones_are_named() {
    let load = |small: &Small, name: &str| {
        let folder = Folder::new(name);
        small.write(&folder.0);
        LanguageModel::load(&folder.0, &EXACT).map(|_| ()).unwrap_err().to_string()
    };
    for (family, name, shape) in [
        ("qwen2", "model.layers.0.self_attn.k_proj.bias", vec![33]),
        ("qwen3", "model.layers.1.self_attn.q_norm.weight", vec![16]),
        ("llama", "model.norm.weight", vec![63]),
        ("llama", "lm_head.weight", vec![95, 64]),
        ("gpt2", "transformer.wpe.weight", vec![127, 64]),
        ("gpt2", "transformer.h.1.attn.c_attn.weight", vec![192, 64]),
        ("gpt2", "transformer.h.0.ln_2.bias", vec![1]),
    ] {
        let mut small = Small::new(family, 20, family == "gpt2", None);
        let data = vec![0.0; shape.iter().product()];
        small.weights.insert(name.into(), Tensor { shape: shape.clone(), data });
        let short = name.strip_prefix("transformer.").unwrap_or(name);
        let error = load(&small, "shape");
        assert!(error.contains(short) && error.contains(&format!("{shape:?}")), "{name}: {error}");
        small.weights.remove(name);
        // The bias of a linear layer is optional.
        if !name.ends_with("k_proj.bias") {
            assert!(load(&small, "missing").contains(short), "{name}");
        }
    }
}

#[test]
fn quantized_tensors_of_the_wrong_shape_are_named() {
    let (from, to) = (Folder::new("scales-from"), Folder::new("scales-to"));
    Small::new("llama", 21, true, None).write(&from.0);
    quantize(&from.0, &to.0, Quantization::new(32, 4, "affine").unwrap()).unwrap();
    let path = to.0.join("model.safetensors");
    // Copied, because the file that they are mapped from is replaced.
    let whole: Vec<(String, Array)> = (io::load(&path).unwrap().into_arrays().into_iter())
        .map(|(name, array)| {
            let bytes = array.read_bytes(<[u8]>::to_vec).unwrap();
            (name, Array::from_bytes(&bytes, array.dtype(), array.shape()).unwrap())
        })
        .collect();
    for part in ["weight", "scales", "biases"] {
        let culprit = format!("model.layers.1.mlp.up_proj.{part}");
        let cut: Vec<(String, Array)> = (whole.iter())
            .map(|(name, array)| match *name == culprit {
                true => {
                    let end = array.shape().iter().map(|length| *length as isize).collect::<Vec<_>>();
                    (name.clone(), array.slice(&[1, 0], &end, &[1, 1]).unwrap())
                }
                false => (name.clone(), array.clone()),
            })
            .collect();
        io::save_safetensors(&path, cut.iter().map(|(name, array)| (name.clone(), array)), &[]).unwrap();
        let error = LanguageModel::load(&to.0, &EXACT).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&culprit) && error.contains("[95, "), "{culprit}: {error}");
    }
}

#[test]
fn checkpoints_that_do_not_fit_name_the_tensor() {
    let folder = Folder::new("broken");
    let mut small = Small::new("llama", 16, true, None);
    let load = || LanguageModel::load(&folder.0, &EXACT).map(|_| ()).unwrap_err().to_string();
    let removed = small.weights.remove("model.layers.1.mlp.up_proj.weight").unwrap();
    small.write(&folder.0);
    assert!(load().contains("model.layers.1.mlp.up_proj.weight"), "{}", load());
    let narrow =
        Tensor { shape: vec![removed.shape[0] - 1, removed.shape[1]], data: removed.data[64..].to_vec() };
    small.weights.insert("model.layers.1.mlp.up_proj.weight".into(), narrow);
    small.write(&folder.0);
    assert!(load().contains("[95, 64]") && load().contains("[96, 64]"), "{}", load());
    small.weights.insert("model.layers.1.mlp.up_proj.weight".into(), removed.clone());
    small.weights.insert("model.layers.7.mlp.up_proj.weight".into(), removed);
    small.write(&folder.0);
    assert!(load().contains("model.layers.7"), "{}", load());
    std::fs::write(folder.0.join("model.safetensors"), b"cut").unwrap();
    assert!(!load().is_empty());
    std::fs::write(folder.0.join("config.json"), Value::Null.to_string()).unwrap();
    assert!(load().contains("config.json"), "{}", load());
    std::fs::remove_file(folder.0.join("config.json")).unwrap();
    assert!(load().contains("neither"), "{}", load());
}
