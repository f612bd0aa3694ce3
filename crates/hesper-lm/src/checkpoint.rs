//! Weights by name, from safetensors or from a GGUF file.
//!
//! A [`Checkpoint`] knows what the layers of a model are called where its weights come from ([`Names`]), and makes
//! layers of them as they are stored: dense, quantized in groups, or packed blocks. Nothing is read
//! before it is used.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use hesper::io::{Blocks, Loaded};
use hesper::{Activations, Array, Dtype};
use hesper_nn::{LayerNorm, Linear, Norm, RmsNorm, Weight};

use crate::config::{Family, Quantizations};
use crate::error::{Error, Result};

/// What layers are called; `{}` stands for the number of a block.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // The names say it.
pub(crate) struct Names {
    pub tokens: &'static str,
    pub positions: &'static str,
    pub norm: &'static str,
    pub head: &'static str,
    pub attention_norm: &'static str,
    pub queries: &'static str,
    pub keys: &'static str,
    pub values: &'static str,
    pub joined: &'static str,
    pub output: &'static str,
    pub query_norm: &'static str,
    pub key_norm: &'static str,
    pub mlp_norm: &'static str,
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
}

/// Llama's names, and of those built like it.
const LLAMA: Names = Names {
    tokens: "model.embed_tokens",
    positions: "",
    norm: "model.norm",
    head: "lm_head",
    attention_norm: "model.layers.{}.input_layernorm",
    queries: "model.layers.{}.self_attn.q_proj",
    keys: "model.layers.{}.self_attn.k_proj",
    values: "model.layers.{}.self_attn.v_proj",
    joined: "",
    output: "model.layers.{}.self_attn.o_proj",
    query_norm: "model.layers.{}.self_attn.q_norm",
    key_norm: "model.layers.{}.self_attn.k_norm",
    mlp_norm: "model.layers.{}.post_attention_layernorm",
    gate: "model.layers.{}.mlp.gate_proj",
    up: "model.layers.{}.mlp.up_proj",
    down: "model.layers.{}.mlp.down_proj",
};

/// GPT-2's names.
const GPT2: Names = Names {
    tokens: "wte",
    positions: "wpe",
    norm: "ln_f",
    head: "lm_head",
    attention_norm: "h.{}.ln_1",
    joined: "h.{}.attn.c_attn",
    output: "h.{}.attn.c_proj",
    mlp_norm: "h.{}.ln_2",
    gate: "",
    up: "h.{}.mlp.c_fc",
    down: "h.{}.mlp.c_proj",
    ..LLAMA
};

/// The names of GGUF files.
const GGUF: Names = Names {
    tokens: "token_embd",
    positions: "position_embd",
    norm: "output_norm",
    head: "output",
    attention_norm: "blk.{}.attn_norm",
    queries: "blk.{}.attn_q",
    keys: "blk.{}.attn_k",
    values: "blk.{}.attn_v",
    joined: "blk.{}.attn_qkv",
    output: "blk.{}.attn_output",
    query_norm: "blk.{}.attn_q_norm",
    key_norm: "blk.{}.attn_k_norm",
    mlp_norm: "blk.{}.ffn_norm",
    gate: "blk.{}.ffn_gate",
    up: "blk.{}.ffn_up",
    down: "blk.{}.ffn_down",
};

/// Where weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Names and layouts of safetensors checkpoints.
    Safetensors,
    /// Those of GGUF files.
    Gguf,
}

/// Weights by name.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    arrays: BTreeMap<String, Array>,
    blocks: BTreeMap<String, Blocks>,
    origin: Origin,
    family: Family,
    quantizations: Quantizations,
    activations: Activations,
    /// What was asked for, so that a wrong checkpoint can be told from a right one.
    used: RefCell<BTreeSet<String>>,
}

impl Checkpoint {
    pub(crate) fn new(
        loaded: Loaded,
        origin: Origin,
        family: Family,
        quantizations: Quantizations,
        activations: Activations,
    ) -> Self {
        let blocks = loaded.all_blocks().iter().cloned().collect();
        let arrays = loaded.into_arrays().into_iter().collect();
        Checkpoint::of(arrays, blocks, origin, family, quantizations, activations)
    }

    pub(crate) fn of(
        arrays: BTreeMap<String, Array>,
        blocks: BTreeMap<String, Blocks>,
        origin: Origin,
        family: Family,
        quantizations: Quantizations,
        activations: Activations,
    ) -> Self {
        let mut arrays = arrays;
        if family == Family::Gpt2 && origin == Origin::Safetensors {
            // Some checkpoints put everything under one more name.
            arrays = arrays
                .into_iter()
                .map(|(name, array)| match name.strip_prefix("transformer.") {
                    Some(short) => (short.to_string(), array),
                    None => (name, array),
                })
                .collect();
        }
        Checkpoint { arrays, blocks, origin, family, quantizations, activations, used: RefCell::default() }
    }

    pub(crate) fn names(&self) -> Names {
        match (self.origin, self.family) {
            (Origin::Gguf, _) => GGUF,
            (Origin::Safetensors, Family::Gpt2) => GPT2,
            (Origin::Safetensors, _) => LLAMA,
        }
    }

    pub(crate) fn has(&self, layer: &str) -> bool {
        let name = format!("{layer}.weight");
        self.arrays.contains_key(&name) || self.blocks.contains_key(&name)
    }

    /// An array that is there.
    pub(crate) fn find(&self, name: &str) -> Option<&Array> {
        let found = self.arrays.get(name);
        if found.is_some() {
            self.used.borrow_mut().insert(name.to_string());
        }
        found
    }

    /// An array of a shape, which must be there.
    fn need(&self, name: &str, shape: &[usize]) -> Result<Array> {
        match self.find(name) {
            None => Err(Error::MissingTensor { name: name.to_string() }),
            Some(array) => same(name, array.shape(), shape).map(|()| array.clone()),
        }
    }

    /// The matrix of a layer, of shape (outputs, inputs), as it is stored.
    pub(crate) fn weight(&self, layer: &str, shape: [usize; 2]) -> Result<Weight> {
        let name = format!("{layer}.weight");
        if let Some(blocks) = self.blocks.get(&name) {
            same(&name, blocks.shape(), &shape)?;
            self.used.borrow_mut().insert(name);
            return self.packed(blocks);
        }
        if let Some(scales) = self.find(&format!("{layer}.scales")) {
            let Some(quantization) = self.quantizations.of(layer) else {
                let what = format!("{layer} has scales, but nothing says how it was quantized");
                return Err(Error::config("config.json", what));
            };
            let codes = self.need(&name, &[shape[0], shape[1] * quantization.bits() / 32])?;
            same(&format!("{layer}.scales"), scales.shape(), &[shape[0], shape[1] / quantization.group()])?;
            let biases = self.find(&format!("{layer}.biases")).cloned();
            return Ok(Weight::quantized(codes, scales.clone(), biases, quantization, self.activations));
        }
        Ok(self.need(&name, &shape)?.into())
    }

    fn packed(&self, blocks: &Blocks) -> Result<Weight> {
        Ok(match blocks.packed()? {
            Some(blocks) => Weight::Packed { blocks, activations: self.activations },
            // Those that are not multiplied as they are, are decoded when they are first used.
            None => blocks.dequantize(Dtype::Float32)?.into(),
        })
    }

    /// A linear layer. `bias` says whether it must have one; where it may, it is taken if it is there.
    pub(crate) fn linear(&self, layer: &str, shape: [usize; 2]) -> Result<Linear> {
        let conv = self.family == Family::Gpt2
            && self.origin == Origin::Safetensors
            && layer.starts_with("h.")
            && !self.arrays.contains_key(&format!("{layer}.scales"));
        let weight = match conv {
            // GPT-2's checkpoints hold matrices of (inputs, outputs).
            true => self.need(&format!("{layer}.weight"), &[shape[1], shape[0]])?.t()?.into(),
            false => self.weight(layer, shape)?,
        };
        let bias = match self.find(&format!("{layer}.bias")) {
            Some(bias) => Some(bias.astype(weight.dtype())?),
            None => None,
        };
        Linear::new(weight, bias).map_err(Error::Layer)
    }

    /// A norm of the family, for activations of a type.
    pub(crate) fn norm(&self, layer: &str, width: usize, eps: f32, dtype: Dtype) -> Result<Norm> {
        if self.family != Family::Gpt2 {
            return Ok(Norm::Rms(self.rms(layer, width, eps, dtype)?));
        }
        let weight = self.need(&format!("{layer}.weight"), &[width])?.astype(dtype)?;
        let bias = self.need(&format!("{layer}.bias"), &[width])?.astype(dtype)?;
        Ok(Norm::Layer(LayerNorm::new(weight, Some(bias), eps)))
    }

    pub(crate) fn rms(&self, layer: &str, width: usize, eps: f32, dtype: Dtype) -> Result<RmsNorm> {
        let weight = self.need(&format!("{layer}.weight"), &[width])?.astype(dtype)?;
        Ok(RmsNorm::new(weight, eps))
    }

    /// Tensors that nothing has asked for and that hold numbers of the model: a sign that the configuration is not
    /// that of the checkpoint.
    pub(crate) fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        let buffers = ["rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "rope_freqs.weight"];
        let all = self.arrays.keys().chain(self.blocks.keys());
        all.filter(|name| !used.contains(*name) && !buffers.iter().any(|end| name.ends_with(end)))
            .cloned()
            .collect()
    }
}

fn same(name: &str, given: &[usize], expected: &[usize]) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::TensorShape { name: name.to_string(), given: given.to_vec(), expected: expected.to_vec() })
}
