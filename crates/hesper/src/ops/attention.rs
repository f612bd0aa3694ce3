//! Attention over heads. Keys and values are read where they lie: a slice of a longer cache is not copied,
//! and heads that queries share are not repeated. The matrix of scores is never built.

use half::{bf16, f16};
use hesper_compute::{AttentionShape, HeadSlice, MaskSlice, attention_slices};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::float::{Float, Wide};
use super::walk::Strided;
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, Strides};
use crate::transform::rule::{Backward, Batch, Cotangents};
use crate::{Dtype, select};

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, Default)]
pub enum AttentionMask<'a> {
    /// All.
    #[default]
    None,
    /// Those not after it; the last query stands beside the last key.
    Causal,
    /// Those that bools mark, or all, with numbers added to the scores. Broadcasts to batch, query heads,
    /// queries and keys.
    Array(&'a Array),
}

impl<'a> From<&'a Array> for AttentionMask<'a> {
    fn from(mask: &'a Array) -> Self {
        AttentionMask::Array(mask)
    }
}

const NAME: &str = "scaled_dot_product_attention";

/// Inputs: queries, keys, values, the mask if there is one, the sinks if there are any.
#[derive(Debug)]
struct Attention {
    scale: f32,
    causal: bool,
    mask: bool,
    sinks: bool,
}

impl Attention {
    fn run<T: Float + hesper_compute::Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (q, k, v) = (l.input_shape(0), l.input_shape(1), l.input_shape(2));
        let shape = AttentionShape {
            batch: q[0],
            q_heads: q[1],
            kv_heads: k[1],
            q_len: q[2],
            kv_len: k[2],
            head_dim: q[3],
            value_dim: v[3],
        };
        let (scale, causal, masked, sinks) = (self.scale, self.causal, self.mask, self.sinks);
        let mut bound: SmallVec<[Strided; 5]> = SmallVec::new();
        for at in 0..3 {
            let rows = l.input_shape(at)[3] == 1 || l.input(at).strides[3] == 1;
            bound.push(if rows { Strided::input(l, at) } else { Strided::row_major(l, at)? });
        }
        if masked {
            bound.push(Strided::input(l, 3));
        }
        if sinks {
            bound.push(Strided::row_major(l, 3 + usize::from(masked))?);
        }
        let marks = masked && l.input_dtype(3) == Dtype::Bool;
        let output = l.output()?;
        let buffers: SmallVec<[_; 5]> = bound.iter().map(|one| one.data.buffer.clone()).collect();
        let mut command = l.stream().command(NAME);
        for (buffer, one) in buffers.iter().zip(&bound) {
            command = command.read_range(buffer, one.bytes.clone());
        }
        command.write(&output).run(move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let heads = |at: usize| -> std::result::Result<HeadSlice<'_, T>, hesper_runtime::NativeError> {
                let (one, strides) = (&bound[at], bound[at].strides());
                Ok(HeadSlice {
                    data: inputs[at].as_slice::<T>()?,
                    first: one.offset as usize,
                    strides: [strides[0], strides[1], strides[2]],
                })
            };
            let mask = if masked {
                let first = bound[3].offset as usize;
                let strides = std::array::from_fn(|axis| bound[3].strides()[axis]);
                if marks {
                    MaskSlice::Marked { data: inputs[3].as_slice()?, first, strides }
                } else {
                    MaskSlice::Added { data: inputs[3].as_slice()?, first, strides }
                }
            } else if causal {
                MaskSlice::Causal
            } else {
                MaskSlice::All
            };
            let scores: Option<Vec<f32>> = if sinks {
                let all = inputs[inputs.len() - 1].as_slice::<T>()?;
                let mut wide = vec![<T as Float>::Wide::of(0.0); all.len()];
                <T as Float>::load(all, &mut wide);
                Some(wide.into_iter().map(Wide::single).collect())
            } else {
                None
            };
            let to = out.as_mut_slice::<T>()?;
            let (q, k, v) = (heads(0)?, heads(1)?, heads(2)?);
            attention_slices(&Cores, shape, q, k, v, to, scale, mask, scores.as_deref())
                .map_err(|error| error.to_string().into())
        })?;
        // The heads of a query lie together: putting the axes back in that order costs nothing.
        let (row, across) = (v[3] as isize, (v[3] * q[1]) as isize);
        let strides: Strides = smallvec![across * q[2] as isize, row, across, 1];
        Ok(Data { buffer: output, offset: 0, strides })
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn export(&self) -> Export {
        let record = Record::new("attention").with("scale", self.scale).with("causal", self.causal);
        let record = record.with("mask", self.mask).with("sinks", self.sinks);
        if self.mask { record.stretching(3).into() } else { record.into() }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            _ => self.run::<f32>(l),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let Attention { scale, causal, mask, sinks } = *self;
        crate::gpu::attention::Attention { scale, causal, mask, sinks }.lower(l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        // Marks have no derivative; everything else is varied.
        rule.through(|inputs| self.composed(inputs))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let sinks = self.sinks.then(|| rule.inputs.len() - 1);
        if rule.output.size() == 0 || rule.size == 0 {
            return rule.one_by_one();
        }
        if sinks.is_some_and(|at| rule.is_batched(at)) {
            return self.over_heads(rule);
        }
        // The new axis and the batch are one batch.
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
/// query head that has no value. A query that may see no key weighs all of them alike.
///
/// ```
/// use hesper::{Array, fast};
/// use hesper::fast::AttentionMask;
/// let x = Array::try_from_slice(&[0.0f32, 2.0], &[1, 1, 2, 1])?;
/// let y = fast::scaled_dot_product_attention(&x, &x, &x, 0.0, AttentionMask::None, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0]);
/// let y = fast::scaled_dot_product_attention(&x, &x, &x, 0.0, AttentionMask::Causal, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: AttentionMask<'_>,
    sinks: Option<&Array>,
) -> Result<Array> {
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
            return Err(Error::shape(NAME, what));
        }
        promotes("a mask", mask)?;
        let mask = if mask.dtype() == Dtype::Bool { mask.clone() } else { mask.astype(dtype)? };
        inputs.push(mask.broadcast_to(&scores)?);
        masked = true;
    }
    if let Some(sinks) = sinks {
        if sinks.shape() != [heads] {
            let what = format!("sinks of shape {:?} for {heads} query heads", sinks.shape());
            return Err(Error::shape(NAME, what));
        }
        promotes("sinks", sinks)?;
        inputs.push(sinks.astype(dtype)?);
    }
    if shape.contains(&0) || k.shape()[2] == 0 {
        return Array::zeros(&shape, dtype);
    }
    let op = Attention { scale, causal, mask: masked, sinks: sinks.is_some() };
    if dtype == Dtype::Float64 {
        return op.composed(&inputs);
    }
    Array::lazy(shape, dtype, OpRef::new(op), inputs)
}

fn four(array: &Array) -> [usize; 4] {
    std::array::from_fn(|axis| array.shape()[axis])
}

fn check(q: &Array, k: &Array, v: &Array, dtype: Dtype) -> Result<()> {
    let fail = |what: String| Err(Error::shape(NAME, what));
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
    /// Over one axis more that the sinks have too: the new axis and the heads are one axis of heads.
    fn over_heads(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
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

    /// The same from other ops, scores and all.
    fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
        let ([batch, heads, queries, width], [_, shared, keys, _]) = (four(q), four(k));
        let each = heads / shared;
        let split =
            |last: usize| [batch as isize, shared as isize, each as isize, queries as isize, last as isize];
        let scaled = q.multiply(self.scale)?.reshape(&split(width))?;
        let turned = k.expand_dims(&[2])?.swapaxes(-1, -2)?;
        let mut scores = scaled.matmul(&turned)?;
        let low = Array::scalar(f64::from(f32::MIN), scores.dtype())?;
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
            all.softmax(Some(&[-1]), true)?.slice_axis(4, 1, keys as isize + 1, 1)?
        } else {
            scores.softmax(Some(&[-1]), true)?
        };
        let out = weights.matmul(&v.expand_dims(&[2])?)?;
        out.reshape(&[batch as isize, heads as isize, queries as isize, v.shape()[3] as isize])
    }
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
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
