//! Tokenizers: from text to token ids and back.
//!
//! A tokenizer is read from `tokenizer.json` or from the metadata of a GGUF file ([`gguf`]); either becomes a
//! tokenizer of the crate `tokenizers`. A [`Detokenizer`] decodes token by token and returns complete
//! characters only.

mod gguf;
mod stream;

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Result};

pub use stream::{Detokenizer, StopTexts};

/// A tokenizer with its special tokens and the source of its chat template.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The token that begins a sequence, if the model expects one.
    bos: Option<u32>,
    /// Whether the inner tokenizer adds it.
    adds_bos: bool,
    eos_tokens: Vec<u32>,
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

/// The byte that a byte-level vocabulary writes as a character: printable ones as themselves, the others from
/// 256 on.
fn byte_of_char(c: char) -> Option<u8> {
    let printable = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    match u32::from(c) {
        code @ 0..256 => Some(code as u8).filter(printable),
        code => (0..=255).filter(|byte| !printable(byte)).nth(code as usize - 256),
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder, and `tokenizer_config.json` if the folder has it.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let config = match std::fs::read_to_string(folder.join("tokenizer_config.json")) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| Error::Tokenizer(format!("tokenizer_config.json: {error}")))?,
            Err(_) => Value::Null,
        };
        let mut tokenizer = Tokenizer::from_json(&text, &config)?;
        // Newer models have the template in a separate file.
        if let Ok(template) = std::fs::read_to_string(folder.join("chat_template.jinja")) {
            tokenizer.template = Some(template);
        }
        Ok(tokenizer)
    }

    /// Reads the text of a `tokenizer.json` and the value of its `tokenizer_config.json`.
    pub fn from_json(text: &str, config: &Value) -> Result<Self> {
        let inner: tokenizers::Tokenizer =
            text.parse().map_err(|error: tokenizers::Error| Error::Tokenizer(error.to_string()))?;
        let (bos_text, eos_text) = (special(config.get("bos_token")), special(config.get("eos_token")));
        let template = match config.get("chat_template") {
            Some(Value::String(template)) => Some(template.clone()),
            // A list of named templates.
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
        let eos_tokens = id(eos_text).into_iter().collect();
        let adds_bos = match (bos, inner.encode("", true)) {
            (Some(bos), Ok(encoding)) => encoding.get_ids().first() == Some(&bos),
            _ => false,
        };
        let (bos_text, eos_text) = (bos_text.unwrap_or("").to_string(), eos_text.unwrap_or("").to_string());
        let bos = bos.filter(|_| wants_bos || adds_bos);
        Ok(Tokenizer { inner, bos, adds_bos, eos_tokens, bos_text, eos_text, template })
    }

    /// The tokens of a text. `begin` adds the token that begins a sequence, if the model expects one.
    pub fn encode(&self, text: &str, begin: bool) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode(text, begin && self.adds_bos)
            .map_err(|error| Error::Tokenizer(error.to_string()))?;
        let mut ids = encoding.get_ids().to_vec();
        if begin
            && !self.adds_bos
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

    /// The text of tokens, with special ones.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, false).map_err(|error| Error::Tokenizer(error.to_string()))
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The bytes of every token; none for special tokens. Bytes of a token need not be whole characters.
    pub fn token_bytes(&self) -> Vec<Vec<u8>> {
        let decoder = serde_json::to_string(&self.inner.get_decoder()).unwrap_or_default();
        let (byte_level, fallback) = (decoder.contains("ByteLevel"), decoder.contains("ByteFallback"));
        let special = self.inner.get_added_tokens_decoder();
        let hex = |token: &str| {
            let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes = |id: u32| match self.inner.id_to_token(id) {
            Some(token) if special.get(&id).is_none_or(|added| !added.special) => match hex(&token) {
                Some(byte) if fallback => vec![byte],
                _ if byte_level => token.chars().filter_map(byte_of_char).collect(),
                _ if fallback => token.replace('\u{2581}', " ").into_bytes(),
                _ => token.into_bytes(),
            },
            _ => Vec::new(),
        };
        (0..self.vocab_size() as u32).map(bytes).collect()
    }

    /// The texts and ids of special tokens.
    pub fn special_tokens(&self) -> Vec<(String, u32)> {
        let added = self.inner.get_added_tokens_decoder().into_iter();
        added.filter(|(_, token)| token.special).map(|(id, token)| (token.content, id)).collect()
    }

    /// The number of tokens, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Tokens that end a sequence, as far as the tokenizer knows.
    pub fn eos_tokens(&self) -> &[u32] {
        &self.eos_tokens
    }

    /// The texts of the tokens that begin and end a sequence; empty where there is none.
    pub fn special_texts(&self) -> (&str, &str) {
        (&self.bos_text, &self.eos_text)
    }

    /// The source of the chat template.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }
}
