//! Maps by the numbers of nodes. These are given one after the other, so one multiplication spreads them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map from the numbers of nodes.
pub(crate) type IdMap<V> = HashMap<u64, V, BuildHasherDefault<Spread>>;

/// A set of the numbers of nodes.
pub(crate) type IdSet = HashSet<u64, BuildHasherDefault<Spread>>;

/// The hash of one number.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }
}
