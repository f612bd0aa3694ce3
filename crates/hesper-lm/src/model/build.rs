//! Models from checkpoints.

use hesper::{Dtype, place};
use hesper_nn::{Attention, Embedding, Heads, Mlp, Projections, Rope, RopeScaling};

use super::{Block, Model};
use crate::checkpoint::Checkpoint;
use crate::config::{Config, Family};
use crate::error::{Error, Result};

/// The name of a layer of a block.
fn of(name: &str, block: usize) -> String {
    name.replace("{}", &block.to_string())
}

impl Model {
    /// A model of a configuration, with the weights of a checkpoint. Weights are checked by shape and read when
    /// they are used.
    pub(crate) fn build(config: Config, checkpoint: &Checkpoint) -> Result<Self> {
        let names = checkpoint.names();
        let width = config.width;
        let gpt2 = config.family == Family::Gpt2;
        let tokens = Embedding::new(checkpoint.weight(names.tokens, [config.vocabulary, width])?);
        let dtype = tokens.weight().dtype();
        let positions = match gpt2 {
            true => Some(Embedding::new(checkpoint.weight(names.positions, [config.context, width])?)),
            false => None,
        };
        let rope = match gpt2 {
            true => None,
            false => {
                let factors = checkpoint.find("rope_freqs.weight");
                let factors =
                    factors.map(|factors| factors.astype(Dtype::Float32)?.to_vec::<f32>()).transpose()?;
                let scaling = factors.map(RopeScaling::Factors).or(config.rope_scaling.clone());
                Some(Rope::new(
                    config.head_width,
                    config.rope_traditional,
                    config.rope_base,
                    scaling.as_ref(),
                )?)
            }
        };
        let mut blocks = (0..config.layers)
            .map(|at| block(&config, checkpoint, at, dtype, rope.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        if place::current_device() != place::Device::Cpu {
            blocks.iter_mut().try_for_each(Block::join)?;
        }
        let head = match config.tied && !checkpoint.has(names.head) {
            true => None,
            false => Some(checkpoint.linear(names.head, [config.vocabulary, width])?),
        };
        let norm = checkpoint.norm(names.norm, width, config.eps, dtype)?;
        let unused = checkpoint.unused();
        if !unused.is_empty() {
            let what = format!(
                "the checkpoint has {} tensors that the model does not, such as {:?}",
                unused.len(),
                unused[0]
            );
            return Err(Error::config("checkpoint", what));
        }
        Ok(Model { config, tokens, positions, blocks, norm, head })
    }
}

fn block(config: &Config, from: &Checkpoint, at: usize, dtype: Dtype, rope: Option<&Rope>) -> Result<Block> {
    let names = from.names();
    let Config { width, heads, kv_heads, head_width, mlp_width, eps, .. } = *config;
    let (q, k) = (heads * head_width, kv_heads * head_width);
    let linear = |name: &str, outputs: usize, inputs: usize| from.linear(&of(name, at), [outputs, inputs]);
    let projections = match config.family {
        Family::Gpt2 => Projections::Joined(linear(names.joined, 3 * width, width)?),
        _ => Projections::Separate {
            queries: linear(names.queries, q, width)?,
            keys: linear(names.keys, k, width)?,
            values: linear(names.values, k, width)?,
        },
    };
    let norms = match config.family {
        Family::Qwen3 => {
            let norm = |name: &str| from.rms(&of(name, at), head_width, eps, dtype);
            Some((norm(names.query_norm)?, norm(names.key_norm)?))
        }
        _ => None,
    };
    let gate = match config.family {
        Family::Gpt2 => None,
        _ => Some(linear(names.gate, mlp_width, width)?),
    };
    let sizes = Heads { queries: heads, keys: kv_heads, width: head_width };
    let output = linear(names.output, width, q)?;
    let (up, down) = (linear(names.up, mlp_width, width)?, linear(names.down, width, mlp_width)?);
    Ok(Block {
        attention_norm: from.norm(&of(names.attention_norm, at), width, eps, dtype)?,
        attention: Attention::new(sizes, projections, output, norms, rope.cloned())?,
        mlp_norm: from.norm(&of(names.mlp_norm, at), width, eps, dtype)?,
        mlp: Mlp::new(gate, up, down, config.activation),
    })
}
