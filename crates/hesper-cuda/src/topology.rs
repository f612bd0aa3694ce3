//! The shape of a graph of commands: kinds of nodes and their order.
//!
//! Submissions of one shape share an executable graph, whatever their kernels, sizes and addresses.
//! Properties that the driver cannot update are part of the shape: the order, dependent launch, cluster
//! sizes, and the number of bytes of a clear. Edges are transitively reduced: the graph is cheaper, and equal
//! orders have equal shapes.

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NodeKind {
    /// A kernel.
    Kernel,
    /// A kernel that may start before a kernel it depends on has ended.
    DependentKernel,
    /// A copy.
    Copy,
    /// A clear.
    Clear,
    /// A command that does not run. It has no node, but its order is kept.
    Nothing,
}

/// The direct predecessors of each node, and the cache key of the shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    /// For each command its node, if any.
    pub(crate) node_of: Vec<Option<u32>>,
    /// The predecessors of all nodes, concatenated.
    edges: Vec<u32>,
    /// The end of each node's predecessors.
    ends: Vec<u32>,
    /// Whether a node starts while its predecessor, a kernel, still runs.
    early: Vec<bool>,
    /// Kinds and edges as numbers: equal keys are equal shapes.
    pub(crate) key: Vec<u32>,
}

impl Topology {
    /// The shape of a run of commands. `after(i)` yields the positions that command `i` must start after, all
    /// below `i`.
    pub(crate) fn new<I: Iterator<Item = usize>>(kinds: &[NodeKind], after: impl Fn(usize) -> I) -> Self {
        let words = kinds.len().div_ceil(64);
        // For each command the set of everything ordered before it, and itself.
        let mut reach = vec![0u64; words * kinds.len()];
        let mut node_of = Vec::with_capacity(kinds.len());
        let mut real: Vec<Vec<usize>> = vec![Vec::new(); kinds.len()];
        let (mut edges, mut ends, mut key) = (Vec::new(), Vec::new(), Vec::new());
        let (mut early, mut kernels): (Vec<bool>, Vec<bool>) = (Vec::new(), Vec::new());
        let mut direct: Vec<usize> = Vec::new();
        for (position, kind) in kinds.iter().enumerate() {
            direct.clear();
            for before in after(position) {
                // A command that does not run passes its predecessors on.
                match kinds[before] {
                    NodeKind::Nothing => direct.extend_from_slice(&real[before]),
                    _ => direct.push(before),
                }
            }
            direct.sort_unstable_by(|one, other| other.cmp(one));
            direct.dedup();
            if *kind == NodeKind::Nothing {
                real[position] = direct.clone();
                node_of.push(None);
                continue;
            }
            let (earlier, own) = reach.split_at_mut(position * words);
            let own = &mut own[..words];
            own[position / 64] |= 1 << (position % 64);
            let first = edges.len();
            for before in &direct {
                if own[before / 64] >> (before % 64) & 1 == 0 {
                    edges.extend(node_of[*before]);
                    for (word, theirs) in own.iter_mut().zip(&earlier[before * words..]) {
                        *word |= theirs;
                    }
                }
            }
            node_of.push(Some(ends.len() as u32));
            ends.push(edges.len() as u32);
            let behind_kernel = matches!(edges[first..], [before] if kernels[before as usize]);
            let begins = *kind == NodeKind::DependentKernel && behind_kernel;
            kernels.push(matches!(kind, NodeKind::Kernel | NodeKind::DependentKernel));
            early.push(begins);
            let code = match kind {
                NodeKind::Copy => 1,
                NodeKind::Clear => 3,
                _ => 2 * u32::from(begins),
            };
            key.push((edges.len() - first) as u32 * 4 + code);
            key.extend_from_slice(&edges[first..]);
        }
        Topology { node_of, edges, ends, early, key }
    }

    /// Adds cluster sizes to the key. A node keeps the cluster size that it was created with, and would skip
    /// the last blocks of a grid that is no multiple of it.
    pub(crate) fn add_cluster_sizes(&mut self, clusters: impl Iterator<Item = u32>) {
        for (node, cluster) in clusters.enumerate().filter(|(_, cluster)| *cluster > 1) {
            // No edge and no count of edges is that large.
            self.key.extend([u32::MAX, node as u32, cluster]);
        }
    }

    /// Adds the lengths of clears to the key, since the driver may reject a change of the width.
    pub(crate) fn add_clear_lengths(&mut self, lengths: impl Iterator<Item = Option<usize>>) {
        for (node, len) in lengths.enumerate().filter_map(|(node, len)| Some((node, len?))) {
            self.key.extend([u32::MAX - 1, node as u32, len as u32, (len as u64 >> 32) as u32]);
        }
    }

    /// The number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.ends.len()
    }

    /// Whether a node starts while its predecessor still runs.
    pub(crate) fn begins_early(&self, node: usize) -> bool {
        self.early[node]
    }

    /// The direct predecessors of a node.
    pub(crate) fn before(&self, node: usize) -> &[u32] {
        let start = if node == 0 { 0 } else { self.ends[node - 1] as usize };
        &self.edges[start..self.ends[node] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::NodeKind::{Clear, Copy, DependentKernel, Kernel, Nothing};
    use super::*;

    fn shape(kinds: &[NodeKind], edges: &[&[usize]]) -> Topology {
        Topology::new(kinds, |position| edges[position].iter().copied())
    }

    #[test]
    fn edges_that_follow_from_others_are_left_out() {
        let topology = shape(&[Kernel; 4], &[&[], &[0], &[0, 1], &[0, 1, 2]]);
        assert_eq!(topology.before(1), [0]);
        assert_eq!(topology.before(2), [1]);
        assert_eq!(topology.before(3), [2]);
        let same = shape(&[Kernel; 4], &[&[], &[0], &[1], &[2]]);
        assert_eq!(topology.key, same.key);
    }

    #[test]
    fn independent_commands_have_no_edges_and_joins_keep_theirs() {
        let topology = shape(&[Kernel; 4], &[&[], &[], &[], &[0, 2]]);
        assert!((0..3).all(|node| topology.before(node).is_empty()));
        assert_eq!(topology.before(3), [2, 0]);
    }

    #[test]
    fn kinds_and_edges_are_in_the_key() {
        let chain = shape(&[Kernel, Kernel], &[&[], &[0]]);
        assert_ne!(chain.key, shape(&[Kernel, Copy], &[&[], &[0]]).key);
        assert_ne!(chain.key, shape(&[Kernel, Kernel], &[&[], &[]]).key);
        assert_ne!(chain.key, shape(&[Kernel], &[&[]]).key);
    }

    #[test]
    fn kernels_begin_early_behind_one_other_kernel_alone() {
        let topology = shape(
            &[DependentKernel, DependentKernel, Copy, DependentKernel, DependentKernel],
            &[&[], &[0], &[1], &[2], &[3, 1]],
        );
        let early: Vec<bool> = (0..5).map(|node| topology.begins_early(node)).collect();
        assert_eq!(early, [false, true, false, false, true]);
        let both = shape(&[Kernel, Kernel, DependentKernel], &[&[], &[], &[0, 1]]);
        assert!(!both.begins_early(2));
        assert_ne!(
            shape(&[Kernel, DependentKernel], &[&[], &[0]]).key,
            shape(&[Kernel, Kernel], &[&[], &[0]]).key
        );
    }

    #[test]
    fn nodes_in_clusters_do_not_share_a_shape_with_others() {
        let of = |clusters: [u32; 3]| {
            let mut topology = shape(&[Kernel, Kernel, Kernel], &[&[], &[0], &[0]]);
            topology.add_cluster_sizes(clusters.into_iter());
            topology.key
        };
        let keys = [of([0, 0, 0]), of([2, 0, 0]), of([0, 2, 0]), of([0, 4, 0]), of([2, 2, 0])];
        for (at, key) in keys.iter().enumerate() {
            assert!(keys[at + 1..].iter().all(|other| other != key));
        }
        assert_eq!(of([0, 0, 0]), of([1, 1, 1]), "a block alone is no cluster");
    }

    #[test]
    fn a_clear_is_no_kernel_no_copy_and_no_clear_of_another_length() {
        let of = |kinds: &[NodeKind], lengths: [Option<usize>; 2]| {
            let mut topology = shape(kinds, &[&[], &[0]]);
            topology.add_clear_lengths(lengths.into_iter());
            topology.key
        };
        let none = [None, None];
        let keys = [
            of(&[Kernel, Kernel], none),
            of(&[Kernel, Copy], none),
            of(&[Kernel, DependentKernel], none),
            of(&[Kernel, Clear], [None, Some(4)]),
            of(&[Kernel, Clear], [None, Some(5)]),
            of(&[Kernel, Clear], [None, Some((1 << 32) + 4)]),
            of(&[Clear, Kernel], [Some(4), None]),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(keys[at + 1..].iter().all(|other| other != key), "{at}");
        }
        // A kernel starts early only behind a kernel, not behind a clear.
        assert!(shape(&[Kernel, DependentKernel], &[&[], &[0]]).begins_early(1));
        assert!(!shape(&[Clear, DependentKernel], &[&[], &[0]]).begins_early(1));
        assert!(!shape(&[Copy, DependentKernel], &[&[], &[0]]).begins_early(1));
    }

    #[test]
    fn a_command_that_does_not_run_hands_its_order_on() {
        let topology = shape(&[Kernel, Nothing, Nothing, Kernel], &[&[], &[0], &[1], &[2]]);
        assert_eq!(topology.nodes(), 2);
        assert_eq!(topology.node_of, [Some(0), None, None, Some(1)]);
        assert_eq!(topology.before(1), [0]);
        assert_eq!(topology.key, shape(&[Kernel, Kernel], &[&[], &[0]]).key);
    }

    #[test]
    fn reduced_order_equals_the_full_order_on_random_graphs() {
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let count = 1 + random(150) as usize;
            let edges: Vec<Vec<usize>> =
                (0..count).map(|to| (0..to).filter(|_| random(8) == 0).collect()).collect();
            let kinds: Vec<NodeKind> = (0..count)
                .map(|_| [Kernel, DependentKernel, Copy, Clear, Nothing][random(5) as usize])
                .collect();
            let topology = Topology::new(&kinds, |position| edges[position].iter().copied());
            let closure = |direct: &dyn Fn(usize) -> Vec<usize>, count: usize| {
                let mut reach: Vec<std::collections::BTreeSet<usize>> = Vec::new();
                for to in 0..count {
                    let mut own = std::collections::BTreeSet::new();
                    for before in direct(to) {
                        own.insert(before);
                        own.extend(&reach[before]);
                    }
                    reach.push(own);
                }
                reach
            };
            let full = closure(&|to| edges[to].clone(), count);
            let before = |node: usize| topology.before(node).iter().map(|node| *node as usize).collect();
            let reduced = closure(&before, topology.nodes());
            for (to, expected) in full.iter().enumerate() {
                let Some(node) = topology.node_of[to] else { continue };
                let expected: Vec<usize> = expected
                    .iter()
                    .filter_map(|from| topology.node_of[*from])
                    .map(|node| node as usize)
                    .collect();
                assert!(reduced[node as usize].iter().copied().eq(expected));
            }
        }
    }
}
