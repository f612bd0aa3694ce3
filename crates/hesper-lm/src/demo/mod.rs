//! A model that needs no download: its weights are written down, not trained.
//!
//! It is a Llama of one layer that knows a short text, word by word. Its attention looks at the word before
//! the current one; its MLP has a unit for every pair of neighbouring words of the text, which is active when the
//! current word and the one before are that pair, and which then raises the words that follow it. So the model
//! says the text again, and takes other ways where pairs are shared. It runs through all the machinery of
//! larger models, in a few milliseconds.

mod weights;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use hesper::{Activations, Array, io};
use serde_json::{Value, json};

use crate::checkpoint::{Checkpoint, Origin};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::language::LanguageModel;
use crate::model::Model;
use crate::tokenizer::Tokenizer;
use words::Words;

const TEXT: &str = include_str!("text.txt");

/// The files and weights of the model.
struct Parts {
    config: Value,
    tokenizer: Value,
    tokenizer_config: Value,
    weights: BTreeMap<String, Array>,
}

fn parts() -> Result<Parts> {
    let words = Words::of(TEXT);
    let sizes = weights::Sizes::of(&words);
    Ok(Parts {
        config: sizes.config(),
        tokenizer: words.tokenizer(),
        tokenizer_config: json!({ "eos_token": words::END, "unk_token": words::UNKNOWN }),
        weights: weights::weights(&words, &sizes)?,
    })
}

/// The model, made in memory.
pub fn model() -> Result<LanguageModel> {
    let Parts { config, tokenizer, tokenizer_config, weights } = parts()?;
    let config = Config::from_json(&config.to_string())?;
    let tokenizer = Tokenizer::from_json(&tokenizer.to_string(), &tokenizer_config)?;
    let (family, quantizations) = (config.family, config.quantizations.clone());
    let blocks = BTreeMap::new();
    let checkpoint =
        Checkpoint::of(weights, blocks, Origin::Safetensors, family, quantizations, Activations::Exact);
    LanguageModel::of(Model::build(config, &checkpoint)?, tokenizer, Vec::new(), Path::new("demo"))
}

/// Writes the model to a folder, in the files in which models usually come.
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
