//! The plan: which nodes become one kernel.
//!
//! Going from the results back to the inputs, an element-wise node joins the group of its consumers
//! if all of them are in that one group and it has their shape and stream. Then no path leads out of
//! the group and back in, so the group can be computed at once. A node that somebody still holds becomes
//! an output of its group: it is computed once, and never left lazy.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::array::{Array, State};
use crate::ops::Kind;

/// Most nodes of a group.
const MOST_NODES: usize = 64;

/// A kernel to be: members inputs first, and those that are outputs.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) members: Vec<usize>,
    pub(super) outputs: Vec<usize>,
}

#[derive(Debug)]
pub(super) enum Step {
    Op(usize),
    Group(Group),
}

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
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

pub(super) fn plan(nodes: &[Array]) -> Plan {
    let index: HashMap<u64, usize> = nodes.iter().enumerate().map(|(at, node)| (node.0.id, at)).collect();
    let inputs: Vec<Vec<usize>> = nodes.iter().map(|node| inputs_of(node, &index)).collect();
    let elementwise: Vec<bool> = nodes.iter().map(is_elementwise).collect();
    let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (at, list) in inputs.iter().enumerate() {
        for input in list {
            consumers[*input].push(at);
        }
    }

    // From results to inputs: the group of each node, named by its last member.
    let most = if fusion_enabled() { MOST_NODES } else { 1 };
    let mut group: Vec<usize> = (0..nodes.len()).collect();
    let mut count = vec![1usize; nodes.len()];
    for at in (0..nodes.len()).rev().filter(|at| elementwise[*at]) {
        let Some((&first, others)) = consumers[at].split_first() else { continue };
        let root = group[first];
        let same = |other: usize| {
            nodes[other].0.shape == nodes[at].0.shape && nodes[other].0.stream.id() == nodes[at].0.stream.id()
        };
        if elementwise[first]
            && others.iter().all(|other| elementwise[*other] && group[*other] == root)
            && same(root)
            && count[root] < most
        {
            group[at] = root;
            count[root] += 1;
        }
    }

    let mut members: HashMap<usize, Vec<usize>> = HashMap::new();
    for at in (0..nodes.len()).filter(|at| elementwise[*at]) {
        members.entry(group[at]).or_default().push(at);
    }
    let mut plan = Plan { steps: Vec::new() };
    for at in 0..nodes.len() {
        if !elementwise[at] {
            plan.steps.push(Step::Op(at));
        } else if group[at] == at {
            let members = members.remove(&at).unwrap_or_default();
            let held = |member: &usize| *member == at || is_held(&nodes[*member], &consumers[*member]);
            let outputs = members.iter().copied().filter(held).collect();
            plan.steps.push(Step::Group(Group { members, outputs }));
        }
    }
    plan
}

/// Whether anybody but the consumers in this plan holds the node.
fn is_held(node: &Array, consumers: &[usize]) -> bool {
    // One reference is the claim's own. A consumer that uses the node twice counts twice.
    Arc::strong_count(&node.0) > consumers.len() + 1
}

fn is_elementwise(node: &Array) -> bool {
    match &*node.state() {
        State::Claimed(call) => matches!(call.op.get().kind(), Kind::Elementwise(_)),
        _ => false,
    }
}

fn inputs_of(node: &Array, index: &HashMap<u64, usize>) -> Vec<usize> {
    match &*node.state() {
        State::Claimed(call) => {
            call.inputs.iter().filter_map(|input| index.get(&input.0.id).copied()).collect()
        }
        _ => Vec::new(),
    }
}
