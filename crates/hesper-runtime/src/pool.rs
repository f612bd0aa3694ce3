//! The pool: free blocks, by size class and by who may take them.
//!
//! A block comes back when its buffer's last handle is dropped, while commands that use it may be in
//! flight. It is then free *for the stream they are on*: whatever that stream does next is ordered
//! behind them. For everybody else it is free once they have completed. So retention costs no memory,
//! and the lookup below is the whole rule.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::block::Block;
use crate::history::Users;

/// The smallest block.
const SMALLEST: usize = 256;

/// Rounds a size up to its class: eight classes to each doubling, so at most 1/8 is wasted.
pub(crate) fn class_of(len: usize) -> Option<usize> {
    if len <= SMALLEST {
        return Some(SMALLEST);
    }
    let step = (1usize << (usize::BITS - 1 - len.leading_zeros())) / 8;
    len.checked_next_multiple_of(step.max(SMALLEST / 4))
}

/// Who asks for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Work on a stream.
    Stream(u64),
    /// The host, which is ordered behind nothing: it takes retired blocks only.
    Host,
}

struct Free {
    block: Arc<Block>,
    stamp: u64,
}

#[derive(Default)]
struct Class {
    /// Nothing in flight uses these.
    retired: Vec<Free>,
    /// In use by one stream each, and free for it; newest last.
    ordered: BTreeMap<u64, VecDeque<Free>>,
    /// In use by several streams: free for nobody yet.
    contended: VecDeque<Free>,
    /// The stream after which the next sweep begins.
    swept: u64,
}

/// How many lists and blocks one sweep looks at, so that a lookup takes bounded time however many
/// streams there are.
const SWEEP: usize = 32;

/// Free blocks.
#[derive(Default)]
pub(crate) struct Pool {
    classes: BTreeMap<usize, Class>,
    /// The block that came back last, if one stream may take it, and that stream: it is the first that the stream would
    /// find, and a stream that works through small temporaries needs no lookup to find it.
    newest: Option<(u64, Free)>,
    cached: usize,
    blocks: usize,
    clock: u64,
}

impl Pool {
    /// Bytes in the pool.
    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    /// Blocks in the pool.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Takes a block back. `users` says who still uses it.
    pub(crate) fn put(&mut self, block: Arc<Block>, users: Users) {
        self.clock += 1;
        self.cached += block.memory.len;
        self.blocks += 1;
        let free = Free { block, stamp: self.clock };
        if let Users::One(stream) = users {
            self.settle();
            self.newest = Some((stream, free));
            return;
        }
        let class = self.classes.entry(free.block.memory.len).or_default();
        match users {
            Users::Nobody => class.retired.push(free),
            _ => class.contended.push_back(free),
        }
    }

    /// Puts the newest block to those of its class and stream.
    fn settle(&mut self) {
        if let Some((stream, free)) = self.newest.take() {
            let class = self.classes.entry(free.block.memory.len).or_default();
            class.ordered.entry(stream).or_default().push_back(free);
        }
    }

    /// A free block of `class` bytes, or slightly more, that `taker` may use at once.
    pub(crate) fn take(
        &mut self,
        class: usize,
        taker: Taker,
        mut users: impl FnMut(&Block) -> Users,
    ) -> Option<Arc<Block>> {
        let largest = class.saturating_add(class / 8);
        let fits = |(stream, free): &mut (u64, Free)| {
            taker == Taker::Stream(*stream) && free.block.memory.len == class
        };
        if let Some((_, free)) = self.newest.take_if(fits) {
            return Some(self.taken(free.block));
        }
        self.settle();
        let block = self.classes.range_mut(class..=largest).find_map(|(_, class)| {
            if let Taker::Stream(stream) = taker
                && let Some(free) = class.ordered.get_mut(&stream).and_then(VecDeque::pop_back)
            {
                return Some(free.block);
            }
            if class.retired.is_empty() {
                class.sweep(&mut users);
            }
            class.retired.pop().map(|free| free.block)
        })?;
        Some(self.taken(block))
    }

    fn taken(&mut self, block: Arc<Block>) -> Arc<Block> {
        self.cached -= block.memory.len;
        self.blocks -= 1;
        block
    }

    /// Gives up free blocks, the oldest first, until at most `keep` bytes are cached. The caller drops
    /// them; memory that work in flight uses stays alive until that work is done.
    pub(crate) fn trim(&mut self, keep: usize) -> Vec<Arc<Block>> {
        if self.cached <= keep {
            return Vec::new();
        }
        self.settle();
        let mut all: Vec<(Free, usize)> = Vec::new();
        for (&size, class) in &mut self.classes {
            all.extend(class.drain().map(|free| (free, size)));
        }
        // Whoever remains goes back as contended; a sweep sorts it out again when it is needed.
        all.sort_by_key(|(free, _)| free.stamp);
        let mut garbage = Vec::new();
        for (free, size) in all {
            if self.cached > keep {
                self.cached -= size;
                self.blocks -= 1;
                garbage.push(free.block);
            } else {
                self.classes.entry(size).or_default().contended.push_back(free);
            }
        }
        self.classes.retain(|_, class| !class.is_empty());
        garbage
    }
}

impl Class {
    /// Moves what has completed meanwhile to the retired blocks; looks at the oldest of each list.
    fn sweep(&mut self, users: &mut impl FnMut(&Block) -> Users) {
        let after = self.ordered.range(self.swept + 1..).map(|(stream, _)| *stream);
        let before = self.ordered.range(..=self.swept).map(|(stream, _)| *stream);
        let streams: Vec<u64> = after.chain(before).take(SWEEP).collect();
        for stream in streams {
            self.swept = stream;
            let Some(list) = self.ordered.get_mut(&stream) else { continue };
            while list.front().is_some_and(|free| users(&free.block) == Users::Nobody) {
                self.retired.extend(list.pop_front());
            }
            if list.is_empty() {
                self.ordered.remove(&stream);
            }
        }
        for _ in 0..self.contended.len().min(SWEEP) {
            let Some(free) = self.contended.pop_front() else { break };
            match users(&free.block) {
                Users::Nobody => self.retired.push(free),
                Users::One(stream) => self.ordered.entry(stream).or_default().push_back(free),
                Users::Many => self.contended.push_back(free),
            }
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = Free> {
        let ordered = std::mem::take(&mut self.ordered).into_values().flatten();
        std::mem::take(&mut self.retired)
            .into_iter()
            .chain(ordered)
            .chain(std::mem::take(&mut self.contended))
    }

    fn is_empty(&self) -> bool {
        self.retired.is_empty() && self.ordered.is_empty() && self.contended.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth_and_are_fixed_points() {
        for len in (1..5000).chain([1 << 20, (1 << 20) + 1, 123_456_789, (1 << 40) + 12345]) {
            let class = class_of(len).unwrap();
            assert!(class >= len && class_of(class) == Some(class), "{len} -> {class}");
            assert!(len <= SMALLEST || class - len <= len / 8 + SMALLEST / 4, "{len} -> {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }
}
