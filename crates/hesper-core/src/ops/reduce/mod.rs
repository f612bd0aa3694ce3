//! Reductions over axes: sums, products, extremes, truth, moments.
//!
//! Each is one pass over memory, whatever axes it is over and however its input lies. On the host a view and
//! its contiguous copy give the same bits.
//!
//! ```
//! use hesper::{Array, axes};
//! let x = Array::try_from_slice(&[1.0f32, 5.0, 7.0, 2.0], &[2, 2])?;
//! assert_eq!(x.sum(0)?.to_vec::<f32>()?, [8.0, 7.0]);
//! assert_eq!(x.sum(axes(()).keepdims())?.shape(), [1, 1]);
//! assert_eq!(x.argmax(1)?.to_vec::<u32>()?, [1, 0]);
//! assert_eq!(x.argmax(())?.item::<u32>()?, 2);
//! # Ok::<(), hesper::Error>(())
//! ```

mod arg;
pub mod count;
mod stats;
pub mod table;

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::shape::{Shape, axes, signed};
use crate::{Axes, Dtype};
use count::Count;
use table::define_reductions;

/// What elements are combined by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum ReduceKind {
    /// The sum, times a number (which is 1 for integers).
    Sum(BitEq<f64>),
    Product,
    Max,
    Min,
    All,
    Any,
    Count,
    Variance {
        count: BitEq<f64>,
        ddof: BitEq<f64>,
        root: bool,
    },
    ArgMax,
    ArgMin,
}

impl ReduceKind {
    fn name(self) -> &'static str {
        match self {
            ReduceKind::Sum(_) => "sum",
            ReduceKind::Product => "prod",
            ReduceKind::Max => "max",
            ReduceKind::Min => "min",
            ReduceKind::All => "all",
            ReduceKind::Any => "any",
            ReduceKind::Count => "count_nonzero",
            ReduceKind::Variance { root: false, .. } => "var",
            ReduceKind::Variance { root: true, .. } => "std",
            ReduceKind::ArgMax => "argmax",
            ReduceKind::ArgMin => "argmin",
        }
    }

    /// The type of the result.
    fn result(self, of: Dtype) -> Dtype {
        match self {
            ReduceKind::Sum(_) | ReduceKind::Product => match of {
                Dtype::Bool | Dtype::Int8 | Dtype::Int16 => Dtype::Int32,
                Dtype::Uint8 | Dtype::Uint16 => Dtype::Uint32,
                other => other,
            },
            ReduceKind::Max | ReduceKind::Min | ReduceKind::Variance { .. } => of,
            ReduceKind::All | ReduceKind::Any => Dtype::Bool,
            ReduceKind::Count => Dtype::Int32,
            ReduceKind::ArgMax | ReduceKind::ArgMin => Dtype::Uint32,
        }
    }
}

/// A reduction over some axes, which may have stayed in the result with length one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// What elements are combined by.
    pub kind: ReduceKind,
    /// The axes, in order.
    pub over: SmallVec<[usize; 6]>,
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn export(&self) -> Export {
        let record = Record::new("reduce").with("kind", self.kind.name()).with("axes", &self.over[..]);
        match self.kind {
            ReduceKind::Sum(scale) => record.with("scale", scale.0).into(),
            ReduceKind::Variance { count, ddof, .. } => {
                record.with("count", count.0).with("ddof", ddof.0).into()
            }
            _ => record.into(),
        }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let x = &rule.inputs[0];
        let kept = signed(&without(x.shape(), &self.over, true));
        let over = Axes::from(&self.over[..]).keepdims();
        let mut cotangent = rule.cotangent()?;
        if cotangent.ndim() < x.ndim() {
            let removed: SmallVec<[isize; 6]> = self.over.iter().map(|at| *at as isize).collect();
            cotangent = cotangent.expand_dims(&removed[..])?;
        }
        let whole = |y: Array| y.broadcast_like(x);
        let result = match self.kind {
            ReduceKind::Sum(scale) => {
                let part = if scale.0 == 1.0 {
                    cotangent
                } else {
                    let elements: usize = self.over.iter().map(|at| x.shape()[*at]).product();
                    match divisor(scale.0, elements as f64) {
                        Some(less) => self.count(less, Some(1.0)).scale(&cotangent, x, false)?,
                        None => cotangent.multiply(scale.0)?,
                    }
                };
                whole(part)?
            }
            ReduceKind::Product => {
                let others = others_product(x, &self.over)?;
                let complex = others.dtype().is(Category::Complex);
                cotangent.multiply(if complex { others.conjugate()? } else { others })?
            }
            ReduceKind::Max | ReduceKind::Min => {
                let mask = x.equal(rule.output.reshape(&kept)?)?.astype(x.dtype())?;
                let shared = cotangent.divide(mask.sum(over)?)?;
                mask.multiply(shared)?
            }
            ReduceKind::Variance { ddof, root, .. } => {
                let distance = x.subtract(x.mean(over)?)?;
                let factor = if root {
                    let part = cotangent.divide(rule.output.reshape(&kept)?)?;
                    self.count(ddof.0, None).scale(&part, x, true)?
                } else {
                    self.count(ddof.0, Some(2.0)).scale(&cotangent, x, false)?
                };
                distance.multiply(factor)?
            }
            // The sum of bools.
            ReduceKind::Count if x.dtype() == Dtype::Bool => whole(cotangent)?,
            ReduceKind::All
            | ReduceKind::Any
            | ReduceKind::Count
            | ReduceKind::ArgMax
            | ReduceKind::ArgMin => {
                return rule.each(|_| Ok(None));
            }
        };
        rule.only(Ok(result))
    }

    fn is_linear(&self) -> bool {
        matches!(self.kind, ReduceKind::Sum(_))
    }

    fn varies_with_bools(&self) -> bool {
        matches!(self.kind, ReduceKind::Sum(_) | ReduceKind::Product | ReduceKind::Count)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let over = self.over.iter().map(|at| at + 1).collect();
        rule.apply(OpRef::new(Reduce { kind: self.kind, over }), smallvec![rule.front(0)?])
    }
}

impl Reduce {
    /// The number of elements that it is over, less a number, or a number divided by that.
    fn count(&self, less: f64, divided: Option<f64>) -> Count {
        Count { over: self.over.clone(), less: BitEq(less), divided: divided.map(BitEq) }
    }
}

/// How much less than their number the sum of so many elements is divided by, if it is by a whole number.
fn divisor(scale: f64, elements: f64) -> Option<f64> {
    let less = elements - (1.0 / scale).round();
    ((0.0..elements).contains(&less) && 1.0 / (elements - less) == scale).then_some(less)
}

/// For each element the product of all others over axes, zeros among them or not.
fn others_product(x: &Array, over: &[usize]) -> Result<Array> {
    let rows = x.rows_over(over)?;
    let product = rows.cumprod(Some(-1), false, false)?.multiply(rows.cumprod(Some(-1), true, false)?)?;
    let order: SmallVec<[usize; 6]> =
        (0..x.ndim()).filter(|at| !over.contains(at)).chain(over.iter().copied()).collect();
    let there: SmallVec<[isize; 6]> = order.iter().map(|at| *at as isize).collect();
    let mut back: SmallVec<[isize; 6]> = smallvec![0; x.ndim()];
    order.iter().enumerate().for_each(|(to, from)| back[*from] = to as isize);
    product.reshape_like(&x.transpose(&there)?)?.transpose(&back)
}

/// The shape without some axes, or with length one in their places.
pub fn without(shape: &[usize], over: &[usize], keepdims: bool) -> Shape {
    let length = |at: usize| if over.contains(&at) { keepdims.then_some(1) } else { Some(shape[at]) };
    (0..shape.len()).filter_map(length).collect()
}

/// The table of reductions. [`table`] explains an entry.
#[doc(hidden)]
#[macro_export]
macro_rules! reduction_ops {
    ($callback:ident) => { $callback! {
    /// The sum. Bools and small integers are summed as int32 or uint32.
    sum(axes) = |x, over| sum(x, over);
        rust "array![[1.0, 2.0], [3.0, 4.0]].sum(0)" => "array([4, 6], dtype=float32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([4, 6], dtype=float32)", method sum;
        cases [Real] [Bool] [Integer] [Complex];
    /// The product. Bools and small integers are multiplied as int32 or uint32.
    prod(axes) = |x, over| x.reduce_or_same(ReduceKind::Product, over);
        rust "array![[1, 2], [3, 4]].prod(())" => "array(24, dtype=int32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([3, 8], dtype=float32)", method prod;
        cases [Real] [Positive] [Count] [Complex];
    /// The largest element; NaN if there is one.
    max(axes) = |x, over| x.nonempty("max", over)?.reduce_or_same(ReduceKind::Max, over);
        rust "array![[1.0, 4.0], [3.0, 2.0]].max(-1)" => "array([4, 3], dtype=float32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([3, 4], dtype=float32)", method max;
        cases [Real] [Integer];
    /// The smallest element; NaN if there is one.
    min(axes) = |x, over| x.nonempty("min", over)?.reduce_or_same(ReduceKind::Min, over);
        rust "array![[1.0, f32::NAN], [3.0, 2.0]].min(1)" => "array([nan, 2], dtype=float32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([1, 2], dtype=float32)", method min;
        cases [Real] [Integer];
    /// Whether all elements are true or not zero.
    all(axes) = |x, over| x.reduce(ReduceKind::All, over);
        rust "array![[1, 0], [1, 1]].all(1)" => "array([False, True], dtype=bool)";
        python "mx.array([True, False])" => "array(False, dtype=bool)", method all;
        cases [Bool] [Real];
    /// Whether any element is true or not zero.
    any(axes) = |x, over| x.reduce(ReduceKind::Any, over);
        rust "array![true, false].any(())" => "array(True, dtype=bool)";
        python "mx.array([True, False])" => "array(True, dtype=bool)", method any;
        cases [Bool] [Real];
    /// How many elements are not zero.
    count_nonzero(axes) = |x, over| count_nonzero(x, over);
        rust "array![[0, 1], [2, 3]].count_nonzero(0)" => "array([1, 2], dtype=int32)";
        python "mx.array([0, 1, 2])" => "array(2, dtype=int32)";
        cases [Bool] [Integer];
    /// The mean; of integers as float32.
    mean(axes) = |x, over| stats::mean(x, over);
        rust "array![[1, 2], [3, 4]].mean(())" => "array(2.5, dtype=float32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([2, 3], dtype=float32)", method mean;
        cases [Real] [Integer] [Complex];
    /// The median: the middle element, or the mean of the two in the middle; NaN if there is one. Of integers
    /// as float32.
    median(axes) = |x, over| stats::median(x, over);
        rust "array![5.0, 1.0, 2.0, 100.0].median(())" => "array(3.5, dtype=float32)";
        python "mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0" => "array([2, 3], dtype=float32)";
        cases [Real] [Integer];
    /// The logarithm of the sum of exponentials, without overflow.
    logsumexp(axes) = |x, over| stats::logsumexp(x, over);
        rust "array![1000.0, 1000.0].logsumexp(())" => "array(1000.69, dtype=float32)";
        python "mx.array([0.0, 0.0])" => "array(0.693147, dtype=float32)", method logsumexp;
        cases [Real] [Integer];
    /// The variance: the mean of squared distances to the mean, with the divisor ``N - ddof`` for ``N``
    /// elements.
    var(spread) = |x, over, ddof| stats::variance(x, over, ddof, false);
        rust "array![1.0, 3.0].var((), 1)" => "array(2, dtype=float32)";
        python "mx.array([1.0, 3.0])" => "array(1, dtype=float32)", method var;
        cases [Real] [Single];
    /// The standard deviation: the root of the variance, with the divisor ``N - ddof`` for ``N`` elements.
    std(spread) = |x, over, ddof| stats::variance(x, over, ddof, true);
        rust "array![1.0, 3.0].std((), 0)" => "array(1, dtype=float32)";
        python "mx.array([1.0, 3.0])" => "array(1, dtype=float32)", method std;
        cases [Real] [Single];
    /// The place of the largest element: the first of equals, or the first NaN.
    argmax(axis) = |x, over| arg::place_of(x, ReduceKind::ArgMax, over);
        rust "array![[1, 3], [4, 2]].argmax(1)" => "array([1, 0], dtype=uint32)";
        python "mx.array([1, 3, 2])" => "array(1, dtype=uint32)", method argmax;
        cases [Real] [Integer];
    /// The place of the smallest element: the first of equals, or the first NaN.
    argmin(axis) = |x, over| arg::place_of(x, ReduceKind::ArgMin, over);
        rust "array![3, 1, 1].argmin(())" => "array(1, dtype=uint32)";
        python "mx.array([1, 3, 2])" => "array(0, dtype=uint32)", method argmin;
        cases [Real] [Integer];
    } };
}
reduction_ops!(define_reductions);

/// A comparison, so nothing varies, unlike the sum of bools.
fn count_nonzero(x: &Array, over: &Axes) -> Result<Array> {
    if x.dtype() == Dtype::Bool {
        return x.not_equal(false)?.reduce(ReduceKind::Count, over);
    }
    x.reduce(ReduceKind::Count, over)
}

fn sum(x: &Array, over: &Axes) -> Result<Array> {
    if x.dtype() == Dtype::Bool && over.named() != Some(&[]) && x.ndim() > 0 {
        return x.reduce(ReduceKind::Count, over);
    }
    x.reduce_or_same(ReduceKind::Sum(BitEq(1.0)), over)
}

impl Array {
    fn reduce(&self, kind: ReduceKind, over: &Axes) -> Result<Array> {
        self.reduce_axes(kind, over.resolve(kind.name(), self.ndim())?, over.is_kept())
    }

    fn reduce_axes(&self, kind: ReduceKind, over: SmallVec<[usize; 6]>, keepdims: bool) -> Result<Array> {
        let flags = matches!(kind, ReduceKind::All | ReduceKind::Any | ReduceKind::Count);
        if flags && self.dtype() == Dtype::Complex128 {
            // Backends test words of at most eight bytes.
            return self.astype(Dtype::Bool)?.reduce_axes(kind, over, keepdims);
        }
        let shape = without(self.shape(), &over, keepdims);
        let op = Reduce { kind, over };
        Array::lazy(shape, kind.result(self.dtype()), OpRef::new(op), smallvec![self.clone()])
    }

    /// A reduction over no axes gives the array itself, of its own type.
    fn reduce_or_same(&self, kind: ReduceKind, over: &Axes) -> Result<Array> {
        if over.resolve(kind.name(), self.ndim())?.is_empty() {
            return Ok(self.clone());
        }
        self.reduce(kind, over)
    }

    /// The smallest and the largest element over [axes](Axes), `()` for all.
    ///
    /// ```
    /// use hesper::array;
    /// let (least, most) = array![[3, 1], [2, 4]].minmax(0)?;
    /// assert_eq!((least.to_vec::<i32>()?, most.to_vec::<i32>()?), (vec![2, 1], vec![3, 4]));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn minmax(&self, over: impl Into<Axes>) -> Result<(Array, Array)> {
        let over = over.into();
        Ok((self.min(over.clone())?, self.max(over)?))
    }

    /// An error if there is nothing to choose from.
    fn nonempty(&self, op: &'static str, over: &Axes) -> Result<&Array> {
        let over = over.resolve(op, self.ndim())?;
        match over.iter().find(|at| self.shape()[**at] == 0) {
            Some(at) => {
                let what = format!("axis {at} of an array of shape {:?} has no elements", self.shape());
                Err(Error::value(op, what))
            }
            None => Ok(self),
        }
    }
}

reader!("reduce", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let over = axes(replay.op, &replay.axes("axes")?, x.ndim())?;
    let empty = over.iter().any(|at| x.shape()[*at] == 0);
    let long = over.iter().any(|at| x.shape()[*at] > u32::MAX as usize);
    let floats = matches!(x.dtype(), Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32);
    let count =
        |shape: &[usize]| over.iter().map(|at| shape.get(*at).copied().unwrap_or(1) as f64).product::<f64>();
    let before = replay.traced.first().map_or(1.0, |traced| count(traced));
    let now = count(x.shape());
    let kind = match replay.text("kind")? {
        "sum" => ReduceKind::Sum(BitEq(scale_of(replay, before, now)?)),
        "prod" => ReduceKind::Product,
        "max" if !empty => ReduceKind::Max,
        "min" if !empty => ReduceKind::Min,
        "all" => ReduceKind::All,
        "any" => ReduceKind::Any,
        "count_nonzero" => ReduceKind::Count,
        name @ ("var" | "std") if floats => {
            let count =
                if replay.free && before == replay.float("count")? { now } else { replay.float("count")? };
            ReduceKind::Variance {
                count: BitEq(count),
                ddof: BitEq(replay.float("ddof")?),
                root: name == "std",
            }
        }
        "argmax" if over.len() == 1 && !long && x.size() > 0 => ReduceKind::ArgMax,
        "argmin" if over.len() == 1 && !long && x.size() > 0 => ReduceKind::ArgMin,
        other => return Err(replay.wrong(format!("a kind {other:?} that its input does not have"))),
    };
    if matches!(kind, ReduceKind::Sum(scale) if scale.0 != 1.0) && !x.dtype().is(Category::Inexact) {
        return Err(replay.wrong("a scaled sum of integers"));
    }
    // Axes of length one in the place of those that are gone.
    let kept = replay.shape().len() == x.ndim();
    x.reduce_axes(kind, over, kept)
}

/// What a sum of `now` elements is multiplied by, if one of `before` elements was multiplied by one over
/// their number, or over a few less.
fn scale_of(replay: &Replay<'_>, before: f64, now: f64) -> Result<f64> {
    let scale = replay.float("scale")?;
    if !replay.free || before == now {
        return Ok(scale);
    }
    let less = before - (1.0 / scale).round();
    match scale == 1.0 {
        // The mean of one element has the same scale as a sum.
        true if before == 1.0 && replay.dtype().is(Category::Inexact) => Err(replay.not_free()),
        true => Ok(1.0),
        false if (0.0..before).contains(&less) && 1.0 / (before - less) == scale => {
            Ok(1.0 / (now - less).max(0.0))
        }
        false => Err(replay.not_free()),
    }
}
