//! Pipelines that a backend has asked for before, found again without building their text.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hesper_core::Result;
use hesper_runtime::Pipeline;

/// Most entries of a table.
const MAX_KNOWN: usize = 1024;

/// Pipelines by a key that stands for device, text and instance. The runtime's cache owns and limits them;
/// this table only finds them.
#[derive(Debug)]
pub struct KnownPipelines<K>(Mutex<HashMap<K, Weak<Pipeline>>>);

impl<K> Default for KnownPipelines<K> {
    fn default() -> Self {
        KnownPipelines(Mutex::default())
    }
}

impl<K: Eq + Hash> KnownPipelines<K> {
    /// The pipeline of a key; `compile` asks the runtime for one that is not known. A full table drops the
    /// pipelines that the runtime has released; if there are none, it is cleared.
    pub fn get(&self, key: K, compile: impl FnOnce(&K) -> Result<Arc<Pipeline>>) -> Result<Arc<Pipeline>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let pipeline = compile(&key)?;
        let mut known = known();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, pipeline| pipeline.strong_count() > 0);
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, Arc::downgrade(&pipeline));
        Ok(pipeline)
    }
}
