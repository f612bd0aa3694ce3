//! The errors of layers and caches.

use std::sync::Arc;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer could not be built, loaded, applied or trained.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array op was refused, or its evaluation failed.
    #[error(transparent)]
    Array(hesper_core::Error),
    /// A parameter of the module was not given.
    #[error("parameter {path:?} is missing")]
    Missing {
        /// Its path.
        path: String,
    },
    /// A parameter was given that the module does not have.
    #[error("the module has no parameter {path:?}")]
    Unknown {
        /// Its path, or the first one of several.
        path: String,
    },
    /// A parameter has the wrong shape.
    #[error("{path}: expected shape {expected:?}, found {given:?}")]
    Shape {
        /// The parameter.
        path: String,
        /// The shape that was given.
        given: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// An argument out of its range, or a call that does not fit the state of its object.
    #[error("{0}")]
    InvalidArgument(String),
    /// A cache has no room for the tokens of a step. Its sequences are unchanged.
    #[error("the KV cache is full: the step needs {needed} more tokens, there is room for {free}")]
    CacheFull {
        /// Tokens that the step adds.
        needed: usize,
        /// Tokens that fit.
        free: usize,
    },
    /// The tokens of a cache cannot be recovered.
    #[error("the KV cache is lost: {0}; start with an empty one")]
    CacheLost(String),
    /// Pending tokens of a cache could not be computed, so they cannot be discarded either. Its sequences are
    /// unchanged, and the call may be retried.
    #[error("cannot roll back the KV cache: the last step failed: {0}")]
    Rollback(#[source] hesper_core::Error),
    /// A checkpoint does not fit the training.
    #[error("{path}: {what}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A checkpoint or a metrics file could not be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        cause: Arc<std::io::Error>,
    },
}

impl Error {
    /// An argument out of its range.
    pub(crate) fn argument(what: impl Into<String>) -> Self {
        Error::InvalidArgument(what.into())
    }
}

/// Allows `?` on errors of layers in functions that the transforms call.
impl From<Error> for hesper_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Array(error) => error,
            other => hesper_core::Error::user(other),
        }
    }
}

/// An error of a layer that passed through a transform comes back as it was.
impl From<hesper_core::Error> for Error {
    fn from(error: hesper_core::Error) -> Self {
        match &error {
            hesper_core::Error::User(cause) => cause.downcast_ref().cloned().unwrap_or(Error::Array(error)),
            _ => Error::Array(error),
        }
    }
}
