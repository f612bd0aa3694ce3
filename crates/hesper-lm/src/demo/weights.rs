//! The weights of the demo model.
//!
//! The residual stream has four parts: the current token, the previous token, the logits of the next token,
//! and one element that keeps its norm the same for every active unit. Tokens are one-hot. Since the norm is
//! known, an RMS norm multiplies by a known constant, which the following weights divide out again.

use std::collections::BTreeMap;

use hesper_core::Array;
use serde_json::{Value, json};

use super::vocabulary::{Following, Vocabulary};
use crate::error::Result;

/// The difference of attention scores between the previous token and distant ones.
const ATTENTION_SHARPNESS: f32 = 40.0;
/// The magnitude of the gate of a unit.
const GATE: f32 = 40.0;
/// The logit of a token that certainly follows two tokens, and of one that follows one.
const CERTAIN_LOGITS: (f32, f32) = (12.0, 5.0);
/// The weight of the statistics of single tokens. Where no unit is active, the final norm makes up for it.
const SINGLE_TOKEN_WEIGHT: f32 = 0.02;
/// The bonus of the token that follows at the last occurrence of its context: greedy sampling moves forward
/// through the text and reaches its end.
const LAST_BONUS: f32 = 0.5;
/// The norm of the output of a unit.
const UNIT_NORM: f32 = 40.0;
const EPS: f32 = 1e-5;
const BASE: f32 = 100.0;

/// Sizes of the model.
pub(super) struct Sizes {
    tokens: usize,
    hidden: usize,
    head: usize,
    units: usize,
}

impl Sizes {
    pub(super) fn of(vocabulary: &Vocabulary) -> Sizes {
        let count = vocabulary.tokens.len();
        Sizes {
            tokens: count,
            hidden: (3 * count + 1).next_multiple_of(64),
            head: count.next_multiple_of(64),
            units: vocabulary.after_two.len().next_multiple_of(64),
        }
    }

    pub(super) fn config(&self) -> Value {
        json!({
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": self.tokens,
            "hidden_size": self.hidden,
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

    /// The factor of an RMS norm for a vector of this squared length.
    fn norm_factor(&self, squared: f32) -> f32 {
        1.0 / (squared / self.hidden as f32 + EPS).sqrt()
    }
}

/// A matrix of zeros to be filled.
struct Matrix {
    elements: Vec<f32>,
    columns: usize,
}

impl Matrix {
    fn new(rows: usize, columns: usize) -> Self {
        Matrix { elements: vec![0.0; rows * columns], columns }
    }

    fn at(&mut self, row: usize, column: usize) -> &mut f32 {
        &mut self.elements[row * self.columns + column]
    }

    fn array(&self) -> Result<Array> {
        Ok(Array::try_from_slice(&self.elements, &[self.elements.len() / self.columns, self.columns])?)
    }
}

pub(super) fn weights(vocabulary: &Vocabulary, sizes: &Sizes) -> Result<BTreeMap<String, Array>> {
    let &Sizes { tokens: count, hidden, head, units } = sizes;
    // The parts of the residual stream; the current token comes first.
    let (previous, next, padding) = (count, 2 * count, 3 * count);
    let mut embedding = Matrix::new(count, hidden);
    let (mut q, mut k) = (Matrix::new(head, hidden), Matrix::new(head, hidden));
    let (mut v, mut o) = (Matrix::new(head, hidden), Matrix::new(hidden, head));
    // Before the attention the stream holds one token, before the MLP two, before the final norm also a
    // unit's output.
    let (one, two) = (sizes.norm_factor(1.0), sizes.norm_factor(2.0));
    let all = sizes.norm_factor(2.0 + UNIT_NORM * UNIT_NORM);

    // The attention score of a key falls off around the position before the query. Slow rotations would blur
    // it.
    let angles = (0..head / 2).map(|pair| BASE.powf(-2.0 * pair as f32 / head as f32));
    let fast: Vec<f32> = angles.take_while(|angle| *angle > 0.1).collect();
    let falloff: f32 = fast.iter().map(|angle| 1.0 - angle.cos()).sum();
    let size = (ATTENTION_SHARPNESS * (head as f32).sqrt() / falloff).sqrt() / one;
    for token in 0..count {
        *embedding.at(token, token) = 1.0;
        *v.at(token, token) = 1.0 / one;
        *o.at(previous + token, token) = 1.0;
        for (pair, angle) in fast.iter().enumerate() {
            *k.at(pair, token) = size;
            *q.at(pair, token) = size * angle.cos();
            *q.at(pair + head / 2, token) = -size * angle.sin();
        }
    }

    let (mut gate, mut up) = (Matrix::new(units, hidden), Matrix::new(units, hidden));
    let mut down = Matrix::new(hidden, units);
    // The activated gate of a unit whose pair is present.
    let active = GATE / 2.0;
    for (unit, ((first, second), following)) in vocabulary.after_two.iter().enumerate() {
        for token in 0..count {
            *gate.at(unit, token) = -1.5 * GATE / two;
            *up.at(unit, token) = 1.0 / two;
        }
        *gate.at(unit, *second) += GATE / two;
        *gate.at(unit, previous + first) += GATE / two;
        let mut squared = 0.0;
        for (token, logit) in logits(following, CERTAIN_LOGITS.0) {
            *down.at(next + token, unit) = logit / active;
            squared += logit * logit;
        }
        *down.at(padding, unit) = (UNIT_NORM * UNIT_NORM - squared).max(0.0).sqrt() / active;
    }

    let mut output = Matrix::new(count, hidden);
    for token in 0..count {
        *output.at(token, next + token) = 1.0 / all;
    }
    for (token, following) in &vocabulary.after_one {
        for (other, logit) in logits(following, CERTAIN_LOGITS.1) {
            *output.at(other, *token) += SINGLE_TOKEN_WEIGHT * logit / all;
        }
    }

    let ones = Array::ones(&[hidden], hesper_core::Dtype::Float32)?;
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    Ok(BTreeMap::from([
        ("model.embed_tokens.weight".to_string(), embedding.array()?),
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
        ("lm_head.weight".to_string(), output.array()?),
    ]))
}

/// Logits of the tokens that follow: `certain` plus the logarithms of their frequencies.
fn logits(following: &Following, certain: f32) -> impl Iterator<Item = (usize, f32)> {
    let total = following.counts.values().sum::<usize>() as f32;
    following.counts.iter().map(move |(token, count)| {
        let offset = match *token == following.last {
            true => LAST_BONUS,
            false => (*count as f32 / total).ln(),
        };
        (*token, certain + offset)
    })
}
