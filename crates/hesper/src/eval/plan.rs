//! The plan: which nodes become one kernel.
//!
//! Going from the results back to the inputs, an element-wise node joins the group of its consumers
//! if all of them are in that one group and it has their shape and stream. Then no path leads out of
//! the group and back in, so the group can be computed at once. A node that somebody still holds becomes
//! an output of its group: it is computed once, and never left lazy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use super::claim::place;
use crate::array::{Array, State};
use crate::ops::Kind;

/// Most nodes of a group.
const MOST_NODES: usize = 64;

/// A kernel to be: members inputs first, and those that are outputs.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) members: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
}

#[derive(Debug)]
pub(crate) enum Step {
    Op(usize),
    Group(Group),
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// For each step the nodes that nothing needs after it, consumers first.
    pub(crate) over: Vec<SmallVec<[usize; 4]>>,
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
pub(crate) struct Graph<'a> {
    /// For each node the nodes that it reads, one entry for each time.
    pub(crate) inputs: Vec<SmallVec<[usize; 3]>>,
    /// Whether a node is element-wise.
    pub(crate) elementwise: Vec<bool>,
    /// Whether two element-wise nodes have one shape and stream.
    pub(crate) alike: &'a dyn Fn(usize, usize) -> bool,
    /// Whether a node of so many uses is wanted for itself.
    pub(crate) held: &'a dyn Fn(usize, usize) -> bool,
}

impl Graph<'_> {
    pub(crate) fn plan(&self) -> Plan {
        let count = self.inputs.len();
        let mut consumers: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); count];
        for (at, list) in self.inputs.iter().enumerate() {
            for input in list {
                consumers[*input].push(at);
            }
        }
        // From results to inputs: the group of each node, named by its last member.
        let most = if fusion_enabled() { MOST_NODES } else { 1 };
        let mut group: Vec<usize> = (0..count).collect();
        let mut sizes = vec![1usize; count];
        for at in (0..count).rev().filter(|at| self.elementwise[*at]) {
            let Some((&first, others)) = consumers[at].split_first() else { continue };
            let root = group[first];
            if self.elementwise[first]
                && others.iter().all(|other| self.elementwise[*other] && group[*other] == root)
                && sizes[root] < most
                && (self.alike)(root, at)
            {
                group[at] = root;
                sizes[root] += 1;
            }
        }

        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
        for at in (0..count).filter(|at| self.elementwise[*at]) {
            members[group[at]].push(at);
        }
        let mut steps = Vec::new();
        // The step of each node; that of the last step that reads it.
        let mut last: Vec<usize> = vec![0; count];
        for at in 0..count {
            let step = steps.len();
            if !self.elementwise[at] {
                steps.push(Step::Op(at));
            } else if group[at] == at {
                let members = std::mem::take(&mut members[at]);
                let held = |member: &usize| *member == at || (self.held)(*member, consumers[*member].len());
                let outputs = members.iter().copied().filter(held).collect();
                steps.push(Step::Group(Group { members, outputs }));
            } else {
                continue;
            }
            let of_step = match &steps[step] {
                Step::Op(at) => std::slice::from_ref(at),
                Step::Group(group) => &group.members,
            };
            for member in of_step {
                last[*member] = step;
                for input in &self.inputs[*member] {
                    last[*input] = step;
                }
            }
        }
        let mut over: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); steps.len()];
        for at in (0..count).rev() {
            over[last[at]].push(at);
        }
        Plan { steps, over }
    }
}

/// The plan of the nodes that an evaluation has claimed.
pub(super) fn plan(nodes: &[Array], number: u64) -> Plan {
    let graph = Graph {
        inputs: nodes.iter().map(|node| inputs_of(node, number)).collect(),
        elementwise: nodes.iter().map(is_elementwise).collect(),
        alike: &|one, other| {
            let (one, other) = (&nodes[one].0, &nodes[other].0);
            one.shape == other.shape && one.stream.id() == other.stream.id()
        },
        // Each use is a reference, and one is the claim's own.
        held: &|at, uses| Arc::strong_count(&nodes[at].0) > uses + 1,
    };
    graph.plan()
}

fn is_elementwise(node: &Array) -> bool {
    match &*node.state() {
        State::Claimed(call) => matches!(call.op.get().kind(), Kind::Elementwise(_)),
        _ => false,
    }
}

fn inputs_of(node: &Array, number: u64) -> SmallVec<[usize; 3]> {
    match &*node.state() {
        State::Claimed(call) => call.inputs.iter().filter_map(|input| place(input, number)).collect(),
        _ => SmallVec::new(),
    }
}
