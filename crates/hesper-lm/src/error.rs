//! What can go wrong with language models.

use std::path::PathBuf;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model could not be loaded or a text not generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array op was refused, or its evaluation failed.
    #[error(transparent)]
    Array(#[from] hesper::Error),
    /// Layers that do not fit.
    #[error(transparent)]
    Layer(#[from] hesper_nn::Error),
    /// A tensor file that cannot be read or written.
    #[error(transparent)]
    Files(#[from] hesper_files::Error),
    /// Another file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no model in a place.
    #[error("{}: {what}", path.display())]
    NoModel {
        /// The place.
        path: PathBuf,
        /// What is missing there.
        what: String,
    },
    /// A configuration that is wrong, or asks for what is not supported.
    #[error("{place}: {what}")]
    Config {
        /// The file or the key.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// A kind of model that is not supported.
    #[error("models of the architecture {name:?} are not supported; these are: {known}")]
    Architecture {
        /// Its name.
        name: String,
        /// Those that are.
        known: &'static str,
    },
    /// A weight that the checkpoint does not have.
    #[error("the checkpoint has no tensor {name:?}")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A weight that does not fit the configuration.
    #[error("tensor {name:?} has shape {given:?} where the configuration needs {expected:?}")]
    TensorShape {
        /// Its name.
        name: String,
        /// The shape it has.
        given: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// A tokenizer that cannot be used, or a text that it cannot take.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template that fails.
    #[error("chat template: {0}")]
    Template(String),
    /// There is nothing to continue.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// More tokens than the model was made for.
    #[error("{tokens} tokens are more than the model's context of {limit}")]
    Context {
        /// How many were given.
        tokens: usize,
        /// How many fit.
        limit: usize,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A model could not be fetched.
    #[error("{0}")]
    Fetch(String),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    pub(crate) fn config(place: impl Into<String>, what: impl Into<String>) -> Self {
        Error::Config { place: place.into(), what: what.into() }
    }
}
