//! The plan: which nodes become one kernel.
//!
//! Going from the results back to the inputs, an element-wise node joins the group of its consumers
//! if all of them are in that one group and it has their shape and stream. Then no path leads out of
//! the group and back in, so the group can be computed at once. A node that somebody still holds becomes
//! an output of its group: it is computed once, and never left lazy.
//!
//! An op that goes through its first input row by row (a sum, a softmax, a norm) can be the end of a group too:
//! it then gets its rows as they are made, and they never go to memory. What somebody holds must go there, so it
//! does not join such a group.

use std::sync::atomic::{AtomicU8, Ordering};

use hesper_runtime::Stream;
use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::ops::{Kind, OpRef};

/// Most nodes of a group.
pub(super) const MOST_NODES: usize = 64;

/// A kernel to be: members inputs first, and those that are outputs.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) members: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
}

#[derive(Debug)]
pub(crate) enum Step {
    Op(usize),
    /// An element-wise node that is a group of its own.
    One(usize),
    /// Several of them.
    Group(Group),
    /// A group whose one output is what an op reads row by row.
    Rows(Group, usize),
}

/// What the planner does with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It may be part of a group.
    Elementwise,
    /// It takes the first of its inputs as it is made, and that is the first node it reads.
    Rows,
    /// It has commands of its own, or none.
    Other,
}

impl Role {
    /// That of an op on a stream; `first` is its first input, if that is yet to be computed.
    pub(crate) fn of(op: &OpRef, stream: &Stream, first: Option<(&[usize], Dtype, &Stream)>) -> Role {
        let op = op.get();
        match (op.kind(), first) {
            (Kind::Elementwise(_), _) => Role::Elementwise,
            (Kind::Commands, Some((shape, dtype, from)))
                if op.takes_rows(shape, dtype)
                    && from.id() == stream.id()
                    && stream.runtime().info().host_visible =>
            {
                Role::Rows
            }
            _ => Role::Other,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: SmallVec<[Step; 1]>,
    /// The nodes that nothing needs after a step, consumers first; those of the first step first.
    over: SmallVec<[u32; 1]>,
    /// Where in `over` those of each step end.
    over_ends: SmallVec<[u32; 1]>,
    nodes: Vec<Joined>,
    places: Vec<Place>,
}

/// How a node is joined with others.
#[derive(Debug)]
struct Joined {
    /// Of an element-wise node what its group ends with: its last member, or the op that takes its rows.
    group: u32,
    /// How many nodes are in the group that it ends.
    size: u32,
    /// The one group that reads it, [`UNREAD`] or [`APART`].
    reader: u32,
}

/// Where a node is in the plan.
#[derive(Debug)]
struct Place {
    /// Which of the groups that were opened it ends, or [`UNREAD`].
    slot: u32,
    /// Where it is among the members of its group.
    number: u32,
    /// Its step, or that of the last step that reads it.
    last: u32,
}

impl Plan {
    /// The plan of one node.
    pub(super) fn of_one(role: Role) -> Self {
        let step = if role == Role::Elementwise { Step::One(0) } else { Step::Op(0) };
        Plan {
            steps: smallvec![step],
            over: smallvec![0],
            over_ends: smallvec![1],
            nodes: Vec::new(),
            places: Vec::new(),
        }
    }

    /// The nodes that nothing needs after a step, consumers first.
    pub(crate) fn over(&self, step: usize) -> impl Iterator<Item = usize> {
        let begin = step.checked_sub(1).map_or(0, |before| self.over_ends[before]);
        self.over[begin as usize..self.over_ends[step] as usize].iter().map(|at| *at as usize)
    }

    /// Where a node is among the members of the group that ends with `last`, if it is one of them.
    pub(super) fn member(&self, at: usize, last: usize) -> Option<usize> {
        let joined = self.nodes.get(at)?.group as usize == last;
        joined.then(|| self.places[at].number as usize)
    }
}

static FUSION: AtomicU8 = AtomicU8::new(2);

/// Whether element-wise ops are fused: yes, unless `HESPER_FUSION=0` or [`set_fusion`] says no.
pub fn fusion_enabled() -> bool {
    match FUSION.load(Ordering::Relaxed) {
        0 => false,
        1 => true,
        _ => {
            let on = std::env::var_os("HESPER_FUSION").is_none_or(|value| value != "0");
            FUSION.store(u8::from(on), Ordering::Relaxed);
            on
        }
    }
}

/// Switches fusion on or off for the process.
pub fn set_fusion(on: bool) {
    FUSION.store(u8::from(on), Ordering::Relaxed);
}

/// What the plan of a graph depends on. Nodes come inputs first; there are fewer than 2^31 of them.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The nodes that nodes read, one entry for each time, those of the first node first.
    reads: Vec<u32>,
    /// Where in `reads` those of each node end, and what it is.
    nodes: Vec<(u32, Role)>,
}

/// Of a node: nobody has read it yet.
const UNREAD: u32 = u32::MAX;
/// Of a node: it is read by more than one group, or by an op that is none.
const APART: u32 = u32::MAX - 1;

impl Graph {
    pub(super) fn with_capacity(nodes: usize, reads: usize) -> Self {
        Graph { reads: Vec::with_capacity(reads), nodes: Vec::with_capacity(nodes) }
    }

    /// One more node, by the earlier ones that it reads.
    pub(crate) fn push(&mut self, reads: impl IntoIterator<Item = usize>, role: Role) {
        self.reads.extend(reads.into_iter().map(|at| at as u32));
        self.nodes.push((self.reads.len() as u32, role));
    }

    /// The nodes that a node reads.
    pub(crate) fn reads(&self, at: usize) -> &[u32] {
        let begin = at.checked_sub(1).map_or(0, |before| self.nodes[before].0);
        &self.reads[begin as usize..self.nodes[at].0 as usize]
    }

    /// The plan, where `alike` tells whether two element-wise nodes have one shape and stream, and `held`
    /// whether a node is wanted for itself.
    pub(crate) fn plan(&self, alike: impl Fn(usize, usize) -> bool, held: impl Fn(usize) -> bool) -> Plan {
        let most = if fusion_enabled() { MOST_NODES } else { 1 };
        let nodes = self.join(most as u32, alike, &held);
        let count = nodes.len();

        let mut steps = SmallVec::new();
        // Groups whose last member has not come yet.
        let mut open: Vec<Vec<usize>> = Vec::new();
        let mut places: Vec<Place> = Vec::new();
        places.resize_with(count, || Place { slot: UNREAD, number: 0, last: 0 });
        for at in 0..count {
            let step = steps.len() as u32;
            if self.nodes[at].1 != Role::Elementwise {
                steps.push(match places[at].slot {
                    UNREAD => Step::Op(at),
                    slot => {
                        let members = std::mem::take(&mut open[slot as usize]);
                        let outputs = members.last().copied().into_iter().collect();
                        Step::Rows(Group { members, outputs }, at)
                    }
                });
            } else if nodes[at].size == 1 && nodes[at].group as usize == at {
                steps.push(Step::One(at));
            } else {
                let root = nodes[at].group as usize;
                if places[root].slot == UNREAD {
                    places[root].slot = open.len() as u32;
                    open.push(Vec::with_capacity(nodes[root].size as usize));
                }
                let members = &mut open[places[root].slot as usize];
                places[at].number = members.len() as u32;
                members.push(at);
                if root != at {
                    continue;
                }
                let members = std::mem::take(members);
                let outputs =
                    members.iter().copied().filter(|member| *member == at || held(*member)).collect();
                steps.push(Step::Group(Group { members, outputs }));
            }
            let (op, members): (Option<&usize>, &[usize]) = match &steps[step as usize] {
                Step::Op(at) | Step::One(at) => (Some(at), &[]),
                Step::Group(group) => (None, &group.members),
                Step::Rows(group, at) => (Some(at), &group.members),
            };
            for member in members.iter().chain(op) {
                places[*member].last = step;
                for input in self.reads(*member) {
                    places[*input as usize].last = step;
                }
            }
        }
        // Counted, then put in their places.
        let mut over_ends: SmallVec<[u32; 1]> = SmallVec::from_elem(0, steps.len());
        places.iter().for_each(|place| over_ends[place.last as usize] += 1);
        let mut begin = 0;
        for end in &mut over_ends {
            begin += std::mem::replace(end, begin);
        }
        let mut over: SmallVec<[u32; 1]> = SmallVec::from_elem(0, count);
        for at in (0..count).rev() {
            let end = &mut over_ends[places[at].last as usize];
            over[*end as usize] = at as u32;
            *end += 1;
        }
        Plan { steps, over, over_ends, nodes, places }
    }

    /// From results to inputs: the group of each node, named by its last member, of at most `most` nodes.
    fn join(
        &self,
        most: u32,
        alike: impl Fn(usize, usize) -> bool,
        held: impl Fn(usize) -> bool,
    ) -> Vec<Joined> {
        let alone = |at| Joined { group: at as u32, size: 1, reader: UNREAD };
        let mut nodes: Vec<Joined> = (0..self.nodes.len()).map(alone).collect();
        for at in (0..nodes.len()).rev() {
            let (root, role) = (nodes[at].reader, self.nodes[at].1);
            if role == Role::Elementwise && root < APART && nodes[root as usize].size < most {
                let end = root as usize;
                let joins = match self.nodes[end].1 {
                    // All members have the shape of what the op reads.
                    Role::Rows => alike(self.reads(end)[0] as usize, at) && !held(at),
                    _ => alike(end, at),
                };
                if joins {
                    nodes[at].group = root;
                    nodes[end].size += 1;
                }
            }
            let mut reader = match role {
                Role::Elementwise => nodes[at].group,
                Role::Rows if most > 1 => at as u32,
                _ => APART,
            };
            for input in self.reads(at) {
                let input = &mut nodes[*input as usize];
                if input.reader == UNREAD {
                    input.reader = reader;
                } else if input.reader != reader {
                    input.reader = APART;
                }
                if role == Role::Rows {
                    // What it reads besides lies in memory.
                    reader = APART;
                }
            }
        }
        nodes
    }
}
