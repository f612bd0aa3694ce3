//! The pool: free blocks, by size class and by the stream that may take them.
//!
//! A block returns when its buffer's last handle is dropped, while commands that use it may be in flight.
//! The stream of those commands may take it at once, since its next commands are ordered behind them.
//! Other streams and the host may take it once the commands have completed. So retention costs no memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::block::Block;
use crate::hazards::PendingStreams;

/// The smallest size class in bytes.
const MIN_CLASS: usize = 256;

/// Rounds a size up to its class: eight classes per doubling, so at most 1/8 is wasted.
pub(crate) fn class_of(len: usize) -> Option<usize> {
    if len <= MIN_CLASS {
        return Some(MIN_CLASS);
    }
    let step = (1usize << (usize::BITS - 1 - len.leading_zeros())) / 8;
    len.checked_next_multiple_of(step.max(MIN_CLASS / 4))
}

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Work on a stream.
    Stream(u64),
    /// The host, which is ordered behind nothing and so takes retired blocks only.
    Host,
}

struct FreeBlock {
    block: Arc<Block>,
    stamp: u64,
}

#[derive(Default)]
struct SizeClass {
    /// Blocks that nothing in flight uses.
    retired: Vec<FreeBlock>,
    /// Blocks in use by one stream, which may take them; newest last.
    ordered: BTreeMap<u64, VecDeque<FreeBlock>>,
    /// Blocks in use by several streams.
    contended: VecDeque<FreeBlock>,
    /// The stream after which the next sweep starts.
    swept: u64,
}

/// The most lists and blocks that one sweep visits, so that a lookup takes bounded time however many
/// streams there are.
const MAX_SWEEP: usize = 32;

/// Free blocks.
#[derive(Default)]
pub(crate) struct Pool {
    classes: BTreeMap<usize, SizeClass>,
    /// The block that returned last, with the one stream that may take it. That stream would find it first,
    /// so a chain of temporaries skips the lookup.
    newest: Option<(u64, FreeBlock)>,
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

    /// Returns a block, with the streams that still use it.
    pub(crate) fn put(&mut self, block: Arc<Block>, pending: PendingStreams) {
        self.clock += 1;
        self.cached += block.memory.len;
        self.blocks += 1;
        let free = FreeBlock { block, stamp: self.clock };
        if let PendingStreams::One(stream) = pending {
            self.flush_newest();
            self.newest = Some((stream, free));
            return;
        }
        let class = self.classes.entry(free.block.memory.len).or_default();
        match pending {
            PendingStreams::None => class.retired.push(free),
            _ => class.contended.push_back(free),
        }
    }

    /// Moves the newest block to the list of its class and stream.
    fn flush_newest(&mut self) {
        if let Some((stream, free)) = self.newest.take() {
            let class = self.classes.entry(free.block.memory.len).or_default();
            class.ordered.entry(stream).or_default().push_back(free);
        }
    }

    /// Takes the smallest free block of `class` to `largest` bytes that `requester` may use at once.
    pub(crate) fn take(
        &mut self,
        class: usize,
        largest: usize,
        requester: Requester,
        mut pending: impl FnMut(&Block) -> PendingStreams,
    ) -> Option<Arc<Block>> {
        let fits = |(stream, free): &mut (u64, FreeBlock)| {
            requester == Requester::Stream(*stream) && free.block.memory.len == class
        };
        if let Some((_, free)) = self.newest.take_if(fits) {
            return Some(self.remove(free.block));
        }
        self.flush_newest();
        let block = self.classes.range_mut(class..=largest).find_map(|(_, class)| {
            if let Requester::Stream(stream) = requester
                && let Some(free) = class.ordered.get_mut(&stream).and_then(VecDeque::pop_back)
            {
                return Some(free.block);
            }
            if class.retired.is_empty() {
                class.sweep(&mut pending);
            }
            class.retired.pop().map(|free| free.block)
        })?;
        Some(self.remove(block))
    }

    fn remove(&mut self, block: Arc<Block>) -> Arc<Block> {
        self.cached -= block.memory.len;
        self.blocks -= 1;
        block
    }

    /// Removes free blocks, the oldest first, until at most `keep` bytes are cached. Memory that work in
    /// flight uses stays alive until that work is finished.
    pub(crate) fn trim(&mut self, keep: usize) -> Vec<Arc<Block>> {
        if self.cached <= keep {
            return Vec::new();
        }
        self.flush_newest();
        let mut all: Vec<(FreeBlock, usize)> = Vec::new();
        for (&size, class) in &mut self.classes {
            all.extend(class.drain().map(|free| (free, size)));
        }
        // The rest goes back as contended; a later sweep sorts it again.
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

impl SizeClass {
    /// Moves blocks whose uses have completed to the retired ones, starting with the oldest of each list.
    fn sweep(&mut self, pending: &mut impl FnMut(&Block) -> PendingStreams) {
        let after = self.ordered.range(self.swept + 1..).map(|(stream, _)| *stream);
        let before = self.ordered.range(..=self.swept).map(|(stream, _)| *stream);
        let streams: Vec<u64> = after.chain(before).take(MAX_SWEEP).collect();
        for stream in streams {
            self.swept = stream;
            let Some(list) = self.ordered.get_mut(&stream) else { continue };
            while list.front().is_some_and(|free| pending(&free.block) == PendingStreams::None) {
                self.retired.extend(list.pop_front());
            }
            if list.is_empty() {
                self.ordered.remove(&stream);
            }
        }
        for _ in 0..self.contended.len().min(MAX_SWEEP) {
            let Some(free) = self.contended.pop_front() else { break };
            match pending(&free.block) {
                PendingStreams::None => self.retired.push(free),
                PendingStreams::One(stream) => self.ordered.entry(stream).or_default().push_back(free),
                PendingStreams::Many => self.contended.push_back(free),
            }
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = FreeBlock> {
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
            assert!(len <= MIN_CLASS || class - len <= len / 8 + MIN_CLASS / 4, "{len} -> {class}");
        }
        assert_eq!(class_of(usize::MAX), None);
    }
}
