//! Pipelines that a backend has asked for before, found again without building their text.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use hesper_core::Result;
use hesper_runtime::Pipeline;

/// Most entries of a table.
const MAX_KNOWN: usize = 1024;

/// A device, a text (its address and length), an instance, its options, the largest threadgroup, and the
/// functions in its slots, or 0.
pub(crate) type Key = (u64, usize, usize, String, String, u64, [u64; 2]);

/// The pipelines of all texts of all backends.
pub(crate) static KNOWN: LazyLock<KnownPipelines<Key>> = LazyLock::new(KnownPipelines::default);

/// Pipelines by a key that stands for device, text and instance, each with what its launches share. The
/// runtime's cache owns and limits the pipelines; this table only finds them.
#[derive(Debug)]
pub struct KnownPipelines<K, L = ()>(Mutex<HashMap<K, (Weak<Pipeline>, L)>>);

impl<K, L> Default for KnownPipelines<K, L> {
    fn default() -> Self {
        KnownPipelines(Mutex::default())
    }
}

impl<K: Eq + Hash, L: Copy> KnownPipelines<K, L> {
    fn table(&self) -> MutexGuard<'_, HashMap<K, (Weak<Pipeline>, L)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipeline of a key, unless the runtime has released it.
    pub fn find(&self, key: &K) -> Option<(Arc<Pipeline>, L)> {
        self.table().get(key).and_then(|(pipeline, launch)| Some((pipeline.upgrade()?, *launch)))
    }

    /// Adds a pipeline. A full table drops those that the runtime has released; if there are none, it is
    /// cleared.
    pub fn insert(&self, key: K, pipeline: &Arc<Pipeline>, launch: L) {
        let mut known = self.table();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, (pipeline, _)| pipeline.strong_count() > 0);
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, (Arc::downgrade(pipeline), launch));
    }
}

impl<K: Eq + Hash> KnownPipelines<K> {
    /// The pipeline of a key; `compile` asks the runtime for one that is not known.
    pub fn get(&self, key: K, compile: impl FnOnce(&K) -> Result<Arc<Pipeline>>) -> Result<Arc<Pipeline>> {
        if let Some((found, ())) = self.find(&key) {
            return Ok(found);
        }
        let pipeline = compile(&key)?;
        self.insert(key, &pipeline, ());
        Ok(pipeline)
    }
}
