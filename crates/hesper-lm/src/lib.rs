//! Language models.
//!
//! [`LanguageModel::load`] takes a folder with `config.json`, `tokenizer.json` and safetensors, or a GGUF file;
//! [`generate`], [`Generation`] and [`Batch`] continue texts. Weights are mapped and used as they are packed; the
//! model holds no state, so any number of threads may use one at once, each with its own [`Cache`].
//!
//! ```
//! use hesper_lm::{GenerateOptions, demo, generate};
//! let model = demo::model()?;
//! let prompt = model.prompt_tokens("The evening star")?;
//! let text = generate(&model, &prompt, &GenerateOptions { max_tokens: 8, ..Default::default() })?.text;
//! assert!(!text.is_empty());
//! # Ok::<(), hesper_lm::Error>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
mod checkpoint;
mod config;
pub mod demo;
mod error;
pub mod fetch;
mod generate;
mod gguf;
mod language;
mod model;
mod quantize;
mod sample;
mod template;
mod tokenizer;

pub use cache::{Cache, CacheKind};
pub use config::{Config, Family, Quantizations};
pub use error::{Error, Result};
pub use generate::{
    Batch, Event, Finish, GenerateOptions, Generated, Generation, PREFILL, Piece, Stats, batch_generate,
    generate,
};
pub use language::{LanguageModel, LoadOptions};
pub use model::Model;
pub use quantize::{QuantizeReport, quantize};
pub use sample::{Sampler, Sampling};
pub use template::{ChatTemplate, Message};
pub use tokenizer::{Detokenizer, Stops, Tokenizer};
