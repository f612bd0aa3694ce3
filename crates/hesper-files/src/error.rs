//! The crate's error: one enum, grouped by cause; each variant names the file and the value at fault.
//!
//! `Malformed` is the file's fault and says which format, which tensor (or member, or key) and which field;
//! `Limit` is a bound of ours that the file exceeds; `Damaged` is a file that changed while it was read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::Format;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with tensor files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{action}{}: {source}", At(.path))]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file, where there is one.
        path: Option<PathBuf>,
        /// The first cause.
        source: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("{}: not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// A range of bytes that the source does not have.
    #[error("bytes {start}..{end} lie outside of the source, which has {len}")]
    OutOfRange {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes in the source.
        len: u64,
    },
    /// The file under a live source was truncated, changed, or could not be read any more.
    #[error("{}bytes {start}..{end} are not what was opened: {reason}", Prefix(.path))]
    Damaged {
        /// The file, where it is known.
        path: Option<PathBuf>,
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// What was found.
        reason: &'static str,
    },
    /// The bytes are not a file of any known format.
    #[error("not a safetensors, npy, npz or GGUF file: {0}")]
    UnknownFormat(String),
    /// The file breaks its format's rules.
    #[error("malformed {format} file: {}{field}: {detail}", Named(.name))]
    Malformed {
        /// The format the file was read as.
        format: Format,
        /// Tensor, member or metadata key; empty when the file as a whole is meant.
        name: String,
        /// The field at fault.
        field: &'static str,
        /// What was found and what was expected.
        detail: String,
    },
    /// The file keeps its format's rules but uses what is not supported.
    #[error("unsupported {format} file: {}{field}: {detail}", Named(.name))]
    Unsupported {
        /// The format the file was read as.
        format: Format,
        /// Tensor, member or metadata key; empty when the file as a whole is meant.
        name: String,
        /// The field at fault.
        field: &'static str,
        /// What was found.
        detail: String,
    },
    /// The file exceeds one of the [`Limits`](crate::Limits).
    #[error("{format} file: {}{field} is {given}, the limit is {limit}", Named(.name))]
    Limit {
        /// The format the file was read as.
        format: Format,
        /// Tensor, member or metadata key; empty when the file as a whole is meant.
        name: String,
        /// What is limited.
        field: &'static str,
        /// What the file asks for.
        given: u64,
        /// What is allowed.
        limit: u64,
    },
    /// No tensor of this name.
    #[error("no tensor named {0:?}")]
    NoTensor(String),
    /// A caller's buffer has the wrong size.
    #[error("tensor {name:?} has {expected} bytes, the buffer has {given}")]
    BufferSize {
        /// The tensor.
        name: String,
        /// Bytes of the tensor.
        expected: u64,
        /// Bytes of the buffer.
        given: u64,
    },
    /// The format cannot represent what was to be written.
    #[error("cannot write {name:?} as {format}: {detail}")]
    Unwritable {
        /// The format.
        format: Format,
        /// Tensor or metadata key.
        name: String,
        /// Why.
        detail: String,
    },
    /// A tensor's bytes could not be produced; the producer says why.
    #[error("cannot produce the bytes of tensor {name:?}: {cause}")]
    Producer {
        /// The tensor.
        name: String,
        /// The first cause.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An error of one file among several, or of a file where only its source was known.
    #[error("{}: {source}", .path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What went wrong with it.
        source: Box<Error>,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// An error of the operating system.
    pub fn io(action: &'static str, path: Option<&Path>, source: io::Error) -> Self {
        Error::Io { action, path: path.map(Path::to_path_buf), source }
    }

    /// The error, with the file that it happened in where it does not name one.
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            // These name their file already.
            e @ (Error::InFile { .. } | Error::NotAFile(_) | Error::Cancelled) => e,
            e @ (Error::Io { path: Some(_), .. } | Error::Damaged { path: Some(_), .. }) => e,
            e => Error::InFile { path: path.to_path_buf(), source: Box::new(e) },
        }
    }

    /// The error itself, without the file that it happened in.
    pub fn root(&self) -> &Error {
        match self {
            Error::InFile { source, .. } => source.root(),
            other => other,
        }
    }

    /// Whether the file changed under a live [`Source`](crate::Source), wherever that is nested.
    pub fn is_damage(&self) -> bool {
        match self.root() {
            Error::Damaged { .. } => true,
            Error::Producer { cause, .. } => cause.downcast_ref::<Error>().is_some_and(Error::is_damage),
            _ => false,
        }
    }
}

/// Makes errors about one place in one file of one format.
#[derive(Clone, Copy)]
pub(crate) struct Blame<'a> {
    pub format: Format,
    pub name: &'a str,
}

impl<'a> Blame<'a> {
    pub fn file(format: Format) -> Self {
        Blame { format, name: "" }
    }

    pub fn on(self, name: &'a str) -> Self {
        Blame { name, ..self }
    }

    pub fn malformed(self, field: &'static str, detail: impl Into<String>) -> Error {
        Error::Malformed { format: self.format, name: clip(self.name), field, detail: detail.into() }
    }

    pub fn unsupported(self, field: &'static str, detail: impl Into<String>) -> Error {
        Error::Unsupported { format: self.format, name: clip(self.name), field, detail: detail.into() }
    }

    pub fn limit(self, field: &'static str, given: u64, limit: u64) -> Error {
        Error::Limit { format: self.format, name: clip(self.name), field, given, limit }
    }

    pub fn unwritable(self, detail: impl Into<String>) -> Error {
        Error::Unwritable { format: self.format, name: clip(self.name), detail: detail.into() }
    }
}

/// Untrusted text, clipped for an error message.
pub(crate) fn clip(text: &str) -> String {
    const LONGEST: usize = 200;
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let mut end = LONGEST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

struct At<'a>(&'a Option<PathBuf>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " {}", path.display()),
            None => Ok(()),
        }
    }
}

struct Prefix<'a>(&'a Option<PathBuf>);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, "{}: ", path.display()),
            None => Ok(()),
        }
    }
}

struct Named<'a>(&'a String);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{:?}, ", self.0) }
    }
}
