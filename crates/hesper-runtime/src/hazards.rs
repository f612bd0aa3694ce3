//! Hazards: the uses of a block's bytes, and the uses that a new one must wait for.
//!
//! A block's [`History`] keeps its last writes and all reads since, each with byte range, stream,
//! submission and command. One last reader is not enough: two streams may read at the same time, and a
//! writer must wait for both. The history belongs to the block, not to the buffer, so commands of the
//! next lease are ordered behind those of the last one by the same rules.

use smallvec::SmallVec;

/// The command number of a merged entry: any earlier command of its submission.
pub(crate) const ANY_COMMAND: u32 = u32::MAX;

/// Above this many reads or writes, entries of one submission are merged. Merging is conservative: it
/// may order more than needed, never less.
const MERGE_THRESHOLD: usize = 48;

/// One use of a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) stream: u64,
    pub(crate) submission: u64,
    pub(crate) command: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Use {
    fn overlaps(&self, other: &Use) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn covers(&self, other: &Use) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// The uses of a block that may be unfinished.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: SmallVec<[Use; 1]>,
    reads: SmallVec<[Use; 2]>,
    /// Reads are pruned at this count, which doubles: recording a read takes amortized constant time,
    /// however many streams read the buffer.
    prune_at: usize,
}

impl History {
    /// Records a use. `done` says whether a submission has completed; `conflict` gets each earlier use
    /// that the new one must be ordered after. A write replaces the entries it covers only if `ordered`, that
    /// is, if it is ordered after them.
    pub(crate) fn record(
        &mut self,
        new: Use,
        writes: bool,
        ordered: bool,
        done: impl Fn(u64, u64) -> bool,
        mut conflict: impl FnMut(&Use),
    ) {
        if new.start == new.end {
            return;
        }
        let live = |old: &Use| {
            old.stream == new.stream && old.submission == new.submission || !done(old.stream, old.submission)
        };
        // The uses that a write covers are ordered before it, so later uses need only the write.
        let mut stays = |old: &mut Use| {
            let live = live(old);
            if live && old.overlaps(&new) {
                conflict(old);
            }
            live && !(ordered && writes && new.covers(old))
        };
        retain(&mut self.writes, &mut stays);
        if writes {
            retain(&mut self.reads, &mut stays);
            self.writes.push(new);
            merge(&mut self.writes);
        } else {
            if self.reads.len() >= self.prune_at.max(4) {
                // Submissions of a stream are ordered, so a later read replaces an earlier one.
                self.reads.retain(|old| {
                    let replaced =
                        old.stream == new.stream && old.submission < new.submission && new.covers(old);
                    live(old) && !replaced
                });
                merge(&mut self.reads);
                self.prune_at = 2 * self.reads.len();
            }
            self.reads.push(new);
        }
    }

    /// A use that a host access must wait for: a write, or a read if the access writes.
    pub(crate) fn pending(
        &mut self,
        start: usize,
        end: usize,
        writes: bool,
        done: impl Fn(u64, u64) -> bool,
    ) -> Option<Use> {
        self.prune(done);
        let probe = Use { stream: 0, submission: 0, command: 0, start, end };
        let first = |uses: &[Use]| uses.iter().find(|old| old.overlaps(&probe)).copied();
        first(&self.writes).or_else(|| if writes { first(&self.reads) } else { None })
    }

    /// The streams with unfinished uses.
    pub(crate) fn pending_streams(&mut self, done: impl Fn(u64, u64) -> bool) -> PendingStreams {
        let mut pending = PendingStreams::None;
        let mut stays = |old: &mut Use| {
            if done(old.stream, old.submission) {
                return false;
            }
            pending = match pending {
                PendingStreams::None => PendingStreams::One(old.stream),
                PendingStreams::One(stream) if stream == old.stream => PendingStreams::One(stream),
                _ => PendingStreams::Many,
            };
            true
        };
        retain(&mut self.writes, &mut stays);
        retain(&mut self.reads, &mut stays);
        pending
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.reads.clear();
    }

    fn prune(&mut self, done: impl Fn(u64, u64) -> bool) {
        self.writes.retain(|old| !done(old.stream, old.submission));
        self.reads.retain(|old| !done(old.stream, old.submission));
    }
}

/// The streams with unfinished uses of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingStreams {
    None,
    One(u64),
    Many,
}

/// Removes the uses that do not stay. Most lists are empty or have one use, which needs no loop.
#[inline]
fn retain<A: smallvec::Array<Item = Use>>(uses: &mut SmallVec<A>, mut stays: impl FnMut(&mut Use) -> bool) {
    match &mut uses[..] {
        [] => {}
        [one] => {
            if !stays(one) {
                uses.clear();
            }
        }
        _ => uses.retain(stays),
    }
}

/// Merges the entries of each submission once the list is long.
fn merge<A: smallvec::Array<Item = Use>>(uses: &mut SmallVec<A>) {
    if uses.len() <= MERGE_THRESHOLD {
        return;
    }
    uses.sort_unstable_by_key(|old| (old.stream, old.submission));
    uses.dedup_by(|next, entry| {
        let same = next.stream == entry.stream && next.submission == entry.submission;
        if same {
            entry.start = entry.start.min(next.start);
            entry.end = entry.end.max(next.end);
            entry.command = ANY_COMMAND;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stream: u64, submission: u64, command: u32, range: std::ops::Range<usize>) -> Use {
        Use { stream, submission, command, start: range.start, end: range.end }
    }

    fn conflicts(history: &mut History, new: Use, writes: bool) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        history.record(new, writes, true, |_, _| false, |old| found.push((old.stream, old.command)));
        found.sort_unstable();
        found
    }

    #[test]
    fn a_writer_conflicts_with_every_reader_of_its_range() {
        let mut history = History::default();
        assert_eq!(conflicts(&mut history, at(1, 1, 0, 0..100), true), []);
        assert_eq!(conflicts(&mut history, at(1, 1, 1, 0..50), false), [(1, 0)]);
        assert_eq!(conflicts(&mut history, at(2, 1, 0, 50..100), false), [(1, 0)]);
        assert_eq!(conflicts(&mut history, at(3, 1, 0, 0..100), true), [(1, 0), (1, 1), (2, 0)]);
        assert_eq!(conflicts(&mut history, at(1, 1, 2, 0..1), false), [(3, 0)]);
    }

    #[test]
    fn disjoint_ranges_do_not_conflict() {
        let mut history = History::default();
        conflicts(&mut history, at(1, 1, 0, 0..10), true);
        assert_eq!(conflicts(&mut history, at(1, 1, 1, 10..20), true), []);
        assert_eq!(conflicts(&mut history, at(1, 1, 2, 9..11), false), [(1, 0), (1, 1)]);
    }

    #[test]
    fn a_partial_overwrite_keeps_the_rest_of_the_older_write() {
        let mut history = History::default();
        conflicts(&mut history, at(1, 1, 0, 0..10), true);
        assert_eq!(conflicts(&mut history, at(1, 1, 1, 0..5), true), [(1, 0)]);
        assert_eq!(conflicts(&mut history, at(1, 1, 2, 5..10), false), [(1, 0)]);
    }

    #[test]
    fn reads_do_not_conflict_with_reads() {
        let mut history = History::default();
        assert_eq!(conflicts(&mut history, at(1, 1, 0, 0..10), false), []);
        assert_eq!(conflicts(&mut history, at(2, 1, 0, 0..10), false), []);
    }

    #[test]
    fn completed_uses_are_forgotten() {
        let mut history = History::default();
        conflicts(&mut history, at(1, 1, 0, 0..10), true);
        let mut found = 0;
        history.record(at(2, 1, 0, 0..10), true, true, |stream, _| stream == 1, |_| found += 1);
        assert_eq!(found, 0);
        assert_eq!(history.pending_streams(|_, _| false), PendingStreams::One(2));
        assert_eq!(history.pending_streams(|_, _| true), PendingStreams::None);
    }

    #[test]
    fn merging_many_entries_loses_no_conflict() {
        let mut history = History::default();
        for i in 0..500u32 {
            conflicts(&mut history, at(1, 1, i, i as usize..i as usize + 1), true);
        }
        assert!(history.writes.len() <= MERGE_THRESHOLD + 1);
        for i in 0..500usize {
            assert!(!conflicts(&mut history, at(2, 1, i as u32, i..i + 1), false).is_empty(), "byte {i}");
        }
    }
}
