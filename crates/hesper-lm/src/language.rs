//! A language model: weights, tokenizer and chat template together.

use std::path::{Path, PathBuf};

use hesper::Activations;
use hesper::io::{self, Quantized};
use hesper_nn::ModuleExt;
use serde_json::Value;

use crate::checkpoint::{Checkpoint, Origin};
use crate::config::{Config, Family, ends};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::template::{ChatTemplate, Message};
use crate::tokenizer::Tokenizer;

/// How a model is loaded.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Whether activations that meet 4-bit and 8-bit weights may be rounded to 8 bits in blocks of 32 where
    /// that is faster. Otherwise they are multiplied as they are.
    pub round_activations: bool,
}

/// Weights, tokenizer and chat template. Any number of threads may generate with one model at once.
#[derive(Debug)]
pub struct LanguageModel {
    model: Model,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    ends: Vec<u32>,
    place: PathBuf,
}

impl LanguageModel {
    /// Loads a model from a folder with `config.json`, `tokenizer.json` and safetensors, or from a GGUF file.
    /// Weights are mapped, and read when they are used.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let path = path.as_ref();
        let activations = if options.round_activations { Activations::Int8 } else { Activations::Exact };
        let found = std::fs::metadata(path).map_err(Error::io(path))?;
        if found.is_file() {
            return load_gguf(path, activations);
        }
        if path.join("config.json").is_file() {
            return load_folder(path, activations);
        }
        match only_gguf(path)? {
            Some(file) => load_gguf(&file, activations),
            None => Err(Error::NoModel {
                path: path.to_path_buf(),
                what: "there is neither a config.json nor a GGUF file in this folder".into(),
            }),
        }
    }

    /// From parts that fit each other.
    pub(crate) fn of(model: Model, tokenizer: Tokenizer, ends: Vec<u32>, place: &Path) -> Result<Self> {
        if tokenizer.size() > model.config().vocabulary {
            let what = format!(
                "it knows {} tokens, but the model {}; it is that of another model",
                tokenizer.size(),
                model.config().vocabulary
            );
            return Err(Error::Tokenizer(what));
        }
        let (bos, eos) = tokenizer.marks();
        let template = tokenizer.template().map(|source| ChatTemplate::new(source, bos, eos)).transpose()?;
        let mut all = ends;
        all.extend(tokenizer.ends());
        // Turns of a conversation end with tokens of their own.
        let turns = ["<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"];
        all.extend(turns.iter().filter_map(|text| tokenizer.id(text)));
        all.sort_unstable();
        all.dedup();
        Ok(LanguageModel { model, tokenizer, template, ends: all, place: place.to_path_buf() })
    }

    /// The decoder.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Where it was loaded from.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether it was made for conversations.
    pub fn can_chat(&self) -> bool {
        self.template.is_some()
    }

    /// The text of a conversation, up to where the assistant answers.
    pub fn conversation(&self, messages: &[Message]) -> Result<String> {
        match &self.template {
            Some(template) => template.render(messages, true, &Value::Null),
            None => {
                Err(Error::Template("the model has none: it continues texts and was not made to chat".into()))
            }
        }
    }

    /// The tokens of a conversation, up to where the assistant answers.
    pub fn conversation_tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        // A template writes the token that begins a text itself.
        self.tokenizer.encode(&self.conversation(messages)?, false)
    }

    /// The tokens of a text to be continued.
    pub fn prompt_tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenizer.encode(text, true)
    }

    /// Numbers in the weights, and the bytes that they take.
    pub fn size(&self) -> (usize, usize) {
        (self.model.count(), self.model.nbytes())
    }
}

fn load_folder(folder: &Path, activations: Activations) -> Result<LanguageModel> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(Error::io(path))
    };
    let config = Config::from_json(&read("config.json")?)?;
    let mut all_ends = config.ends.clone();
    if let Ok(text) = read("generation_config.json")
        && let Ok(value) = serde_json::from_str::<Value>(&text)
    {
        all_ends.extend(ends(value.get("eos_token_id")));
    }
    let tokenizer = Tokenizer::from_folder(folder)?;
    let loaded = io::load(folder)?;
    let (family, quantizations) = (config.family, config.quantizations.clone());
    let checkpoint = Checkpoint::new(loaded, Origin::Safetensors, family, quantizations, activations);
    let model = Model::build(config, &checkpoint)?;
    LanguageModel::of(model, tokenizer, all_ends, folder)
}

fn load_gguf(path: &Path, activations: Activations) -> Result<LanguageModel> {
    let options = io::Options { quantized: Quantized::Blocks, ..io::Options::default() };
    let loaded = io::load_with(path, &options)?;
    if loaded.format() != io::Format::Gguf {
        let what = format!("this is a {} file; a model is a GGUF file or a folder", loaded.format());
        return Err(Error::NoModel { path: path.to_path_buf(), what });
    }
    let tied = loaded.get("output.weight").is_none() && loaded.blocks("output.weight").is_none();
    let config = Config::from_gguf(loaded.metadata(), tied)?;
    let tokenizer = Tokenizer::from_gguf(loaded.metadata())?;
    let family: Family = config.family;
    let checkpoint = Checkpoint::new(loaded, Origin::Gguf, family, config.quantizations.clone(), activations);
    let model = Model::build(config, &checkpoint)?;
    LanguageModel::of(model, tokenizer, Vec::new(), path)
}

/// The one GGUF file of a folder.
fn only_gguf(folder: &Path) -> Result<Option<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
            files.push(path);
        }
    }
    match files.len() {
        0 | 1 => Ok(files.pop()),
        count => Err(Error::NoModel {
            path: folder.to_path_buf(),
            what: format!("there are {count} GGUF files in this folder; name one of them"),
        }),
    }
}
