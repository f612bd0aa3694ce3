//! A bounded cache of two generations.
//!
//! An entry moves to the recent generation when it is inserted or found. When the recent generation is full
//! it replaces the older one, whose entries are dropped. So entries in use stay, a hit updates no order, and
//! the total weight never exceeds the limit.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};

use crate::ids::WordHash;

type Generation<K, V> = HashMap<K, (V, usize), BuildHasherDefault<WordHash>>;

pub(crate) struct Cache<K, V> {
    recent: Generation<K, V>,
    older: Generation<K, V>,
    /// The weight of the recent generation, and its limit: half of the cache's.
    weight: usize,
    limit: usize,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// A cache whose entries weigh at most `limit` together.
    pub(crate) const fn new(limit: usize) -> Self {
        Cache {
            recent: HashMap::with_hasher(BuildHasherDefault::new()),
            older: HashMap::with_hasher(BuildHasherDefault::new()),
            weight: 0,
            limit: limit / 2,
        }
    }

    pub(crate) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some((value, _)) = self.recent.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = self.older.remove_entry(key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    /// Adds an entry, or replaces one. An entry heavier than a generation is not kept.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        if weight > self.limit {
            return;
        }
        if self.weight + weight > self.limit {
            self.older = std::mem::take(&mut self.recent);
            self.weight = 0;
        }
        self.older.remove(&key);
        self.weight += weight;
        if let Some((_, replaced)) = self.recent.insert(key, (value, weight)) {
            self.weight -= replaced;
        }
    }

    /// The weight of all entries.
    #[cfg(test)]
    pub(crate) fn weight(&self) -> usize {
        self.recent.values().chain(self.older.values()).map(|(_, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_drops_entries_that_were_not_found_again() {
        let mut cache: Cache<u64, u64> = Cache::new(8);
        (0..4).for_each(|key| cache.insert(key, key * 10, 1));
        // The next generation begins, and one of the older entries is found.
        cache.insert(4, 40, 1);
        assert_eq!(cache.get(&0), Some(0));
        cache.insert(5, 50, 1);
        cache.insert(6, 60, 1);
        cache.insert(7, 70, 1);
        assert_eq!((cache.get(&1), cache.get(&0)), (None, Some(0)));
        assert!((0..100).all(|key| {
            cache.insert(key, key, 1);
            cache.weight() <= 8
        }));
    }

    #[test]
    fn weights_are_bounded_and_replaced() {
        let mut cache: Cache<u64, u64> = Cache::new(8);
        cache.insert(0, 0, 5);
        assert_eq!(cache.weight(), 0, "heavier than a generation");
        (0..100).for_each(|_| cache.insert(1, 1, 2));
        cache.insert(2, 2, 2);
        assert_eq!((cache.get(&1), cache.get(&2), cache.weight()), (Some(1), Some(2), 4));
    }
}
