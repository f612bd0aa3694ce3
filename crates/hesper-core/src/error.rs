//! The error type of arrays.

use std::sync::Arc;

use crate::dtype::Dtype;

/// The result of this crate's fallible calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused, or what became of an array's evaluation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes do not broadcast.
    #[error("{op}: shapes {left:?} and {right:?} do not broadcast")]
    Broadcast {
        /// The op.
        op: String,
        /// One shape.
        left: Vec<usize>,
        /// The other.
        right: Vec<usize>,
    },
    /// Shapes do not fit the op.
    #[error("{op}: {what}")]
    Shape {
        /// The op.
        op: String,
        /// What does not fit, with the shapes.
        what: String,
        /// The shapes of the arrays that do not fit, in the order of the arguments; none where the op lists
        /// no arrays.
        shapes: Vec<Vec<usize>>,
    },
    /// There is no such axis.
    #[error("{op}: axis {axis} is out of range for an array of {rank} dimensions")]
    Axis {
        /// The op.
        op: String,
        /// The axis as given.
        axis: isize,
        /// The array's number of axes.
        rank: usize,
    },
    /// An axis was named twice.
    #[error("{op}: axes {axes:?} name an axis twice")]
    RepeatedAxis {
        /// The op.
        op: String,
        /// The axes as given.
        axes: Vec<isize>,
    },
    /// An element type that the op does not take.
    #[error("{op}: {what} of type {dtype}")]
    Type {
        /// The op.
        op: String,
        /// What was expected, as in "no bitwise operation on an array".
        what: String,
        /// The type given.
        dtype: Dtype,
    },
    /// A number of elements that does not fit.
    #[error("an array of shape {shape:?} has more elements than can be addressed")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// A value was asked for that the array does not hold.
    #[error("{op}: {what}")]
    Value {
        /// The op.
        op: String,
        /// What is wrong.
        what: String,
    },
    /// An array of a trace that has ended was evaluated.
    #[error("{0}")]
    Stale(String),
    /// A custom kernel's text, arguments or launch.
    #[error("{0}")]
    Kernel(String),
    /// A function that was exported, or its file.
    #[error("{0}")]
    Export(String),
    /// A function of the user's panicked: one that was transformed, or a rule for derivatives.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// What was called.
        what: String,
        /// The words of the panic.
        message: String,
    },
    /// A function of the user's failed while it was transformed.
    #[error("{0}")]
    User(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A tensor file: what is wrong with it, or with reading or writing it.
    #[cfg(feature = "files")]
    #[error(transparent)]
    File(Arc<hesper_files::Error>),
    /// The runtime refused a call, or work failed: the first cause.
    #[error(transparent)]
    Runtime(#[from] hesper_runtime::Error),
}

#[cfg(feature = "files")]
impl From<hesper_files::Error> for Error {
    fn from(error: hesper_files::Error) -> Self {
        Error::File(Arc::new(error))
    }
}

impl Error {
    /// The error of a user's function, which is its source.
    ///
    /// ```
    /// use hesper::Error;
    /// use std::error::Error as _;
    /// let error = Error::user(std::io::Error::other("no more samples"));
    /// assert_eq!(error.source().map(ToString::to_string), Some("no more samples".into()));
    /// assert!(matches!(error, Error::User(cause) if cause.is::<std::io::Error>()));
    /// ```
    pub fn user(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error::User(Arc::new(error))
    }

    /// Whether a file that an array comes from was truncated or changed after it was loaded.
    ///
    /// ```
    /// use hesper::array;
    /// let error = array![1, 2].reshape(&[3]).unwrap_err();
    /// assert!(!error.is_damage()); // true where a mapped file changed after it was loaded
    /// ```
    pub fn is_damage(&self) -> bool {
        match self {
            #[cfg(feature = "files")]
            Error::File(error) => match error.root() {
                hesper_files::Error::Producer { cause, .. } => match cause.downcast_ref::<Error>() {
                    Some(cause) => cause.is_damage(),
                    None => error.is_damage(),
                },
                _ => error.is_damage(),
            },
            Error::Runtime(error) => {
                error.fault().is_some_and(|fault| fault.kind() == hesper_runtime::FaultKind::Source)
            }
            _ => false,
        }
    }

    /// An error about shapes that an op was given.
    ///
    /// ```
    /// use hesper::{Array, Error, array};
    /// fn first_row(x: &Array) -> hesper::Result<Array> {
    ///     if x.ndim() != 2 {
    ///         return Err(Error::shape("first_row", format!("a matrix expected, not {:?}", x.shape())));
    ///     }
    ///     x.slice_axis(0, 0, 1, 1)
    /// }
    /// assert!(first_row(&array![1, 2]).unwrap_err().to_string().contains("a matrix expected"));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn shape(op: &str, what: impl Into<String>) -> Self {
        Error::Shape { op: op.to_string(), what: what.into(), shapes: Vec::new() }
    }

    /// An error about a value that an op was given.
    ///
    /// ```
    /// use hesper::Error;
    /// let error = Error::value("dropout", "the probability must be below 1, not 1.5");
    /// assert!(error.to_string().contains("not 1.5"));
    /// ```
    pub fn value(op: &str, what: impl Into<String>) -> Self {
        Error::Value { op: op.to_string(), what: what.into() }
    }
}
