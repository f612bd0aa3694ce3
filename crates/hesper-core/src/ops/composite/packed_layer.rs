//! A norm, products with packed matrices and an epilogue: a decode step has many small products, and a
//! command costs as much as one of them.

use smallvec::SmallVec;

use super::Composite;
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Array, CompositeSet};
use crate::identity::BitEq;
use crate::ops::norm::rms_norm;
use crate::ops::packed::{PackedArray, PackedFormat};
use crate::ops::quant::Activations;
use crate::ops::{Op, OpRef};

/// The epilogue of the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// They are concatenated along the last axis.
    Plain,
    /// There is one matrix, and the last input is added.
    AddResidual,
    /// There are two matrices: `g * sigmoid(g) * u` for the products `g` with the first and `u` with the
    /// second.
    SiluGate,
}

/// Products of rows with the transposes of packed matrices, in float32. Inputs: rows of activations along the
/// last axis, the weight of the norm if there is one, the blocks of each matrix, the addend if there is one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PackedLayer {
    /// The epsilon of the norm, if there is one.
    pub eps: Option<BitEq<f32>>,
    /// Format and rows of each matrix.
    pub matrices: SmallVec<[(PackedFormat, usize); 3]>,
    /// Whether the activations of the products may be rounded.
    pub activations: Activations,
    /// The epilogue.
    pub end: Epilogue,
}

impl Op for PackedLayer {
    fn name(&self) -> &'static str {
        "packed_layer"
    }

    fn composite() -> CompositeSet {
        CompositeSet::PACKED_LAYER
    }
}

impl PackedLayer {
    /// The norm by itself, then a layer of `shape` without it: for backends whose kernel of many rows takes
    /// no norm.
    pub fn after_norm(&self, inputs: &[Array], shape: &[usize]) -> Result<Array> {
        let (Some(eps), [x, weight, rest @ ..]) = (self.eps, inputs) else {
            return Err(Error::value(self.name(), "no norm"));
        };
        let op = PackedLayer {
            eps: None,
            matrices: self.matrices.clone(),
            activations: self.activations,
            end: self.end,
        };
        let inputs = [rms_norm(x, Some(weight), eps.0)?].into_iter().chain(rest.iter().cloned()).collect();
        Array::lazy(shape.into(), Dtype::Float32, OpRef::new(op), inputs)
    }
}

impl Composite for PackedLayer {
    fn composed(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let first = 1 + usize::from(self.eps.is_some());
        if inputs.len() < first + self.matrices.len() + usize::from(self.end == Epilogue::AddResidual) {
            return Err(Error::value(self.name(), format!("{} inputs are too few", inputs.len())));
        }
        let x = match self.eps {
            Some(eps) => rms_norm(&inputs[0], Some(&inputs[1]), eps.0)?,
            None => inputs[0].clone(),
        };
        let cols = x.shape().last().copied().unwrap_or(0);
        let mut products = Vec::with_capacity(self.matrices.len());
        for ((format, rows), blocks) in self.matrices.iter().zip(&inputs[first..]) {
            let matrix = PackedArray::new(blocks, *format, &[*rows, cols])?;
            products.push(matrix.matmul_with(&x, self.activations)?);
        }
        Ok(match (self.end, &products[..]) {
            (Epilogue::AddResidual, [product]) => {
                let addend = &inputs[first + 1];
                let shape = crate::shape::signed(addend.shape());
                vec![product.reshape(&shape)?.add(addend)?]
            }
            (Epilogue::SiluGate, [gate, up]) => vec![gate.multiply(&gate.sigmoid()?)?.multiply(up)?],
            _ => products,
        })
    }
}
