//! Sets of byte ranges: the bytes of a buffer that have been filled.

use std::ops::{Bound, Range, RangeBounds};

use smallvec::SmallVec;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Lock, Rank};

/// Disjoint ranges in ascending order; adjacent ranges are merged.
#[derive(Debug, Default, Clone)]
pub(crate) struct RangeSet(SmallVec<[Range<usize>; 2]>);

impl RangeSet {
    /// Adds a range.
    pub(crate) fn add(&mut self, mut new: Range<usize>) {
        if new.is_empty() {
            return;
        }
        let first = self.0.partition_point(|old| old.end < new.start);
        let last = first + self.0[first..].partition_point(|old| old.start <= new.end);
        if first == last {
            return self.0.insert(first, new);
        }
        new.start = new.start.min(self.0[first].start);
        new.end = new.end.max(self.0[last - 1].end);
        self.0[first] = new;
        self.0.drain(first + 1..last);
    }

    /// The parts of a range that are not in the set.
    pub(crate) fn gaps(&self, range: Range<usize>) -> SmallVec<[Range<usize>; 1]> {
        let mut gaps = SmallVec::new();
        let mut start = range.start;
        for old in &self.0 {
            if old.end <= start {
                continue;
            }
            if old.start >= range.end {
                break;
            }
            if start < old.start {
                gaps.push(start..old.start);
            }
            start = old.end;
        }
        if start < range.end {
            gaps.push(start..range.end);
        }
        gaps
    }

    /// Whether all of a range is in the set.
    pub(crate) fn covers(&self, range: Range<usize>) -> bool {
        range.is_empty() || self.0.iter().any(|old| old.start <= range.start && range.end <= old.end)
    }
}

/// The bytes of a lease that the host or an accepted command has written or will write.
///
/// One command fills most buffers, so a full lease is recognised with one load.
#[derive(Debug)]
pub(crate) struct Filled {
    all: AtomicBool,
    some: Lock<RangeSet>,
}

impl Filled {
    pub(crate) fn new(all: bool) -> Self {
        Filled { all: AtomicBool::new(all), some: Lock::new(Rank::Leaf, RangeSet::default()) }
    }

    /// Whether all of a range is filled.
    #[inline]
    pub(crate) fn covers(&self, range: Range<usize>) -> bool {
        self.all.load(Ordering::Acquire) || self.some.lock_unscheduled().covers(range)
    }

    /// The unfilled parts of a range.
    #[inline]
    pub(crate) fn gaps(&self, range: Range<usize>) -> SmallVec<[Range<usize>; 1]> {
        if self.all.load(Ordering::Acquire) {
            return SmallVec::new();
        }
        self.some.lock_unscheduled().gaps(range)
    }

    /// Marks a range of a lease of `len` bytes as filled.
    #[inline]
    pub(crate) fn add(&self, range: Range<usize>, len: usize) {
        if self.all.load(Ordering::Relaxed) {
            return;
        }
        if range == (0..len) {
            return self.all.store(true, Ordering::Release);
        }
        let mut some = self.some.lock_unscheduled();
        some.add(range);
        if some.covers(0..len) {
            self.all.store(true, Ordering::Release);
        }
    }
}

/// The start and end of a range over `len` bytes.
pub(crate) fn resolve(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_agrees_with_a_table_of_flags() {
        let mut seed = 1u64;
        let mut below = |most: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % most
        };
        for _ in 0..300 {
            let (mut set, mut flags) = (RangeSet::default(), [false; 40]);
            for _ in 0..12 {
                let start = below(40);
                let end = start + below(41 - start);
                set.add(start..end);
                flags[start..end].fill(true);
                let (start, stop) = (below(40), 40);
                let gaps = set.gaps(start..stop);
                let missing: Vec<usize> = (start..stop).filter(|at| !flags[*at]).collect();
                assert_eq!(gaps.iter().cloned().flatten().collect::<Vec<_>>(), missing);
                assert_eq!(set.covers(start..stop), missing.is_empty());
                assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{set:?}");
            }
        }
    }
}
