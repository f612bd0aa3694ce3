//! Attention over grouped heads: several heads of queries may share a head of keys and values.
//!
//! The layer computes queries, keys and values. It appends keys and values to a [`KvCache`], which returns a
//! view of the rows that the queries read.

use hesper_core::{Array, Split, concatenate, placement};

use crate::error::{Error, Result};
use crate::heads::Heads;
use crate::kv_cache::{KvCache, SegmentView, Step};
use crate::linear::Linear;
use crate::module::Module;
use crate::norm::RmsNorm;
use crate::rope::Rope;

/// The projections to queries, keys and values.
#[derive(Module, Clone)]
pub enum Projections {
    /// A layer for each.
    Separate {
        /// Queries.
        #[module(name = "q_proj")]
        queries: Linear,
        /// Keys.
        #[module(name = "k_proj")]
        keys: Linear,
        /// Values.
        #[module(name = "v_proj")]
        values: Linear,
    },
    /// One layer for all: queries, then keys, then values.
    Fused(#[module(name = "qkv_proj")] Linear),
}

/// An attention layer.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::{Attention, Heads, Linear, NoCache, Projections, Rope};
/// let heads = Heads { queries: 4, kv: 2, dim: 8 }; // two heads of queries share one of keys
/// let projections = Projections::Separate {
///     queries: Linear::new(16, 32)?,
///     keys: Linear::new(16, 16)?,
///     values: Linear::new(16, 16)?,
/// };
/// let rope = Rope::new(8, false, 10000.0, None)?;
/// let layer = Attention::new(heads, projections, Linear::new(32, 16)?, None, Some(rope))?;
/// let mut layer = layer.with_window(Some(64));
/// layer.fuse_projections()?;
/// let x = random::normal(&[1, 5, 16], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(layer.forward(&x, 0, &mut NoCache::default())?.shape(), [1, 5, 16]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Attention {
    heads: Heads,
    #[module(flatten)]
    projections: Projections,
    #[module(name = "o_proj")]
    output: Linear,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    rope: Option<Rope>,
    window: Option<usize>,
    /// Separate projections as one product. Stale when a projection changes.
    #[module(cache)]
    fused: Option<Linear>,
}

impl Attention {
    /// An attention layer. `qk_norms` are applied to each head of queries and keys before rotation.
    pub fn new(
        heads: Heads,
        projections: Projections,
        output: Linear,
        qk_norms: Option<(RmsNorm, RmsNorm)>,
        rope: Option<Rope>,
    ) -> Result<Self> {
        if heads.kv == 0 || heads.dim == 0 || !heads.queries.is_multiple_of(heads.kv) {
            return Err(Error::InvalidArgument(format!(
                "cannot make attention with {heads:?}; queries must be a multiple of kv, and dim positive"
            )));
        }
        let expect = |name: &str, layer: &Linear, outputs: usize| match layer.weight().shape() {
            [given, _] if given == outputs => Ok(()),
            [given, _] => {
                Err(Error::Shape { path: name.into(), given: vec![given], expected: vec![outputs] })
            }
        };
        let (q, kv) = (heads.queries * heads.dim, heads.kv * heads.dim);
        match &projections {
            Projections::Separate { queries, keys, values } => {
                expect("q_proj", queries, q)?;
                expect("k_proj", keys, kv)?;
                expect("v_proj", values, kv)?;
            }
            Projections::Fused(layer) => expect("qkv_proj", layer, q + 2 * kv)?,
        }
        let (q_norm, k_norm) = qk_norms.unzip();
        Ok(Attention { heads, projections, output, q_norm, k_norm, rope, window: None, fused: None })
    }

    /// Lets every token see at most the last `window` tokens, itself included.
    pub fn with_window(self, window: Option<usize>) -> Self {
        Attention { window, ..self }
    }

    /// Fuses separate projections into one product if their weights are stored in the same format: GPUs
    /// prefer few large kernels.
    pub fn fuse_projections(&mut self) -> Result<()> {
        if let Projections::Separate { queries, keys, values } = &mut self.projections {
            self.fused = Linear::fuse(&mut [queries, keys, values])?;
        }
        Ok(())
    }

    /// Attention of tokens of shape (sequences, tokens, elements), or (rows, elements) with the new tokens of
    /// one sequence after the other. `layer` is the index of this layer in the cache.
    pub fn forward(&self, x: &Array, layer: usize, cache: &mut dyn KvCache) -> Result<Array> {
        let step = cache.positions().step().ok();
        let is_ragged = step.is_some_and(Step::is_ragged);
        // GPUs apply norms and rotation to queries and keys that are not fused.
        let is_fused = self.q_norm.is_none() || placement::current_device() == placement::Device::Cpu;
        let in_rows =
            is_fused && x.ndim() == 2 && step.is_some_and(|step| step.positions().len() == x.shape()[0]);
        let (parts, fused) = match (&self.fused, &self.projections) {
            (Some(projection), _) | (None, Projections::Fused(projection)) => {
                let fused = projection.forward(x)?;
                (self.split(&fused)?, fused)
            }
            (None, Projections::Separate { queries, keys, values }) => {
                let parts = [queries.forward(x)?, keys.forward(x)?, values.forward(x)?];
                let fused = concatenate(&parts, -1)?;
                (parts, fused)
            }
        };
        let rotation = self.rope.as_ref().map(Rope::rotation);
        if in_rows {
            let fused = self.with_norms(&parts, fused.clone())?;
            if let Some(view) = cache.append_rows(layer, &fused, self.heads, rotation)? {
                let y = view.attend(&fused, self.heads, rotation, self.scale(), self.window)?;
                return self.output.forward(&y);
            }
        }
        let y = match is_ragged {
            true => self.attend_segments(parts, &fused, layer, cache)?,
            false => self.attend(parts, layer, cache)?,
        };
        self.output.forward(&y)
    }

    /// Queries, keys and values of a fused product.
    fn split(&self, fused: &Array) -> Result<[Array; 3]> {
        let Heads { queries, kv, dim } = self.heads;
        let cuts = [(queries * dim) as isize, ((queries + kv) * dim) as isize];
        let parts = fused.split(Split::Indices(&cuts), -1)?;
        <[Array; 3]>::try_from(parts).map_err(|parts| {
            Error::InvalidArgument(format!("the fused projection has {} parts instead of 3", parts.len()))
        })
    }

    /// The fused product of shape (rows, elements) with normalized heads of queries and keys.
    fn with_norms(&self, [q, k, v]: &[Array; 3], fused: Array) -> Result<Array> {
        let (Some(query_norm), Some(key_norm)) = (&self.q_norm, &self.k_norm) else { return Ok(fused) };
        let normed = |norm: &RmsNorm, x: &Array| -> Result<Array> {
            let heads = x.reshape(&[x.shape()[0] as isize, -1, self.heads.dim as isize])?;
            Ok(norm.forward(&heads)?.reshape(&[x.shape()[0] as isize, x.shape()[1] as isize])?)
        };
        Ok(concatenate(&[normed(query_norm, q)?, normed(key_norm, k)?, v.clone()], -1)?)
    }

    /// The scale of the attention scores.
    fn scale(&self) -> f32 {
        let factor = self.rope.as_ref().map_or(1.0, Rope::attention_factor);
        (self.heads.dim as f32).powf(-0.5) * factor * factor
    }

    /// Attention of the rows of a ragged step. `fused` has queries, keys and values along the last axis.
    fn attend_segments(
        &self,
        [q, k, v]: [Array; 3],
        fused: &Array,
        layer: usize,
        cache: &mut dyn KvCache,
    ) -> Result<Array> {
        let Heads { queries, kv, dim } = self.heads;
        let heads = |x: &Array, count: usize| x.reshape(&[-1, count as isize, 1, dim as isize]);
        let (mut q, mut k, v) = (heads(&q, queries)?, heads(&k, kv)?, heads(&v, kv)?);
        if let (Some(query_norm), Some(key_norm)) = (&self.q_norm, &self.k_norm) {
            (q, k) = (query_norm.forward(&q)?, key_norm.forward(&k)?);
        }
        let rotation = self.rope.as_ref().map(Rope::rotation);
        if let Some(rope) = &self.rope {
            let offset = cache.positions().offset();
            (q, k) = (rope.forward(&q, offset.clone())?, rope.forward(&k, offset)?);
        }
        let mut parts = Vec::new();
        for segment in cache.append_segments(layer, &k, &v, self.window)? {
            let (from, to) = (segment.rows.start as isize, segment.rows.end as isize);
            parts.push(match segment.view {
                SegmentView::Fused(view) => {
                    let fused = fused.slice_axis(0, from, to, 1)?;
                    let fused = self.with_norms(&self.split(&fused)?, fused)?;
                    view.attend(&fused, self.heads, rotation, self.scale(), self.window)?
                }
                SegmentView::Rows(view) => {
                    let shape = [segment.sequences as isize, -1, queries as isize, dim as isize];
                    let q = q.slice_axis(0, from, to, 1)?.reshape(&shape)?.transpose(&[0, 2, 1, 3])?;
                    let y = view.attend(&q, self.scale())?.transpose(&[0, 2, 1, 3])?;
                    y.reshape(&[to - from, (queries * dim) as isize])?
                }
            });
        }
        Ok(concatenate(&parts, 0)?)
    }

    /// Attention with separate queries, keys and values of shape (..., heads * head dimension).
    fn attend(&self, [q, k, v]: [Array; 3], layer: usize, cache: &mut dyn KvCache) -> Result<Array> {
        let known = cache.lengths().len();
        let (sequences, tokens) = match *q.shape() {
            [sequences, tokens, _] => (sequences, tokens),
            [rows, _] if known > 0 && rows.is_multiple_of(known) => (known, rows / known),
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "attention takes (sequences, tokens, elements) or (sequences * tokens, elements), not {:?} \
                     with a cache of {known} sequences",
                    q.shape()
                )));
            }
        };
        let shape: Vec<isize> = q.shape().iter().map(|length| *length as isize).collect();
        let Heads { queries, kv, dim } = self.heads;
        let heads = |x: &Array, count: usize| -> Result<Array> {
            let (sequences, tokens, count, dim) =
                (sequences as isize, tokens as isize, count as isize, dim as isize);
            // With a single token no transposition is needed.
            if tokens == 1 {
                return Ok(x.reshape(&[sequences, count, 1, dim])?);
            }
            Ok(x.reshape(&[sequences, tokens, count, dim])?.transpose(&[0, 2, 1, 3])?)
        };
        let (mut q, mut k, v) = (heads(&q, queries)?, heads(&k, kv)?, heads(&v, kv)?);
        if let (Some(query_norm), Some(key_norm)) = (&self.q_norm, &self.k_norm) {
            (q, k) = (query_norm.forward(&q)?, key_norm.forward(&k)?);
        }
        if let Some(rope) = &self.rope {
            let offset = cache.positions().offset();
            (q, k) = (rope.forward(&q, offset.clone())?, rope.forward(&k, offset)?);
        }
        let mut y = cache.append(layer, &k, &v, self.window)?.attend(&q, self.scale())?;
        if tokens > 1 {
            y = y.transpose(&[0, 2, 1, 3])?;
        }
        Ok(y.reshape(&shape)?)
    }
}
