//! Running sums, products, extremes and sums of exponentials along an axis, and differences.
//!
//! ```
//! use hesper::Array;
//! let x = Array::from_slice(&[1, 2, 3]);
//! assert_eq!(x.cumsum(None, false, true)?.to_vec::<i32>()?, [1, 3, 6]);
//! assert_eq!(x.cumsum(None, true, false)?.to_vec::<i32>()?, [5, 3, 0]);
//! # Ok::<(), hesper::Error>(())
//! ```

use smallvec::{SmallVec, smallvec};

use super::logic::select;
use super::pad::Pad;
use super::reduce::table::define_reductions;
use super::{Op, OpRef};
use crate::Dtype;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::source::stop_gradient;
use crate::shape::axis;

/// What a scan combines elements by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum ScanKind {
    Sum,
    Product,
    Max,
    Min,
    LogSum,
}

/// A scan along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scan {
    /// What elements are combined by.
    pub kind: ScanKind,
    /// The axis.
    pub along: usize,
    /// Whether it begins at the end.
    pub reverse: bool,
    /// Whether an element is part of its own result.
    pub inclusive: bool,
}

/// The running logarithm of a sum of exponentials of complex numbers.
fn complex_log_sum(x: &Array, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
    let Some(along) = along else {
        return complex_log_sum(&x.reshape(&[-1])?, Some(0), reverse, inclusive);
    };
    let along = axis("logcumsumexp", along, x.ndim())?;
    let op = Scan { kind: ScanKind::LogSum, along, reverse, inclusive };
    op.doubled_log_sum(&if inclusive { x.clone() } else { op.later(x, -1, f64::NEG_INFINITY)? })
}

/// The error for types without logarithms.
pub fn no_log(dtype: Dtype) -> Error {
    Error::Type { op: "logcumsumexp".into(), what: "not defined for an array".into(), dtype }
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        match self.kind {
            ScanKind::Sum => "cumsum",
            ScanKind::Product => "cumprod",
            ScanKind::Max => "cummax",
            ScanKind::Min => "cummin",
            ScanKind::LogSum => "logcumsumexp",
        }
    }

    fn export(&self) -> Export {
        let record = Record::new("scan").with("kind", self.name()).with("axis", self.along);
        record.with("reverse", self.reverse).with("inclusive", self.inclusive).into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, cotangent) = (&rule.inputs[0], rule.cotangent()?);
        let along = Some(self.along as isize);
        if self.kind == ScanKind::Sum {
            return rule.only(cotangent.scan(ScanKind::Sum, along, !self.reverse, self.inclusive));
        }
        if self.inclusive {
            return rule.only(self.pulled(x, rule.output, &cotangent));
        }
        // Without the element itself a result is that of the element before.
        let with = x.scan(self.kind, along, self.reverse, true)?;
        let moved = self.later(&cotangent, 1, 0.0)?;
        rule.only(Scan { inclusive: true, ..*self }.pulled(x, &with, &moved))
    }

    fn is_linear(&self) -> bool {
        self.kind == ScanKind::Sum
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let op = Scan { along: self.along + 1, ..*self };
        rule.apply(OpRef::new(op), smallvec![rule.front(0)?])
    }
}

/// Derivatives. Products and weighted sums along the axis are computed by doubling: each step doubles the
/// number of elements that a partial result covers. No step divides, so zeros need no special case, and the
/// derivative can be differentiated again.
impl Scan {
    /// The cotangent of the elements, from that of a result that includes them.
    fn pulled(&self, x: &Array, out: &Array, cotangent: &Array) -> Result<Array> {
        match self.kind {
            ScanKind::Sum => cotangent.scan(ScanKind::Sum, Some(self.along as isize), !self.reverse, true),
            ScanKind::Product => {
                let again = |x: &[Array]| Ok(vec![self.doubled_product(&x[0])?]);
                let found = Backward::pullback(again, &[x.clone()], &[cotangent.clone()])?;
                found.into_iter().next().ok_or_else(|| Error::value(self.name(), "has no derivative"))
            }
            ScanKind::LogSum => self.pulled_log_sum(x, out, cotangent),
            ScanKind::Max | ScanKind::Min => {
                // Where the extreme was met last.
                let length = x.shape()[self.along];
                let mut shape: SmallVec<[isize; 6]> = smallvec![1; x.ndim()];
                shape[self.along] = length as isize;
                let places: Vec<i64> = (0..length as i64).collect();
                let places = Array::from_slice(&places).reshape(&shape)?;
                let (none, kind) =
                    if self.reverse { (length as i64, ScanKind::Min) } else { (-1, ScanKind::Max) };
                let none = Array::integer(none, Dtype::Int64)?;
                let along = Some(self.along as isize);
                let met = select(&x.equal(out)?, &places, &none)?.scan(kind, along, self.reverse, true)?;
                zeros_like(x)?.scatter_add_axis(&stop_gradient(&met)?, cotangent, self.along as isize)
            }
        }
    }

    /// The elements shifted by `by` in the order of the scan, filled with `end`: element `i` of the result is
    /// element `i + by`.
    fn later(&self, y: &Array, by: isize, end: f64) -> Result<Array> {
        let length = y.shape()[self.along] as isize;
        let by = if self.reverse { -by } else { by };
        let kept = y.slice_axis(self.along, by.max(0), (length + by.min(0)).max(0), 1)?;
        let mut widths: SmallVec<[(usize, usize); 6]> = smallvec![(0, 0); y.ndim()];
        let missing = by.abs().min(length) as usize;
        widths[self.along] = if by < 0 { (missing, 0) } else { (0, missing) };
        kept.pad(&widths, &Pad::Constant(end.into()))
    }

    /// The distances of the steps: powers of two below the length.
    fn distances(&self, x: &Array) -> impl Iterator<Item = isize> + use<> {
        let length = x.shape()[self.along] as isize;
        std::iter::successors(Some(1), |step| Some(step * 2)).take_while(move |step| *step < length)
    }

    /// The running product, of products of ever more neighbours.
    fn doubled_product(&self, x: &Array) -> Result<Array> {
        self.distances(x).try_fold(x.clone(), |y, step| y.multiply(self.later(&y, -step, 1.0)?))
    }

    /// The running logarithm of a sum of exponentials, of those of ever more neighbours.
    fn doubled_log_sum(&self, x: &Array) -> Result<Array> {
        self.distances(x)
            .try_fold(x.clone(), |y, step| y.logaddexp(self.later(&y, -step, f64::NEG_INFINITY)?))
    }

    /// Each element has the part `exp(x - out)` of its own result, and of every later result the part that
    /// its own has of that: both are at most one.
    fn pulled_log_sum(&self, x: &Array, out: &Array, cotangent: &Array) -> Result<Array> {
        // A sum of nothing is minus infinity; an element has no part in it.
        let known = |y: &Array| select(&y.equal(f64::NEG_INFINITY)?, &zeros_like(y)?, y);
        let next = self.later(out, 1, f64::INFINITY)?;
        let mut part = out.subtract(known(&next)?)?.exp()?;
        let mut sum = cotangent.clone();
        for step in self.distances(x) {
            sum = sum.add(part.multiply(self.later(&sum, step, 0.0)?)?)?;
            part = part.multiply(self.later(&part, step, 0.0)?)?;
        }
        x.subtract(known(out)?)?.exp()?.multiply(sum)
    }
}

/// The table of scans. [`table`](super::reduce::table) explains an entry.
#[doc(hidden)]
#[macro_export]
macro_rules! scan_ops {
    ($callback:ident) => { $callback! {
    /// The running sum. Bools are summed as int32.
    cumsum | cumulative_sum(scan) = |x, along, reverse, inclusive| {
        let x = if x.dtype() == Dtype::Bool { x.astype(Dtype::Int32)? } else { x.clone() };
        x.scan(ScanKind::Sum, along, reverse, inclusive)
    };
        rust "array![1, 3, 2].cumsum(0, false, true)" => "array([1, 4, 6], dtype=int32)";
        python "mx.array([1.0, 3.0, 2.0])" => "array([1, 4, 6], dtype=float32)", method cumsum;
        cases [Real] [Bool] [Integer] [Complex];
    /// The running product.
    cumprod | cumulative_prod(scan) = |x, along, reverse, inclusive| x.scan(ScanKind::Product, along, reverse, inclusive);
        rust "array![1, 3, 2].cumprod(0, true, true)" => "array([6, 6, 2], dtype=int32)";
        python "mx.array([1.0, 3.0, 2.0])" => "array([1, 3, 6], dtype=float32)", method cumprod;
        cases [Real] [Positive] [Count] [Complex];
    /// The running maximum.
    cummax(scan) = |x, along, reverse, inclusive| x.scan(ScanKind::Max, along, reverse, inclusive);
        rust "array![[1, 3], [2, 0]].cummax(None, false, true)" => "array([1, 3, 3, 3], dtype=int32)";
        python "mx.array([1.0, 3.0, 2.0])" => "array([1, 3, 3], dtype=float32)", method cummax;
        cases [Real] [Integer];
    /// The running minimum.
    cummin(scan) = |x, along, reverse, inclusive| x.scan(ScanKind::Min, along, reverse, inclusive);
        rust "array![3, 1, 2].cummin(0, false, true)" => "array([3, 1, 1], dtype=int32)";
        python "mx.array([1.0, 3.0, 2.0])" => "array([1, 1, 1], dtype=float32)", method cummin;
        cases [Real] [Integer];
    /// The running logarithm of the sum of exponentials.
    logcumsumexp(scan) = |x, along, reverse, inclusive| {
        let x = x.astype(x.dtype().to_inexact())?;
        if x.dtype().is(Category::Complex) {
            return complex_log_sum(&x, along, reverse, inclusive);
        }
        x.scan(ScanKind::LogSum, along, reverse, inclusive)
    };
        rust "array![0.0, 0.0].logcumsumexp(0, false, true)" => "array([0, 0.693147], dtype=float32)";
        python "mx.array([1.0, 3.0, 2.0])" => "array([1, 3.12693, 3.40761], dtype=float32)", method logcumsumexp;
        cases [Real] [Integer];
    } };
}
scan_ops!(define_reductions);

impl Array {
    fn scan(&self, kind: ScanKind, along: Option<isize>, reverse: bool, inclusive: bool) -> Result<Array> {
        let Some(along) = along else {
            let flat = match kind {
                ScanKind::Max | ScanKind::Min => self.reshape(&[-1])?,
                _ => self.flatten(0, -1)?,
            };
            return flat.scan(kind, Some(0), reverse, inclusive);
        };
        let mut op = Scan { kind, along: 0, reverse, inclusive };
        op.along = axis(op.name(), along, self.ndim())?;
        Array::lazy(self.0.shape.clone(), self.dtype(), OpRef::new(op), smallvec![self.clone()])
    }

    /// The differences of neighbours along an axis, `n` times over.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1, 4, 9, 16].diff(1, 0)?.to_vec::<i32>()?, [3, 5, 7]);
    /// assert_eq!(array![1, 4, 9, 16].diff(2, 0)?.to_vec::<i32>()?, [2, 2]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn diff(&self, n: usize, along: isize) -> Result<Array> {
        let at = axis("diff", along, self.ndim())?;
        let mut result = self.clone();
        // More steps than elements leave nothing.
        for _ in 0..n.min(self.shape()[at]) {
            let stop: SmallVec<[isize; 6]> = result.shape().iter().map(|length| *length as isize).collect();
            let start: SmallVec<[isize; 6]> = smallvec![0; stop.len()];
            let step: SmallVec<[isize; 6]> = smallvec![1; stop.len()];
            let (mut second, mut last) = (start.clone(), stop.clone());
            second[at] = 1;
            last[at] = (stop[at] - 1).max(0);
            let next = result.slice(&second, &stop, &step)?;
            result = next.subtract(result.slice(&start, &last, &step)?)?;
        }
        Ok(result)
    }
}

reader!("scan", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let (axis, reverse) = (Some(replay.axis("axis")?), replay.flag("reverse")?);
    let inclusive = replay.flag("inclusive")?;
    match replay.text("kind")? {
        "cumsum" => x.cumsum(axis, reverse, inclusive),
        "cumprod" => x.cumprod(axis, reverse, inclusive),
        "cummax" => x.cummax(axis, reverse, inclusive),
        "cummin" => x.cummin(axis, reverse, inclusive),
        "logcumsumexp" => x.logcumsumexp(axis, reverse, inclusive),
        other => Err(replay.wrong(format!("an unknown kind {other:?}"))),
    }
}
