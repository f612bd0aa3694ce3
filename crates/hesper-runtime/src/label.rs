//! Labels: what people are told a command or a buffer is.
//!
//! Most are names in the program's text. Those cost nothing to copy, which counts: a label goes with every command and
//! every buffer, and a counted one would be counted up by the thread that encodes and down by the one that runs.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The name of a command or a buffer.
#[derive(Clone)]
pub enum Label {
    /// A name in the program's text.
    Static(&'static str),
    /// A name that was made.
    Shared(Arc<str>),
}

impl Deref for Label {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Label::Static(text) => text,
            Label::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<&'static str> for Label {
    fn from(text: &'static str) -> Self {
        Label::Static(text)
    }
}

impl From<Arc<str>> for Label {
    fn from(text: Arc<str>) -> Self {
        Label::Shared(text)
    }
}

impl From<String> for Label {
    fn from(text: String) -> Self {
        Label::Shared(text.into())
    }
}
