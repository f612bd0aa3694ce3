//! Finds the request that makes workers exit, by group testing.
//!
//! A worker may exit because of one of its requests, and a request that is submitted to one worker after the
//! other would fail all that run beside it. So requests that lost several workers without progress are
//! suspects: the next worker gets half of them and nothing else. Requests that get further than before are
//! cleared, and the next ones follow. If the worker exits again, those that were not cleared are divided
//! again, until a request is alone with its worker.

use std::collections::BTreeSet;

/// Requests of which one may make workers exit, by their keys.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Suspects that are not cleared.
    open: BTreeSet<u64>,
    /// The requests that the worker may get while there are suspects.
    group: BTreeSet<u64>,
    /// The number of suspects in a group.
    size: usize,
}

impl Suspects {
    /// Records that a worker exited and that `keys` are suspects now. The next groups have half of them.
    pub(super) fn set(&mut self, keys: BTreeSet<u64>) {
        (self.size, self.open) = (keys.len().div_ceil(2), keys);
        self.group.clear();
    }

    /// Whether the worker may get a request.
    pub(super) fn allow(&self, key: u64) -> bool {
        self.open.is_empty() || self.group.contains(&key)
    }

    /// Whether there are suspects.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a request is a suspect.
    pub(super) fn contains(&self, key: u64) -> bool {
        self.open.contains(&key)
    }

    /// Removes a request that has ended or got further than before. Returns whether it was a suspect.
    pub(super) fn clear(&mut self, key: u64) -> bool {
        self.open.remove(&key)
    }

    /// Chooses the next group if all of the current one are cleared. Cleared requests stay with the worker.
    pub(super) fn next_group(&mut self) {
        if self.group.is_disjoint(&self.open) {
            self.group.extend(self.open.iter().take(self.size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_that_makes_workers_exit_is_found_and_all_others_are_cleared() {
        for count in [1, 2, 3, 7, 64, 320] {
            for culprit in [0, count / 3, count - 1] {
                let mut suspects = Suspects::default();
                assert!(suspects.allow(culprit) && !suspects.any());
                suspects.set((0..count).collect());
                let (mut exits, mut cleared) = (0, BTreeSet::new());
                loop {
                    suspects.next_group();
                    let group: Vec<u64> = (0..count).filter(|key| suspects.contains(*key)).collect();
                    let group: Vec<u64> = group.into_iter().filter(|key| suspects.allow(*key)).collect();
                    assert!(!group.is_empty() && !suspects.allow(count), "new requests wait");
                    if !group.contains(&culprit) {
                        for key in group {
                            assert!(suspects.clear(key) && !suspects.clear(key));
                            cleared.insert(key);
                        }
                        continue;
                    }
                    exits += 1;
                    if group == [culprit] {
                        break;
                    }
                    suspects.set(group.into_iter().collect());
                }
                assert!(exits <= 2 + count.ilog2(), "{exits} workers for {count} requests");
                // Those that no group had yet are not suspects any more.
                suspects.clear(culprit);
                assert!((cleared.len() as u64) < count && !cleared.contains(&culprit));
            }
        }
    }
}
