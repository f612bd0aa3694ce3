//! Stores the answers of `/v1/responses` that later requests may continue, in bounded memory.

use std::collections::HashMap;

use serde_json::Value;

/// The most bytes of all conversations and answers. The least recently used are dropped first.
const MAX_BYTES: usize = 32 << 20;

/// An answer and the conversation up to it.
#[derive(Debug, Clone)]
pub(crate) struct StoredResponse {
    /// The tenant that may read and continue it.
    pub(crate) tenant: u64,
    /// The messages of the conversation including the answer, without instructions.
    pub(crate) messages: Vec<Value>,
    /// The response as JSON.
    pub(crate) response: Value,
}

#[derive(Debug)]
struct Entry {
    stored: StoredResponse,
    bytes: usize,
    last_used: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ResponseStore {
    /// By tenant and id: a client may choose the id, and two tenants may choose the same.
    entries: HashMap<(u64, String), Entry>,
    bytes: usize,
    clock: u64,
}

impl ResponseStore {
    /// Stores an answer and drops others if the store is full. Does not store an answer above the limit.
    pub(crate) fn insert(&mut self, id: String, stored: StoredResponse) {
        let messages: usize = stored.messages.iter().map(|message| message.to_string().len()).sum();
        let key = (stored.tenant, id);
        let bytes = key.1.len() + messages + stored.response.to_string().len();
        if bytes > MAX_BYTES {
            return;
        }
        self.clock += 1;
        self.bytes += bytes;
        let entry = Entry { stored, bytes, last_used: self.clock };
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.bytes;
        }
        while self.bytes > MAX_BYTES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.drop_entry(&key);
        }
    }

    /// An answer of a tenant.
    pub(crate) fn get(&mut self, id: &str, tenant: u64) -> Option<&StoredResponse> {
        let entry = self.entries.get_mut(&(tenant, id.to_string()))?;
        self.clock += 1;
        entry.last_used = self.clock;
        Some(&entry.stored)
    }

    /// Removes an answer of a tenant. Returns whether it was stored.
    pub(crate) fn remove(&mut self, id: &str, tenant: u64) -> bool {
        self.drop_entry(&(tenant, id.to_string()))
    }

    /// Returns whether there was one.
    fn drop_entry(&mut self, key: &(u64, String)) -> bool {
        let dropped = self.entries.remove(key);
        self.bytes -= dropped.as_ref().map_or(0, |entry| entry.bytes);
        dropped.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn stored(tenant: u64, bytes: usize) -> StoredResponse {
        StoredResponse { tenant, messages: vec!["x".repeat(bytes).into()], response: Value::Null }
    }

    #[test]
    fn memory_is_bounded_and_the_least_recently_used_are_dropped_first() {
        let mut store = ResponseStore::default();
        for at in 0..25 {
            store.insert(format!("r{at}"), stored(1, MAX_BYTES / 10));
            assert!(store.bytes <= MAX_BYTES && store.entries.len() <= 10);
            assert!(store.get("r0", 1).is_some(), "it is used all the time");
        }
        assert!(store.get("r23", 1).is_some() && store.get("r12", 1).is_none());
        store.insert("large".into(), stored(1, MAX_BYTES + 1));
        assert!(store.get("large", 1).is_none() && store.get("r0", 1).is_some());
        store.insert("r0".into(), stored(1, 10));
        let bytes: usize = store.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!(store.bytes, bytes);
    }

    #[test]
    fn an_answer_belongs_to_its_tenant() {
        let mut store = ResponseStore::default();
        store.insert("r".into(), stored(1, 10));
        assert!(store.get("r", 2).is_none() && !store.remove("r", 2));
        store.insert("r".into(), stored(2, 20));
        assert!(store.get("r", 1).is_some_and(|own| own.tenant == 1), "another tenant has the same id");
        assert!(store.remove("r", 2));
        assert!(store.get("r", 1).is_some() && store.remove("r", 1) && !store.remove("r", 1));
        assert_eq!((store.bytes, store.entries.len()), (0, 0));
    }
}
