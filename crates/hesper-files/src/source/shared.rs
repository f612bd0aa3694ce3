//! A source's bytes as memory that a runtime's buffers use in place.
//!
//! A [`SharedSource`] is the source and the watch by which the runtime checks, after each use, that the file
//! has not changed. All tensors of a file share one, so a submission that reads a thousand of them checks
//! once.

use std::ops::Range;
use std::sync::Arc;

use hesper_runtime::{HostMemory, Watch};

use super::Source;
use crate::error::Result;

/// A source that buffers can be made of.
///
/// ```
/// use hesper_files::{SharedSource, Source};
/// use hesper_runtime::HostMemory;
/// let shared = SharedSource::new(Source::from_bytes(vec![1, 2, 3, 4]));
/// let bytes = shared.bytes(1..3)?.expect("a vector stays where it is");
/// assert_eq!(bytes.bytes(), [2, 3]);
/// # Ok::<(), hesper_files::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedSource(Arc<Watched>);

struct Watched(Source);

impl Watch for Watched {
    fn check(&self) -> Result<(), String> {
        self.0.check(0..self.0.len()).map_err(|e| e.to_string())
    }
}

impl SharedSource {
    /// Shares a source.
    pub fn new(source: Source) -> Self {
        SharedSource(Arc::new(Watched(source)))
    }

    /// The source.
    pub fn source(&self) -> &Source {
        &self.0.0
    }

    /// The bytes of a range in place; `None` if they have no stable address.
    pub fn bytes(&self, range: Range<u64>) -> Result<Option<SharedBytes>> {
        let found = self.source().in_place(range.clone())?.is_some();
        Ok(found.then(|| SharedBytes { source: self.clone(), range }))
    }
}

/// Bytes of a source, in place. The source lives as long as they do.
pub struct SharedBytes {
    source: SharedSource,
    range: Range<u64>,
}

// SAFETY: `in_place` gives bytes of a mapping, which stays in place until its last user drops it and which
// no code of this process writes, or of a vector that nothing can change. Others may change the file
// behind a mapping: the module documentation of `source` says what is then seen, and the watch says that it
// happened.
unsafe impl HostMemory for SharedBytes {
    fn bytes(&self) -> &[u8] {
        self.source.source().in_place(self.range.clone()).ok().flatten().unwrap_or_default()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.source.source().identity().map(|_| self.source.0.clone() as Arc<dyn Watch>)
    }

    fn is_mapped(&self) -> bool {
        self.source.source().identity().is_some()
    }
}
