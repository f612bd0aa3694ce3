//! Ops on whole rows: softmax, norms, log-sum-exp, cross entropy. Each reads its row once from memory and
//! writes its result once.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::norm_gradient::NormGradient;
use super::{Op, OpRef, PatternOp};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::logic::select;
use crate::ops::readers::reader;
use crate::{Axes, Dtype};

/// Elements of a row above which a few rows are computed by reductions, which share a row among cores.
const LONG_ROW: usize = 1 << 18;

/// An op of each row of the last axis. A weight and a bias are further inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum RowOp {
    Softmax,
    LogSumExp,
    RmsNorm { eps: BitEq<f64>, weight: bool },
    LayerNorm { eps: BitEq<f64>, weight: bool, bias: bool },
}

impl RowOp {
    /// Whether a weight and a bias follow the rows as inputs.
    pub fn vectors(self) -> (bool, bool) {
        match self {
            RowOp::RmsNorm { weight, .. } => (weight, false),
            RowOp::LayerNorm { weight, bias, .. } => (weight, bias),
            _ => (false, false),
        }
    }

    /// Cotangents of the rows of a norm, its weight and its bias.
    fn norm_vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, (weight, _)) = (&rule.inputs[0], self.vectors());
        let vectors = rule.wanted[1..].contains(&true);
        let op = NormGradient::new(*self, vectors, x.shape(), x.dtype())?;
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs[..1 + usize::from(weight)].into();
        inputs.push(rule.cotangent()?.astype(x.dtype())?);
        let found = if NormGradient::takes(x) { op.apply(inputs)? } else { op.through_means(&inputs, 0)? };
        rule.each(|at| Ok(found.get(at).cloned()))
    }
}

impl Op for RowOp {
    fn name(&self) -> &'static str {
        match self {
            RowOp::Softmax => "softmax",
            RowOp::LogSumExp => "logsumexp",
            RowOp::RmsNorm { .. } => "rms_norm",
            RowOp::LayerNorm { .. } => "layer_norm",
        }
    }

    fn pattern(&self) -> PatternOp {
        match self {
            RowOp::RmsNorm { weight: true, .. } => PatternOp::Norm,
            _ => PatternOp::None,
        }
    }

    fn export(&self) -> Export {
        let record = Record::new(self.name());
        match *self {
            RowOp::Softmax | RowOp::LogSumExp => record.into(),
            RowOp::RmsNorm { eps, weight } => record.with("eps", eps.0).with("weight", weight).into(),
            RowOp::LayerNorm { eps, weight, bias } => {
                record.with("eps", eps.0).with("weight", weight).with("bias", bias).into()
            }
        }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (dtype, last) = (rule.inputs[0].dtype(), Some(&[-1isize][..]));
        let wide = if dtype.size() < 4 { Dtype::Float32 } else { dtype };
        let x = rule.inputs[0].astype(wide)?;
        let (out, cotangent) = (rule.output.astype(wide)?, rule.cotangent()?.astype(wide)?);
        match *self {
            RowOp::Softmax => {
                let along = cotangent.multiply(&out)?.sum(Axes::from(last).keepdims())?;
                rule.only(cotangent.subtract(along)?.multiply(&out))
            }
            RowOp::LogSumExp => {
                let share = x.subtract(out.expand_dims(-1)?)?.exp()?;
                rule.only(share.multiply(cotangent.expand_dims(-1)?))
            }
            RowOp::RmsNorm { .. } | RowOp::LayerNorm { .. } => self.norm_vjp(rule),
        }
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if (1..rule.inputs.len()).any(|at| rule.is_batched(at)) {
            return rule.one_by_one();
        }
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
        inputs[0] = rule.front(0)?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The error for other types than floats.
pub fn not_floats(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floating-point numbers, and was given an array".into(), dtype }
}

/// Refuses axes of an array that has none.
pub(crate) fn not_of_scalar(op: &str, over: &Axes, x: &Array) -> Result<()> {
    match over.named() {
        Some(over @ [_, ..]) if x.ndim() == 0 => {
            Err(Error::shape(op, format!("axes {over:?} of an array without axes")).with_shapes([x]))
        }
        _ => Ok(()),
    }
}

impl Array {
    /// The exponentials over [axes](Axes), `()` for all, divided by their sum. Half precision is computed in
    /// single precision.
    ///
    /// ```
    /// use hesper::Array;
    /// let p = Array::from_slice(&[0.0f32, 0.0]).softmax(())?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn softmax(&self, over: impl Into<Axes>) -> Result<Array> {
        let over = over.into();
        not_of_scalar("softmax", &over, self)?;
        let over = over.resolve("softmax", self.ndim())?;
        if self.size() == 0 {
            return Ok(self.clone());
        }
        // As in MLX, a softmax of single integers keeps their type.
        if over.is_empty() && !self.dtype().is(Category::Inexact) {
            return self.ones_like();
        }
        let input = self.astype(self.dtype().to_inexact())?;
        let length: usize = over.iter().map(|at| self.shape()[*at]).product();
        let last = over.iter().rev().enumerate().all(|(back, at)| at + back + 1 == self.ndim());
        // A few long rows are shared among cores by reductions, many rows one by one.
        let long = length > LONG_ROW && self.size() / length < 16;
        if last && !over.is_empty() && !long && input.dtype().is(Category::Floating) {
            let rows = input.rows_over(&over)?;
            let op = OpRef::Static(&RowOp::Softmax);
            let result = Array::lazy(rows.0.shape.clone(), input.dtype(), op, smallvec![rows])?;
            return if result.ndim() == self.ndim() { Ok(result) } else { result.reshape_like(self) };
        }
        if let Some(turned) = input.turned_to_columns(&over)? {
            let op = OpRef::Static(&RowOp::Softmax);
            let result = Array::lazy(turned.0.shape.clone(), input.dtype(), op, smallvec![turned])?;
            return result.moveaxis(-1, over[0] as isize);
        }
        let over = Axes::from(&over[..]).keepdims();
        let wide = if input.dtype().size() < 4 { Dtype::Float32 } else { input.dtype() };
        let x = input.astype(wide)?;
        let powers = x.subtract(&x.max(over.clone())?)?.exp()?;
        powers.divide(&powers.sum(over)?)?.astype(input.dtype())
    }

    /// The logarithm of the softmax over [axes](Axes), `()` for all.
    ///
    /// ```
    /// use hesper::array;
    /// let logits = array![[0.0, 0.0], [1000.0, 0.0]];
    /// let chances = logits.log_softmax(-1)?;
    /// assert_eq!(chances.exp()?.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn log_softmax(&self, over: impl Into<Axes>) -> Result<Array> {
        let input = self.astype(self.dtype().to_inexact())?;
        if self.size() == 0 {
            return Ok(input);
        }
        input.subtract(&input.logsumexp(over.into().keepdims())?)
    }

    /// A view whose last axis is the one to go along, where that is worth it: rows of the view are columns
    /// side by side, enough of them to fill vectors.
    pub(crate) fn turned_to_columns(&self, over: &[usize]) -> Result<Option<Array>> {
        let &[at] = over else { return Ok(None) };
        let inner: usize = self.shape()[at + 1..].iter().product();
        let singles = matches!(self.dtype(), Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
        if !singles || inner < 8 || !(2..=1 << 15).contains(&self.shape()[at]) {
            return Ok(None);
        }
        self.moveaxis(at as isize, -1).map(Some)
    }

    /// For each row the logarithm of its sum of exponentials.
    pub(crate) fn logsumexp_rows(&self) -> Result<Array> {
        let shape = self.shape()[..self.ndim() - 1].into();
        Array::lazy(shape, self.dtype(), OpRef::Static(&RowOp::LogSumExp), smallvec![self.clone()])
    }
}

/// A weight or bias must be a vector as long as the last axis.
fn check_vector(op: &str, what: &str, x: &Array, vector: &Array) -> Result<()> {
    let length = x.shape().last().copied().unwrap_or(0);
    if vector.shape() != [length] {
        let what = format!("a {what} of shape {:?} for an array of shape {:?}", vector.shape(), x.shape());
        return Err(Error::shape(op, what).with_shapes([x, vector]));
    }
    Ok(())
}

fn check_rows(op: &str, x: &Array, dtype: Dtype) -> Result<()> {
    if x.ndim() == 0 {
        return Err(Error::shape(op, "a number has no last axis: the array's shape is []").with_shapes([x]));
    }
    if dtype.is(Category::Floating) { Ok(()) } else { Err(not_floats(op, dtype)) }
}

/// Each row divided by the root of the mean of its squares, times a weight.
///
/// ```
/// use hesper::{Array, fast};
/// let x = Array::from_slice(&[3.0f32, 3.0]);
/// assert_eq!(fast::rms_norm(&x, None, 0.0)?.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array> {
    let dtype = weight.map_or(x.dtype(), |weight| x.dtype().promote(weight.dtype()));
    check_rows("rms_norm", x, dtype)?;
    let mut inputs = smallvec![x.astype(dtype)?];
    if let Some(weight) = weight {
        check_vector("rms_norm", "weight", x, weight)?;
        inputs.push(weight.astype(dtype)?);
    }
    let op = RowOp::RmsNorm { eps: BitEq(f64::from(eps)), weight: weight.is_some() };
    Array::lazy(x.0.shape.clone(), dtype, OpRef::new(op), inputs)
}

/// Each row less its mean, divided by its standard deviation, times a weight, plus a bias.
///
/// ```
/// use hesper::{array, fast};
/// let x = array![[1.0, 3.0], [10.0, 30.0]];
/// assert_eq!(fast::layer_norm(&x, None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, eps: f32) -> Result<Array> {
    let vectors = [("weight", weight), ("bias", bias)];
    let given = || vectors.iter().filter_map(|(what, vector)| vector.map(|vector| (*what, vector)));
    let dtype = given().fold(x.dtype(), |dtype, (_, vector)| dtype.promote(vector.dtype()));
    check_rows("layer_norm", x, dtype)?;
    let mut inputs = smallvec![x.astype(dtype)?];
    for (what, vector) in given() {
        check_vector("layer_norm", what, x, vector)?;
        inputs.push(vector.astype(dtype)?);
    }
    let op = RowOp::LayerNorm { eps: BitEq(f64::from(eps)), weight: weight.is_some(), bias: bias.is_some() };
    let rows = Array::lazy(x.0.shape.clone(), dtype, OpRef::new(op), inputs)?;
    // As in MLX, a bias without a weight leaves the type as it is.
    if weight.is_none() { rows.astype(x.dtype()) } else { Ok(rows) }
}

/// For each row of logits the logarithm of its sum of exponentials, less the logit of its target.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropy;

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn export(&self) -> Export {
        Record::new("cross_entropy").into()
    }

    fn indices(&self) -> Range<usize> {
        1..2
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let [logits, targets] = rule.inputs else {
            return Err(Error::value(self.name(), "two inputs expected"));
        };
        let inputs = smallvec![logits.clone(), targets.clone(), rule.cotangent()?];
        let op = OpRef::Static(&CrossEntropyGradient);
        rule.only(Array::lazy(logits.0.shape.clone(), logits.dtype(), op, inputs))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.full(0)?, rule.full(1)?])
    }
}

/// The derivative of the cross entropy by the logits. Inputs: logits, targets, the cotangent of the losses.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CrossEntropyGradient;

impl CrossEntropyGradient {
    /// The op as a graph of other ops: element-wise behind one reduction.
    pub fn composed(inputs: &[Array]) -> Result<Array> {
        let [logits, targets, cotangent] = inputs else {
            return Err(Error::value("cross_entropy_gradient", "three inputs expected"));
        };
        let wide = logits.astype(Dtype::Float32)?;
        let classes = wide.shape()[wide.ndim() - 1] as i64;
        let shares = wide.subtract(wide.logsumexp(Axes::from(-1).keepdims())?)?.exp()?;
        let targets = targets.expand_dims(-1)?;
        let targets = select(&targets.less(0)?, &targets.add(classes)?, &targets)?;
        let is_target =
            Array::arange(classes, Some(Dtype::Int64))?.equal(&targets)?.astype(Dtype::Float32)?;
        let scaled = shares.subtract(is_target)?.multiply(cotangent.expand_dims(-1)?)?;
        scaled.astype(logits.dtype())
    }
}

impl Op for CrossEntropyGradient {
    fn name(&self) -> &'static str {
        "cross_entropy_gradient"
    }

    fn export(&self) -> Export {
        Record::new("cross_entropy_gradient").into()
    }

    fn indices(&self) -> Range<usize> {
        1..2
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(Self::composed)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.full(0)?, rule.full(1)?, rule.full(2)?])
    }
}

/// The cross entropy of logits along the last axis with class indices as targets, as float32. Negative
/// targets count from the back; the loss of a target that names no class is NaN.
///
/// ```
/// use hesper::{array, fast};
/// let logits = array![[0.0, 0.0], [0.0, 100.0]];
/// let loss = fast::cross_entropy(&logits, &array![0, 1])?;
/// assert_eq!(loss.to_string(), "array([0.693147, 0], dtype=float32)");
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn cross_entropy(logits: &Array, targets: &Array) -> Result<Array> {
    check_rows("cross_entropy", logits, logits.dtype())?;
    if !targets.dtype().is(Category::Integer) {
        let what = "targets are class indices, and not an array".into();
        return Err(Error::Type { op: "cross_entropy".into(), what, dtype: targets.dtype() });
    }
    if targets.shape() != &logits.shape()[..logits.ndim() - 1] || logits.size() == 0 {
        let what = format!("targets of shape {:?} for logits of shape {:?}", targets.shape(), logits.shape());
        return Err(Error::shape("cross_entropy", what).with_shapes([logits, targets]));
    }
    let inputs = smallvec![logits.clone(), targets.astype(Dtype::Int64)?];
    Array::lazy(targets.0.shape.clone(), Dtype::Float32, OpRef::Static(&CrossEntropy), inputs)
}

/// RowOp that are not empty.
fn rows_of<'a>(replay: &Replay<'a>) -> Result<&'a Array> {
    let [x] = replay.inputs()?;
    check_rows(replay.op, x, x.dtype())?;
    if x.size() == 0 {
        return Err(replay.wrong("an input without elements"));
    }
    Ok(x)
}

reader!("softmax", One(read_softmax));
fn read_softmax(replay: &Replay<'_>) -> Result<Array> {
    let x = rows_of(replay)?;
    Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::Static(&RowOp::Softmax), smallvec![x.clone()])
}

reader!("logsumexp", One(read_logsumexp));
fn read_logsumexp(replay: &Replay<'_>) -> Result<Array> {
    rows_of(replay)?.logsumexp_rows()
}

reader!("rms_norm", One(read_rms_norm));
fn read_rms_norm(replay: &Replay<'_>) -> Result<Array> {
    let weight = replay.flag("weight")?;
    let [x, others @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    if others.len() != usize::from(weight) {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    rms_norm(x, others.first(), replay.float("eps")? as f32)
}

reader!("layer_norm", One(read_layer_norm));
fn read_layer_norm(replay: &Replay<'_>) -> Result<Array> {
    let (weight, bias) = (replay.flag("weight")?, replay.flag("bias")?);
    let [x, others @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    if others.len() != usize::from(weight) + usize::from(bias) {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    let (weight, bias) = (others.first().filter(|_| weight), others.last().filter(|_| bias));
    layer_norm(x, weight, bias, replay.float("eps")? as f32)
}

reader!("cross_entropy", One(read_cross_entropy));
fn read_cross_entropy(replay: &Replay<'_>) -> Result<Array> {
    let [logits, targets] = replay.inputs()?;
    cross_entropy(logits, targets)
}

reader!("cross_entropy_gradient", One(read_cross_entropy_gradient));
fn read_cross_entropy_gradient(replay: &Replay<'_>) -> Result<Array> {
    let [logits, targets, cotangent] = replay.inputs()?;
    let rows = logits.shape().split_last().map(|(_, rows)| rows);
    let fits = rows == Some(targets.shape())
        && rows == Some(cotangent.shape())
        && logits.size() > 0
        && logits.dtype().is(Category::Floating)
        && targets.dtype() == Dtype::Int64
        && cotangent.dtype() == Dtype::Float32;
    if !fits {
        return Err(replay.wrong("inputs that do not fit each other"));
    }
    let inputs = smallvec![logits.clone(), targets.clone(), cotangent.clone()];
    Array::lazy(logits.0.shape.clone(), logits.dtype(), OpRef::Static(&CrossEntropyGradient), inputs)
}
