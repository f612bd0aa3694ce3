//! Asynchronous copies in flight: begun, and not waited for.
//!
//! The loads and stores of a copy may take place at any time between its begin and the wait for its event.
//! Until the wait, every other access that conflicts with them is a race, even across barriers and even by
//! the thread that began the copy.

use std::collections::BTreeMap;

use super::finding::AccessKind;
use super::shadow::Access;

/// The most bytes that one access takes.
const MAX_ACCESS: u64 = 32;

/// An access of a copy in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// The SIMD group and its event.
    group: usize,
    event: u32,
    pub object: usize,
    pub offset: u64,
    pub size: u64,
    pub kind: AccessKind,
    pub access: Access,
}

/// The copies in flight of the running threadgroup.
#[derive(Default)]
pub(super) struct Copies {
    /// By object, offset and sequence number.
    accesses: BTreeMap<(usize, u64, u64), InFlight>,
    added: u64,
    events: u32,
    /// By SIMD group: the event of the copy that it is describing, 0 for none.
    open: Vec<u32>,
}

impl Copies {
    pub fn start_group(&mut self, simdgroups: usize) {
        self.accesses.clear();
        self.open.clear();
        self.open.resize(simdgroups, 0);
    }

    /// Begins a copy; gives its event.
    pub fn begin(&mut self, group: usize) -> u32 {
        self.events = self.events.wrapping_add(1).max(1);
        if let Some(open) = self.open.get_mut(group) {
            *open = self.events;
        }
        self.events
    }

    pub fn end(&mut self, group: usize) {
        if let Some(open) = self.open.get_mut(group) {
            *open = 0;
        }
    }

    /// Records the access if it belongs to a copy. Gives the first byte at which it conflicts with another
    /// copy, and that copy's access.
    pub fn touch(
        &mut self,
        kind: AccessKind,
        object: usize,
        offset: u64,
        size: u64,
        access: Access,
    ) -> Option<(u64, InFlight)> {
        let group = access.thread as usize / 32;
        let event = self.open.get(group).copied().unwrap_or(0);
        let near = (object, offset.saturating_sub(MAX_ACCESS), 0)..(object, offset + size, 0);
        let other = self.accesses.range(near).map(|(_, other)| *other).find(|other| {
            let own = event != 0 && (other.group, other.event) == (group, event);
            !own && other.offset + other.size > offset && kind.conflicts(other.kind)
        });
        if event != 0 {
            self.added += 1;
            let entry = InFlight { group, event, object, offset, size, kind, access };
            self.accesses.insert((object, offset, self.added), entry);
        }
        other.map(|other| (offset.max(other.offset), other))
    }

    /// Removes and gives the accesses of an event.
    pub fn finish(&mut self, group: usize, event: u32) -> Vec<InFlight> {
        let of_event = |access: &InFlight| (access.group, access.event) == (group, event);
        let done = self.accesses.values().filter(|access| of_event(access)).copied().collect();
        self.accesses.retain(|_, access| !of_event(access));
        done
    }

    /// One write of each copy in flight.
    pub fn unfinished(&self) -> Vec<InFlight> {
        let mut list: Vec<InFlight> = Vec::new();
        for access in self.accesses.values().filter(|access| access.kind.writes()) {
            if list.iter().all(|known| (known.group, known.event) != (access.group, access.event)) {
                list.push(*access);
            }
        }
        list
    }
}
