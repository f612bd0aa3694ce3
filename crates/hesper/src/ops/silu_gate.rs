//! A gate and what it is multiplied by, side by side: what stands in the middle of a decoder's layer, as one command on
//! GPUs.

use smallvec::smallvec;

use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::gpu::compose::compose;
use crate::place;
use crate::transform::rule::{Backward, Cotangents};

const NAME: &str = "silu_gate";

/// Of one input: the activated first half of each row times the second one.
#[derive(Debug)]
struct SiluGate;

fn composed(both: &Array) -> Result<Array> {
    let half = both.shape().last().map_or(0, |length| length / 2) as isize;
    let last = both.ndim().saturating_sub(1);
    let (gate, other) = (both.slice_axis(last, 0, half, 1)?, both.slice_axis(last, half, 2 * half, 1)?);
    gate.multiply(&gate.sigmoid()?)?.multiply(&other)
}

fn of_inputs(inputs: &[Array]) -> Result<Array> {
    composed(inputs.first().ok_or_else(|| Error::value(NAME, "an input expected"))?)
}

impl Op for SiluGate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let made = compose(l, of_inputs)?;
        made.ok_or_else(|| Error::value(NAME, "could not be put together"))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match crate::gpu::step::silu_gate(l)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, of_inputs),
        }
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.through(of_inputs)
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
    let fused = both.dtype().is(Category::Floating) && place::current_device() != place::Device::Cpu;
    if !fused || both.size() == 0 {
        return composed(both);
    }
    let mut shape: crate::shape::Shape = both.shape().into();
    if let Some(last) = shape.last_mut() {
        *last = length / 2;
    }
    Array::lazy(shape, both.dtype(), OpRef::new(SiluGate), smallvec![both.clone()])
}
