//! Order between and within submissions, derived from the submissions alone.

use std::collections::HashMap;

use crate::state::Work;

/// A vector clock: for each stream, the last submission that is ordered before some point.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(HashMap<u64, u64>);

impl Clock {
    pub(super) fn merge(&mut self, other: &Clock) {
        for (stream, index) in &other.0 {
            self.advance(*stream, *index);
        }
    }

    pub(super) fn advance(&mut self, stream: u64, index: u64) {
        let entry = self.0.entry(stream).or_insert(0);
        *entry = (*entry).max(index);
    }

    pub(super) fn includes(&self, stream: u64, index: u64) -> bool {
        self.0.get(&stream).is_some_and(|last| *last >= index)
    }
}

/// The order of the commands of one submission, by barriers and by edges. A device may honour either
/// form, so both must hold.
pub(super) struct Order {
    /// For each command, the last barrier at or before it.
    barrier: Vec<usize>,
    /// For each command, the set of commands before it, as bits.
    before: Vec<Vec<u64>>,
}

impl Order {
    pub(super) fn of(work: &Work) -> Self {
        let words = work.len().div_ceil(64);
        let mut barrier = Vec::with_capacity(work.len());
        let mut before: Vec<Vec<u64>> = Vec::with_capacity(work.len());
        let mut last = 0;
        for (position, command) in work.commands().enumerate() {
            if command.barrier {
                last = position;
            }
            barrier.push(last);
            let mut bits = vec![0u64; words];
            for &edge in command.after {
                let edge = edge as usize;
                if let Some(earlier) = before.get(edge) {
                    bits.iter_mut().zip(earlier).for_each(|(bits, earlier)| *bits |= earlier);
                    bits[edge / 64] |= 1 << (edge % 64);
                }
            }
            before.push(bits);
        }
        Order { barrier, before }
    }

    pub(super) fn ordered(&self, earlier: usize, later: usize) -> bool {
        earlier < self.barrier[later] && self.before[later][earlier / 64] >> (earlier % 64) & 1 == 1
    }
}
