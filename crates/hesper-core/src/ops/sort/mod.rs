//! Sorting and selecting along an axis. Sorts are stable; NaN comes last.

pub mod search;

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::scope::is_free;
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::ops::source::stop_gradient;
use crate::shape::axis;

pub use search::Different;

/// How a row is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// All elements in order.
    Sorted,
    /// The one at a place in order; smaller ones before it, larger ones behind.
    Around(usize),
    /// The one in the middle.
    Middle,
}

/// Orders the rows of the last axis; gives elements, or their indices.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// How rows are ordered.
    pub order: Order,
    /// Whether the result is indices rather than elements.
    pub places: bool,
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        match (self.order, self.places) {
            (Order::Sorted, false) => "sort",
            (Order::Sorted, true) => "argsort",
            (Order::Around(_), false) => "partition",
            (Order::Around(_), true) => "argpartition",
            (Order::Middle, _) => "median",
        }
    }

    fn export(&self) -> Export {
        let (order, kth) = match self.order {
            Order::Sorted => ("sorted", None),
            Order::Around(kth) => ("around", Some(kth)),
            Order::Middle => ("middle", None),
        };
        Record::new("sort").with("order", order).maybe("kth", kth).with("places", self.places).into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        if self.places {
            return rule.each(|_| Ok(None));
        }
        let (x, mut cotangent) = (&rule.inputs[0], rule.cotangent()?);
        if self.order == Order::Middle && is_free(x) {
            let what = "cannot trace its derivative for any shape; trace it without shapeless=True";
            return Err(Error::value(self.name(), what));
        }
        let places = match self.order {
            Order::Middle => {
                let length = x.shape()[x.ndim() - 1] as isize;
                cotangent = cotangent.expand_dims(-1)?;
                if length % 2 == 0 {
                    cotangent = cotangent.multiply(0.5)?;
                }
                x.argsort(-1)?.slice_axis(x.ndim() - 1, (length - 1) / 2, length / 2 + 1, 1)?
            }
            Order::Sorted => x.argsort(-1)?,
            // The sides of a partition are in any order, which `argpartition` need not share: elements are
            // matched by their ranks.
            Order::Around(_) => {
                let ranks = stop_gradient(&rule.output.argsort(-1)?)?;
                cotangent = cotangent.take_along_axis(&ranks, -1)?;
                x.argsort(-1)?
            }
        };
        rule.only(zeros_like(x)?.scatter_add_axis(&stop_gradient(&places)?, &cotangent, -1))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

impl Array {
    /// The elements in order along an axis, or of the flattened array; NaN last.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::from_slice(&[3.0f32, f32::NAN, 1.0]);
    /// assert_eq!(x.sort(-1)?.to_vec::<f32>()?[..2], [1.0, 3.0]);
    /// assert_eq!(x.argsort(-1)?.to_vec::<u32>()?, [2, 0, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn sort(&self, along: impl Into<Option<isize>>) -> Result<Array> {
        self.ordered("sort", along.into(), false, |_| Ok(Order::Sorted))
    }

    /// The places of elements that put them in order along an axis, or in the flattened array. Equal
    /// elements keep their order.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![3, 1, 2].argsort(0)?.to_string(), "array([1, 2, 0], dtype=uint32)");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn argsort(&self, along: impl Into<Option<isize>>) -> Result<Array> {
        self.ordered("argsort", along.into(), true, |_| Ok(Order::Sorted))
    }

    /// The elements along an axis with the `kth` in its sorted place, smaller ones before and larger ones
    /// behind it. A negative `kth` counts from the back.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![5, 1, 4, 2, 3].partition(1, 0)?;
    /// assert_eq!(x.slice_axis(0, 1, 2, 1)?.item::<i32>()?, 2); // where it would be if all were sorted
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn partition(&self, kth: isize, along: impl Into<Option<isize>>) -> Result<Array> {
        self.ordered("partition", along.into(), false, |length| around("partition", kth, length))
    }

    /// The places of elements that [`partition`](Array::partition) them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![5, 1, 4];
    /// assert_eq!(x.argpartition(0, 0)?.slice_axis(0, 0, 1, 1)?.item::<u32>()?, 1);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn argpartition(&self, kth: isize, along: impl Into<Option<isize>>) -> Result<Array> {
        self.ordered("argpartition", along.into(), true, |length| around("argpartition", kth, length))
    }

    /// The `k` largest elements along an axis, or of the flattened array, in no order.
    ///
    /// ```
    /// use hesper::array;
    /// let best = array![5, 1, 4, 2].topk(2, 0)?.sort(0)?;
    /// assert_eq!(best.to_vec::<i32>()?, [4, 5]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn topk(&self, k: usize, along: impl Into<Option<isize>>) -> Result<Array> {
        let (input, at) = match along.into() {
            None => (self.reshape(&[self.size() as isize])?, 0),
            Some(along) => (self.clone(), axis("topk", along, self.ndim())?),
        };
        let length = input.shape()[at];
        if k > length {
            let what = format!("cannot take {k} elements along axis {at} of shape {:?}", input.shape());
            return Err(Error::value("topk", what));
        }
        if k == length {
            return Ok(input);
        }
        let mut start: SmallVec<[isize; 6]> = smallvec![0; input.ndim()];
        start[at] = (length - k) as isize;
        let stop: SmallVec<[isize; 6]> = input.shape().iter().map(|length| *length as isize).collect();
        let step: SmallVec<[isize; 6]> = smallvec![1; input.ndim()];
        let chosen = if k == 0 { input } else { input.partition(-(k as isize), Some(at as isize))? };
        chosen.slice(&start, &stop, &step)
    }

    fn ordered(
        &self,
        op: &'static str,
        along: Option<isize>,
        places: bool,
        order: impl Fn(usize) -> Result<Order>,
    ) -> Result<Array> {
        let Some(along) = along else {
            return self.reshape(&[self.size() as isize])?.ordered(op, Some(0), places, order);
        };
        let at = axis(op, along, self.ndim())?;
        let length = self.shape()[at];
        if length > u32::MAX as usize {
            let what = format!("axis {at} of an array of shape {:?} is too long to sort", self.shape());
            return Err(Error::value(op, what));
        }
        let sort = OpRef::new(Sort { order: order(length)?, places });
        let dtype = if places { Dtype::Uint32 } else { self.dtype() };
        let last = self.ndim() - 1;
        let mut swapped: SmallVec<[isize; 6]> = (0..self.ndim() as isize).collect();
        swapped.swap(at, last);
        let rows = if at == last { self.clone() } else { self.transpose(&swapped)? };
        let sorted = Array::lazy(rows.0.shape.clone(), dtype, sort, smallvec![rows])?;
        if at == last { Ok(sorted) } else { sorted.transpose(&swapped) }
    }

    /// The middle element of each row.
    pub(crate) fn middle(&self) -> Result<Array> {
        let op = OpRef::new(Sort { order: Order::Middle, places: false });
        Array::lazy(self.shape()[..self.ndim() - 1].into(), self.dtype(), op, smallvec![self.clone()])
    }
}

fn around(op: &str, kth: isize, length: usize) -> Result<Order> {
    let from_front = if kth < 0 { kth.checked_add(length as isize) } else { Some(kth) };
    match from_front.and_then(|at| usize::try_from(at).ok()) {
        Some(at) if at < length => Ok(Order::Around(at)),
        _ => Err(Error::value(op, format!("there is no element {kth} along an axis of length {length}"))),
    }
}

reader!("sort", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    if x.ndim() == 0 {
        return Err(replay.wrong("no rows"));
    }
    let last = Some(-1);
    match (replay.text("order")?, replay.flag("places")?) {
        ("sorted", false) => x.sort(last),
        ("sorted", true) => x.argsort(last),
        ("around", places) => {
            // A place that was counted from the back would be another one now.
            replay.unmoved()?;
            let kth = replay.axis("kth")?;
            if places { x.argpartition(kth, last) } else { x.partition(kth, last) }
        }
        ("middle", false) if x.size() > 0 && x.dtype().is(crate::Category::Inexact) => x.middle(),
        _ => Err(replay.wrong("an order that its input does not have")),
    }
}
