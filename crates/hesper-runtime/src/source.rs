//! Sources of pipelines, and interned texts.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use crate::sync::{Lock, Rank};

/// An interned kernel text: equal texts that are alive at the same time are one object, so a comparison
/// compares two addresses.
#[derive(Clone)]
pub struct InternedText(Arc<TextEntry>);

struct TextEntry {
    hash: u64,
    text: Box<str>,
}

type TextTable = Lock<HashMap<u64, Vec<Weak<TextEntry>>>>;

fn interned_texts() -> &'static TextTable {
    static TEXTS: OnceLock<TextTable> = OnceLock::new();
    TEXTS.get_or_init(|| Lock::new(Rank::Leaf, HashMap::new()))
}

impl InternedText {
    /// Interns a text.
    pub fn new(text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let mut table = interned_texts().lock_unscheduled();
        let bucket = table.entry(hash).or_default();
        if let Some(found) = bucket.iter().filter_map(Weak::upgrade).find(|found| *found.text == *text) {
            return InternedText(found);
        }
        let fresh = Arc::new(TextEntry { hash, text: text.into() });
        bucket.push(Arc::downgrade(&fresh));
        InternedText(fresh)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }
}

impl Drop for TextEntry {
    fn drop(&mut self) {
        if crate::fork::is_forked() {
            return;
        }
        let mut table = interned_texts().lock_unscheduled();
        if let Entry::Occupied(mut bucket) = table.entry(self.hash) {
            bucket.get_mut().retain(|text| text.strong_count() > 0);
            if bucket.get().is_empty() {
                bucket.remove();
            }
        }
    }
}

impl PartialEq for InternedText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.hash == other.0.hash && self.0.text == other.0.text)
    }
}

impl Eq for InternedText {}

impl Hash for InternedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Debug for InternedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InternedText({} bytes, {:016x})", self.0.text.len(), self.0.hash)
    }
}

impl From<&str> for InternedText {
    fn from(text: &str) -> Self {
        InternedText::new(text)
    }
}

/// The source of a pipeline.
#[derive(Clone)]
pub struct PipelineSource {
    /// For diagnostics and traces; no part of the cache key.
    pub label: Arc<str>,
    /// The language of the text, as the device understands it.
    pub language: &'static str,
    /// The whole text.
    pub text: InternedText,
    /// Types, constants and options that specialise the text.
    pub specialisation: InternedText,
    /// The text in compiled form (an IR), if its author has it. A function of text and specialisation, hence
    /// no part of the cache key.
    pub payload: Option<Arc<dyn Any + Send + Sync>>,
}

impl PipelineSource {
    /// A source without specialisation and payload.
    pub fn new(label: impl Into<Arc<str>>, language: &'static str, text: impl Into<InternedText>) -> Self {
        PipelineSource {
            label: label.into(),
            language,
            text: text.into(),
            specialisation: InternedText::new(""),
            payload: None,
        }
    }

    /// Sets the specialisation.
    pub fn specialised(mut self, specialisation: impl Into<InternedText>) -> Self {
        self.specialisation = specialisation.into();
        self
    }

    /// Adds the compiled form of the text.
    pub fn with_payload(mut self, payload: Arc<dyn Any + Send + Sync>) -> Self {
        self.payload = Some(payload);
        self
    }

    /// A hash of the content, for diagnostics; caches compare the content itself.
    pub fn content(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn key(&self) -> PipelineKey {
        PipelineKey {
            language: self.language,
            text: self.text.clone(),
            specialisation: self.specialisation.clone(),
        }
    }
}

impl fmt::Debug for PipelineSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipelineSource({}, {}, {:?})", self.label, self.language, self.text)
    }
}

/// The cache key of a pipeline on one device.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PipelineKey {
    pub(crate) language: &'static str,
    pub(crate) text: InternedText,
    pub(crate) specialisation: InternedText,
}
