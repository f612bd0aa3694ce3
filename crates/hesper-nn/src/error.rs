//! What can go wrong with layers.

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer could not be made, loaded or applied.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Arrays that do not fit, or a failed evaluation.
    #[error(transparent)]
    Array(#[from] hesper::Error),
    /// A parameter that is not among those given.
    #[error("there is no parameter {path:?}")]
    Missing {
        /// Its path.
        path: String,
    },
    /// Parameters were given that the module does not have.
    #[error("the module has no parameter {path:?}")]
    Unknown {
        /// The first of them.
        path: String,
    },
    /// A parameter of another shape.
    #[error("{path}: shape {given:?} where {expected:?} is needed")]
    Shape {
        /// The parameter.
        path: String,
        /// The shape that was given.
        given: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
}
