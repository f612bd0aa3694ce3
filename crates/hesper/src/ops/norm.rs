//! Rows as a whole: softmax, norms, sums of exponentials, cross entropy. Each reads its row once from
//! memory and writes its result once.

use half::{bf16, f16};
use hesper_compute::{Axis, Mismatch, Par, Plain, Room, Source};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::float::{self, Float, Wide};
use super::native::{GRAIN, par_chunks_mut, reach};
use super::reduce::axes_or_all;
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::eval::made::Feed;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose;
use crate::ops::command::Commands;
use crate::transform::rule::{Backward, Batch, Cotangents, unbroadcast};

/// What becomes of each row. Weights and biases are further inputs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rows {
    Softmax,
    LogSumExp,
    RmsNorm { eps: f64, weight: bool },
    LayerNorm { eps: f64, weight: bool, bias: bool },
}

impl Rows {
    /// Whether a weight and a bias follow.
    fn vectors(self) -> (bool, bool) {
        match self {
            Rows::RmsNorm { weight, .. } => (weight, false),
            Rows::LayerNorm { weight, bias, .. } => (weight, bias),
            _ => (false, false),
        }
    }

    /// Computes rows of up to single precision.
    fn single<T: hesper_compute::Float>(
        self,
        x: &dyn Source<T>,
        length: usize,
        weight: Option<&[T]>,
        bias: Option<&[T]>,
        out: &mut [T],
    ) -> std::result::Result<(), Mismatch> {
        match self {
            Rows::Softmax => hesper_compute::softmax(&Cores, x, length, out),
            Rows::LogSumExp => hesper_compute::logsumexp(&Cores, x, length, out),
            Rows::RmsNorm { eps, .. } => hesper_compute::rms_norm(&Cores, x, length, weight, eps as f32, out),
            Rows::LayerNorm { eps, .. } => {
                hesper_compute::layer_norm(&Cores, x, length, weight, bias, eps as f32, out)
            }
        }
    }

    /// Computes rows of double precision.
    fn double(self, x: &[f64], length: usize, weight: Option<&[f64]>, bias: Option<&[f64]>, out: &mut [f64]) {
        let kept = if self == Rows::LogSumExp { 1 } else { length };
        let grain = (GRAIN / length).max(1);
        par_chunks_mut(out, grain * kept, |task, piece| {
            let from = x[task * grain * length..].chunks_exact(length);
            for (to, from) in piece.chunks_exact_mut(kept).zip(from) {
                self.double_row(from, weight, bias, to);
            }
        });
    }

    fn double_row(self, row: &[f64], weight: Option<&[f64]>, bias: Option<&[f64]>, out: &mut [f64]) {
        let by = |out: &mut [f64], factor: f64| match weight {
            Some(weight) => out.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * factor * w),
            None => out.iter_mut().for_each(|x| *x *= factor),
        };
        let length = row.len() as f64;
        match self {
            Rows::Softmax => {
                out.copy_from_slice(row);
                let top = Wide::max(row);
                let sum = float::exp_and_sum(out, top);
                by(out, 1.0 / sum);
            }
            Rows::LogSumExp => out[0] = float::logsumexp(&mut row.to_vec()),
            Rows::RmsNorm { eps, .. } => {
                out.copy_from_slice(row);
                by(out, (squares(row) / length + eps).rsqrt());
            }
            Rows::LayerNorm { eps, .. } => {
                let mean = Wide::sum(row) / length;
                out.iter_mut().zip(row).for_each(|(to, x)| *to = x - mean);
                let factor = (squares(out) / length + eps).rsqrt();
                by(out, factor);
                if let Some(bias) = bias {
                    out.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
                }
            }
        }
    }

    /// Computes along the axis of columns that lie side by side.
    fn columns<T: hesper_compute::Float>(
        self,
        x: &[T],
        axis: Axis,
        out: &mut [T],
    ) -> std::result::Result<(), Mismatch> {
        match self {
            Rows::LogSumExp => hesper_compute::logsumexp_along(&Cores, x, axis, out),
            _ => hesper_compute::softmax_along(&Cores, x, axis, out),
        }
    }

    /// Of floats of up to single precision: rows that lie as columns are computed where they lie.
    fn run_single<T>(self, l: &mut Lowering<'_>) -> Result<Data>
    where
        T: crate::Element + Plain + hesper_compute::Float,
    {
        if let Some(made) = l.take_made() {
            return self.run(l, Feed::Made(made), Rows::single::<T>);
        }
        let axis = match self {
            Rows::Softmax | Rows::LogSumExp => columns_of(l.input(0), l.input_shape(0)),
            _ => None,
        };
        let Some(axis) = axis else {
            let rows = Feed::of::<T>(l)?;
            return self.run(l, rows, Rows::single::<T>);
        };
        let (input, output) = (l.input(0).clone(), l.output()?);
        let (bytes, _) = reach(&input, l.input_shape(0), T::DTYPE.size());
        let command = l.stream().command(self.name()).read_range(&input.buffer, bytes);
        command.write(&output).run(move |native| {
            let [x, out] = native.take()?;
            self.columns(x.as_slice::<T>()?, axis, out.as_mut_slice::<T>()?)
                .map_err(|error| error.to_string().into())
        })?;
        if self == Rows::LogSumExp {
            return Ok(Data::contiguous(output, l.shape()));
        }
        Ok(Data { buffer: output, offset: 0, strides: input.strides })
    }

    fn run<T: crate::Element + Plain>(
        self,
        l: &mut Lowering<'_>,
        rows: Feed,
        compute: Compute<T>,
    ) -> Result<Data> {
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let (weight, bias) = self.vectors();
        let output = l.output()?;
        let count = 1 + usize::from(weight) + usize::from(bias);
        let vectors = (1..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let mut command = rows.bind(l.stream().command(self.name()));
        for (data, at) in vectors.iter().zip(1..) {
            let (bytes, _) = reach(data, l.input_shape(at), T::DTYPE.size());
            command = command.read_range(&data.buffer, bytes);
        }
        let command = command.write(&output);
        let reader = rows.reader();
        command.run(move |native| {
            reader.with::<T>(native, |x, rest| {
                let Some((out, vectors)) = rest.split_last_mut() else { return Ok(()) };
                let mut vectors = vectors.iter().map(|view| view.as_slice::<T>());
                let weight = if weight { vectors.next().transpose()? } else { None };
                let bias = if bias { vectors.next().transpose()? } else { None };
                if x.count() == 0 {
                    return Ok(());
                }
                compute(self, x, length, weight, bias, out.as_mut_slice::<T>()?)
                    .map_err(|error| error.to_string().into())
            })
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// The axis that rows are along, where those of an array lie as columns side by side, without gaps.
fn columns_of(data: &Data, shape: &[usize]) -> Option<Axis> {
    let (len, kept) = shape.split_last()?;
    let (step, strides) = data.strides.split_last()?;
    if *step < 2 || *len < 2 {
        return None;
    }
    // From the innermost axis on: first those inside of the columns' axis, then those outside.
    let (mut next, mut inner) = (1usize, None);
    for (length, stride) in kept.iter().zip(strides).rev().filter(|(length, _)| **length != 1) {
        if inner.is_none() && next == *step as usize && *stride as usize != next {
            inner = Some(next);
            next *= len;
        }
        if usize::try_from(*stride).ok()? != next {
            return None;
        }
        next *= length;
    }
    if inner.is_none() && next == *step as usize {
        inner = Some(next);
        next *= len;
    }
    let inner = inner?;
    Some(Axis { outer: next / (len * inner), len: *len, inner })
}

/// Computes rows: what, elements, length of a row, weight, bias, results.
type Compute<T> = fn(
    Rows,
    &dyn Source<T>,
    usize,
    Option<&[T]>,
    Option<&[T]>,
    &mut [T],
) -> std::result::Result<(), Mismatch>;

/// The sum of squares.
fn squares(row: &[f64]) -> f64 {
    let mut squares = [0.0; 256];
    let mut total = 0.0;
    for block in row.chunks(256) {
        squares.iter_mut().zip(block).for_each(|(square, x)| *square = x * x);
        total += Wide::sum(&squares[..block.len()]);
    }
    total
}

impl Op for Rows {
    fn name(&self) -> &'static str {
        match self {
            Rows::Softmax => "softmax",
            Rows::LogSumExp => "logsumexp",
            Rows::RmsNorm { .. } => "rms_norm",
            Rows::LayerNorm { .. } => "layer_norm",
        }
    }

    fn export(&self) -> Export {
        let record = Record::new(self.name());
        match *self {
            Rows::Softmax | Rows::LogSumExp => record.into(),
            Rows::RmsNorm { eps, weight } => record.with("eps", eps).with("weight", weight).into(),
            Rows::LayerNorm { eps, weight, bias } => {
                record.with("eps", eps).with("weight", weight).with("bias", bias).into()
            }
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.input_dtype(0) {
            Dtype::Float16 => self.run_single::<f16>(l),
            Dtype::Bfloat16 => self.run_single::<bf16>(l),
            Dtype::Float32 => self.run_single::<f32>(l),
            Dtype::Float64 => {
                let rows = Feed::of::<f64>(l)?;
                self.run::<f64>(l, rows, |rows, x, length, weight, bias, out| {
                    rows.double(x.piece(0, x.count(), &mut Room::default()), length, weight, bias, out);
                    Ok(())
                })
            }
            dtype => Err(not_floats(self.name(), dtype)),
        }
    }

    /// Rows are shared out among the cores as a whole: a few long ones are better made by all of them first.
    fn takes_rows(&self, shape: &[usize], dtype: Dtype) -> bool {
        let Some((length, outer)) = shape.split_last() else { return false };
        let rows: usize = outer.iter().product();
        matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
            && (rows >= 2 * Cores.threads() || rows * length <= GRAIN)
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (weight, bias) = self.vectors();
        let (kind, eps) = match *self {
            Rows::Softmax => (0, 0.0),
            Rows::LogSumExp => (1, 0.0),
            Rows::RmsNorm { eps, .. } => (2, eps),
            Rows::LayerNorm { eps, .. } => (3, eps),
        };
        crate::gpu::rows::Rows { kind, eps, weight, bias }.lower(self.name(), l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (dtype, last) = (rule.inputs[0].dtype(), Some(&[-1isize][..]));
        let wide = if dtype.size() < 4 { Dtype::Float32 } else { dtype };
        let x = rule.inputs[0].astype(wide)?;
        let (out, cotangent) = (rule.output.astype(wide)?, rule.cotangent()?.astype(wide)?);
        let mean = |y: Array| y.mean(last, true);
        match *self {
            Rows::Softmax => {
                let along = cotangent.multiply(&out)?.sum(last, true)?;
                rule.only(cotangent.subtract(along)?.multiply(&out))
            }
            Rows::LogSumExp => {
                let share = x.subtract(out.expand_dims(&[-1])?)?.exp()?;
                rule.only(share.multiply(cotangent.expand_dims(&[-1])?))
            }
            Rows::RmsNorm { eps, weight } => {
                let scale = mean(x.square()?)?.add(eps)?.rsqrt()?;
                let normal = x.multiply(&scale)?;
                rule.each(|at| match at {
                    0 => {
                        let g = weighted(&cotangent, weight.then(|| &rule.inputs[1]), wide)?;
                        let along = mean(g.multiply(&normal)?)?;
                        Ok(Some(g.subtract(normal.multiply(along)?)?.multiply(&scale)?))
                    }
                    _ => Ok(Some(unbroadcast(&cotangent.multiply(&normal)?, rule.inputs[at].shape())?)),
                })
            }
            Rows::LayerNorm { eps, weight, .. } => {
                let distance = x.subtract(mean(x.clone())?)?;
                let scale = mean(distance.square()?)?.add(eps)?.rsqrt()?;
                let normal = distance.multiply(&scale)?;
                rule.each(|at| {
                    let shape = rule.inputs[at].shape();
                    match at {
                        0 => {
                            let g = weighted(&cotangent, weight.then(|| &rule.inputs[1]), wide)?;
                            let along = normal.multiply(mean(g.multiply(&normal)?)?)?;
                            Ok(Some(g.subtract(mean(g.clone())?)?.subtract(along)?.multiply(&scale)?))
                        }
                        1 if weight => Ok(Some(unbroadcast(&cotangent.multiply(&normal)?, shape)?)),
                        _ => Ok(Some(unbroadcast(&cotangent, shape)?)),
                    }
                })
            }
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

/// A cotangent times the weight of a norm, if it has one.
fn weighted(cotangent: &Array, weight: Option<&Array>, wide: Dtype) -> Result<Array> {
    weight.map_or_else(|| Ok(cotangent.clone()), |weight| cotangent.multiply(weight.astype(wide)?))
}

fn not_floats(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floating-point numbers, and was given an array".into(), dtype }
}

impl Array {
    /// The exponentials over axes, or over all, divided by their sum. Half precision is computed in
    /// single precision, `precise` or not.
    ///
    /// ```
    /// use hesper::Array;
    /// let p = Array::from_slice(&[0.0f32, 0.0]).softmax(None, false)?;
    /// assert_eq!(p.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn softmax(&self, over: Option<&[isize]>, precise: bool) -> Result<Array> {
        let over = axes_or_all("softmax", over, self.ndim())?;
        let input = self.astype(self.dtype().to_inexact())?;
        if self.size() == 0 {
            return Ok(input);
        }
        let length: usize = over.iter().map(|at| self.shape()[*at]).product();
        let last = over.iter().rev().enumerate().all(|(back, at)| at + back + 1 == self.ndim());
        // A few long rows are shared among cores by reductions, many rows one by one.
        let long = length > 4 * GRAIN && self.size() / length < 16;
        if last && !over.is_empty() && !long && input.dtype().is(Category::Floating) {
            let rows = input.rows_over(&over)?;
            let op = OpRef::Static(&Rows::Softmax);
            let result = Array::lazy(rows.0.shape.clone(), input.dtype(), op, smallvec![rows])?;
            let shape: SmallVec<[isize; 6]> = self.shape().iter().map(|length| *length as isize).collect();
            return result.reshape(&shape);
        }
        let _ = precise;
        if let Some(turned) = input.turned_to_columns(&over)? {
            let op = OpRef::Static(&Rows::Softmax);
            let result = Array::lazy(turned.0.shape.clone(), input.dtype(), op, smallvec![turned])?;
            return result.moveaxis(-1, over[0] as isize);
        }
        let over: SmallVec<[isize; 6]> = over.iter().map(|at| *at as isize).collect();
        let wide = if input.dtype().size() < 4 { Dtype::Float32 } else { input.dtype() };
        let x = input.astype(wide)?;
        let powers = x.subtract(&x.max(Some(&over), true)?)?.exp()?;
        powers.divide(&powers.sum(Some(&over), true)?)?.astype(input.dtype())
    }

    /// The logarithm of the softmax over axes, or over all.
    pub fn log_softmax(&self, over: Option<&[isize]>) -> Result<Array> {
        let input = self.astype(self.dtype().to_inexact())?;
        if self.size() == 0 {
            return Ok(input);
        }
        input.subtract(&input.logsumexp(over, true)?)
    }

    /// A view whose last axis is the one to go along, where that is worth it: rows of the view are columns side by
    /// side, enough of them to fill vectors.
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
        Array::lazy(shape, self.dtype(), OpRef::Static(&Rows::LogSumExp), smallvec![self.clone()])
    }
}

/// A weight or bias must be a vector as long as the last axis.
fn check_vector(op: &str, what: &str, x: &Array, vector: &Array) -> Result<()> {
    let length = x.shape().last().copied().unwrap_or(0);
    if vector.shape() != [length] {
        let what = format!("a {what} of shape {:?} for an array of shape {:?}", vector.shape(), x.shape());
        return Err(Error::shape(op, what));
    }
    Ok(())
}

fn check_rows(op: &str, x: &Array, dtype: Dtype) -> Result<()> {
    if x.ndim() == 0 {
        return Err(Error::shape(op, "a number has no last axis: the array's shape is []"));
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
    let op = Rows::RmsNorm { eps: f64::from(eps), weight: weight.is_some() };
    Array::lazy(x.0.shape.clone(), dtype, OpRef::new(op), inputs)
}

/// Each row less its mean, divided by its standard deviation, times a weight, plus a bias.
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
    let op = Rows::LayerNorm { eps: f64::from(eps), weight: weight.is_some(), bias: bias.is_some() };
    Array::lazy(x.0.shape.clone(), dtype, OpRef::new(op), inputs)
}

/// For each row of logits the logarithm of its sum of exponentials, less the logit of its target.
#[derive(Debug)]
struct CrossEntropy;

impl CrossEntropy {
    fn run<T: Float>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (logits, targets, output) = (l.row_major(0)?, l.row_major(1)?, l.output()?);
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let (logits_bytes, _) = reach(&logits, shape, T::DTYPE.size());
        let (targets_bytes, _) = reach(&targets, l.input_shape(1), 8);
        let command = l.stream().command("cross_entropy").read_range(&logits.buffer, logits_bytes);
        let command = command.read_range(&targets.buffer, targets_bytes);
        command.write(&output).run(move |native| {
            let [logits, targets, out] = native.take()?;
            let (logits, targets) = (logits.as_slice::<T>()?, targets.as_slice::<i64>()?);
            let grain = (GRAIN / length).max(1);
            par_chunks_mut(out.as_mut_slice::<f32>()?, grain, |task, losses| {
                let mut row = vec![T::Wide::of(0.0); length];
                for (at, loss) in losses.iter_mut().enumerate() {
                    let at = task * grain + at;
                    T::load(&logits[at * length..(at + 1) * length], &mut row);
                    let target = if targets[at] < 0 { targets[at] + length as i64 } else { targets[at] };
                    let logit = usize::try_from(target).ok().and_then(|target| row.get(target)).copied();
                    *loss = match logit {
                        Some(logit) => float::logsumexp(&mut row).minus(logit).single(),
                        None => f32::NAN,
                    };
                }
            });
            Ok(())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn export(&self) -> Export {
        Record::new("cross_entropy").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.input_dtype(0) {
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            Dtype::Float32 => self.run::<f32>(l),
            Dtype::Float64 => self.run::<f64>(l),
            dtype => Err(not_floats("cross_entropy", dtype)),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::cross_entropy)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let logits = &rule.inputs[0];
        let cotangent = rule.cotangent()?.expand_dims(&[-1])?;
        let shares = logits.astype(Dtype::Float32)?.softmax(Some(&[-1]), true)?.multiply(&cotangent)?;
        let targets = rule.inputs[1].expand_dims(&[-1])?;
        rule.only(shares.scatter_add_axis(&targets, &cotangent.negative()?, -1))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.full(0)?, rule.full(1)?])
    }
}

/// The cross entropy of logits along the last axis with class indices as targets, as float32. Negative
/// targets count from the back; the loss of a target that names no class is NaN.
pub fn cross_entropy(logits: &Array, targets: &Array) -> Result<Array> {
    check_rows("cross_entropy", logits, logits.dtype())?;
    if !targets.dtype().is(Category::Integer) {
        let what = "targets are class indices, and not an array".into();
        return Err(Error::Type { op: "cross_entropy".into(), what, dtype: targets.dtype() });
    }
    if targets.shape() != &logits.shape()[..logits.ndim() - 1] || logits.size() == 0 {
        let what = format!("targets of shape {:?} for logits of shape {:?}", targets.shape(), logits.shape());
        return Err(Error::shape("cross_entropy", what));
    }
    let inputs = smallvec![logits.clone(), targets.astype(Dtype::Int64)?];
    Array::lazy(targets.0.shape.clone(), Dtype::Float32, OpRef::Static(&CrossEntropy), inputs)
}

/// Rows that are not empty.
fn rows_of<'a>(replay: &Replay<'a>) -> Result<&'a Array> {
    let [x] = replay.inputs()?;
    check_rows(replay.op, x, x.dtype())?;
    if x.size() == 0 {
        return Err(replay.wrong("an input without elements"));
    }
    Ok(x)
}

pub(super) fn read_softmax(replay: &Replay<'_>) -> Result<Array> {
    let x = rows_of(replay)?;
    Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::Static(&Rows::Softmax), smallvec![x.clone()])
}

pub(super) fn read_logsumexp(replay: &Replay<'_>) -> Result<Array> {
    rows_of(replay)?.logsumexp_rows()
}

pub(super) fn read_rms_norm(replay: &Replay<'_>) -> Result<Array> {
    let weight = replay.flag("weight")?;
    let [x, others @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    if others.len() != usize::from(weight) {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    rms_norm(x, others.first(), replay.float("eps")? as f32)
}

pub(super) fn read_layer_norm(replay: &Replay<'_>) -> Result<Array> {
    let (weight, bias) = (replay.flag("weight")?, replay.flag("bias")?);
    let [x, others @ ..] = replay.inputs else { return Err(replay.wrong("no input")) };
    if others.len() != usize::from(weight) + usize::from(bias) {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    let (weight, bias) = (others.first().filter(|_| weight), others.last().filter(|_| bias));
    layer_norm(x, weight, bias, replay.float("eps")? as f32)
}

pub(super) fn read_cross_entropy(replay: &Replay<'_>) -> Result<Array> {
    let [logits, targets] = replay.inputs()?;
    cross_entropy(logits, targets)
}
