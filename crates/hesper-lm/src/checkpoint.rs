//! The weights of a checkpoint by name, from safetensors or from a GGUF file.
//!
//! Layers are asked for by their names in safetensors;
//! [`Architecture::gguf_names`](crate::architecture::Architecture::gguf_names) maps them to those of GGUF
//! files. Weights are used as stored: dense, quantized in groups, or packed blocks. Shapes are checked at
//! once, elements are read when they are first used. Errors name the tensor as the file does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use hesper_core::io::Blocks;
use hesper_core::{Activations, Array, Dtype};
use hesper_nn::{Embedding, LayerNorm, Linear, RmsNorm, Weight};

use crate::config::{Config, Quantizations};
use crate::error::{Error, Result};

/// Names of layers in safetensors files and in GGUF files; `{}` stands for the index of a layer.
pub(crate) type NameMap = Vec<(&'static str, &'static str)>;

/// The weights of a checkpoint by name.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) arrays: BTreeMap<String, Array>,
    pub(crate) blocks: BTreeMap<String, Blocks>,
    /// For GGUF files, the names of their layers.
    pub(crate) gguf_names: Option<NameMap>,
    pub(crate) quantizations: Quantizations,
    pub(crate) activations: Activations,
    pub(crate) ignored: &'static [&'static str],
    /// Tensors that a model has asked for.
    pub(crate) used: RefCell<BTreeSet<String>>,
}

impl Checkpoint {
    /// The name of a layer in the file.
    fn stored_name(&self, layer: &str) -> String {
        let index = layer.split('.').find(|part| part.parse::<usize>().is_ok()).unwrap_or_default();
        let mut names = self.gguf_names.iter().flatten();
        let stored = names.find(|(name, _)| name.replace("{}", index) == layer);
        stored.map_or_else(|| layer.to_string(), |(_, stored)| stored.replace("{}", index))
    }

    /// A tensor, if the file has it.
    pub(crate) fn find(&self, name: &str) -> Option<&Array> {
        let found = self.arrays.get(name);
        if found.is_some() {
            self.used.borrow_mut().insert(name.to_string());
        }
        found
    }

    /// A tensor of a given shape.
    fn require(&self, name: &str, shape: &[usize]) -> Result<Array> {
        match self.find(name) {
            None => Err(Error::MissingTensor { name: name.to_string() }),
            Some(array) => check_shape(name, array.shape(), shape).map(|()| array.clone()),
        }
    }

    /// The matrix of a layer, of shape (outputs, inputs).
    fn weight(&self, stored: &str, shape: [usize; 2]) -> Result<Weight> {
        let name = format!("{stored}.weight");
        if let Some(blocks) = self.blocks.get(&name) {
            check_shape(&name, blocks.shape(), &shape)?;
            self.used.borrow_mut().insert(name);
            return Ok(match blocks.packed()? {
                Some(blocks) => Weight::Packed { blocks, activations: self.activations },
                // There are no kernels for products with these: decoded when they are first used.
                None => blocks.dequantize(Dtype::Float32)?.into(),
            });
        }
        let scales_name = format!("{stored}.scales");
        if !self.arrays.contains_key(&scales_name) {
            return Ok(self.require(&name, &shape)?.into());
        }
        let Some(quantization) = self.quantizations.of(stored) else {
            let what = format!("the tensor {scales_name:?} needs an entry \"quantization\"");
            return Err(Error::config("config.json", what));
        };
        let [outputs, inputs] = shape;
        let groups = [outputs, inputs / quantization.group()];
        let codes = self.require(&name, &[outputs, inputs * quantization.bits() / 32])?;
        let scales = self.require(&scales_name, &groups)?;
        let biases_name = format!("{stored}.biases");
        let biases = match self.arrays.contains_key(&biases_name) {
            true => Some(self.require(&biases_name, &groups)?),
            false => None,
        };
        Ok(Weight::quantized(codes, scales, biases, quantization, self.activations))
    }

    /// An embedding with a table of shape (ids, elements).
    pub(crate) fn embedding(&self, layer: &str, shape: [usize; 2]) -> Result<Embedding> {
        Ok(Embedding::from_weight(self.weight(&self.stored_name(layer), shape)?))
    }

    /// A linear layer with a weight of shape (outputs, inputs), and a bias if the file has one.
    pub(crate) fn linear(&self, layer: &str, shape: [usize; 2]) -> Result<Linear> {
        let stored = self.stored_name(layer);
        self.with_bias(&stored, self.weight(&stored, shape)?)
    }

    /// The same where safetensors hold dense weights of shape (inputs, outputs).
    pub(crate) fn conv1d(&self, layer: &str, shape: [usize; 2]) -> Result<Linear> {
        if self.gguf_names.is_some() || self.arrays.contains_key(&format!("{layer}.scales")) {
            return self.linear(layer, shape);
        }
        let transposed = self.require(&format!("{layer}.weight"), &[shape[1], shape[0]])?;
        self.with_bias(layer, transposed.t()?.into())
    }

    fn with_bias(&self, stored: &str, weight: Weight) -> Result<Linear> {
        let name = format!("{stored}.bias");
        let bias = match self.arrays.contains_key(&name) {
            true => Some(self.require(&name, &weight.shape()[..1])?.astype(weight.dtype())?),
            false => None,
        };
        Ok(Linear::from_weight(weight, bias)?)
    }

    /// The output projection, unless it is tied to the token embedding.
    pub(crate) fn output_projection(&self, layer: &str, config: &Config) -> Result<Option<Linear>> {
        let name = format!("{}.weight", self.stored_name(layer));
        let found = self.arrays.contains_key(&name) || self.blocks.contains_key(&name);
        match config.tie_embeddings && !found {
            true => Ok(None),
            false => self.linear(layer, [config.vocab_size, config.hidden_size]).map(Some),
        }
    }

    /// An RMS norm for activations of a dtype.
    pub(crate) fn rms_norm(&self, layer: &str, size: usize, eps: f32, dtype: Dtype) -> Result<RmsNorm> {
        let name = format!("{}.weight", self.stored_name(layer));
        Ok(RmsNorm::from_weight(self.require(&name, &[size])?.astype(dtype)?, eps))
    }

    /// A layer norm for activations of a dtype.
    pub(crate) fn layer_norm(&self, layer: &str, size: usize, eps: f32, dtype: Dtype) -> Result<LayerNorm> {
        let stored = self.stored_name(layer);
        let part = |name: &str| -> Result<Array> {
            Ok(self.require(&format!("{stored}.{name}"), &[size])?.astype(dtype)?)
        };
        Ok(LayerNorm::from_weight(part("weight")?, Some(part("bias")?), eps))
    }

    /// Fails if there are weights that the model did not ask for: the configuration is that of another
    /// checkpoint.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let ignored = |name: &str| self.ignored.iter().any(|ending| name.ends_with(ending));
        let all = self.arrays.keys().chain(self.blocks.keys());
        let unused: Vec<&String> = all.filter(|name| !used.contains(*name) && !ignored(name)).collect();
        match unused.first() {
            None => Ok(()),
            Some(first) => Err(Error::UnusedTensors { count: unused.len(), first: first.to_string() }),
        }
    }
}

fn check_shape(name: &str, given: &[usize], expected: &[usize]) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::TensorShape { name: name.to_string(), given: given.to_vec(), expected: expected.to_vec() })
}
