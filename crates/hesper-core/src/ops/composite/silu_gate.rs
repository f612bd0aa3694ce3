//! `silu(gate) * up` of rows that hold gate and up side by side.

use super::Composite;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::ops::Op;

/// `g * sigmoid(g) * u` for the first half `g` and the second half `u` of each row of the input.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SiluGate;

impl Op for SiluGate {
    fn name(&self) -> &'static str {
        "silu_gate"
    }

    fn composite() -> CompositeSet {
        CompositeSet::SILU_GATE
    }
}

impl Composite for SiluGate {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [both] = inputs else { return Err(Error::value(self.name(), "one input expected")) };
        let half = both.shape().last().map_or(0, |length| length / 2) as isize;
        let last = both.ndim().saturating_sub(1);
        let (gate, up) = (both.slice_axis(last, 0, half, 1)?, both.slice_axis(last, half, 2 * half, 1)?);
        Ok(vec![gate.multiply(&gate.sigmoid()?)?.multiply(&up)?])
    }
}
