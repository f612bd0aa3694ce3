//! A residual sum and its norm, as one command where the backend has a kernel for both.

use smallvec::smallvec;

use super::{Op, OpRef};
use crate::array::Array;
use crate::backend;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::fast::rms_norm;
use crate::identity::BitEq;
use crate::stack;
use crate::transform::rule::{Backward, Cotangents};

const NAME: &str = "add_norm";

/// Inputs: two arrays and a weight. Gives their sum and its norm along a new first axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AddNorm {
    /// The epsilon of the norm.
    pub eps: BitEq<f32>,
}

impl AddNorm {
    /// The same as a graph of other ops.
    pub fn composed(&self, inputs: &[Array]) -> Result<Array> {
        let [x, y, weight] = inputs else { return Err(Error::value(NAME, "three inputs expected")) };
        let sum = x.add(y)?;
        stack(&[sum.clone(), rms_norm(&sum, Some(weight), self.eps.0)?], 0)
    }
}

impl Op for AddNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(|inputs| self.composed(inputs))
    }
}

/// The sum of two arrays of one shape and type, and its root mean square norm with a weight: as `x + y` and
/// [`rms_norm`] give them, in one command where the backend has a kernel for both.
///
/// ```
/// use hesper::{Array, fast};
/// let (x, w) = (Array::from_slice(&[1.0f32, 5.0]), Array::from_slice(&[1.0f32, 1.0]));
/// let (sum, normal) = fast::add_norm(&x, &x, &w, 0.0)?;
/// assert_eq!(sum.to_vec::<f32>()?, [2.0, 10.0]);
/// assert!((normal.to_vec::<f32>()?[1] - 10.0 / 52f32.sqrt()).abs() < 1e-6);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn add_norm(x: &Array, y: &Array, weight: &Array, eps: f32) -> Result<(Array, Array)> {
    let length = x.shape().last().copied();
    if x.shape() != y.shape() || weight.ndim() != 1 || weight.shape().first().copied() != length {
        let what = format!(
            "arrays of shapes {:?} and {:?} with a weight of shape {:?}",
            x.shape(),
            y.shape(),
            weight.shape()
        );
        return Err(Error::shape(NAME, what));
    }
    let fused = x.dtype().is(Category::Floating) && backend::implements::<AddNorm>();
    if !fused || y.dtype() != x.dtype() || weight.dtype() != x.dtype() || x.size() == 0 {
        let sum = x.add(y)?;
        let normal = rms_norm(&sum, Some(weight), eps)?;
        return Ok((sum, normal));
    }
    let shape = std::iter::once(2).chain(x.shape().iter().copied()).collect();
    let inputs = smallvec![x.clone(), y.clone(), weight.clone()];
    let both = Array::lazy(shape, x.dtype(), OpRef::new(AddNorm { eps: BitEq(eps) }), inputs)?;
    let part = |at: isize| both.slice_axis(0, at, at + 1, 1)?.squeeze(Some(&[0]));
    Ok((part(0)?, part(1)?))
}
