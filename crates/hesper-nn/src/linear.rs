//! Affine maps.

use hesper::{Activations, Array, PackedArray};

use crate::error::{Error, Result};
use crate::module::{Module, Parameter, join};
use crate::weight::Weight;
use crate::{Leaf, LeafMut};

/// `x w^T + b`.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Weight,
    bias: Option<Parameter>,
}

impl Linear {
    /// From a weight of shape (outputs, inputs) and a bias of shape (outputs).
    pub fn new(weight: Weight, bias: Option<Array>) -> Result<Self> {
        let [outputs, _] = weight.shape();
        if let Some(bias) = &bias
            && bias.shape() != [outputs]
        {
            return Err(Error::Shape {
                path: "bias".into(),
                given: bias.shape().to_vec(),
                expected: vec![outputs],
            });
        }
        Ok(Linear { weight, bias: bias.map(Parameter::new) })
    }

    /// The weight.
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// The packed matrix, if it is all there is to the layer and activations are to be used as they are.
    pub(crate) fn packed(&self) -> Option<&PackedArray> {
        match (&self.weight, &self.bias) {
            (Weight::Packed { blocks, activations: Activations::Exact }, None) => Some(blocks),
            _ => None,
        }
    }

    /// Applies the map to the last axis.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let y = self.weight.apply(x)?;
        Ok(match &self.bias {
            Some(bias) => y.add(bias.get())?,
            None => y,
        })
    }
}

impl Module for Linear {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        self.weight.visit(prefix, f);
        self.bias.visit(&join(prefix, "bias"), f);
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.weight.visit_mut(prefix, f)?;
        self.bias.visit_mut(&join(prefix, "bias"), f)
    }
}
