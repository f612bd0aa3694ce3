//! A sum and its root mean square norm.

use super::Composite;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::identity::BitEq;
use crate::ops::Op;
use crate::ops::norm::rms_norm;

/// Inputs: two arrays of one shape and a weight. Gives their sum and its norm along a new first axis.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AddNorm {
    /// The epsilon of the norm.
    pub eps: BitEq<f32>,
}

impl Op for AddNorm {
    fn name(&self) -> &'static str {
        "add_norm"
    }

    fn composite() -> CompositeSet {
        CompositeSet::ADD_NORM
    }
}

impl Composite for AddNorm {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [x, y, weight] = inputs else { return Err(Error::value(self.name(), "three inputs expected")) };
        let sum = x.add(y)?;
        let normed = rms_norm(&sum, Some(weight), self.eps.0)?;
        Ok(vec![sum, normed])
    }
}
