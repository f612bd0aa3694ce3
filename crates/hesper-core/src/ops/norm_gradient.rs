//! The derivative of norms of rows as one op: rows and cotangent are read once, nothing of their size is
//! stored but the result.

use smallvec::SmallVec;

use super::multi::{Parts, together};
use super::norm::RowOp;
use super::{Op, OpRef};
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::shape::Shape;
use crate::{Axes, Dtype};

const NAME: &str = "norm_gradient";

/// The derivative of an RMS norm or a layer norm. Inputs: rows, the weight if the norm has one, the cotangent
/// of the result, all of one type. Gives the cotangents of the rows, and with `vectors` those of weight and
/// bias.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct NormGradient {
    /// The norm.
    pub norm: RowOp,
    /// Whether the cotangents of weight and bias are needed.
    pub vectors: bool,
    /// Where the cotangents lie.
    pub parts: Parts,
}

impl NormGradient {
    /// The derivative for rows of a shape and type.
    pub(crate) fn new(norm: RowOp, vectors: bool, shape: &[usize], dtype: Dtype) -> Result<Self> {
        let (weight, bias) = norm.vectors();
        let count = if vectors { usize::from(weight) + usize::from(bias) } else { 0 };
        let vector: Shape = shape[shape.len() - 1..].into();
        let outputs = std::iter::once(shape.into()).chain(std::iter::repeat_n(vector, count));
        let parts = Parts::new(outputs.map(|shape| (shape, dtype)).collect())?;
        Ok(NormGradient { norm, vectors: count > 0, parts })
    }

    /// Whether there are rows of a type to compute it for.
    pub(crate) fn takes(x: &Array) -> bool {
        matches!(x.dtype(), Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32) && x.size() > 0
    }

    /// The lazy cotangents.
    pub(crate) fn apply(self, inputs: SmallVec<[Array; 3]>) -> Result<Vec<Array>> {
        let parts = self.parts.clone();
        parts.arrays(OpRef::new(self), inputs)
    }

    /// The cotangents as a graph of other ops. The first `kept` axes belong to a batch: weight and bias have
    /// cotangents for each of its elements.
    pub(crate) fn through_means(&self, inputs: &[Array], kept: usize) -> Result<Vec<Array>> {
        let [x, weight @ .., cotangent] = inputs else { return Err(Error::value(NAME, "no inputs")) };
        let dtype = x.dtype();
        let wide = if dtype.size() < 4 { Dtype::Float32 } else { dtype };
        let (x, cotangent) = (x.astype(wide)?, cotangent.astype(wide)?);
        let mean = |y: &Array| y.mean(Axes::from(-1).keepdims());
        let (x, eps) = match self.norm {
            RowOp::LayerNorm { eps, .. } => (x.subtract(mean(&x)?)?, eps.0),
            RowOp::RmsNorm { eps, .. } => (x, eps.0),
            _ => return Err(Error::value(NAME, "takes norms")),
        };
        let scale = mean(&x.square()?)?.add(eps)?.rsqrt()?;
        let normal = x.multiply(&scale)?;
        let g = match weight.first() {
            Some(weight) => cotangent.multiply(weight.astype(wide)?)?,
            None => cotangent.clone(),
        };
        let along = normal.multiply(mean(&g.multiply(&normal)?)?)?;
        let centred = match self.norm {
            RowOp::LayerNorm { .. } => g.subtract(mean(&g)?)?,
            _ => g,
        };
        let mut found = vec![centred.subtract(along)?.multiply(&scale)?];
        if self.vectors {
            let over: SmallVec<[isize; 6]> = (kept as isize..x.ndim() as isize - 1).collect();
            let sum = |y: Array| if over.is_empty() { Ok(y) } else { y.sum(&over) };
            let (weight, bias) = self.norm.vectors();
            if weight {
                found.push(sum(cotangent.multiply(&normal)?)?);
            }
            if bias {
                found.push(sum(cotangent)?);
            }
        }
        found.iter().map(|one| one.astype(dtype)).collect()
    }

    /// The op as a graph of other ops, for devices without a kernel.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        self.parts.packed(&self.through_means(inputs, 0)?)
    }
}

impl Op for NormGradient {
    fn name(&self) -> &'static str {
        NAME
    }

    fn export(&self) -> Export {
        let record = Record::new(NAME).with("vectors", self.vectors);
        let (weight, bias) = self.norm.vectors();
        let (centred, eps) = match self.norm {
            RowOp::LayerNorm { eps, .. } => (true, eps.0),
            RowOp::RmsNorm { eps, .. } => (false, eps.0),
            _ => return Export::Never,
        };
        record.with("centred", centred).with("eps", eps).with("weight", weight).with("bias", bias).into()
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through_parts(|inputs| self.through_means(inputs, 0), &self.parts.outputs)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let last = rule.inputs.len() - 1;
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
        (inputs[0], inputs[last]) = (rule.full(0)?, rule.full(last)?);
        let own_weights = last == 2 && rule.is_batched(1);
        if !self.vectors && !own_weights && rule.size > 0 {
            // The new axis is one of rows.
            let op = NormGradient::new(self.norm, false, inputs[0].shape(), inputs[0].dtype())?;
            return together(rule, op.apply(inputs)?);
        }
        if own_weights {
            let rows: SmallVec<[isize; 6]> = (1..inputs[0].ndim() as isize - 1).collect();
            inputs[1] = rule.front(1)?.expand_dims(&rows[..])?;
        }
        together(rule, self.through_means(&inputs, 1)?)
    }
}

reader!("norm_gradient", Several(read));
fn read(replay: &Replay<'_>) -> Result<Vec<Array>> {
    let (weight, bias) = (replay.flag("weight")?, replay.flag("bias")?);
    let (centred, vectors) = (replay.flag("centred")?, replay.flag("vectors")?);
    let eps = BitEq(replay.float("eps")?);
    let norm = match centred {
        true => RowOp::LayerNorm { eps, weight, bias },
        false => RowOp::RmsNorm { eps, weight },
    };
    let wrong = || replay.wrong("inputs that do not fit its attributes");
    let [x, weights @ .., cotangent] = replay.inputs else { return Err(wrong()) };
    let length = x.shape().last().copied();
    let fits = weights.len() == usize::from(weight)
        && (centred || !bias)
        && (weight || bias || !vectors)
        && x.shape() == cotangent.shape()
        && weights.iter().all(|weight| weight.ndim() == 1 && weight.shape().last().copied() == length)
        && replay.inputs.iter().all(|input| input.dtype() == x.dtype());
    if !fits || !NormGradient::takes(x) || length.is_none() {
        return Err(wrong());
    }
    NormGradient::new(norm, vectors, x.shape(), x.dtype())?.apply(replay.inputs.iter().cloned().collect())
}
