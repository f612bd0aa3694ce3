//! A language model: decoder, tokenizer and chat template.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hesper_core::io::{self, Quantized};
use hesper_core::{Activations, Array};
use hesper_nn::ModuleExt;
use serde_json::Value;

use crate::architecture::Architecture;
use crate::chat_template::{ChatTemplate, Message};
use crate::checkpoint::Checkpoint;
use crate::config::{gguf_source, parse_json, token_ids};
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::models;
use crate::tokenizer::Tokenizer;

/// How a model is loaded.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Whether activations may be rounded to 8 bits in blocks of 32 where they are multiplied by 4-bit and
    /// 8-bit weights and that is faster.
    pub round_activations: bool,
}

impl LoadOptions {
    /// How activations are multiplied.
    pub(crate) fn activations(&self) -> Activations {
        if self.round_activations { Activations::Int8 } else { Activations::Exact }
    }
}

/// Decoder, tokenizer and chat template. Any number of threads may generate with one model at once.
#[derive(Debug)]
pub struct LanguageModel {
    model: Model,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    eos_tokens: Vec<u32>,
    path: PathBuf,
}

impl LanguageModel {
    /// Loads a folder with `config.json`, `tokenizer.json` and safetensors, or a GGUF file. Weights are
    /// mapped, and read when they are used.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let path = path.as_ref();
        let activations = options.activations();
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
                what: "the folder has neither a config.json nor a GGUF file".into(),
            }),
        }
    }

    /// A model of the contents of `config.json`, `tokenizer.json` and `tokenizer_config.json`, and of weights
    /// with the names of safetensors.
    pub(crate) fn from_parts(
        [config, tokenizer, tokenizer_config]: [&Value; 3],
        weights: BTreeMap<String, Array>,
        activations: Activations,
        path: &Path,
    ) -> Result<Self> {
        let config = parse_json(&config.to_string())?;
        let architecture = models::open(&ConfigSource::Json(&config))?;
        let tokenizer = Tokenizer::from_json(&tokenizer.to_string(), tokenizer_config)?;
        let weights = Checkpoint::from_arrays(weights, &*architecture, activations);
        LanguageModel::build(&*architecture, &weights, tokenizer, Vec::new(), path)
    }

    /// Builds a model from a checkpoint and adds its tokenizer. `eos_tokens` end a sequence beside those of
    /// the configuration and the tokenizer.
    pub(crate) fn build(
        architecture: &dyn Architecture,
        weights: &Checkpoint,
        tokenizer: Tokenizer,
        eos_tokens: Vec<u32>,
        path: &Path,
    ) -> Result<Self> {
        let model = Model::build(architecture, weights)?;
        if tokenizer.vocab_size() > model.config().vocab_size {
            let what = format!(
                "its vocabulary of {} tokens exceeds that of the model, {}; it belongs to another model",
                tokenizer.vocab_size(),
                model.config().vocab_size
            );
            return Err(Error::Tokenizer(what));
        }
        let (bos, eos) = tokenizer.special_texts();
        let template = tokenizer.template().map(|source| ChatTemplate::new(source, bos, eos)).transpose()?;
        let mut all = eos_tokens;
        all.extend(&model.config().eos_tokens);
        all.extend(tokenizer.eos_tokens());
        all.extend(architecture.turn_end_tokens().iter().filter_map(|text| tokenizer.id(text)));
        all.sort_unstable();
        all.dedup();
        Ok(LanguageModel { model, tokenizer, template, eos_tokens: all, path: path.to_path_buf() })
    }

    /// The decoder.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The decoder, to train or adapt it.
    pub fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end a sequence.
    pub fn eos_tokens(&self) -> &[u32] {
        &self.eos_tokens
    }

    /// Where it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has a chat template.
    pub fn can_chat(&self) -> bool {
        self.template.is_some()
    }

    /// The chat template, if it has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// The text of a conversation, up to where the assistant answers.
    pub fn conversation(&self, messages: &[Message]) -> Result<String> {
        match &self.template {
            Some(template) => template.render(messages, true, &Value::Null),
            None => Err(Error::Template("the model has none; it can only continue text".into())),
        }
    }

    /// The tokens of a conversation, up to where the assistant answers.
    pub fn conversation_tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        // The template writes the token that begins a sequence itself.
        self.tokenizer.encode(&self.conversation(messages)?, false)
    }

    /// The tokens of a text to be continued.
    pub fn prompt_tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenizer.encode(text, true)
    }

    /// Elements and bytes of the weights.
    pub fn size(&self) -> (usize, usize) {
        (self.model.count(), self.model.nbytes())
    }
}

fn load_folder(folder: &Path, activations: Activations) -> Result<LanguageModel> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(Error::io(path))
    };
    let config = parse_json(&read("config.json")?)?;
    let architecture = models::open(&ConfigSource::Json(&config))?;
    let generation: Option<Value> =
        read("generation_config.json").ok().and_then(|text| serde_json::from_str(&text).ok());
    let eos_tokens = token_ids(generation.as_ref().and_then(|value| value.get("eos_token_id")));
    let tokenizer = Tokenizer::from_folder(folder)?;
    let weights = Checkpoint::new(io::load(folder)?, &*architecture, activations);
    LanguageModel::build(&*architecture, &weights, tokenizer, eos_tokens, folder)
}

fn load_gguf(path: &Path, activations: Activations) -> Result<LanguageModel> {
    let options = io::Options { quantized: Quantized::Blocks, ..io::Options::default() };
    let loaded = io::load_with(path, &options)?;
    if loaded.format() != io::Format::Gguf {
        let what = format!("expected a GGUF file or a folder, found a {} file", loaded.format());
        return Err(Error::NoModel { path: path.to_path_buf(), what });
    }
    let architecture = models::open(&gguf_source(loaded.metadata())?)?;
    let tokenizer = Tokenizer::from_gguf(loaded.metadata())?;
    let weights = Checkpoint::new(loaded, &*architecture, activations);
    LanguageModel::build(&*architecture, &weights, tokenizer, Vec::new(), path)
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
            what: format!("the folder has {count} GGUF files; give the path of one"),
        }),
    }
}
