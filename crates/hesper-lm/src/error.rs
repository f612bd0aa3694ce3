//! The errors of language models.

use std::path::PathBuf;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be loaded or a sequence not generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array op was refused, or its evaluation failed.
    #[error(transparent)]
    Array(#[from] hesper_core::Error),
    /// A layer could not be built or applied, or a cache refused a call.
    #[error(transparent)]
    Layer(hesper_nn::Error),
    /// A tensor file cannot be read or written.
    #[error(transparent)]
    Files(#[from] hesper_files::Error),
    /// Another file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// There is no model at a path.
    #[error("{}: {what}", path.display())]
    NoModel {
        /// The path.
        path: PathBuf,
        /// What is missing there.
        what: String,
    },
    /// A configuration has an invalid value, or one that is not supported.
    #[error("{key}: {what}")]
    Config {
        /// The key or the file.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// The model type is not supported.
    #[error("model type {name:?} is not supported; supported are {known}")]
    UnknownModelType {
        /// The model type.
        name: String,
        /// The registered model types.
        known: String,
    },
    /// The checkpoint lacks a weight.
    #[error("the checkpoint has no tensor {name:?}")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A weight does not fit the configuration.
    #[error("tensor {name:?} has shape {given:?}, but the configuration needs {expected:?}")]
    TensorShape {
        /// Its name.
        name: String,
        /// The shape it has.
        given: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// The checkpoint has weights that the model does not.
    #[error("the checkpoint has {count} tensors that the model does not use, the first is {first:?}")]
    UnusedTensors {
        /// How many.
        count: usize,
        /// The name of the first.
        first: String,
    },
    /// A tokenizer cannot be used, or refused its input.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template failed.
    #[error("chat template: {0}")]
    Template(String),
    /// A prompt has no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A sequence would be longer than the context length of the model.
    #[error("{tokens} tokens exceed the context length of {limit}")]
    ContextLength {
        /// Tokens of the sequence.
        tokens: usize,
        /// The context length.
        limit: usize,
    },
    /// The model computed NaN for every token.
    #[error("all logits are NaN; the weights may be damaged")]
    NanLogits,
    /// An argument out of its range, or a call that does not fit the state of its object.
    #[error("{0}")]
    InvalidArgument(String),
    /// A model could not be downloaded.
    #[error("{0}")]
    Fetch(String),
}

impl From<hesper_nn::Error> for Error {
    fn from(error: hesper_nn::Error) -> Self {
        match error {
            hesper_nn::Error::Array(error) => Error::Array(error),
            hesper_nn::Error::InvalidArgument(what) => Error::InvalidArgument(what),
            other => Error::Layer(other),
        }
    }
}

/// For functions that transforms of modules call: `?` takes the errors of models.
impl From<Error> for hesper_nn::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Array(error) => hesper_nn::Error::Array(error),
            Error::Layer(error) => error,
            other => hesper_nn::Error::InvalidArgument(other.to_string()),
        }
    }
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Config { key: key.into(), what: what.into() }
    }
}
