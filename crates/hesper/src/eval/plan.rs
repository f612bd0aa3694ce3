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
    pub(crate) steps: Vec<Step>,
    /// The nodes that nothing needs after a step, consumers first; those of the first step first.
    over: Vec<usize>,
    /// Where in `over` those of each step end.
    over_ends: Vec<usize>,
    /// For each element-wise node what its group ends with: its last member, or the op that takes its rows.
    group: Vec<usize>,
    /// Where it is among the members of its group.
    number: Vec<usize>,
}

impl Plan {
    /// The nodes that nothing needs after a step, consumers first.
    pub(crate) fn over(&self, step: usize) -> &[usize] {
        let begin = step.checked_sub(1).map_or(0, |before| self.over_ends[before]);
        &self.over[begin..self.over_ends[step]]
    }

    /// Where a node is among the members of the group that ends with `last`, if it is one of them.
    pub(super) fn member(&self, at: usize, last: usize) -> Option<usize> {
        (self.group[at] == last).then(|| self.number[at])
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

/// What the plan of a graph depends on. Nodes come inputs first.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// The nodes that nodes read, one entry for each time, those of the first node first.
    reads: Vec<usize>,
    /// Where in `reads` those of each node end.
    ends: Vec<usize>,
    roles: Vec<Role>,
}

/// Of a node: nobody has read it yet.
const UNREAD: usize = usize::MAX;
/// Of a node: it is read by more than one group, or by an op that is none.
const APART: usize = usize::MAX - 1;

impl Graph {
    pub(super) fn with_capacity(nodes: usize, reads: usize) -> Self {
        Graph {
            reads: Vec::with_capacity(reads),
            ends: Vec::with_capacity(nodes),
            roles: Vec::with_capacity(nodes),
        }
    }

    /// One more node, by the earlier ones that it reads.
    pub(crate) fn push(&mut self, reads: impl IntoIterator<Item = usize>, role: Role) {
        self.reads.extend(reads);
        self.ends.push(self.reads.len());
        self.roles.push(role);
    }

    /// The nodes that a node reads.
    pub(crate) fn reads(&self, at: usize) -> &[usize] {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.reads[begin..self.ends[at]]
    }

    /// The plan, where `alike` tells whether two element-wise nodes have one shape and stream, and `held`
    /// whether a node of so many uses is wanted for itself.
    pub(crate) fn plan(
        &self,
        alike: impl Fn(usize, usize) -> bool,
        held: impl Fn(usize, usize) -> bool,
    ) -> Plan {
        let count = self.ends.len();
        // From results to inputs: the group of each node, named by its last member.
        let most = if fusion_enabled() { MOST_NODES } else { 1 };
        let mut group: Vec<usize> = (0..count).collect();
        let mut sizes = vec![1usize; count];
        let mut readers = vec![UNREAD; count];
        let mut uses = vec![0usize; count];
        for at in (0..count).rev() {
            let (root, role) = (readers[at], self.roles[at]);
            if role == Role::Elementwise && root < APART && sizes[root] < most {
                let joins = match self.roles[root] {
                    // All members have the shape of what the op reads.
                    Role::Rows => alike(self.reads(root)[0], at) && !held(at, uses[at]),
                    _ => alike(root, at),
                };
                if joins {
                    group[at] = root;
                    sizes[root] += 1;
                }
            }
            let mut reader = match role {
                Role::Elementwise => group[at],
                Role::Rows if most > 1 => at,
                _ => APART,
            };
            for &input in self.reads(at) {
                uses[input] += 1;
                if readers[input] == UNREAD {
                    readers[input] = reader;
                } else if readers[input] != reader {
                    readers[input] = APART;
                }
                if role == Role::Rows {
                    // What it reads besides lies in memory.
                    reader = APART;
                }
            }
        }

        let mut steps = Vec::new();
        // Groups whose last member has not come yet, and which of them a last member ends.
        let (mut open, mut slots): (Vec<Vec<usize>>, Vec<usize>) = (Vec::new(), vec![UNREAD; count]);
        let mut number = vec![0usize; count];
        // The step of each node; that of the last step that reads it.
        let mut last: Vec<usize> = vec![0; count];
        for at in 0..count {
            let step = steps.len();
            if self.roles[at] != Role::Elementwise {
                steps.push(match slots[at] {
                    UNREAD => Step::Op(at),
                    slot => {
                        let members = std::mem::take(&mut open[slot]);
                        let outputs = members.last().copied().into_iter().collect();
                        Step::Rows(Group { members, outputs }, at)
                    }
                });
            } else if sizes[at] == 1 && group[at] == at {
                steps.push(Step::One(at));
            } else {
                let root = group[at];
                if slots[root] == UNREAD {
                    slots[root] = open.len();
                    open.push(Vec::with_capacity(sizes[root]));
                }
                let members = &mut open[slots[root]];
                number[at] = members.len();
                members.push(at);
                if root != at {
                    continue;
                }
                let members = std::mem::take(members);
                let held = |member: &usize| *member == at || held(*member, uses[*member]);
                let outputs = members.iter().copied().filter(held).collect();
                steps.push(Step::Group(Group { members, outputs }));
            }
            let (op, members): (Option<&usize>, &[usize]) = match &steps[step] {
                Step::Op(at) | Step::One(at) => (Some(at), &[]),
                Step::Group(group) => (None, &group.members),
                Step::Rows(group, at) => (Some(at), &group.members),
            };
            for member in members.iter().chain(op) {
                last[*member] = step;
                for input in self.reads(*member) {
                    last[*input] = step;
                }
            }
        }
        // Counted, then put in their places.
        let mut over_ends = vec![0; steps.len()];
        last.iter().for_each(|step| over_ends[*step] += 1);
        let mut begin = 0;
        for end in &mut over_ends {
            begin += std::mem::replace(end, begin);
        }
        let mut over = vec![0; count];
        for at in (0..count).rev() {
            let end = &mut over_ends[last[at]];
            over[*end] = at;
            *end += 1;
        }
        Plan { steps, over, over_ends, group, number }
    }
}
