//! `silu(gate) * up` of rows that hold gate and up side by side, as one command where the backend has a kernel for it.

use smallvec::smallvec;

use super::{Op, OpRef};
use crate::array::Array;
use crate::backend;
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::transform::rule::{Backward, Cotangents};

const NAME: &str = "silu_gate";

/// `silu` of the first half of each row of the input, times the second half.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SiluGate;

fn of_both(both: &Array) -> Result<Array> {
    let half = both.shape().last().map_or(0, |length| length / 2) as isize;
    let last = both.ndim().saturating_sub(1);
    let (gate, other) = (both.slice_axis(last, 0, half, 1)?, both.slice_axis(last, half, 2 * half, 1)?);
    gate.multiply(&gate.sigmoid()?)?.multiply(&other)
}

/// The same as a graph of other ops.
pub fn composed(inputs: &[Array]) -> Result<Array> {
    of_both(inputs.first().ok_or_else(|| Error::value(NAME, "an input expected"))?)
}

impl Op for SiluGate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(composed)
    }
}

/// The first half of each row, times its logistic function, times the second half; rows are the last axis.
///
/// ```
/// use hesper::{Array, fast};
/// let both = Array::from_slice(&[0.0f32, 2.0, 5.0, 3.0]);
/// let gated = fast::silu_gate(&both)?.to_vec::<f32>()?;
/// assert_eq!(gated[0], 0.0);
/// assert!((gated[1] - 6.0 / (1.0 + (-2f32).exp())).abs() < 1e-6);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn silu_gate(both: &Array) -> Result<Array> {
    let Some(length) = both.shape().last().copied().filter(|length| length % 2 == 0) else {
        return Err(Error::shape(NAME, format!("rows of two halves expected, got shape {:?}", both.shape())));
    };
    let fused = both.dtype().is(Category::Floating) && backend::implements::<SiluGate>();
    if !fused || both.size() == 0 {
        return of_both(both);
    }
    let mut shape: crate::shape::Shape = both.shape().into();
    if let Some(last) = shape.last_mut() {
        *last = length / 2;
    }
    Array::lazy(shape, both.dtype(), OpRef::new(SiluGate), smallvec![both.clone()])
}
