//! Tokenizers: text to numbers and back.
//!
//! A tokenizer comes from a `tokenizer.json` or from a GGUF file's metadata ([`gguf`]); both become one of
//! the crate `tokenizers`. Text that arrives token by token goes through a [`Detokenizer`], which never gives
//! half a character.

mod gguf;
mod stream;

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

pub use stream::{Detokenizer, Stops};

/// A tokenizer and what it knows of special tokens.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The token that begins a text, if texts are begun.
    bos: Option<u32>,
    /// Whether the tokenizer itself begins texts.
    begins: bool,
    ends: Vec<u32>,
    bos_text: String,
    eos_text: String,
    template: Option<String>,
}

/// The text of a special token: a string, or an object with `content`.
fn special(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::String(text) => Some(text),
        other => other.get("content").and_then(Value::as_str),
    }
}

impl Tokenizer {
    /// From a model's folder: `tokenizer.json`, and `tokenizer_config.json` if it is there.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let config = match std::fs::read_to_string(folder.join("tokenizer_config.json")) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| Error::Tokenizer(format!("tokenizer_config.json: {error}")))?,
            Err(_) => Value::Null,
        };
        let mut tokenizer = Tokenizer::from_json(&text, &config)?;
        // Newer models keep their template in a file of its own.
        if let Ok(template) = std::fs::read_to_string(folder.join("chat_template.jinja")) {
            tokenizer.template = Some(template);
        }
        Ok(tokenizer)
    }

    /// From the text of a `tokenizer.json` and what is in its `tokenizer_config.json`.
    pub fn from_json(text: &str, config: &Value) -> Result<Self> {
        let inner: tokenizers::Tokenizer =
            text.parse().map_err(|error: tokenizers::Error| Error::Tokenizer(error.to_string()))?;
        let (bos_text, eos_text) = (special(config.get("bos_token")), special(config.get("eos_token")));
        let template = match config.get("chat_template") {
            Some(Value::String(template)) => Some(template.clone()),
            // A list of named ones.
            Some(Value::Array(list)) => list
                .iter()
                .find(|one| one.get("name").and_then(Value::as_str) == Some("default"))
                .and_then(|one| one.get("template"))
                .and_then(Value::as_str)
                .map(str::to_string),
            _ => None,
        };
        let id = |text: Option<&str>| text.and_then(|text| inner.token_to_id(text));
        let wants_bos = config.get("add_bos_token").and_then(Value::as_bool).unwrap_or(false);
        let bos = id(bos_text);
        let ends = id(eos_text).into_iter().collect();
        let begins = match (bos, inner.encode("", true)) {
            (Some(bos), Ok(encoding)) => encoding.get_ids().first() == Some(&bos),
            _ => false,
        };
        let (bos_text, eos_text) = (bos_text.unwrap_or("").to_string(), eos_text.unwrap_or("").to_string());
        let bos = bos.filter(|_| wants_bos || begins);
        Ok(Tokenizer { inner, bos, begins, ends, bos_text, eos_text, template })
    }

    /// The tokens of a text. `begin` puts the token that begins texts first, where the model wants it.
    pub fn encode(&self, text: &str, begin: bool) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode(text, begin && self.begins)
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        let mut ids = encoding.get_ids().to_vec();
        if begin
            && !self.begins
            && let Some(bos) = self.bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of tokens, without special ones.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|error| Error::Tokenizer(error.to_string()))
    }

    /// The number of a token's text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// How many tokens there are, special ones included.
    pub fn size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Tokens that end a text, as far as the tokenizer knows.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The texts of the tokens that begin and end a text; empty where there is none.
    pub fn marks(&self) -> (&str, &str) {
        (&self.bos_text, &self.eos_text)
    }

    /// The source of the chat template.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }
}
