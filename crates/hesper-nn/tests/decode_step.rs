//! The number of commands of a decode step: layers are written op by op, and the planner fuses them to
//! composite ops.

use crate::alone;
use hesper::ops::step::{RotaryFrequencies, keep_token};
use hesper::{
    Activations, Array, Dtype, PackedArray, PackedFormat, concatenate, eval, fast, placement, random,
};
use hesper_nn::{
    Activation, Attention, Heads, KvCache, KvMask, KvRows, KvView, Linear, Mlp, Norm, Positions, Projections,
    Result, RmsNorm, Rope, RowView, Weight,
};

const WIDTH: usize = 64;
const HEADS: Heads = Heads { queries: 4, kv: 2, dim: 32 };
const CAPACITY: usize = 16;
const LAYERS: usize = 3;

/// A cache with a block of fixed capacity for each layer.
#[derive(Debug)]
struct Blocks {
    positions: Positions,
    layers: Vec<Array>,
}

impl Blocks {
    fn new(sequences: usize) -> Self {
        let block = Array::zeros(&[sequences, 2 * HEADS.kv, CAPACITY, HEADS.dim], Dtype::Float32).unwrap();
        Blocks { positions: Positions::new(sequences), layers: vec![block; LAYERS] }
    }
}

impl KvCache for Blocks {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().collect()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn append(&mut self, layer: usize, keys: &Array, values: &Array, _: Option<usize>) -> Result<KvView> {
        let (step, block) = (self.positions.step()?, &mut self.layers[layer]);
        let new = concatenate(&[keys.clone(), values.clone()], 1)?;
        *block = fast::append(block, &new, step.starts(), CAPACITY)?;
        let rows = block.slice_axis(2, 0, step.rows() as isize, 1)?;
        let part = |from: usize| rows.slice_axis(1, from as isize, (from + HEADS.kv) as isize, 1);
        let (keys, values) = (KvRows::Dense(part(0)?), KvRows::Dense(part(HEADS.kv)?));
        Ok(KvView { keys, values, mask: KvMask::None })
    }

    fn append_rows(
        &mut self,
        layer: usize,
        tokens: &Array,
        heads: Heads,
        rotation: Option<&RotaryFrequencies>,
    ) -> Result<Option<RowView<'_>>> {
        let (step, block) = (self.positions.step()?, &mut self.layers[layer]);
        if !step.is_decode() {
            return Ok(None);
        }
        *block = keep_token(block, tokens, step.starts(), None, heads.into(), rotation)?;
        Ok(Some(RowView { rows: block.clone(), positions: step.positions(), pages: None }))
    }
}

struct Layer {
    norms: [Norm; 2],
    attention: Attention,
    mlp: Mlp,
}

fn normal(shape: &[usize], seed: u64) -> Array {
    let key = random::key(seed).unwrap();
    let array = random::normal(shape, Dtype::Float32, 0.0, 0.1, Some(&key)).unwrap();
    array.eval().unwrap();
    array
}

fn layer(seed: u64, packed: bool, qk_norms: bool) -> Layer {
    let linear = |outputs: usize, inputs: usize, number: u64| {
        let dense = normal(&[outputs, inputs], 10 * seed + number);
        let weight = match packed {
            true => Weight::Packed {
                blocks: PackedArray::quantize(&dense, PackedFormat::Q8_0).unwrap(),
                activations: Activations::Exact,
            },
            false => dense.into(),
        };
        Linear::from_weight(weight, None).unwrap()
    };
    let norm = |length: usize, number: u64| RmsNorm::from_weight(normal(&[length], 10 * seed + number), 1e-5);
    let (q, kv) = (HEADS.queries * HEADS.dim, HEADS.kv * HEADS.dim);
    let projections = Projections::Separate {
        queries: linear(q, WIDTH, 0),
        keys: linear(kv, WIDTH, 1),
        values: linear(kv, WIDTH, 2),
    };
    let qk_norms = qk_norms.then(|| (norm(HEADS.dim, 3), norm(HEADS.dim, 4)));
    let rope = Rope::new(HEADS.dim, false, 10_000.0, None).unwrap();
    let attention = Attention::new(HEADS, projections, linear(WIDTH, q, 5), qk_norms, Some(rope)).unwrap();
    let (gate, up, down) = (linear(96, WIDTH, 6), linear(96, WIDTH, 7), linear(WIDTH, 96, 8));
    let mlp = Mlp::new(Some(gate), up, down, Activation::Silu);
    Layer { norms: [norm(WIDTH, 9).into(), norm(WIDTH, 9).into()], attention, mlp }
}

/// Computes one token of each sequence in all layers.
fn step(layers: &[Layer], x: &Array, cache: &mut Blocks) -> Array {
    cache.begin(&vec![1; cache.lengths().len()]).unwrap();
    let mut x = x.clone();
    for (at, Layer { norms: [before, between], attention, mlp }) in layers.iter().enumerate() {
        x = x.add(attention.forward(&before.forward(&x).unwrap(), at, cache).unwrap()).unwrap();
        x = x.add(mlp.forward(&between.forward(&x).unwrap()).unwrap()).unwrap();
    }
    cache.end();
    cache.commit(1);
    x
}

/// The outputs of three steps, and the number of commands of the last one.
fn steps(layers: &[Layer], sequences: usize) -> (Vec<f32>, u64) {
    let (mut cache, mut commands, mut all) = (Blocks::new(sequences), 0, Vec::new());
    for token in 0..3 {
        let x = normal(&[sequences, WIDTH], 1000 + token);
        let y = step(layers, &x, &mut cache);
        let before = placement::cpu().counters().encoded;
        eval::eval(std::iter::once(&y).chain(&cache.layers)).unwrap();
        commands = placement::cpu().counters().encoded - before;
        all.extend(y.to_vec::<f32>().unwrap());
    }
    (all, commands)
}

#[test]
fn a_decode_step_takes_few_commands_and_equals_the_step_without_fusion() {
    let _alone = alone();
    // With several sequences, norms of heads first copy the heads, which are columns of one array.
    for (packed, qk_norms, commands) in
        [(true, false, [6, 6]), (true, true, [9, 11]), (false, false, [12, 15])]
    {
        let layers: Vec<Layer> = (1..=LAYERS as u64).map(|seed| layer(seed, packed, qk_norms)).collect();
        for (sequences, commands) in [1, 3].into_iter().zip(commands) {
            let what = format!("packed: {packed}, qk_norms: {qk_norms}, {sequences} sequences");
            let (values, used) = steps(&layers, sequences);
            eval::set_fusion(false);
            let (alone, _) = steps(&layers, sequences);
            eval::set_fusion(true);
            assert_eq!(values, alone, "{what}");
            assert_eq!(used, commands * LAYERS as u64, "{what}");
        }
    }
}
