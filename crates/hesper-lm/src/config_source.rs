//! Typed access to the description of a model: `config.json`, or the metadata of a GGUF file.
//!
//! A lookup names the keys of both formats, so that one function reads a configuration from either. Errors
//! name the key.

use std::fmt;

use hesper_core::io::{MetaValue, Metadata};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The largest number of layers, heads or tokens that a configuration may name.
const MAX_SIZE: u64 = 1 << 24;

/// The key-value pairs that describe a model.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ConfigSource<'a> {
    /// An object of `config.json`.
    Json(&'a Map<String, Value>),
    /// Metadata of a GGUF file, with keys that begin with the name of the architecture.
    Gguf {
        /// The value of `general.architecture`.
        architecture: &'a str,
        /// All of the metadata.
        metadata: &'a Metadata,
    },
}

/// A value in either format.
enum Entry<'a> {
    Json(&'a Value),
    Gguf(&'a MetaValue),
}

impl<'a> Entry<'a> {
    fn as_u64(&self) -> Option<u64> {
        match self {
            Entry::Json(value) => value.as_u64(),
            Entry::Gguf(value) => value.as_u64(),
        }
    }

    fn as_f64(&self) -> Option<f64> {
        match self {
            Entry::Json(value) => value.as_f64(),
            Entry::Gguf(value) => value.as_f64(),
        }
    }

    fn as_str(&self) -> Option<&'a str> {
        match self {
            Entry::Json(value) => value.as_str(),
            Entry::Gguf(value) => value.as_str(),
        }
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Json(value) => value.fmt(f),
            Entry::Gguf(value) => write!(f, "{value:?}"),
        }
    }
}

impl<'a> ConfigSource<'a> {
    /// Whether it is the metadata of a GGUF file.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self, ConfigSource::Gguf { .. })
    }

    /// The model type: `model_type` of `config.json`, `general.architecture` of a GGUF file.
    pub(crate) fn model_type(&self) -> Result<&'a str> {
        match self {
            ConfigSource::Json(_) => self
                .text(&["model_type"], "")
                .ok_or_else(|| Error::config("config.json", "model_type is missing")),
            ConfigSource::Gguf { architecture, .. } => Ok(architecture),
        }
    }

    /// The first of the keys that has a value.
    fn find(&self, json: &[&str], gguf: &str) -> Option<(String, Entry<'a>)> {
        match self {
            ConfigSource::Json(map) => json.iter().find_map(|key| match map.get(*key) {
                Some(value) if !value.is_null() => Some((key.to_string(), Entry::Json(value))),
                _ => None,
            }),
            ConfigSource::Gguf { architecture, metadata } => {
                let key = format!("{architecture}.{gguf}");
                metadata.get(&key).map(|value| (key, Entry::Gguf(value)))
            }
        }
    }

    /// A positive integer.
    pub(crate) fn size(&self, json: &[&str], gguf: &str) -> Result<Option<usize>> {
        let Some((key, value)) = self.find(json, gguf) else { return Ok(None) };
        match value.as_u64() {
            Some(size @ 1..=MAX_SIZE) => Ok(Some(size as usize)),
            _ => Err(Error::config(key, format!("expected an integer from 1 to {MAX_SIZE}, found {value}"))),
        }
    }

    /// A positive integer that must be present.
    pub(crate) fn require_size(&self, json: &[&str], gguf: &str) -> Result<usize> {
        self.size(json, gguf)?.ok_or_else(|| match self {
            ConfigSource::Json(_) => Error::config("config.json", format!("{} is missing", json[0])),
            ConfigSource::Gguf { architecture, .. } => {
                Error::config("GGUF metadata", format!("{architecture}.{gguf} is missing"))
            }
        })
    }

    /// A positive number.
    pub(crate) fn number(&self, json: &[&str], gguf: &str) -> Result<Option<f32>> {
        let Some((key, value)) = self.find(json, gguf) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number as f32)),
            _ => Err(Error::config(key, format!("expected a positive number, found {value}"))),
        }
    }

    /// A string.
    pub(crate) fn text(&self, json: &[&str], gguf: &str) -> Option<&'a str> {
        self.find(json, gguf).and_then(|(_, value)| value.as_str())
    }

    /// A boolean of `config.json`.
    pub(crate) fn flag(&self, json: &str) -> Option<bool> {
        self.json(json).and_then(Value::as_bool)
    }

    /// A value of `config.json`.
    pub(crate) fn json(&self, key: &str) -> Option<&'a Value> {
        match self {
            ConfigSource::Json(map) => map.get(key),
            ConfigSource::Gguf { .. } => None,
        }
    }

    /// The first of the keys that holds an object of `config.json`.
    pub(crate) fn object(&self, keys: &[&str]) -> Option<&'a Map<String, Value>> {
        keys.iter().find_map(|key| self.json(key)?.as_object())
    }
}
