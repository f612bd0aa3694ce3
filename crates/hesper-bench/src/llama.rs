//! A Llama of tiny layers written in plain ops: the host's work dominates the time of a decode step.

use hesper::fast::{self, AttentionMask};
use hesper::{Array, Dtype, Result, random};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 16;
const HIDDEN: usize = HEADS * HEAD_DIM;
const FEED_FORWARD: usize = 128;
const VOCABULARY: usize = 256;
/// Positions of the KV cache; after the last one, decoding restarts at the first.
const CONTEXT: usize = 256;

struct Layer {
    norms: [Array; 2],
    qkv: [Array; 3],
    output: Array,
    gate: Array,
    up: Array,
    down: Array,
    keys: Array,
    values: Array,
}

/// The model and its KV cache.
pub struct Llama {
    embedding: Array,
    layers: Vec<Layer>,
    norm: Array,
    token: Array,
    position: usize,
}

fn weight(rows: usize, columns: usize) -> Result<Array> {
    random::normal(&[rows, columns], Dtype::Float32, 0.0, 0.1, None)
}

impl Llama {
    /// A model of random weights.
    pub fn new(layers: usize) -> Result<Self> {
        let ones = || Array::ones(&[HIDDEN], Dtype::Float32);
        let cache = || Array::zeros(&[1, KV_HEADS, CONTEXT, HEAD_DIM], Dtype::Float32);
        let wide = KV_HEADS * HEAD_DIM;
        let layer = |_| {
            Ok(Layer {
                norms: [ones()?, ones()?],
                qkv: [weight(HIDDEN, HIDDEN)?, weight(wide, HIDDEN)?, weight(wide, HIDDEN)?],
                output: weight(HIDDEN, HIDDEN)?,
                gate: weight(FEED_FORWARD, HIDDEN)?,
                up: weight(FEED_FORWARD, HIDDEN)?,
                down: weight(HIDDEN, FEED_FORWARD)?,
                keys: cache()?,
                values: cache()?,
            })
        };
        let layers = (0..layers).map(layer).collect::<Result<Vec<_>>>()?;
        let embedding = weight(VOCABULARY, HIDDEN)?;
        let token = Array::try_from_slice(&[1i32], &[1, 1])?;
        let model = Llama { embedding, layers, norm: ones()?, token, position: 0 };
        for layer in &model.layers {
            let Layer { norms, qkv, output, gate, up, down, keys, values } = layer;
            hesper::eval(norms.iter().chain(qkv).chain([output, gate, up, down, keys, values]))?;
        }
        hesper::eval([&model.embedding, &model.norm])?;
        Ok(model)
    }

    /// Builds the graph of the next token; nothing is computed yet.
    pub fn build(&mut self) -> Result<()> {
        if self.position == CONTEXT {
            self.position = 0;
        }
        let mut x = self.embedding.take(&self.token, Some(0))?;
        for layer in &mut self.layers {
            let normed = fast::rms_norm(&x, Some(&layer.norms[0]), 1e-5)?;
            x = x.add(layer.attend(&normed, self.position)?)?;
            let normed = fast::rms_norm(&x, Some(&layer.norms[1]), 1e-5)?;
            let gate = normed.matmul(&layer.gate.t()?)?;
            let up = normed.matmul(&layer.up.t()?)?;
            let gated = gate.multiply(gate.sigmoid()?)?.multiply(up)?;
            x = x.add(gated.matmul(&layer.down.t()?)?)?;
        }
        let logits = fast::rms_norm(&x, Some(&self.norm), 1e-5)?.matmul(&self.embedding.t()?)?;
        self.token = logits.argmax(-1)?.astype(Dtype::Int32)?;
        self.position += 1;
        Ok(())
    }

    /// Plans and encodes the step; returns before it is computed.
    pub fn start(&self) -> Result<()> {
        hesper::async_eval([&self.token]).map(|_| ())
    }

    /// The token of the step.
    pub fn token(&self) -> Result<i32> {
        self.token.item()
    }
}

impl Layer {
    fn attend(&mut self, x: &Array, position: usize) -> Result<Array> {
        let [q, k, v] = &self.qkv;
        let heads = |weight: &Array, count: usize| {
            x.matmul(&weight.t()?)?.reshape(&[1, 1, count as isize, -1])?.transpose(&[0, 2, 1, 3])
        };
        let rope = |x: &Array| fast::rope(x, HEAD_DIM, false, Some(10_000.0), 1.0, position as i32, None);
        let queries = rope(&heads(q, HEADS)?)?;
        let keys = rope(&heads(k, KV_HEADS)?)?;
        let values = heads(v, KV_HEADS)?;
        let (at, end) = (position as isize, position as isize + 1);
        let all = [1, KV_HEADS as isize, end, HEAD_DIM as isize];
        let (from, steps) = ([0, 0, at, 0], [1; 4]);
        self.keys = self.keys.slice_update(&keys, &from, &all, &steps)?;
        self.values = self.values.slice_update(&values, &from, &all, &steps)?;
        let keys = self.keys.slice(&[0; 4], &all, &steps)?;
        let values = self.values.slice(&[0; 4], &all, &steps)?;
        let scale = (HEAD_DIM as f32).sqrt().recip();
        let output =
            fast::scaled_dot_product_attention(&queries, &keys, &values, scale, AttentionMask::None, None)?;
        output.transpose(&[0, 2, 1, 3])?.reshape(&[1, 1, -1])?.matmul(&self.output.t()?)
    }
}
