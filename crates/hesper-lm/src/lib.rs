//! Language models.
//!
//! [`LanguageModel::load`] reads a folder with `config.json`, `tokenizer.json` and safetensors, or a GGUF
//! file; [`generate`], [`Generation`] and [`Batch`] continue sequences. Weights are mapped and used as
//! stored. A model holds no state: any number of threads may use one at once, each with its own [`KvCache`].
//!
//! A program depends on the crate `hesper` too, which links the backends; with its feature `lm` this crate is
//! `hesper::lm`.
//!
//! ```
//! use hesper as _;
//! use hesper_lm::{GenerateOptions, demo, generate};
//! let model = demo::model()?;
//! let prompt = model.prompt_tokens("The evening star")?;
//! let text = generate(&model, &prompt, &GenerateOptions { max_tokens: 8, ..Default::default() })?.text;
//! assert!(!text.is_empty());
//! # Ok::<(), hesper_lm::Error>(())
//! ```
#![forbid(unsafe_code)]

// Links the backends for the unit tests.
#[cfg(test)]
use hesper as _;

mod architecture;
mod blocks;
mod cache;
mod chat_template;
mod checkpoint;
mod config;
mod config_source;
pub mod demo;
mod device_sampling;
mod error;
pub mod fetch;
mod generate;
mod language_model;
mod model;
mod models;
mod quantize;
mod random_model;
mod sample;
mod tokenizer;

pub use cache::{CacheKind, PageCounts, PageFormat, PagedCache, SCRATCH_PAGE};
pub use chat_template::{ChatTemplate, Message};
pub use config::{Config, Quantizations};
pub use device_sampling::{DeviceChoice, NOT_CHOSEN, choose_tokens};
pub use error::{Error, Result};
pub use generate::{
    Batch, Event, Finish, GenerateOptions, Generated, Generation, PREFILL_CHUNK, Piece, Sequence, Stats,
    batch_generate, check_prompt, generate,
};
pub use hesper_nn::KvCache;
pub use language_model::{LanguageModel, LoadOptions};
pub use model::Model;
pub use quantize::{QuantizeReport, quantize};
pub use sample::{Sampler, Sampling, log_probabilities};
pub use tokenizer::{Detokenizer, StopTexts, Tokenizer};
