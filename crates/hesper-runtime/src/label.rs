//! Labels of commands and buffers, for diagnostics.
//!
//! Most labels are string literals and free to copy. Every command and buffer has one, and a counted label
//! would make the encoding and the running thread contend for its reference count.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The name of a command or a buffer.
#[derive(Clone)]
pub enum Label {
    /// A string literal.
    Static(&'static str),
    /// A string built at run time.
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
