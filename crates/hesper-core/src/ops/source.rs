//! Sources: the arrays that a transformation differentiates, maps or traces with respect to.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::scope::Scope;
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::identity::equal_to_itself;
use crate::ops::readers::reader;
use crate::ops::{Op, OpKind, OpRef};
use crate::shape::Shape;

/// The input itself; where derivatives begin.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Watched;

impl Op for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn export(&self) -> Export {
        Export::Input(0)
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(l.input(0).clone())
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(rule.cotangent())
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        Ok((rule.front(0)?, 0))
    }
}

/// An array that has the value of `value`, and that a scope varies.
pub(crate) fn watched(scope: &Arc<Scope>, value: &Array) -> Result<Array> {
    let inputs = smallvec![value.clone()];
    Array::varied(scope, value.0.shape.clone(), value.dtype(), OpRef::Static(&Watched), inputs)
}

/// An array without a value.
#[derive(Debug)]
struct Placeholder {
    /// What is tracing.
    what: &'static str,
    scope: Arc<Scope>,
}

equal_to_itself!(Placeholder);

impl Op for Placeholder {
    fn name(&self) -> &'static str {
        "placeholder"
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        let tracing = self.what;
        if !self.scope.is_open() {
            return Err(Error::Stale(format!(
                "eval: cannot evaluate an array that was stored while {tracing} was tracing; return it from the function, \
                 or capture its container as an output"
            )));
        }
        let what = format!(
            "cannot evaluate an array while {tracing} is tracing; return it instead, or move the call outside"
        );
        Err(Error::value("eval", what))
    }

    fn is_everywhere(&self) -> bool {
        true
    }
}

/// An array without a value that a scope of `what` varies.
pub(crate) fn placeholder(
    scope: &Arc<Scope>,
    what: &'static str,
    shape: Shape,
    dtype: Dtype,
) -> Result<Array> {
    let op = Placeholder { what, scope: scope.clone() };
    Array::varied(scope, shape, dtype, OpRef::new(op), SmallVec::new())
}

/// The input itself; where derivatives end.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StopGradient;

impl Op for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
    }

    fn export(&self) -> Export {
        Record::new("stop_gradient").into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(l.input(0).clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.each(|_| Ok(None))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        Ok((stop_gradient(&rule.front(0)?)?, 0))
    }
}

/// The array, as a constant to derivatives.
///
/// ```
/// use hesper::{Array, transform};
/// let slope = transform::grad(|x| x[0].multiply(transform::stop_gradient(&x[0])?), &[0]);
/// assert_eq!(slope(&[Array::scalar(3.0, hesper::Dtype::Float32)?])?[0].item::<f32>()?, 3.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn stop_gradient(x: &Array) -> Result<Array> {
    Array::lazy(x.0.shape.clone(), x.dtype(), OpRef::Static(&StopGradient), smallvec![x.clone()])
}

/// Whether an array is the result of [`stop_gradient`].
///
/// ```
/// use hesper::{array, transform};
/// let x = array![1.0, 2.0];
/// assert!(transform::is_stopped(&transform::stop_gradient(&x)?));
/// assert!(!transform::is_stopped(&x));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn is_stopped(array: &Array) -> bool {
    array.call().is_some_and(|call| call.op.name() == "stop_gradient")
}

reader!("stop_gradient", One(read_stop_gradient));
fn read_stop_gradient(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    stop_gradient(x)
}
