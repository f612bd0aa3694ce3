//! The prefix cache: KV pages of prompts, kept for later requests whose prompts have the same prefix.
//!
//! There is a radix tree for each tenant. A node is a whole chunk of a prompt. The tree counts as a user of
//! its pages. The least recently used leaf is evicted first. A use of a chunk also marks the chunks before it
//! as used.

use std::collections::{BTreeMap, HashMap};

use hesper_lm::{PageCounts, SCRATCH_PAGE};

/// A chunk of a prompt.
#[derive(Debug)]
struct Node {
    tenant: u64,
    parent: Option<u64>,
    tokens: Box<[u32]>,
    pages: Box<[u32]>,
    children: HashMap<Box<[u32]>, u64>,
    last_used: u64,
}

/// Pages of prompts, by tenant and tokens.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    chunk: usize,
    /// The most pages that the tree may hold.
    limit: usize,
    /// Pages that it holds.
    held: usize,
    nodes: HashMap<u64, Node>,
    roots: HashMap<u64, HashMap<Box<[u32]>, u64>>,
    /// Nodes by their last use.
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl PrefixTree {
    /// An empty tree of chunks of `chunk` tokens that holds at most `limit` pages.
    pub(crate) fn new(chunk: usize, limit: usize) -> Self {
        PrefixTree {
            chunk,
            limit,
            held: 0,
            nodes: HashMap::new(),
            roots: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Pages that only the tree uses.
    pub(crate) fn evictable(&self, counts: &PageCounts) -> usize {
        let pages = self.nodes.values().flat_map(|node| &node.pages);
        pages.filter(|page| counts.users(**page) == 1).count()
    }

    /// Every page of the tree.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.values().flat_map(|node| node.pages.iter().copied())
    }

    /// The node of a chunk of `tokens` below the node `at`, or below the root of the tenant.
    fn child(&self, tenant: u64, at: Option<u64>, tokens: &[u32]) -> Option<u64> {
        let children = match at {
            None => self.roots.get(&tenant)?,
            Some(at) => &self.nodes.get(&at)?.children,
        };
        children.get(tokens).copied()
    }

    /// The pages of the longest cached prefix of `tokens`, in whole chunks. Does not add a user to them.
    pub(crate) fn find(&mut self, tenant: u64, tokens: &[u32]) -> Vec<u32> {
        let (mut at, mut pages) = (None, Vec::new());
        for chunk in tokens.chunks_exact(self.chunk) {
            let Some(next) = self.child(tenant, at, chunk) else { break };
            pages.extend_from_slice(&self.nodes[&next].pages);
            at = Some(next);
        }
        self.touch(at);
        pages
    }

    /// Marks a chunk and its ancestors as used. A parent becomes more recent than its child.
    fn touch(&mut self, mut at: Option<u64>) {
        while let Some(node) = at.and_then(|at| self.nodes.get_mut(&at)) {
            self.clock += 1;
            if let Some(id) = self.order.remove(&node.last_used) {
                self.order.insert(self.clock, id);
            }
            node.last_used = self.clock;
            at = node.parent;
        }
    }

    /// Adds the whole chunks of `tokens`, whose pages are `pages`. Chunks that the tree has keep their pages.
    pub(crate) fn insert(&mut self, tenant: u64, tokens: &[u32], pages: &[u32], counts: &mut PageCounts) {
        let count = tokens.len() / self.chunk;
        let each = pages.len() / count.max(1);
        let mut at = None;
        for (chunk, pages) in tokens.chunks_exact(self.chunk).zip(pages.chunks_exact(each.max(1))) {
            at = match self.child(tenant, at, chunk) {
                Some(next) => Some(next),
                // Some of its pages were released: they are outside the window of every layer.
                None if pages.contains(&SCRATCH_PAGE) => break,
                None => {
                    pages.iter().for_each(|page| counts.share(*page));
                    self.held += pages.len();
                    self.clock += 1;
                    let (id, tokens): (u64, Box<[u32]>) = (self.clock, chunk.into());
                    let children = match at.and_then(|at| self.nodes.get_mut(&at)) {
                        Some(parent) => &mut parent.children,
                        None => self.roots.entry(tenant).or_default(),
                    };
                    children.insert(tokens.clone(), id);
                    let pages = pages.into();
                    let node =
                        Node { tenant, parent: at, tokens, pages, children: HashMap::new(), last_used: id };
                    self.nodes.insert(id, node);
                    self.order.insert(id, id);
                    Some(id)
                }
            };
        }
        self.touch(at);
        while self.held > self.limit && self.drop_oldest(counts) {}
    }

    /// Drops the least recently used leaf of which a page, or a page of an ancestor, is used by the tree
    /// only. A job with a window may use the last pages of a prefix and not the first, and leaves go before
    /// their parents. Returns whether there was one.
    pub(crate) fn evict(&mut self, counts: &mut PageCounts) -> bool {
        let is_free = |node: &Node| node.pages.iter().any(|page| counts.users(*page) == 1);
        let found = self.order.values().copied().find(|id| {
            let mut at = self.nodes.get(id).filter(|node| node.children.is_empty());
            while let Some(node) = at.filter(|node| !is_free(node)) {
                at = node.parent.and_then(|parent| self.nodes.get(&parent));
            }
            at.is_some()
        });
        found.is_some_and(|id| self.remove(id, counts))
    }

    /// Drops the least recently used leaf. Returns whether there was one.
    fn drop_oldest(&mut self, counts: &mut PageCounts) -> bool {
        let is_leaf = |id: &u64| self.nodes.get(id).is_some_and(|node| node.children.is_empty());
        let found = self.order.values().copied().find(is_leaf);
        found.is_some_and(|id| self.remove(id, counts))
    }

    fn remove(&mut self, id: u64, counts: &mut PageCounts) -> bool {
        let Some(node) = self.nodes.remove(&id) else { return false };
        self.order.remove(&node.last_used);
        self.held -= node.pages.len();
        node.pages.iter().for_each(|page| counts.release(*page));
        match node.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => {
                parent.children.remove(&node.tokens);
            }
            None => {
                if let Some(children) = self.roots.get_mut(&node.tenant) {
                    children.remove(&node.tokens);
                    if children.is_empty() {
                        self.roots.remove(&node.tenant);
                    }
                }
            }
        }
        true
    }

    /// Drops every chunk.
    pub(crate) fn clear(&mut self, counts: &mut PageCounts) {
        while self.drop_oldest(counts) {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_longest_cached_prefix_is_found_and_the_oldest_leaf_is_evicted_first() {
        let mut counts = PageCounts::new(10);
        let pages: Vec<u32> = (0..4).map(|_| counts.take().unwrap()).collect();
        let mut tree = PrefixTree::new(2, 4);
        tree.insert(1, &[1, 2, 3, 4], &pages[..2], &mut counts);
        tree.insert(1, &[1, 2, 9, 9], &[pages[0], pages[2]], &mut counts);
        assert_eq!(tree.find(1, &[1, 2, 3, 4, 5]), pages[..2]);
        assert_eq!(tree.find(1, &[1, 2, 3]), pages[..1]);
        assert_eq!(tree.find(2, &[1, 2, 3]), [0; 0], "another tenant");
        assert_eq!(counts.users(pages[0]), 2);
        pages.iter().for_each(|page| counts.release(*page));
        assert_eq!(tree.evictable(&counts), 3);
        tree.find(1, &[1, 2, 3, 4]);
        assert!(tree.evict(&mut counts));
        assert_eq!(tree.find(1, &[1, 2, 9, 9]), pages[..1]);
        pages[..2].iter().for_each(|page| counts.share(*page));
        assert!(!tree.evict(&mut counts), "a chunk that a request uses, and its parent, stay");
        counts.release(pages[0]);
        assert!(
            tree.evict(&mut counts) && tree.evict(&mut counts),
            "a chunk in use does not keep those before it"
        );
        assert_eq!((counts.free(), tree.pages().count()), (9, 0));
    }

    #[test]
    fn a_chunk_of_which_a_request_uses_only_the_last_page_is_evicted() {
        let mut counts = PageCounts::new(3);
        let pages: Vec<u32> = (0..3).map(|_| counts.take().unwrap()).collect();
        let mut tree = PrefixTree::new(3, 3);
        tree.insert(1, &[1, 2, 3], &pages, &mut counts);
        // The others are outside the window of the request.
        pages[..2].iter().for_each(|page| counts.release(*page));
        assert_eq!(tree.evictable(&counts), 2);
        assert!(tree.evict(&mut counts) && !tree.evict(&mut counts));
        assert_eq!((counts.free(), counts.users(pages[2])), (2, 1));
    }

    #[test]
    fn the_number_of_pages_is_bounded() {
        let mut counts = PageCounts::new(100);
        let mut tree = PrefixTree::new(2, 5);
        for at in 0..30 {
            let page = counts.take().unwrap();
            tree.insert(at % 3, &[at as u32, 0], &[page], &mut counts);
            counts.release(page);
            assert!(tree.pages().count() <= 5);
        }
        assert_eq!(counts.free(), 95);
    }
}
