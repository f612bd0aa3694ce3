//! Attention with heads that may share keys and values.
//!
//! The layer computes queries, keys and values; what is remembered of earlier tokens, and who sees whom, is
//! decided by a [`KeyValues`]. Without memory ([`Causal`]) every token sees those before it.

use hesper::fast::{self, AttentionMask};
use hesper::{Array, Dtype, PackedArray, PackedEnd, Split, packed_layer};

use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::module::{Module, join};
use crate::norm::{Norm, RmsNorm};
use crate::rope::Rope;
use crate::{Leaf, LeafMut};

/// Keys and values of earlier tokens.
pub trait KeyValues {
    /// Positions of the first new token: one for all sequences, or an array with one for each.
    fn offset(&self) -> fast::Offset;

    /// How many sequences there are.
    fn sequences(&self) -> usize {
        1
    }

    /// Remembers new keys and values and attends to all that may be seen. All have the shape
    /// (sequences, heads, tokens, width).
    fn attend(&mut self, queries: &Array, keys: &Array, values: &Array, scale: f32) -> hesper::Result<Array>;

    /// The same for one new token of each sequence, where the memory knows how: `token` has the shape (sequences,
    /// numbers) and holds queries, keys and values side by side, which are to be turned. Gives the heads of queries
    /// side by side.
    fn attend_token(
        &mut self,
        token: &Array,
        heads: Heads,
        turns: Option<&fast::Turns>,
        scale: f32,
    ) -> hesper::Result<Option<Array>> {
        let _ = (token, heads, turns, scale);
        Ok(None)
    }
}

/// No memory: every token sees itself and those before it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Causal;

impl KeyValues for Causal {
    fn offset(&self) -> fast::Offset {
        0.into()
    }

    fn attend(&mut self, queries: &Array, keys: &Array, values: &Array, scale: f32) -> hesper::Result<Array> {
        fast::scaled_dot_product_attention(queries, keys, values, scale, AttentionMask::Causal, None)
    }
}

/// How many heads there are and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Of queries.
    pub queries: usize,
    /// Of keys and of values.
    pub keys: usize,
    /// Numbers of one.
    pub width: usize,
}

/// Where queries, keys and values come from.
#[derive(Debug, Clone)]
pub enum Projections {
    /// A layer for each.
    Separate {
        /// Queries.
        queries: Linear,
        /// Keys.
        keys: Linear,
        /// Values.
        values: Linear,
    },
    /// One layer for all: queries, then keys, then values.
    Joined(Linear),
}

/// An attention layer.
#[derive(Debug, Clone)]
pub struct Attention {
    heads: Heads,
    projections: Projections,
    output: Linear,
    norms: Option<(RmsNorm, RmsNorm)>,
    rope: Option<Rope>,
    /// Separate projections as one.
    joined: Option<Linear>,
}

impl Attention {
    /// From its layers. `norms` are applied to queries and keys, head by head, before they are turned.
    pub fn new(
        heads: Heads,
        projections: Projections,
        output: Linear,
        norms: Option<(RmsNorm, RmsNorm)>,
        rope: Option<Rope>,
    ) -> Result<Self> {
        if heads.keys == 0 || heads.width == 0 || !heads.queries.is_multiple_of(heads.keys) {
            return Err(Error::Setting(format!("no attention has {heads:?}")));
        }
        let expect = |name: &str, layer: &Linear, outputs: usize| match layer.weight().shape() {
            [given, _] if given == outputs => Ok(()),
            [given, _] => {
                Err(Error::Shape { path: name.into(), given: vec![given], expected: vec![outputs] })
            }
        };
        let (q, k) = (heads.queries * heads.width, heads.keys * heads.width);
        match &projections {
            Projections::Separate { queries, keys, values } => {
                expect("q_proj", queries, q)?;
                expect("k_proj", keys, k)?;
                expect("v_proj", values, k)?;
            }
            Projections::Joined(layer) => expect("qkv_proj", layer, q + 2 * k)?,
        }
        Ok(Attention { heads, projections, output, norms, rope, joined: None })
    }

    /// Makes separate projections one product, where their weights are stored alike: fewer, larger commands, as GPUs want
    /// them.
    pub fn join(&mut self) -> Result<()> {
        if let Projections::Separate { queries, keys, values } = &mut self.projections {
            self.joined = Linear::join(&mut [queries, keys, values])?;
        }
        Ok(())
    }

    /// Applies it to tokens of shape (sequences, tokens, width), or of shape (tokens, width) with those of all
    /// sequences one behind the other.
    pub fn forward(&self, x: &Array, memory: &mut dyn KeyValues) -> Result<Array> {
        if let Some(joined) = &self.joined {
            return self.output.forward(&self.attend_joined(&joined.forward(x)?, memory)?);
        }
        let parts = match &self.projections {
            Projections::Separate { queries, keys, values } => {
                [queries.forward(x)?, keys.forward(x)?, values.forward(x)?]
            }
            Projections::Joined(layer) => self.split(&layer.forward(x)?)?,
        };
        self.output.forward(&self.attend(parts, memory)?)
    }

    /// `x + forward(norm(x))`, in a few commands where the weights are packed.
    pub fn residual(&self, norm: &Norm, x: &Array, memory: &mut dyn KeyValues) -> Result<Array> {
        let Some((norm, [q, k, v], output)) = self.packed(norm, x) else {
            return Ok(x.add(&self.forward(&norm.forward(x)?, memory)?)?);
        };
        let joined = packed_layer(x, Some(norm.parts()), &[q, k, v], PackedEnd::Plain)?;
        let y = self.attend_joined(&joined, memory)?;
        Ok(packed_layer(&y, None, &[output], PackedEnd::Plus(x))?)
    }

    /// Attention with queries, keys and values that lie side by side.
    fn attend_joined(&self, joined: &Array, memory: &mut dyn KeyValues) -> Result<Array> {
        let single = joined.ndim() == 2 && joined.shape()[0] == memory.sequences() && self.norms.is_none();
        let turns = self.rope.as_ref().map(Rope::turns);
        let y = match single {
            true => memory.attend_token(joined, self.heads, turns, self.scale())?,
            false => None,
        };
        match y {
            Some(y) => Ok(y),
            None => self.attend(self.split(joined)?, memory),
        }
    }

    /// Whether [`residual`](Attention::residual) takes a few commands with such a norm and such tokens.
    pub fn is_packed(&self, norm: &Norm, x: &Array) -> bool {
        self.packed(norm, x).is_some()
    }

    /// What [`packed_layer`] needs, if this layer is made of it.
    fn packed<'a>(
        &'a self,
        norm: &'a Norm,
        x: &Array,
    ) -> Option<(&'a RmsNorm, [&'a PackedArray; 3], &'a PackedArray)> {
        let (Norm::Rms(norm), Projections::Separate { queries, keys, values }) = (norm, &self.projections)
        else {
            return None;
        };
        let inputs = [queries.packed()?, keys.packed()?, values.packed()?];
        joins(norm, x).then_some((norm, inputs, self.output.packed()?))
    }

    /// Queries, keys and values that lie side by side.
    fn split(&self, joined: &Array) -> Result<[Array; 3]> {
        let Heads { queries, keys, width } = self.heads;
        let cuts = [(queries * width) as isize, ((queries + keys) * width) as isize];
        let parts = joined.split(Split::Indices(&cuts), -1)?;
        <[Array; 3]>::try_from(parts).map_err(|_| Error::Setting("a projection in three parts".into()))
    }

    /// What scores are multiplied by.
    fn scale(&self) -> f32 {
        let gain = self.rope.as_ref().map_or(1.0, Rope::gain);
        (self.heads.width as f32).powf(-0.5) * gain * gain
    }

    /// Attention of queries to keys and values, each with the heads of a token side by side.
    fn attend(&self, [q, k, v]: [Array; 3], memory: &mut dyn KeyValues) -> Result<Array> {
        let refused = || Error::Setting(format!("attention of an array of shape {:?}", q.shape()));
        let (sequences, tokens) = match *q.shape() {
            [sequences, tokens, _] => (sequences, tokens),
            [rows, _] if memory.sequences() > 0 && rows.is_multiple_of(memory.sequences()) => {
                (memory.sequences(), rows / memory.sequences())
            }
            _ => return Err(refused()),
        };
        let shape: Vec<isize> = q.shape().iter().map(|length| *length as isize).collect();
        let Heads { queries, keys, width } = self.heads;
        let heads = |x: &Array, count: usize| -> Result<Array> {
            let (sequences, tokens, count, width) =
                (sequences as isize, tokens as isize, count as isize, width as isize);
            // A single token's heads lie as they are needed.
            if tokens == 1 {
                return Ok(x.reshape(&[sequences, count, 1, width])?);
            }
            Ok(x.reshape(&[sequences, tokens, count, width])?.transpose(&[0, 2, 1, 3])?)
        };
        let (mut q, mut k, v) = (heads(&q, queries)?, heads(&k, keys)?, heads(&v, keys)?);
        if let Some((of_queries, of_keys)) = &self.norms {
            (q, k) = (of_queries.forward(&q)?, of_keys.forward(&k)?);
        }
        if let Some(rope) = &self.rope {
            (q, k) = (rope.forward(&q, memory.offset())?, rope.forward(&k, memory.offset())?);
        }
        let mut y = memory.attend(&q, &k, &v, self.scale())?;
        if tokens > 1 {
            y = y.transpose(&[0, 2, 1, 3])?;
        }
        Ok(y.reshape(&shape)?)
    }
}

/// Whether [`packed_layer`] takes such a norm and such activations: in float32.
pub(crate) fn joins(norm: &RmsNorm, x: &Array) -> bool {
    let float = |array: &Array| array.dtype() == Dtype::Float32;
    float(x) && float(norm.parts().0)
}

impl Module for Attention {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        match &self.projections {
            Projections::Separate { queries, keys, values } => {
                queries.visit(&join(prefix, "q_proj"), f);
                keys.visit(&join(prefix, "k_proj"), f);
                values.visit(&join(prefix, "v_proj"), f);
            }
            Projections::Joined(layer) => layer.visit(&join(prefix, "qkv_proj"), f),
        }
        self.output.visit(&join(prefix, "o_proj"), f);
        if let Some((queries, keys)) = &self.norms {
            queries.visit(&join(prefix, "q_norm"), f);
            keys.visit(&join(prefix, "k_norm"), f);
        }
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.joined = None;
        match &mut self.projections {
            Projections::Separate { queries, keys, values } => {
                queries.visit_mut(&join(prefix, "q_proj"), f)?;
                keys.visit_mut(&join(prefix, "k_proj"), f)?;
                values.visit_mut(&join(prefix, "v_proj"), f)?;
            }
            Projections::Joined(layer) => layer.visit_mut(&join(prefix, "qkv_proj"), f)?,
        }
        self.output.visit_mut(&join(prefix, "o_proj"), f)?;
        if let Some((queries, keys)) = &mut self.norms {
            queries.visit_mut(&join(prefix, "q_norm"), f)?;
            keys.visit_mut(&join(prefix, "k_norm"), f)?;
        }
        Ok(())
    }
}
