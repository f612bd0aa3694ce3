//! A model without a download: its weights are constructed, not trained.
//!
//! It is a Llama of one layer that reproduces a short text, with a token for each word. The attention looks
//! at the previous token. The MLP has a unit for every pair of successive tokens of the text; it is active if
//! the previous and the current token are that pair, and raises the logits of the tokens that follow the
//! pair. So the model repeats the text, and may take another continuation where a pair occurs twice. It runs
//! through the same code as larger models, in a few milliseconds.

mod vocabulary;
mod weights;

use std::collections::BTreeMap;
use std::path::Path;

use hesper_core::{Activations, Array, io};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::language_model::LanguageModel;
use vocabulary::Vocabulary;

const TEXT: &str = include_str!("text.txt");

/// The files and weights of the model.
struct Parts {
    config: Value,
    tokenizer: Value,
    tokenizer_config: Value,
    weights: BTreeMap<String, Array>,
}

fn parts() -> Result<Parts> {
    let vocabulary = Vocabulary::of(TEXT);
    let sizes = weights::Sizes::of(&vocabulary);
    Ok(Parts {
        config: sizes.config(),
        tokenizer: vocabulary.tokenizer(),
        tokenizer_config: json!({ "eos_token": vocabulary::END, "unk_token": vocabulary::UNKNOWN }),
        weights: weights::weights(&vocabulary, &sizes)?,
    })
}

/// The model, constructed in memory.
pub fn model() -> Result<LanguageModel> {
    let Parts { config, tokenizer, tokenizer_config, weights } = parts()?;
    let files = [&config, &tokenizer, &tokenizer_config];
    LanguageModel::from_parts(files, weights, Activations::Exact, Path::new("demo"))
}

/// Writes the model to a folder, as `config.json`, tokenizer files and safetensors.
pub fn write(folder: impl AsRef<Path>) -> Result<()> {
    let folder = folder.as_ref();
    let Parts { config, tokenizer, tokenizer_config, weights } = parts()?;
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let files =
        [("config.json", config), ("tokenizer.json", tokenizer), ("tokenizer_config.json", tokenizer_config)];
    for (name, value) in files {
        let path = folder.join(name);
        std::fs::write(&path, format!("{value:#}\n")).map_err(Error::io(&path))?;
    }
    io::save_safetensors(
        folder.join("model.safetensors"),
        weights.iter().map(|(name, one)| (name.clone(), one)),
        &[],
    )?;
    Ok(())
}
