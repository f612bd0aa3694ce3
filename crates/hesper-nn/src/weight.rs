//! Weights of linear layers and embeddings, used as stored.

use hesper_core::{Activations, Array, Dtype, PackedArray, QuantMode};

use crate::error::{Error, Result};
use crate::module::{Module, Parameter, join};
use crate::{Leaf, LeafMut};

/// How the rows of a weight were quantized: in groups of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantization {
    group: usize,
    bits: usize,
    mode: QuantMode,
}

impl Quantization {
    /// A quantization as in `config.json`: group size, bits per code, mode.
    pub fn new(group: usize, bits: usize, mode: &str) -> Result<Self> {
        let mode = match mode {
            "affine" => QuantMode::Affine,
            "mxfp4" => QuantMode::Mxfp4,
            "mxfp8" => QuantMode::Mxfp8,
            "nvfp4" => QuantMode::Nvfp4,
            _ => {
                let known = "affine, mxfp4, mxfp8, nvfp4";
                let what = format!("unknown quantization mode {mode:?}; known are {known}");
                return Err(Error::InvalidArgument(what));
            }
        };
        let known = match mode {
            QuantMode::Affine => matches!(group, 32 | 64 | 128) && matches!(bits, 2..=6 | 8),
            other => (group, bits) == other.defaults(),
        };
        if !known {
            let what = format!(
                "quantization mode {:?} does not support {bits} bits in groups of {group}",
                mode.name()
            );
            return Err(Error::InvalidArgument(what));
        }
        Ok(Quantization { group, bits, mode })
    }

    /// Codes per scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Bits per code.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// The meaning of codes.
    pub fn mode(&self) -> QuantMode {
        self.mode
    }
}

/// A matrix of shape (outputs, inputs).
#[derive(Debug, Clone)]
pub enum Weight {
    /// Floats.
    Dense(Parameter),
    /// Codes in groups, with a scale and, depending on the mode, a bias for each group.
    Quantized {
        /// The codes, packed into 32-bit integers.
        codes: Parameter,
        /// The scale of every group.
        scales: Parameter,
        /// The bias of every group, where the mode has them.
        biases: Option<Parameter>,
        /// How they were quantized.
        quantization: Quantization,
        /// Whether activations may be rounded.
        activations: Activations,
    },
    /// Blocks of a GGUF file.
    Packed {
        /// The blocks.
        blocks: PackedArray,
        /// Whether activations may be rounded.
        activations: Activations,
    },
}

impl From<Array> for Weight {
    fn from(array: Array) -> Self {
        Weight::Dense(array.into())
    }
}

impl Weight {
    /// A quantized weight as a checkpoint stores it.
    pub fn quantized(
        codes: Array,
        scales: Array,
        biases: Option<Array>,
        quantization: Quantization,
        activations: Activations,
    ) -> Self {
        Weight::Quantized {
            codes: codes.into(),
            scales: scales.into(),
            biases: biases.map(Parameter::new),
            quantization,
            activations,
        }
    }

    /// Quantizes a dense weight. Others are returned unchanged.
    pub fn quantize(&self, quantization: Quantization, activations: Activations) -> Result<Weight> {
        let Weight::Dense(weight) = self else { return Ok(self.clone()) };
        let Quantization { group, bits, mode } = quantization;
        let (codes, scales, biases) = weight.get().quantize(Some(group), Some(bits), mode)?;
        Ok(Weight::quantized(codes, scales, biases, quantization, activations))
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> [usize; 2] {
        let pair = |shape: &[usize]| match *shape {
            [outputs, inputs] => [outputs, inputs],
            _ => [0, 0],
        };
        match self {
            Weight::Dense(weight) => pair(weight.get().shape()),
            Weight::Quantized { codes, quantization, .. } => {
                let [outputs, packed] = pair(codes.get().shape());
                [outputs, packed.saturating_mul(32) / quantization.bits]
            }
            Weight::Packed { blocks, .. } => pair(blocks.shape()),
        }
    }

    /// `x w^T`.
    pub fn apply(&self, x: &Array) -> Result<Array> {
        Ok(match self {
            Weight::Dense(weight) => x.matmul(&weight.get().t()?)?,
            Weight::Quantized { codes, scales, biases, quantization, activations } => {
                let biases = biases.as_ref().map(Parameter::get);
                let Quantization { group, bits, mode } = *quantization;
                let (codes, scales) = (codes.get(), scales.get());
                let (group, bits) = (Some(group), Some(bits));
                x.quantized_matmul_with(codes, scales, biases, true, group, bits, mode, *activations)?
            }
            Weight::Packed { blocks, activations } => blocks.matmul_with(x, *activations)?,
        })
    }

    /// The rows with the indices `ids`, along one more axis.
    pub fn rows(&self, ids: &Array) -> Result<Array> {
        Ok(match self {
            Weight::Dense(weight) => weight.get().take(ids, Some(0))?,
            Weight::Quantized { codes, scales, biases, quantization, .. } => {
                let row = |one: &Parameter| one.get().take(ids, Some(0));
                let biases = biases.as_ref().map(row).transpose()?;
                let Quantization { group, bits, mode } = *quantization;
                let (codes, scales) = (row(codes)?, row(scales)?);
                codes.dequantize(&scales, biases.as_ref(), Some(group), Some(bits), mode, None)?
            }
            Weight::Packed { blocks, .. } => blocks.rows(ids, Dtype::Float32)?,
        })
    }

    /// Whether the rows of both can be stored in one weight.
    pub(crate) fn has_storage_of(&self, other: &Weight) -> bool {
        let same = self.shape()[1] == other.shape()[1] && self.dtype() == other.dtype();
        same && match (self, other) {
            (Weight::Dense(_), Weight::Dense(_)) => true,
            (
                Weight::Quantized { biases, quantization, activations, .. },
                Weight::Quantized { biases: b, quantization: q, activations: a, .. },
            ) => quantization == q && activations == a && biases.is_some() == b.is_some(),
            _ => false,
        }
    }

    /// Its parameters.
    pub(crate) fn parameters_mut(&mut self) -> Vec<&mut Parameter> {
        match self {
            Weight::Dense(weight) => vec![weight],
            Weight::Quantized { codes, scales, biases, .. } => {
                [codes, scales].into_iter().chain(biases.as_mut()).collect()
            }
            Weight::Packed { .. } => Vec::new(),
        }
    }

    /// The dtype of products with activations of the same dtype.
    pub fn dtype(&self) -> Dtype {
        match self {
            Weight::Dense(weight) => weight.get().dtype(),
            Weight::Quantized { scales, biases: Some(_), .. } => scales.get().dtype(),
            Weight::Quantized { .. } | Weight::Packed { .. } => Dtype::Float32,
        }
    }
}

impl Module for Weight {
    fn visit<'a>(&'a self, prefix: &str, f: &mut dyn FnMut(String, Leaf<'a>)) {
        match self {
            Weight::Dense(weight) => weight.visit(&join(prefix, "weight"), f),
            Weight::Quantized { codes, scales, biases, .. } => {
                codes.visit(&join(prefix, "weight"), f);
                scales.visit(&join(prefix, "scales"), f);
                biases.visit(&join(prefix, "biases"), f);
            }
            Weight::Packed { blocks, .. } => f(join(prefix, "weight"), Leaf::Packed(blocks)),
        }
    }

    fn visit_mut(
        &mut self,
        prefix: &str,
        f: &mut dyn FnMut(String, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Weight::Dense(weight) => weight.visit_mut(&join(prefix, "weight"), f),
            Weight::Quantized { codes, scales, biases, .. } => {
                codes.visit_mut(&join(prefix, "weight"), f)?;
                scales.visit_mut(&join(prefix, "scales"), f)?;
                biases.visit_mut(&join(prefix, "biases"), f)
            }
            Weight::Packed { blocks, .. } => f(join(prefix, "weight"), LeafMut::Packed(blocks)),
        }
    }
}
