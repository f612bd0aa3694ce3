//! Weights of linear layers and embeddings. Quantized weights are used as stored, without a dense copy.

use hesper_core::{Activations, Array, Dtype, PackedArray, QuantMode};

use super::{Leaf, LeafMut, Module, ModuleExt, Parameter, Path};
use crate::error::{Error, Result};
use crate::init;

/// How the rows of a weight were quantized: in groups of codes.
///
/// ```
/// use hesper::QuantMode;
/// use hesper_nn::Quantization;
/// let quantization = Quantization::new(64, 4, "affine")?;
/// assert_eq!((quantization.group(), quantization.bits()), (64, 4));
/// assert_eq!(quantization.mode(), QuantMode::Affine);
/// assert!(Quantization::new(64, 7, "affine").is_err());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
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

crate::settings!(Quantization);

/// A matrix of shape (outputs, inputs).
///
/// ```
/// use hesper::{Activations, Array, Dtype, array};
/// use hesper_nn::{Quantization, Weight};
/// let dense = Weight::from(Array::ones(&[8, 64], Dtype::Float32)?);
/// let small = dense.quantize(Quantization::new(64, 4, "affine")?, Activations::Exact)?;
/// assert_eq!((small.shape(), small.dtype()), ([8, 64], Dtype::Float32));
/// let x = Array::ones(&[1, 64], Dtype::Float32)?;
/// assert_eq!(small.apply(&x)?.to_vec::<f32>()?, dense.apply(&x)?.to_vec::<f32>()?);
/// assert_eq!(small.rows(&array![3])?.shape(), [1, 64]);
/// let tuned = dense.adapt(4, 2.0)?; // with a LoRA of rank 4
/// assert_eq!(tuned.merge()?.shape(), [8, 64]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
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
        /// The bias of every group, if the mode has biases.
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
    /// A weight plus `scale` times a product of two small matrices (LoRA): `w + scale * (a b)^T`.
    Adapted {
        /// The weight.
        base: Box<Weight>,
        /// The first matrix, of shape (inputs, rank).
        a: Parameter,
        /// The second matrix, of shape (rank, outputs).
        b: Parameter,
        /// The factor of the product.
        scale: f32,
    },
}

impl From<Array> for Weight {
    fn from(array: Array) -> Self {
        Weight::Dense(array.into())
    }
}

impl Weight {
    /// A quantized weight as a checkpoint stores it.
    ///
    /// ```
    /// use hesper::{Activations, Array, Dtype, QuantMode};
    /// use hesper_nn::{Quantization, Weight};
    /// let w = Array::ones(&[8, 64], Dtype::Float32)?;
    /// let (codes, scales, biases) = w.quantize(Some(64), Some(4), QuantMode::Affine)?;
    /// let quantization = Quantization::new(64, 4, "affine")?;
    /// let weight = Weight::quantized(codes, scales, biases, quantization, Activations::Exact);
    /// assert_eq!(weight.shape(), [8, 64]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
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

    /// The same weight with a LoRA of the given rank. Training changes the small matrices only: `a` starts
    /// uniformly distributed within `1 / sqrt(inputs)`, `b` with zeros.
    pub fn adapt(&self, rank: usize, scale: f32) -> Result<Weight> {
        let [outputs, inputs] = self.shape();
        if rank == 0 || rank > outputs.min(inputs) {
            let what = format!(
                "cannot adapt a weight of shape {:?} with rank {rank}; the rank must be between 1 and {}",
                self.shape(),
                outputs.min(inputs)
            );
            return Err(Error::InvalidArgument(what));
        }
        let dtype = self.dtype();
        let a = init::uniform_within(1.0 / (inputs as f64).sqrt(), &[inputs, rank])?.astype(dtype)?;
        let b = Array::zeros(&[rank, outputs], dtype)?;
        let mut base = self.clone();
        base.freeze(|_| true);
        Ok(Weight::Adapted { base: Box::new(base), a: a.into(), b: b.into(), scale })
    }

    /// Merges a LoRA into its dense weight. Other weights are returned unchanged.
    pub fn merge(&self) -> Result<Weight> {
        let Weight::Adapted { base, a, b, scale } = self else { return Ok(self.clone()) };
        let Weight::Dense(weight) = &**base else { return Ok(self.clone()) };
        let change = a.matmul(b)?.t()?.multiply(*scale)?.astype(weight.dtype())?;
        Ok(weight.add(change)?.into())
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
            Weight::Adapted { base, .. } => base.shape(),
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
            Weight::Adapted { base, a, b, scale } => {
                let y = base.apply(x)?;
                let change = x.matmul(a)?.matmul(b)?.multiply(*scale)?;
                y.add(change.astype(y.dtype())?)?
            }
        })
    }

    /// The rows with the indices `ids`, along a new last axis.
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
            Weight::Adapted { base, a, b, scale } => {
                let rows = base.rows(ids)?;
                let change = b.t()?.take(ids, Some(0))?.matmul(&a.t()?)?.multiply(*scale)?;
                rows.add(change.astype(rows.dtype())?)?
            }
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

    /// Its parameters. None for packed blocks and LoRAs.
    pub(crate) fn parameters_mut(&mut self) -> Vec<&mut Parameter> {
        match self {
            Weight::Dense(weight) => vec![weight],
            Weight::Quantized { codes, scales, biases, .. } => {
                [codes, scales].into_iter().chain(biases.as_mut()).collect()
            }
            Weight::Packed { .. } | Weight::Adapted { .. } => Vec::new(),
        }
    }

    /// The dtype of products with activations of the same dtype.
    pub fn dtype(&self) -> Dtype {
        match self {
            Weight::Dense(weight) => weight.get().dtype(),
            Weight::Quantized { scales, biases: Some(_), .. } => scales.get().dtype(),
            Weight::Quantized { .. } | Weight::Packed { .. } => Dtype::Float32,
            Weight::Adapted { base, .. } => base.dtype(),
        }
    }
}

/// Not derived, because `visit_mut` also passes the whole weight to the visitor.
impl Module for Weight {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        let kind = match self {
            Weight::Dense(_) => "dense",
            Weight::Quantized { .. } => "quantized",
            Weight::Packed { .. } => "packed",
            Weight::Adapted { .. } => "adapted",
        };
        f(path.as_str(), Leaf::Setting(&kind));
        match self {
            Weight::Dense(weight) => path.enter("weight", |path| weight.visit(path, f)),
            Weight::Quantized { codes, scales, biases, quantization, activations } => {
                path.enter("weight", |path| codes.visit(path, f));
                path.enter("scales", |path| scales.visit(path, f));
                path.enter("biases", |path| biases.visit(path, f));
                quantization.visit(path, f);
                activations.visit(path, f);
            }
            Weight::Packed { blocks, activations } => {
                path.enter("weight", |path| blocks.visit(path, f));
                activations.visit(path, f);
            }
            Weight::Adapted { base, a, b, scale } => {
                base.visit(path, f);
                path.enter("lora_a", |path| a.visit(path, f));
                path.enter("lora_b", |path| b.visit(path, f));
                scale.visit(path, f);
            }
        }
    }

    fn visit_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        f(path.as_str(), LeafMut::Weight(self))?;
        self.visit_leaves_mut(path, f)
    }
}

impl Weight {
    /// Visits its parameters and blocks. Does not pass the base of a LoRA to the visitor as a whole weight.
    fn visit_leaves_mut(
        &mut self,
        path: &mut Path,
        f: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Weight::Dense(weight) => path.enter("weight", |path| weight.visit_mut(path, f)),
            Weight::Quantized { codes, scales, biases, .. } => {
                path.enter("weight", |path| codes.visit_mut(path, f))?;
                path.enter("scales", |path| scales.visit_mut(path, f))?;
                path.enter("biases", |path| biases.visit_mut(path, f))
            }
            Weight::Packed { blocks, .. } => path.enter("weight", |path| blocks.visit_mut(path, f)),
            Weight::Adapted { base, a, b, .. } => {
                base.visit_leaves_mut(path, f)?;
                path.enter("lora_a", |path| a.visit_mut(path, f))?;
                path.enter("lora_b", |path| b.visit_mut(path, f))
            }
        }
    }
}

/// Replaces the weights of layers whose path `which` accepts.
fn replace_weights(
    module: &mut (impl Module + ?Sized),
    which: &dyn Fn(&str) -> bool,
    f: &dyn Fn(&Weight) -> Result<Weight>,
) -> Result<()> {
    module.visit_mut(&mut Path::default(), &mut |path, leaf| {
        if let LeafMut::Weight(weight) = leaf
            && which(path)
        {
            *weight = f(weight)?;
        }
        Ok(())
    })
}

/// Quantizes the dense weights of linear layers and embeddings whose path `which` accepts.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::{Linear, Quantization, quantize};
/// let mut layer = Linear::new(64, 8)?;
/// quantize(&mut layer, Quantization::new(64, 8, "affine")?, |_| true)?;
/// assert_eq!(layer.weight().shape(), [8, 64]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn quantize(
    module: &mut (impl Module + ?Sized),
    quantization: Quantization,
    which: impl Fn(&str) -> bool,
) -> Result<()> {
    replace_weights(module, &which, &|weight| weight.quantize(quantization, Activations::Exact))
}

/// Freezes a module and adds a LoRA to the weights of layers whose path `which` accepts. Only the small
/// matrices `lora_a` and `lora_b` are trained.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::{Linear, ModuleExt, add_lora};
/// let mut layer = Linear::new(64, 8)?;
/// add_lora(&mut layer, 4, 2.0, |_| true)?;
/// let paths: Vec<String> = layer.trainable_parameters().into_keys().collect();
/// assert_eq!(paths, ["lora_a", "lora_b"]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn add_lora(
    module: &mut (impl Module + ?Sized),
    rank: usize,
    scale: f32,
    which: impl Fn(&str) -> bool,
) -> Result<()> {
    module.freeze(|_| true);
    let once = |weight: &Weight| match weight {
        Weight::Adapted { .. } => Ok(weight.clone()),
        _ => weight.adapt(rank, scale),
    };
    replace_weights(module, &which, &once)
}

/// Merges every LoRA whose weight is dense into that weight.
///
/// ```
/// # use hesper as _;
/// use hesper_nn::{Linear, ModuleExt, add_lora, merge_lora};
/// let mut layer = Linear::new(64, 8)?;
/// let before = layer.count();
/// add_lora(&mut layer, 4, 2.0, |_| true)?;
/// merge_lora(&mut layer)?;
/// assert_eq!(layer.count(), before);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
pub fn merge_lora(module: &mut (impl Module + ?Sized)) -> Result<()> {
    replace_weights(module, &|_| true, &Weight::merge)
}
