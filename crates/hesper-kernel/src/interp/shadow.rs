//! Shadow memory: which bytes were written, and which threads accessed them when.
//!
//! Races are found by comparing times. Every executed memory instruction and barrier has a time; a byte's
//! cell remembers a few accesses, enough that any access unordered with *some* earlier
//! conflicting one is unordered with a remembered one. Within the running threadgroup an
//! earlier access is ordered before now if the same thread made it, or if a barrier of its
//! threadgroup (or, for lanes of one SIMD group, of that SIMD group) lies between. Nothing
//! orders the accesses of different threadgroups.

use std::collections::HashMap;

use super::finding::AccessKind;
use crate::ir::{Loc, Space};

/// One access that a cell remembers; a time of 0 means no access.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Access {
    pub time: u64,
    pub thread: u32,
    pub loc: u32,
}

impl Access {
    fn simd(&self) -> u32 {
        self.thread / 32
    }

    pub fn source(&self) -> Loc {
        Loc(self.loc)
    }
}

/// The times of the last barriers of the running threadgroup, per kind of memory.
#[derive(Clone, Default)]
pub(super) struct Clock {
    pub now: u64,
    pub group_start: u64,
    threadgroup: [u64; 2],
    simdgroup: Vec<[u64; 2]>,
}

fn memory_index(space: Space) -> usize {
    usize::from(space == Space::Threadgroup)
}

impl Clock {
    pub fn start_group(&mut self, simdgroups: usize) {
        self.now += 1;
        self.group_start = self.now;
        self.threadgroup = [0; 2];
        self.simdgroup.clear();
        self.simdgroup.resize(simdgroups, [0; 2]);
    }

    pub fn tick(&mut self) {
        self.now += 1;
    }

    pub fn threadgroup_barrier(&mut self, space: Space) {
        self.threadgroup[memory_index(space)] = self.now;
    }

    pub fn simdgroup_barrier(&mut self, simd: usize, space: Space) {
        if let Some(times) = self.simdgroup.get_mut(simd) {
            times[memory_index(space)] = self.now;
        }
    }

    fn simd_time(&self, simd: u32, space: Space) -> u64 {
        self.simdgroup.get(simd as usize).map_or(0, |t| t[memory_index(space)])
    }

    /// Whether nothing orders the earlier access `a` before `b`, made now.
    fn unordered(&self, a: &Access, b: &Access, space: Space) -> bool {
        if a.time == 0 {
            return false;
        }
        let same_group = a.time >= self.group_start;
        let by_barrier = a.time < self.threadgroup[memory_index(space)]
            || (a.simd() == b.simd() && a.time < self.simd_time(a.simd(), space));
        !(same_group && (a.thread == b.thread || by_barrier))
    }
}

/// Accesses of one kind to one byte.
#[derive(Clone, Default)]
struct Slots {
    /// One of the running group since its last barrier.
    first: Access,
    /// Another thread of the same SIMD group as `first`.
    peer: Access,
    /// One of another SIMD group.
    far: Access,
    /// One of an earlier threadgroup.
    past: Access,
}

impl Slots {
    fn record(&mut self, a: Access, clock: &Clock, space: Space) {
        let barrier = clock.threadgroup[memory_index(space)];
        if self.first.time != 0 && self.first.time < clock.group_start {
            self.past = self.first;
        }
        let stale = self.first.time < clock.group_start || self.first.time < barrier;
        if stale {
            (self.first, self.peer, self.far) = (a, Access::default(), Access::default());
        } else if self.first.simd() != a.simd() {
            self.far = a;
        } else if self.first.time < clock.simd_time(a.simd(), space) {
            // `first` is ordered before all later accesses of its SIMD group. For other SIMD groups
            // the new access replaces it.
            (self.first, self.peer) = (a, Access::default());
        } else if self.first.thread != a.thread {
            self.peer = a;
        }
    }

    fn find(&self, a: &Access, clock: &Clock, space: Space) -> Option<Access> {
        [self.first, self.peer, self.far, self.past].into_iter().find(|c| clock.unordered(c, a, space))
    }
}

/// The accesses that one byte (or one whole word) remembers.
#[derive(Clone, Default)]
struct Cell {
    write: Access,
    reads: Slots,
    /// Atomic reads, atomic writes.
    atomics: Option<Box<[Slots; 2]>>,
}

impl Cell {
    /// Records `a`; gives an earlier access that races with it.
    fn touch(
        &mut self,
        kind: AccessKind,
        a: Access,
        clock: &Clock,
        space: Space,
    ) -> Option<(AccessKind, Access)> {
        let mut found = None;
        if clock.unordered(&self.write, &a, space) {
            found = Some((AccessKind::Write, self.write));
        }
        let mut look = |other: AccessKind, slots: &Slots| {
            if found.is_none() && kind.conflicts(other) {
                found = slots.find(&a, clock, space).map(|c| (other, c));
            }
        };
        look(AccessKind::Read, &self.reads);
        if let Some(atomics) = &self.atomics {
            look(AccessKind::AtomicRead, &atomics[0]);
            look(AccessKind::AtomicWrite, &atomics[1]);
        }
        match kind {
            AccessKind::Write => self.write = a,
            AccessKind::Read => self.reads.record(a, clock, space),
            AccessKind::AtomicRead | AccessKind::AtomicWrite => {
                let slots = self.atomics.get_or_insert_default();
                slots[usize::from(kind == AccessKind::AtomicWrite)].record(a, clock, space);
            }
        }
        found
    }
}

/// Four bytes: one cell as long as every access covers all four, then a cell for each.
#[derive(Clone, Default)]
enum Word {
    #[default]
    Untouched,
    Whole(Cell),
    Split(Box<[Cell; 4]>),
}

const PAGE: u64 = 256;

/// The accesses to the bytes of one object.
#[derive(Default)]
pub(super) struct History {
    pages: HashMap<u64, Vec<Word>>,
}

impl History {
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Records an access of `size` bytes at `offset`; gives the first byte at which it races, and
    /// the access that it races with.
    pub fn touch(
        &mut self,
        kind: AccessKind,
        offset: u64,
        size: u64,
        a: Access,
        clock: &Clock,
        space: Space,
    ) -> Option<(u64, AccessKind, Access)> {
        let mut found = None;
        let end = offset + size;
        let mut at = offset;
        while at < end {
            let word = at / 4;
            let stop = end.min(word * 4 + 4);
            let page = self.pages.entry(word / PAGE).or_insert_with(|| vec![Word::Untouched; PAGE as usize]);
            let slot = &mut page[(word % PAGE) as usize];
            let whole = stop - at == 4;
            if whole && matches!(slot, Word::Untouched) {
                *slot = Word::Whole(Cell::default());
            }
            if !whole {
                let cell = match slot {
                    Word::Untouched => Some(Cell::default()),
                    Word::Whole(cell) => Some(std::mem::take(cell)),
                    Word::Split(_) => None,
                };
                if let Some(cell) = cell {
                    *slot = Word::Split(Box::new(std::array::from_fn(|_| cell.clone())));
                }
            }
            match slot {
                Word::Untouched => {}
                Word::Whole(cell) => {
                    let hit = cell.touch(kind, a, clock, space);
                    found = found.or(hit.map(|(k, c)| (at, k, c)));
                }
                Word::Split(cells) => {
                    for byte in at..stop {
                        let hit = cells[(byte % 4) as usize].touch(kind, a, clock, space);
                        found = found.or(hit.map(|(k, c)| (byte, k, c)));
                    }
                }
            }
            at = stop;
        }
        found
    }
}

/// Which bytes of a piece of memory were written.
#[derive(Clone, Default)]
pub(super) struct Written {
    bits: Vec<u64>,
}

impl Written {
    /// `len` bytes, none written.
    pub fn none(len: u64) -> Written {
        Written { bits: vec![0; len.div_ceil(64) as usize] }
    }

    pub fn clear(&mut self) {
        self.bits.fill(0);
    }

    pub fn mark(&mut self, offset: u64, size: u64) {
        for b in offset..offset + size {
            if let Some(w) = self.bits.get_mut((b / 64) as usize) {
                *w |= 1 << (b % 64);
            }
        }
    }

    /// The first byte of the range that was not written.
    pub fn first_missing(&self, offset: u64, size: u64) -> Option<u64> {
        (offset..offset + size)
            .find(|b| self.bits.get((b / 64) as usize).is_none_or(|w| w >> (b % 64) & 1 == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// An access with everything that orders it, for the exhaustive check.
    #[derive(Clone, Copy)]
    struct Known {
        thread: u32,
        kind: AccessKind,
        byte: u64,
        group: u32,
        /// Barriers passed: of the threadgroup, of the thread's SIMD group.
        passed: (u32, u32),
    }

    fn ordered(a: &Known, b: &Known) -> bool {
        let same_simd = a.thread / 32 == b.thread / 32;
        a.group == b.group
            && (a.thread == b.thread || a.passed.0 != b.passed.0 || (same_simd && a.passed.1 != b.passed.1))
    }

    /// The step of a random run at which the first race happens, by shadow and by exhaustive
    /// comparison with every earlier access.
    fn first_races(seed: u64) -> (Option<usize>, Option<usize>) {
        use AccessKind::*;
        let mut r = Random::new(seed);
        let (mut clock, mut history) = (Clock::default(), History::default());
        let mut all: Vec<Known> = Vec::new();
        let (mut group, mut tg, mut simd) = (0, 0, [0; 3]);
        clock.start_group(3);
        let kinds = [Read, Read, Read, Write, AtomicRead, AtomicWrite];
        let kinds = &kinds[..3 + r.below(4)];
        for step in 0..40 {
            match r.below(14) {
                0 => {
                    group += 1;
                    clock.start_group(3);
                }
                1 | 2 => {
                    clock.tick();
                    clock.threadgroup_barrier(Space::Device);
                    tg += 1;
                }
                3..=5 => {
                    let g = r.below(3);
                    clock.tick();
                    clock.simdgroup_barrier(g, Space::Device);
                    simd[g] += 1;
                }
                6 => {
                    // A barrier of the other memory orders nothing here.
                    clock.tick();
                    clock.threadgroup_barrier(Space::Threadgroup);
                }
                _ => {
                    clock.tick();
                    let thread = r.pick(&[0u32, 1, 2, 32, 33, 64]);
                    let kind = r.pick(kinds);
                    let size = r.pick(&[1u64, 2, 4, 4, 4, 8]);
                    let offset = r.below(8 / size as usize) as u64 * size;
                    let a = Access { time: clock.now, thread, loc: 0 };
                    let found = history.touch(kind, offset, size, a, &clock, Space::Device);
                    let passed = (tg, simd[thread as usize / 32]);
                    let mut raced = None;
                    for byte in offset..offset + size {
                        let now = Known { thread, kind, byte, group, passed };
                        let hit = |k: &&Known| k.byte == byte && k.kind.conflicts(kind) && !ordered(k, &now);
                        raced = raced.or(all.iter().find(hit).map(|_| byte));
                        all.push(now);
                    }
                    if found.is_some() || raced.is_some() {
                        if let (Some(f), Some(b)) = (&found, raced) {
                            assert_eq!(f.0, b, "seed {seed}: first racing byte");
                        }
                        return (found.map(|_| step), raced.map(|_| step));
                    }
                }
            }
        }
        (None, None)
    }

    #[test]
    fn the_few_remembered_accesses_find_every_first_race_and_no_other() {
        let (mut raced, mut clean) = (0, 0);
        for seed in 0..60_000 {
            let (shadow, exhaustive) = first_races(seed);
            assert_eq!(shadow, exhaustive, "seed {seed}");
            match shadow {
                Some(_) => raced += 1,
                None => clean += 1,
            }
        }
        assert!(raced > 10_000 && clean > 1000, "{raced} raced, {clean} clean");
    }
}
