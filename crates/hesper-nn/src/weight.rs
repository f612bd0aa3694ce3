//! Weights of linear layers and tables, used as they are stored.

use hesper::{Activations, Array, Dtype, PackedArray, PackedEnd, QuantMode, packed_layer};

use crate::attention::joins;
use crate::error::{Error, Result};
use crate::module::{Module, Parameter, join};
use crate::norm::Norm;
use crate::{Leaf, LeafMut};

/// How the rows of a weight were rounded to codes in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantization {
    group: usize,
    bits: usize,
    mode: QuantMode,
}

impl Quantization {
    /// By the names of a configuration: codes of a group, bits of a code, mode.
    pub fn new(group: usize, bits: usize, mode: &str) -> Result<Self> {
        let mode = match mode {
            "affine" => QuantMode::Affine,
            "mxfp4" => QuantMode::Mxfp4,
            "mxfp8" => QuantMode::Mxfp8,
            "nvfp4" => QuantMode::Nvfp4,
            _ => return Err(Error::Setting(format!("there is no quantization {mode:?}"))),
        };
        let known = match mode {
            QuantMode::Affine => matches!(group, 32 | 64 | 128) && matches!(bits, 2..=6 | 8),
            other => (group, bits) == other.defaults(),
        };
        if !known {
            let what =
                format!("there is no quantization {:?} with {bits} bits in groups of {group}", mode.name());
            return Err(Error::Setting(what));
        }
        Ok(Quantization { group, bits, mode })
    }

    /// Codes that share a scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Bits of a code.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// What codes mean.
    pub fn mode(&self) -> QuantMode {
        self.mode
    }
}

/// A matrix of shape (outputs, inputs).
#[derive(Debug, Clone)]
pub enum Weight {
    /// Numbers.
    Dense(Parameter),
    /// Codes in groups, with a scale and perhaps a bias for each group.
    Quantized {
        /// The codes, packed in words.
        codes: Parameter,
        /// A scale for every group.
        scales: Parameter,
        /// A bias for every group, where the mode has them.
        biases: Option<Parameter>,
        /// How they were made.
        quantization: Quantization,
        /// What may happen to activations.
        activations: Activations,
    },
    /// Blocks of a GGUF file.
    Packed {
        /// The blocks.
        blocks: PackedArray,
        /// What may happen to activations.
        activations: Activations,
    },
}

impl From<Array> for Weight {
    fn from(array: Array) -> Self {
        Weight::Dense(array.into())
    }
}

impl Weight {
    /// Of codes, scales and biases as a checkpoint holds them.
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

    /// Rounds a dense matrix to codes; others stay as they are.
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
                let [outputs, words] = pair(codes.get().shape());
                [outputs, words.saturating_mul(32) / quantization.bits]
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

    /// `norm(x) w^T`, in one command where the weight is packed.
    pub fn apply_normed(&self, norm: &Norm, x: &Array) -> Result<Array> {
        match (norm, self) {
            (Norm::Rms(norm), Weight::Packed { blocks, activations: Activations::Exact })
                if joins(norm, x) =>
            {
                Ok(packed_layer(x, Some(norm.parts()), &[blocks], PackedEnd::Plain)?)
            }
            _ => self.apply(&norm.forward(x)?),
        }
    }

    /// The rows that numbers name, as one more axis.
    pub fn rows(&self, numbers: &Array) -> Result<Array> {
        Ok(match self {
            Weight::Dense(weight) => weight.get().take(numbers, Some(0))?,
            Weight::Quantized { codes, scales, biases, quantization, .. } => {
                let row = |one: &Parameter| one.get().take(numbers, Some(0));
                let biases = biases.as_ref().map(row).transpose()?;
                let Quantization { group, bits, mode } = *quantization;
                let (codes, scales) = (row(codes)?, row(scales)?);
                codes.dequantize(&scales, biases.as_ref(), Some(group), Some(bits), mode, None)?
            }
            Weight::Packed { blocks, .. } => blocks.rows(numbers, Dtype::Float32)?,
        })
    }

    /// Whether rows of both can be those of one weight.
    pub(crate) fn is_like(&self, other: &Weight) -> bool {
        let same = self.shape()[1] == other.shape()[1] && self.dtype() == other.dtype();
        same && match (self, other) {
            (Weight::Dense(_), Weight::Dense(_)) => true,
            (
                Weight::Quantized { biases, quantization, activations, .. },
                Weight::Quantized { biases: others, quantization: kind, activations: rounding, .. },
            ) => quantization == kind && activations == rounding && biases.is_some() == others.is_some(),
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

    /// The type of what it gives for activations of its own type.
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
