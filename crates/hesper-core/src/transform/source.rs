//! Sources: the arrays that a transformation varies.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::scope::Scope;
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::identity::equal_to_itself;
use crate::ops::readers::reader;
use crate::ops::{Kind, Op, OpRef};
use crate::shape::Shape;
use crate::transform::rule::{Backward, Batch, Cotangents};

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

    fn kind(&self) -> Kind<'_> {
        Kind::View
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
struct Placeholder(&'static str);

equal_to_itself!(Placeholder);

impl Op for Placeholder {
    fn name(&self) -> &'static str {
        "placeholder"
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        let tracing = self.0;
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
    Array::varied(scope, shape, dtype, OpRef::new(Placeholder(what)), SmallVec::new())
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

    fn kind(&self) -> Kind<'_> {
        Kind::View
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

reader!("stop_gradient", One(read_stop_gradient));
fn read_stop_gradient(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    stop_gradient(x)
}
