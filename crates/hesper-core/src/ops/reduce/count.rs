//! The number of elements that are reduced, as an array. Derivatives of means divide by it in functions that
//! are traced for any shape; otherwise the host knows the number.

use smallvec::{SmallVec, smallvec};

use crate::dtype::Category;
use crate::error::Result;
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::scope::is_free;
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};

/// How many elements there are over axes, less a number; or a number divided by that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Count {
    pub over: SmallVec<[usize; 6]>,
    pub less: BitEq<f64>,
    /// What is divided, if it is not the number itself that is wanted.
    pub divided: Option<BitEq<f64>>,
}

impl Count {
    fn value(&self, shape: &[usize]) -> f64 {
        let count: f64 = self.over.iter().map(|at| shape.get(*at).copied().unwrap_or(1) as f64).product();
        let count = (count - self.less.0).max(0.0);
        self.divided.map_or(count, |divided| divided.0 / count)
    }

    /// `array` times (or divided by) the value for the shape of `of`.
    pub fn scale(self, array: &Array, of: &Array, divide: bool) -> Result<Array> {
        if !is_free(of) {
            let value = self.value(of.shape());
            return if divide { array.divide(value) } else { array.multiply(value) };
        }
        let op = OpRef::new(self);
        let value = Array::lazy(smallvec![], array.dtype(), op, smallvec![of.clone()])?;
        if divide { array.divide(value) } else { array.multiply(value) }
    }
}

impl Op for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn export(&self) -> Export {
        let record = Record::new("count_elements").with("axes", &self.over[..]).with("less", self.less.0);
        record.maybe("divided", self.divided.map(|divided| divided.0)).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Array::scalar(self.value(l.input_shape(0)), l.dtype())?.data()
    }

    fn is_everywhere(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.each(|_| Ok(None))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let op = Count { over: self.over.iter().map(|at| at + 1).collect(), ..self.clone() };
        let value = Array::lazy(smallvec![], rule.output.dtype(), OpRef::new(op), smallvec![rule.front(0)?])?;
        Ok((value.broadcast_to(&rule.shape())?, 0))
    }
}

reader!("count_elements", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let over = crate::shape::axes(replay.op, &replay.axes("axes")?, x.ndim())?;
    if !replay.dtype().is(Category::Inexact) {
        return Err(replay.wrong("a type that holds no fractions"));
    }
    let op =
        Count { over, less: BitEq(replay.float("less")?), divided: replay.maybe_float("divided").map(BitEq) };
    Array::lazy(smallvec![], replay.dtype(), OpRef::new(op), smallvec![x.clone()])
}
