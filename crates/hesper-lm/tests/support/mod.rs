//! Small random models as files, and reference implementations of them in plain loops of double precision.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hesper::{Array, io};
use serde_json::{Value, json};

/// A temporary folder that is removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hesper-lm-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1 << 24) as f32) * 2.0 - 1.0
    }
}

/// A tensor in double precision.
#[derive(Clone)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

pub type Weights = BTreeMap<String, Tensor>;

/// A small model of a family.
pub struct Small {
    pub family: &'static str,
    pub vocabulary: usize,
    pub width: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head: usize,
    pub mlp: usize,
    pub tied: bool,
    pub scaling: Option<Value>,
    pub window: Option<usize>,
    pub context: usize,
    pub weights: Weights,
}

const EPS: f64 = 1e-5;
const BASE: f64 = 1000.0;

impl Small {
    pub fn new(family: &'static str, seed: u64, tied: bool, scaling: Option<Value>) -> Self {
        let mut small = Small {
            family,
            vocabulary: 96,
            width: 64,
            layers: 2,
            heads: 4,
            kv_heads: if family == "gpt2" { 4 } else { 2 },
            head: if family == "qwen3" { 32 } else { 16 },
            mlp: 96,
            tied,
            scaling,
            window: None,
            context: 128,
            weights: Weights::new(),
        };
        small.fill(seed);
        small
    }

    fn fill(&mut self, seed: u64) {
        let mut random = Random(seed);
        let mut add = |weights: &mut Weights, name: String, shape: &[usize], middle: f32, spread: f32| {
            let count = shape.iter().product();
            let data = (0..count).map(|_| f64::from(middle + spread * random.next())).collect();
            weights.insert(name, Tensor { shape: shape.to_vec(), data });
        };
        let (v, w, m) = (self.vocabulary, self.width, self.mlp);
        let (q, k) = (self.heads * self.head, self.kv_heads * self.head);
        let all = &mut self.weights;
        if self.family == "gpt2" {
            add(all, "transformer.wte.weight".into(), &[v, w], 0.0, 0.6);
            add(all, "transformer.wpe.weight".into(), &[128, w], 0.0, 0.3);
            for layer in 0..self.layers {
                let mut one = |name: &str, shape: &[usize], middle: f32, spread: f32| {
                    add(all, format!("transformer.h.{layer}.{name}"), shape, middle, spread);
                };
                one("ln_1.weight", &[w], 1.0, 0.2);
                one("ln_1.bias", &[w], 0.0, 0.2);
                one("attn.c_attn.weight", &[w, 3 * w], 0.0, 0.25);
                one("attn.c_attn.bias", &[3 * w], 0.0, 0.2);
                one("attn.c_proj.weight", &[w, w], 0.0, 0.2);
                one("attn.c_proj.bias", &[w], 0.0, 0.2);
                one("ln_2.weight", &[w], 1.0, 0.2);
                one("ln_2.bias", &[w], 0.0, 0.2);
                one("mlp.c_fc.weight", &[w, m], 0.0, 0.2);
                one("mlp.c_fc.bias", &[m], 0.0, 0.2);
                one("mlp.c_proj.weight", &[m, w], 0.0, 0.2);
                one("mlp.c_proj.bias", &[w], 0.0, 0.2);
            }
            add(all, "transformer.ln_f.weight".into(), &[w], 1.0, 0.2);
            add(all, "transformer.ln_f.bias".into(), &[w], 0.0, 0.2);
            return;
        }
        add(all, "model.embed_tokens.weight".into(), &[v, w], 0.0, 0.6);
        for layer in 0..self.layers {
            let mut one = |name: &str, shape: &[usize], middle: f32, spread: f32| {
                add(all, format!("model.layers.{layer}.{name}"), shape, middle, spread);
            };
            one("input_layernorm.weight", &[w], 1.0, 0.2);
            one("self_attn.q_proj.weight", &[q, w], 0.0, 0.25);
            one("self_attn.k_proj.weight", &[k, w], 0.0, 0.25);
            one("self_attn.v_proj.weight", &[k, w], 0.0, 0.25);
            one("self_attn.o_proj.weight", &[w, q], 0.0, 0.2);
            if self.family == "qwen2" {
                one("self_attn.q_proj.bias", &[q], 0.0, 0.3);
                one("self_attn.k_proj.bias", &[k], 0.0, 0.3);
                one("self_attn.v_proj.bias", &[k], 0.0, 0.3);
            }
            if self.family == "qwen3" {
                one("self_attn.q_norm.weight", &[self.head], 1.0, 0.2);
                one("self_attn.k_norm.weight", &[self.head], 1.0, 0.2);
            }
            one("post_attention_layernorm.weight", &[w], 1.0, 0.2);
            one("mlp.gate_proj.weight", &[m, w], 0.0, 0.2);
            one("mlp.up_proj.weight", &[m, w], 0.0, 0.2);
            one("mlp.down_proj.weight", &[w, m], 0.0, 0.2);
        }
        add(all, "model.norm.weight".into(), &[w], 1.0, 0.2);
        if !self.tied {
            add(all, "lm_head.weight".into(), &[v, w], 0.0, 0.3);
        }
    }

    pub fn config(&self) -> Value {
        let mut config = match self.family {
            "gpt2" => json!({
                "model_type": "gpt2", "vocab_size": self.vocabulary, "n_embd": self.width, "n_layer": self.layers,
                "n_head": self.heads, "n_inner": self.mlp, "n_positions": self.context, "layer_norm_epsilon": EPS,
            }),
            family => json!({
                "model_type": family, "vocab_size": self.vocabulary, "hidden_size": self.width,
                "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads, "head_dim": self.head, "intermediate_size": self.mlp,
                "rms_norm_eps": EPS, "rope_theta": BASE, "max_position_embeddings": self.context,
                "tie_word_embeddings": self.tied,
            }),
        };
        if let Some(scaling) = &self.scaling {
            config["rope_scaling"] = scaling.clone();
        }
        if let Some(window) = self.window {
            config["sliding_window"] = json!(window);
        }
        config
    }

    /// Writes the model as a checkpoint.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config().to_string()).unwrap();
        std::fs::write(folder.join("tokenizer.json"), tokenizer(self.vocabulary).to_string()).unwrap();
        let arrays: Vec<(String, Array)> = self
            .weights
            .iter()
            .map(|(name, tensor)| {
                let elements: Vec<f32> = tensor.data.iter().map(|element| *element as f32).collect();
                (name.clone(), Array::try_from_slice(&elements, &tensor.shape).unwrap())
            })
            .collect();
        let pairs = arrays.iter().map(|(name, array)| (name.clone(), array));
        io::save_safetensors(folder.join("model.safetensors"), pairs, &[]).unwrap();
    }
}

/// A tokenizer of `count` tokens: `a0`, `a1`, ...
pub fn tokenizer(count: usize) -> Value {
    let vocabulary: serde_json::Map<String, Value> =
        (0..count).map(|id| (format!("a{id}"), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "a0" }
    })
}

/// The logits after every token, in plain loops.
pub fn reference(small: &Small, ids: &[u32]) -> Vec<Vec<f64>> {
    if small.family == "gpt2" { gpt2(small, ids) } else { llama(small, ids) }
}

type Matrix = Vec<Vec<f64>>;

/// `x w^T`, with `w` of (outputs, inputs).
fn linear(x: &[f64], w: &Tensor, bias: Option<&Tensor>) -> Vec<f64> {
    let inputs = w.shape[1];
    (0..w.shape[0])
        .map(|row| {
            let sum: f64 = x.iter().zip(&w.data[row * inputs..]).map(|(a, b)| a * b).sum();
            sum + bias.map_or(0.0, |bias| bias.data[row])
        })
        .collect()
}

/// `x w + b`, with `w` of (inputs, outputs).
fn conv(x: &[f64], w: &Tensor, bias: &Tensor) -> Vec<f64> {
    let outputs = w.shape[1];
    (0..outputs)
        .map(|out| {
            bias.data[out] + x.iter().enumerate().map(|(at, x)| x * w.data[at * outputs + out]).sum::<f64>()
        })
        .collect()
}

fn rms(x: &[f64], w: &Tensor) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(&w.data).map(|(x, w)| x / (mean + EPS).sqrt() * w).collect()
}

fn layer_norm(x: &[f64], w: &Tensor, b: &Tensor) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (variance + EPS).sqrt();
    x.iter().zip(w.data.iter().zip(&b.data)).map(|(x, (w, b))| (x - mean) * scale * w + b).collect()
}

/// Every query sees the keys up to its own, the last `window` of them; scores are multiplied by `factor`.
fn attend(q: &Matrix, k: &Matrix, v: &Matrix, small: &Small, factor: f64) -> Matrix {
    let &Small { heads, kv_heads, head, .. } = small;
    let group = heads / kv_heads;
    q.iter()
        .enumerate()
        .map(|(token, q)| {
            let mut out = vec![0.0; heads * head];
            let first = small.window.map_or(0, |window| (token + 1).saturating_sub(window));
            for h in 0..heads {
                let own = |row: &[f64]| row[h / group * head..][..head].to_vec();
                let scores: Vec<f64> = k[first..=token]
                    .iter()
                    .map(|k| {
                        let dot: f64 = q[h * head..][..head].iter().zip(own(k)).map(|(a, b)| a * b).sum();
                        factor * dot / (head as f64).sqrt()
                    })
                    .collect();
                let top = scores.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = scores.iter().map(|score| (score - top).exp()).sum();
                for (score, v) in scores.iter().zip(&v[first..]) {
                    let part = (score - top).exp() / total;
                    for (out, v) in out[h * head..].iter_mut().zip(own(v)) {
                        *out += part * v;
                    }
                }
            }
            out
        })
        .collect()
}

fn angle(small: &Small, pair: usize) -> f64 {
    let own = BASE.powf(-2.0 * pair as f64 / small.head as f64);
    let Some(scaling) = &small.scaling else { return own };
    let number = |name: &str| scaling[name].as_f64().unwrap();
    if scaling["rope_type"] == "linear" {
        return own / number("factor");
    }
    if scaling["rope_type"] == "yarn" {
        let (factor, original) = (number("factor"), number("original_max_position_embeddings"));
        let place = |turns: f64| {
            small.head as f64 * (original / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * BASE.ln())
        };
        let (low, high) = (place(32.0).floor().max(0.0), place(1.0).ceil().min(small.head as f64 - 1.0));
        let slowed = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
        return own * (slowed / factor + 1.0 - slowed);
    }
    let (factor, low, high) = (number("factor"), number("low_freq_factor"), number("high_freq_factor"));
    let original = number("original_max_position_embeddings");
    let wavelength = 2.0 * std::f64::consts::PI / own;
    if wavelength < original / high {
        own
    } else if wavelength > original / low {
        own / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * own / factor + smooth * own
    }
}

/// The factor of queries and of keys.
fn attention_factor(small: &Small) -> f64 {
    match &small.scaling {
        Some(scaling) if scaling["rope_type"] == "yarn" => {
            0.1 * scaling["factor"].as_f64().unwrap().ln() + 1.0
        }
        _ => 1.0,
    }
}

fn rotate(small: &Small, x: &mut [f64], position: usize) {
    let half = small.head / 2;
    for head in x.chunks_mut(small.head) {
        for pair in 0..half {
            let (sin, cos) = (position as f64 * angle(small, pair)).sin_cos();
            let (a, b) = (head[pair], head[pair + half]);
            (head[pair], head[pair + half]) = (a * cos - b * sin, a * sin + b * cos);
        }
    }
}

fn llama(small: &Small, ids: &[u32]) -> Matrix {
    let all = &small.weights;
    let table = &all["model.embed_tokens.weight"];
    let mut x: Matrix =
        ids.iter().map(|id| table.data[*id as usize * small.width..][..small.width].to_vec()).collect();
    for layer in 0..small.layers {
        let get = |name: &str| all.get(&format!("model.layers.{layer}.{name}"));
        let normed: Matrix = x.iter().map(|x| rms(x, get("input_layernorm.weight").unwrap())).collect();
        let project = |name: &str| -> Matrix {
            let weight = get(&format!("self_attn.{name}.weight")).unwrap();
            let bias = get(&format!("self_attn.{name}.bias"));
            normed.iter().map(|x| linear(x, weight, bias)).collect()
        };
        let (mut q, mut k, v) = (project("q_proj"), project("k_proj"), project("v_proj"));
        for (rows, name) in [(&mut q, "q_norm"), (&mut k, "k_norm")] {
            for (position, row) in rows.iter_mut().enumerate() {
                if let Some(weight) = get(&format!("self_attn.{name}.weight")) {
                    for head in row.chunks_mut(small.head) {
                        let normed = rms(head, weight);
                        head.copy_from_slice(&normed);
                    }
                }
                rotate(small, row, position);
            }
        }
        let seen = attend(&q, &k, &v, small, attention_factor(small).powi(2));
        for (x, seen) in x.iter_mut().zip(&seen) {
            let out = linear(seen, get("self_attn.o_proj.weight").unwrap(), None);
            x.iter_mut().zip(out).for_each(|(x, out)| *x += out);
            let normed = rms(x, get("post_attention_layernorm.weight").unwrap());
            let gate = linear(&normed, get("mlp.gate_proj.weight").unwrap(), None);
            let up = linear(&normed, get("mlp.up_proj.weight").unwrap(), None);
            let hidden: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            let down = linear(&hidden, get("mlp.down_proj.weight").unwrap(), None);
            x.iter_mut().zip(down).for_each(|(x, down)| *x += down);
        }
    }
    let head = all.get("lm_head.weight").unwrap_or(table);
    x.iter().map(|x| linear(&rms(x, &all["model.norm.weight"]), head, None)).collect()
}

fn gpt2(small: &Small, ids: &[u32]) -> Matrix {
    let all = &small.weights;
    let width = small.width;
    let (tokens, positions) = (&all["transformer.wte.weight"], &all["transformer.wpe.weight"]);
    let mut x: Matrix = ids
        .iter()
        .enumerate()
        .map(|(at, id)| {
            let (token, place) = (&tokens.data[*id as usize * width..], &positions.data[at * width..]);
            token.iter().zip(place).take(width).map(|(a, b)| a + b).collect()
        })
        .collect();
    for layer in 0..small.layers {
        let get = |name: &str| &all[&format!("transformer.h.{layer}.{name}")];
        let joined: Matrix = x
            .iter()
            .map(|x| layer_norm(x, get("ln_1.weight"), get("ln_1.bias")))
            .map(|x| conv(&x, get("attn.c_attn.weight"), get("attn.c_attn.bias")))
            .collect();
        let part =
            |at: usize| -> Matrix { joined.iter().map(|row| row[at * width..][..width].to_vec()).collect() };
        let seen = attend(&part(0), &part(1), &part(2), small, 1.0);
        for (x, seen) in x.iter_mut().zip(&seen) {
            let out = conv(seen, get("attn.c_proj.weight"), get("attn.c_proj.bias"));
            x.iter_mut().zip(out).for_each(|(x, out)| *x += out);
            let normed = layer_norm(x, get("ln_2.weight"), get("ln_2.bias"));
            let hidden = conv(&normed, get("mlp.c_fc.weight"), get("mlp.c_fc.bias"));
            let gelu = |x: f64| {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            };
            let hidden: Vec<f64> = hidden.into_iter().map(gelu).collect();
            let down = conv(&hidden, get("mlp.c_proj.weight"), get("mlp.c_proj.bias"));
            x.iter_mut().zip(down).for_each(|(x, down)| *x += down);
        }
    }
    let (weight, bias) = (&all["transformer.ln_f.weight"], &all["transformer.ln_f.bias"]);
    x.iter().map(|x| linear(&layer_norm(x, weight, bias), tokens, None)).collect()
}

/// Tokens from a seed.
pub fn some_tokens(count: usize, vocabulary: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..count).map(|_| ((random.next() + 1.0) * 0.5 * vocabulary as f32) as u32 % vocabulary as u32).collect()
}

/// The largest difference between logits.
pub fn difference(given: &[f32], expected: &[Vec<f64>]) -> f64 {
    let flat: Vec<f64> = expected.concat();
    assert_eq!(given.len(), flat.len());
    given.iter().zip(&flat).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}
