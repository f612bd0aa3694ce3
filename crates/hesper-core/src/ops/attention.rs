//! Attention over heads. Keys and values are read in place: a slice of a longer cache is not copied, and
//! heads that queries share are not repeated. The matrix of scores is never built.

use smallvec::{SmallVec, smallvec};

use super::multi::{Parts, together};
use super::{Op, OpRef, PatternOp};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::shape::{Shape, signed};
use crate::{Dtype, select};

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, Default)]
pub enum AttentionMask<'a> {
    /// All.
    #[default]
    None,
    /// Those not after it; the last query is aligned with the last key.
    Causal,
    /// Those where a bool is true; or all, with floats added to the scores. Broadcasts to batch, query heads,
    /// queries and keys.
    Array(&'a Array),
}

impl<'a> From<&'a Array> for AttentionMask<'a> {
    fn from(mask: &'a Array) -> Self {
        AttentionMask::Array(mask)
    }
}

/// `None` is [`AttentionMask::None`].
impl<'a> From<Option<&'a Array>> for AttentionMask<'a> {
    fn from(mask: Option<&'a Array>) -> Self {
        mask.map_or(AttentionMask::None, AttentionMask::Array)
    }
}

const NAME: &str = "scaled_dot_product_attention";

/// Inputs: queries, keys, values, the mask if there is one, the sinks if there are any.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// The factor of the scores.
    pub scale: BitEq<f32>,
    /// Whether a query sees no key after it.
    pub causal: bool,
    /// Whether there is a mask.
    pub mask: bool,
    /// Whether there are sinks.
    pub sinks: bool,
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pattern(&self) -> PatternOp {
        if self.mask || self.sinks { PatternOp::None } else { PatternOp::Attention }
    }

    fn export(&self) -> Export {
        let record = Record::new("attention").with("scale", self.scale.0).with("causal", self.causal);
        let record = record.with("mask", self.mask).with("sinks", self.sinks);
        if self.mask { record.stretching(3).into() } else { record.into() }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        // A bool mask has no derivative; everything else has.
        if rule.wanted[3..].contains(&true) || self.sinks {
            return rule.through(|inputs| self.composed(inputs));
        }
        let found = self.gradient(rule.inputs, &rule.cotangent()?)?;
        rule.each(|at| Ok(found.get(at).cloned()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let sinks = self.sinks.then(|| rule.inputs.len() - 1);
        if rule.output.size() == 0 || rule.size == 0 {
            return rule.one_by_one();
        }
        if sinks.is_some_and(|at| rule.is_batched(at)) {
            return self.vmap_heads(rule);
        }
        // The new axis joins the batch.
        let mut inputs: SmallVec<[Array; 3]> = SmallVec::new();
        for at in 0..rule.inputs.len() {
            if sinks == Some(at) {
                inputs.push(rule.inputs[at].clone());
                continue;
            }
            let full = rule.full(at)?;
            let joined = [full.shape()[0] * full.shape()[1]];
            let shape: SmallVec<[isize; 6]> =
                joined.iter().chain(&full.shape()[2..]).map(|length| *length as isize).collect();
            inputs.push(full.reshape(&shape)?);
        }
        let mut shape = rule.output.0.shape.clone();
        shape[0] *= rule.size;
        let result = Array::lazy(shape, rule.output.dtype(), rule.op.clone(), inputs)?;
        let shape: SmallVec<[isize; 6]> = rule.shape().iter().map(|length| *length as isize).collect();
        Ok((result.reshape(&shape)?, 0))
    }
}

/// Attention: `softmax(q k^T * scale + mask) v` for every head, with the softmax in single precision.
///
/// Queries have axes batch, query heads, queries, features; keys and values batch, key heads, keys,
/// features. Query heads are a multiple of key heads, and share them in order. `sinks` has a score for each
/// query head that has no value. A query that sees no key weighs all of them equally.
///
/// ```
/// use hesper::{Array, fast};
/// use hesper::fast::AttentionMask;
/// let x = Array::try_from_slice(&[0.0f32, 2.0], &[1, 1, 2, 1])?;
/// let y = fast::scaled_dot_product_attention(&x, &x, &x, 0.0, None, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0]);
/// let y = fast::scaled_dot_product_attention(&x, &x, &x, 0.0, AttentionMask::Causal, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0]);
/// let mask = Array::try_from_slice(&[1u8, 0, 0, 1], &[2, 2])?.equal(1)?; // every query sees its own key
/// let y = fast::scaled_dot_product_attention(&x, &x, &x, 0.0, &mask, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn scaled_dot_product_attention<'a>(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: impl Into<AttentionMask<'a>>,
    sinks: Option<&Array>,
) -> Result<Array> {
    let mask = mask.into();
    let dtype = q.dtype().promote(k.dtype()).promote(v.dtype());
    check(q, k, v, dtype)?;
    let [batch, heads, queries, _] = four(q);
    let shape: Shape = smallvec![batch, heads, queries, v.shape()[3]];
    let scores = [batch, heads, queries, k.shape()[2]];
    let promotes = |what: &str, array: &Array| {
        if array.dtype().promote(dtype) == dtype {
            return Ok(());
        }
        let what = format!("{what} for arrays of {dtype}, and not");
        Err(Error::Type { op: NAME.into(), what, dtype: array.dtype() })
    };
    let mut inputs: SmallVec<[Array; 3]> = smallvec![q.astype(dtype)?, k.astype(dtype)?, v.astype(dtype)?];
    let (mut masked, causal) = (false, matches!(mask, AttentionMask::Causal));
    if let AttentionMask::Array(mask) = mask {
        if mask.ndim() > 4 {
            let what = format!("a mask of shape {:?} has more than four axes", mask.shape());
            return Err(Error::shape(NAME, what).with_shapes([mask]));
        }
        promotes("a mask", mask)?;
        let mask = if mask.dtype() == Dtype::Bool { mask.clone() } else { mask.astype(dtype)? };
        inputs.push(mask.broadcast_to(&scores)?);
        masked = true;
    }
    if let Some(sinks) = sinks {
        if sinks.shape() != [heads] {
            let what = format!("sinks of shape {:?} for {heads} query heads", sinks.shape());
            return Err(Error::shape(NAME, what).with_shapes([sinks]));
        }
        promotes("sinks", sinks)?;
        inputs.push(sinks.astype(dtype)?);
    }
    if shape.contains(&0) || k.shape()[2] == 0 {
        return Array::zeros(&shape, dtype);
    }
    let op = Attention { scale: BitEq(scale), causal, mask: masked, sinks: sinks.is_some() };
    if dtype == Dtype::Float64 {
        return op.composed(&inputs);
    }
    Array::lazy(shape, dtype, OpRef::new(op), inputs)
}

fn four(array: &Array) -> [usize; 4] {
    std::array::from_fn(|axis| array.shape()[axis])
}

fn check(q: &Array, k: &Array, v: &Array, dtype: Dtype) -> Result<()> {
    let fail = |what: String| Err(Error::shape(NAME, what).with_shapes([q, k, v]));
    for array in [q, k, v] {
        if array.ndim() != 4 {
            return fail(format!("four axes expected, not shape {:?}", array.shape()));
        }
    }
    let ([qb, qh, _, qd], [kb, kh, kl, kd], [vb, vh, vl, _]) = (four(q), four(k), four(v));
    let shapes = || format!("{:?}, {:?} and {:?}", q.shape(), k.shape(), v.shape());
    if qb != kb || kb != vb {
        return fail(format!("batches differ: shapes {}", shapes()));
    }
    if qd != kd {
        return fail(format!("queries and keys differ in length: shapes {}", shapes()));
    }
    if kh != vh || kl != vl {
        return fail(format!("keys and values differ in number: shapes {}", shapes()));
    }
    if (kh == 0 && qh > 0) || (kh > 0 && !qh.is_multiple_of(kh)) {
        return fail(format!("query heads are no multiple of key heads: shapes {}", shapes()));
    }
    if !dtype.is(Category::Floating) {
        let what = "takes floating-point numbers, and was given arrays".into();
        return Err(Error::Type { op: NAME.into(), what, dtype });
    }
    Ok(())
}

impl Attention {
    /// `vmap` with batched sinks: the new axis joins the heads.
    fn vmap_heads(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let joined = |at: usize| {
            let full = rule.full(at)?;
            if full.ndim() == 2 {
                return full.reshape(&[-1]);
            }
            let mut shape: SmallVec<[isize; 6]> =
                full.shape()[1..].iter().map(|axis| *axis as isize).collect();
            shape[1] *= rule.size as isize;
            full.moveaxis(0, 1)?.reshape(&shape)
        };
        let inputs = (0..rule.inputs.len()).map(joined).collect::<Result<_>>()?;
        let mut shape = rule.output.0.shape.clone();
        shape[1] *= rule.size;
        let out = Array::lazy(shape, rule.output.dtype(), rule.op.clone(), inputs)?;
        let mut apart: SmallVec<[isize; 6]> = rule.output.shape().iter().map(|axis| *axis as isize).collect();
        apart.insert(1, rule.size as isize);
        Ok((out.reshape(&apart)?, 1))
    }

    /// The cotangents of queries, keys and values as one op.
    fn gradient(&self, inputs: &[Array], cotangent: &Array) -> Result<Vec<Array>> {
        let turned = |x: &Array| -> (Shape, Dtype) {
            let [batch, heads, length, width] = four(x);
            (smallvec![batch, length, heads, width], x.dtype())
        };
        let parts = Parts::new(inputs[..3].iter().map(turned).collect())?;
        let op = AttentionGradient { scale: self.scale, causal: self.causal, mask: self.mask, parts };
        op.apply(inputs.iter().cloned().chain([cotangent.clone()]).collect())
    }

    /// The same as a graph of other ops, with the matrix of scores.
    fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
        let ([batch, heads, queries, width], [_, shared, keys, _]) = (four(q), four(k));
        let each = heads / shared;
        let split =
            |last: usize| [batch as isize, shared as isize, each as isize, queries as isize, last as isize];
        let scaled = q.multiply(self.scale.0)?.reshape(&split(width))?;
        let turned = k.expand_dims(2)?.swapaxes(-1, -2)?;
        let mut scores = scaled.matmul(&turned)?;
        // Finite in the type of the scores: a query that sees no key weighs all of them equally.
        let lowest = match scores.dtype() {
            Dtype::Float16 => -65504.0,
            Dtype::Bfloat16 => -3.0e38,
            _ => f64::from(f32::MIN),
        };
        let low = Array::scalar(lowest, scores.dtype())?;
        if self.causal {
            let first = keys as i64 - queries as i64;
            let rows = Array::arange(first..keys as i64, Some(Dtype::Int64))?.reshape(&[-1, 1])?;
            let columns = Array::arange(keys as i64, Some(Dtype::Int64))?.reshape(&[1, -1])?;
            scores = select(&rows.greater_equal(&columns)?, &scores, &low)?;
        }
        if self.mask {
            let mask = inputs[3].reshape(&split(keys))?;
            scores = if mask.dtype() == Dtype::Bool {
                select(&mask, &scores, &low)?
            } else {
                scores.add(&mask)?
            };
        }
        let weights = if self.sinks {
            let sinks = inputs[inputs.len() - 1].reshape(&[1, shared as isize, each as isize, 1, 1])?;
            let mut shape: Shape = scores.shape().into();
            shape[4] = 1;
            let all = crate::concatenate(&[sinks.broadcast_to(&shape)?, scores], -1)?;
            all.softmax(-1)?.slice_axis(4, 1, keys as isize + 1, 1)?
        } else {
            scores.softmax(-1)?
        };
        let out = weights.matmul(&v.expand_dims(2)?)?;
        out.reshape(&[batch as isize, heads as isize, queries as isize, v.shape()[3] as isize])
    }
}

/// The derivative of attention without sinks. Inputs: queries, keys, values, the mask if there is one, the
/// cotangent of the result. Gives the cotangents of queries, keys and values in one buffer, with the heads of
/// a row side by side.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AttentionGradient {
    /// The factor of the scores.
    pub scale: BitEq<f32>,
    /// Whether a query sees no key after it.
    pub causal: bool,
    /// Whether there is a mask.
    pub mask: bool,
    /// Where the cotangents lie: batch, rows, heads, features.
    pub parts: Parts,
}

const GRADIENT: &str = "attention_gradient";

impl AttentionGradient {
    /// The cotangents, with heads before rows.
    fn apply(self, inputs: SmallVec<[Array; 3]>) -> Result<Vec<Array>> {
        let parts = self.parts.clone();
        let outputs = parts.arrays(OpRef::new(self), inputs)?;
        outputs.iter().map(|output| output.swapaxes(1, 2)).collect()
    }

    /// The cotangents as a graph of other ops, with the matrix of scores: batch, rows, heads, features.
    fn through_scores(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let attention = Attention { scale: self.scale, causal: self.causal, mask: self.mask, sinks: false };
        let [given @ .., cotangent] = inputs else { return Err(Error::value(GRADIENT, "no inputs")) };
        let (heads, mask) = given.split_at(3);
        let forward = |heads: &[Array]| Ok(vec![attention.composed(&[heads, mask].concat())?]);
        let found = Backward::pullback(forward, heads, std::slice::from_ref(cotangent))?;
        found.iter().map(|one| one.swapaxes(1, 2)).collect()
    }

    /// The op as a graph of other ops, for devices without a kernel.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        self.parts.packed(&self.through_scores(inputs)?)
    }
}

impl Op for AttentionGradient {
    fn name(&self) -> &'static str {
        GRADIENT
    }

    fn export(&self) -> Export {
        let record = Record::new(GRADIENT).with("scale", self.scale.0).with("causal", self.causal);
        let record = record.with("mask", self.mask);
        if self.mask { record.stretching(3).into() } else { record.into() }
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through_parts(|inputs| self.through_scores(inputs), &self.parts.outputs)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.size == 0 {
            return rule.one_by_one();
        }
        // The new axis joins the batch.
        let joined = |at: usize| {
            let full = rule.full(at)?;
            let mut shape = signed(&full.shape()[1..]);
            shape[0] *= rule.size as isize;
            full.reshape(&shape)
        };
        let inputs = (0..rule.inputs.len()).map(joined).collect::<Result<_>>()?;
        let mut outputs = self.parts.outputs.clone();
        outputs.iter_mut().for_each(|(shape, _)| shape[0] *= rule.size);
        let (scale, causal, mask) = (self.scale, self.causal, self.mask);
        let parts = Parts::new(outputs)?;
        let op = OpRef::new(AttentionGradient { scale, causal, mask, parts: parts.clone() });
        let apart =
            parts.arrays(op, inputs)?.into_iter().zip(&self.parts.outputs).map(|(array, (shape, _))| {
                let whole: Shape = std::iter::once(rule.size).chain(shape.iter().copied()).collect();
                array.reshape(&whole)
            });
        together(rule, apart.collect::<Result<Vec<Array>>>()?)
    }
}

reader!("attention", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let (causal, masked, sinks) = (replay.flag("causal")?, replay.flag("mask")?, replay.flag("sinks")?);
    let [q, k, v, others @ ..] = replay.inputs else { return Err(replay.wrong("too few inputs")) };
    if others.len() != usize::from(masked) + usize::from(sinks) || causal && masked {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    let mask = match others.first().filter(|_| masked) {
        Some(mask) => AttentionMask::Array(mask),
        None if causal => AttentionMask::Causal,
        None => AttentionMask::None,
    };
    let sinks = others.last().filter(|_| sinks);
    scaled_dot_product_attention(q, k, v, replay.float("scale")? as f32, mask, sinks)
}

reader!("attention_gradient", Several(read_gradient));
fn read_gradient(replay: &Replay<'_>) -> Result<Vec<Array>> {
    let (causal, mask) = (replay.flag("causal")?, replay.flag("mask")?);
    let wrong = || replay.wrong("inputs that do not fit its attributes");
    let [heads @ .., cotangent] = replay.inputs else { return Err(wrong()) };
    if heads.len() != 3 + usize::from(mask) || causal && mask {
        return Err(wrong());
    }
    let (q, k, v) = (&heads[0], &heads[1], &heads[2]);
    let dtype = q.dtype();
    check(q, k, v, dtype)?;
    let [batch, count, queries, _] = four(q);
    let fits = cotangent.shape() == [batch, count, queries, v.shape()[3]];
    let fits = fits && [k, v, cotangent].iter().all(|array| array.dtype() == dtype);
    let scores = [batch, count, queries, k.shape()[2]];
    let masked = heads
        .get(3)
        .is_none_or(|mask| mask.shape() == scores && (mask.dtype() == Dtype::Bool || mask.dtype() == dtype));
    if !fits || !masked || dtype == Dtype::Float64 || scores.contains(&0) {
        return Err(wrong());
    }
    let op = Attention { scale: BitEq(replay.float("scale")? as f32), causal, mask, sinks: false };
    op.gradient(heads, cotangent)?.iter().map(|one| one.swapaxes(1, 2)).collect()
}
