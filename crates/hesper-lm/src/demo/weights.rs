//! The weights, written down.
//!
//! The residual stream has four parts: the current word, the word before, the scores of the next word, and one
//! number that keeps its length the same for every active unit. A word is a one in its place. Since the
//! length is known, so is what a norm does to it: it multiplies by a constant, which is divided out again.

use std::collections::BTreeMap;

use hesper::Array;
use serde_json::{Value, json};

use super::words::{Following, Words};
use crate::error::Result;

/// How sharply the attention looks at the word before.
const SHARP: f32 = 40.0;
/// How strongly a unit is on or off.
const STRONG: f32 = 40.0;
/// The score of a word that certainly follows two words, and of one that follows one.
const SCORES: (f32, f32) = (12.0, 5.0);
/// The length of what a unit writes.
const LENGTH: f32 = 40.0;
const EPS: f32 = 1e-5;
const BASE: f32 = 100.0;

/// How large everything is.
pub(super) struct Sizes {
    words: usize,
    width: usize,
    head: usize,
    units: usize,
}

impl Sizes {
    pub(super) fn of(words: &Words) -> Sizes {
        let count = words.all.len();
        Sizes {
            words: count,
            width: (3 * count + 1).next_multiple_of(64),
            head: count.next_multiple_of(64),
            units: words.after_two.len().next_multiple_of(64),
        }
    }

    pub(super) fn config(&self) -> Value {
        json!({
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": self.words,
            "hidden_size": self.width,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": self.head,
            "intermediate_size": self.units,
            "rms_norm_eps": EPS,
            "rope_theta": BASE,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": false,
            "hidden_act": "silu",
            "eos_token_id": 1,
            "torch_dtype": "float32"
        })
    }

    /// What a norm multiplies a vector of this squared length by.
    fn norm(&self, squared: f32) -> f32 {
        1.0 / (squared / self.width as f32 + EPS).sqrt()
    }
}

/// A matrix to be filled.
struct Matrix {
    numbers: Vec<f32>,
    columns: usize,
}

impl Matrix {
    fn new(rows: usize, columns: usize) -> Self {
        Matrix { numbers: vec![0.0; rows * columns], columns }
    }

    fn at(&mut self, row: usize, column: usize) -> &mut f32 {
        &mut self.numbers[row * self.columns + column]
    }

    fn array(&self) -> Result<Array> {
        Ok(Array::try_from_slice(&self.numbers, &[self.numbers.len() / self.columns, self.columns])?)
    }
}

pub(super) fn weights(words: &Words, sizes: &Sizes) -> Result<BTreeMap<String, Array>> {
    let &Sizes { words: count, width, head, units } = sizes;
    let (before, next, ballast) = (count, 2 * count, 3 * count);
    let mut tokens = Matrix::new(count, width);
    let (mut q, mut k) = (Matrix::new(head, width), Matrix::new(head, width));
    let (mut v, mut o) = (Matrix::new(head, width), Matrix::new(width, head));
    // One word before the attention, two before the MLP, and what a unit writes before the last layer.
    let (one, two, all) = (sizes.norm(1.0), sizes.norm(2.0), sizes.norm(2.0 + LENGTH * LENGTH));

    // The score of a key falls off around the place one before the query. Slow rotations would blur it.
    let angles = (0..head / 2).map(|pair| BASE.powf(-2.0 * pair as f32 / head as f32));
    let fast: Vec<f32> = angles.take_while(|angle| *angle > 0.1).collect();
    let falloff: f32 = fast.iter().map(|angle| 1.0 - angle.cos()).sum();
    let size = (SHARP * (head as f32).sqrt() / falloff).sqrt() / one;
    for word in 0..count {
        *tokens.at(word, word) = 1.0;
        *v.at(word, word) = 1.0 / one;
        *o.at(before + word, word) = 1.0;
        for (pair, angle) in fast.iter().enumerate() {
            *k.at(pair, word) = size;
            *q.at(pair, word) = size * angle.cos();
            *q.at(pair + head / 2, word) = -size * angle.sin();
        }
    }

    let (mut gate, mut up) = (Matrix::new(units, width), Matrix::new(units, width));
    let mut down = Matrix::new(width, units);
    let on = STRONG / 2.0;
    for (unit, ((first, second), following)) in words.after_two.iter().enumerate() {
        for word in 0..count {
            *gate.at(unit, word) = -1.5 * STRONG / two;
            *up.at(unit, word) = 1.0 / two;
        }
        *gate.at(unit, *second) += STRONG / two;
        *gate.at(unit, before + first) += STRONG / two;
        let mut squared = 0.0;
        for (word, score) in scores(following, SCORES.0) {
            *down.at(next + word, unit) = score / on;
            squared += score * score;
        }
        *down.at(ballast, unit) = (LENGTH * LENGTH - squared).max(0.0).sqrt() / on;
    }

    let mut last = Matrix::new(count, width);
    for word in 0..count {
        *last.at(word, next + word) = 1.0 / all;
    }
    for (word, following) in &words.after_one {
        for (other, score) in scores(following, SCORES.1) {
            *last.at(other, *word) += score / all;
        }
    }

    let ones = Array::ones(&[width], hesper::Dtype::Float32)?;
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    Ok(BTreeMap::from([
        ("model.embed_tokens.weight".to_string(), tokens.array()?),
        (layer("input_layernorm"), ones.clone()),
        (layer("self_attn.q_proj"), q.array()?),
        (layer("self_attn.k_proj"), k.array()?),
        (layer("self_attn.v_proj"), v.array()?),
        (layer("self_attn.o_proj"), o.array()?),
        (layer("post_attention_layernorm"), ones.clone()),
        (layer("mlp.gate_proj"), gate.array()?),
        (layer("mlp.up_proj"), up.array()?),
        (layer("mlp.down_proj"), down.array()?),
        ("model.norm.weight".to_string(), ones),
        ("lm_head.weight".to_string(), last.array()?),
    ]))
}

/// Scores of the words that follow: the logarithms of their parts, above `certain`.
fn scores(following: &Following, certain: f32) -> impl Iterator<Item = (usize, f32)> {
    let total: usize = following.values().sum();
    following
        .iter()
        .map(move |(word, count)| (*word, (certain + (*count as f32 / total as f32).ln()).max(0.5)))
}
