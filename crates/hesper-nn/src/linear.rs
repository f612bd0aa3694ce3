//! Affine layers.

use hesper_core::{Array, Split, concatenate};

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
    /// A layer with a weight of shape (outputs, inputs) and a bias of shape (outputs).
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

    /// One layer whose outputs are those of `layers` side by side, if their weights have the same storage. The weights of
    /// `layers` become views of its own.
    pub(crate) fn fuse(layers: &mut [&mut Linear]) -> Result<Option<Linear>> {
        let Some(first) = layers.first().map(|layer| (**layer).clone()) else { return Ok(None) };
        let same_storage = |layer: &Linear| {
            layer.weight.has_storage_of(&first.weight) && layer.bias.is_some() == first.bias.is_some()
        };
        let mut fused = first.clone();
        let count = fused.parameters_mut().len();
        if count == 0 || !layers.iter().all(|layer| same_storage(layer)) {
            return Ok(None);
        }
        for part in 0..count {
            let own = |layer: &mut Linear| layer.parameters_mut()[part].get().clone();
            let all: Vec<Array> = layers.iter_mut().map(|layer| own(layer)).collect();
            let whole = concatenate(&all, 0)?;
            let ends = all.iter().scan(0, |end, array| {
                *end += array.shape()[0] as isize;
                Some(*end)
            });
            let cuts: Vec<isize> = ends.take(all.len() - 1).collect();
            for (layer, rows) in layers.iter_mut().zip(whole.split(Split::Indices(&cuts), 0)?) {
                layer.parameters_mut()[part].set(rows);
            }
            fused.parameters_mut()[part].set(whole);
        }
        Ok(Some(fused))
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter> {
        self.weight.parameters_mut().into_iter().chain(&mut self.bias).collect()
    }

    /// Applies the layer to the last axis.
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
