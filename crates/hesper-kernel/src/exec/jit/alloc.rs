//! Register allocation: one walk over the nodes; when registers run out, the value with the furthest next use
//! is spilled.
//!
//! Calls clobber all vector registers, so they cut the kernel into segments: a value that a later segment or
//! a call uses is spilled when it is computed. Values are immutable, so each is spilled at most once.

use super::node::{Node, Operand, Value};
use super::target::Vr;

/// A step of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Emit a node.
    Node {
        at: Value,
        d: Vr,
        held: [Vr; 3],
    },
    Spill {
        r: Vr,
        slot: u16,
        long: bool,
    },
    Reload {
        r: Vr,
        slot: u16,
        long: bool,
    },
}

/// A call between two segments: the node, and the slots of its operands and its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallStep {
    pub at: Value,
    pub args: [Option<u16>; 2],
    pub result: u16,
}

#[derive(Debug, Default)]
pub(super) struct Allocation {
    /// One more than there are calls.
    pub segments: Vec<Vec<Step>>,
    pub calls: Vec<CallStep>,
    pub slots: u16,
}

struct Walk<'n> {
    nodes: &'n [Node],
    /// Positions of each value's uses, last first.
    uses: Vec<Vec<u32>>,
    register: Vec<Option<Vr>>,
    slot: Vec<Option<u16>>,
    free: Vec<Vr>,
    holds: [Option<Value>; 32],
    /// Free slots of short and of long values. They are kept apart, since their lanes differ in size: a step
    /// must not overwrite lanes that later steps read.
    free_slots: [Vec<u16>; 2],
    steps: Vec<Step>,
    out: Allocation,
}

/// Allocates the values of `nodes` to these registers.
pub(super) fn allocate(nodes: &[Node], registers: std::ops::Range<Vr>) -> Allocation {
    let mut uses = vec![Vec::new(); nodes.len()];
    for (i, node) in nodes.iter().enumerate().rev() {
        for v in node.values() {
            uses[v as usize].push(i as u32);
        }
    }
    let mut w = Walk {
        nodes,
        uses,
        register: vec![None; nodes.len()],
        slot: vec![None; nodes.len()],
        free: registers.clone().rev().collect(),
        holds: [None; 32],
        free_slots: [Vec::new(), Vec::new()],
        steps: Vec::new(),
        out: Allocation::default(),
    };
    // A value with a use at or after the next call outlives its segment.
    let mut next_call = vec![u32::MAX; nodes.len()];
    let mut next = u32::MAX;
    for (i, node) in nodes.iter().enumerate().rev() {
        if matches!(node, Node::Call(..)) {
            next = i as u32;
        }
        next_call[i] = next;
    }
    for (i, node) in nodes.iter().enumerate() {
        match node {
            Node::Call(..) => w.call(i as Value, node, registers.clone()),
            _ => w.node(i as Value, node, next_call[i]),
        }
    }
    w.out.segments.push(std::mem::take(&mut w.steps));
    w.out
}

impl Walk<'_> {
    fn take_slot(&mut self, v: Value) -> u16 {
        let width = usize::from(self.nodes[v as usize].is_long());
        let slot = self.free_slots[width].pop().unwrap_or_else(|| {
            self.out.slots += 1;
            self.out.slots - 1
        });
        self.slot[v as usize] = Some(slot);
        slot
    }

    /// A register; if none is free, spills the value with the furthest next use that is not in `keep`.
    fn take(&mut self, keep: &[Value]) -> Vr {
        if let Some(r) = self.free.pop() {
            return r;
        }
        let next_use = |v: Value| self.uses[v as usize].last().copied().unwrap_or(u32::MAX);
        let candidates = (0..32u8).filter_map(|r| Some((r, self.holds[r as usize]?)));
        let victim =
            candidates.filter(|(_, v)| !keep.contains(v)).max_by_key(|&(_, v)| next_use(v)).unwrap_or((0, 0));
        let (r, v) = victim;
        if self.slot[v as usize].is_none() {
            let slot = self.take_slot(v);
            let long = self.nodes[v as usize].is_long();
            self.steps.push(Step::Spill { r, slot, long });
        }
        self.register[v as usize] = None;
        self.holds[r as usize] = None;
        r
    }

    fn hold(&mut self, r: Vr, v: Value) {
        self.register[v as usize] = Some(r);
        self.holds[r as usize] = Some(v);
    }

    /// Consumes the uses of a node; values without further uses free their registers and slots.
    fn used(&mut self, at: Value) {
        let node = self.nodes[at as usize];
        for v in node.values() {
            let uses = &mut self.uses[v as usize];
            while uses.last().is_some_and(|&u| u <= at) {
                uses.pop();
            }
            if uses.is_empty() {
                self.drop_value(v);
            }
        }
    }

    fn drop_value(&mut self, v: Value) {
        if let Some(r) = self.register[v as usize].take() {
            self.holds[r as usize] = None;
            self.free.push(r);
        }
        if let Some(slot) = self.slot[v as usize].take() {
            self.free_slots[usize::from(self.nodes[v as usize].is_long())].push(slot);
        }
    }

    fn node(&mut self, at: Value, node: &Node, next_call: u32) {
        let keep: Vec<Value> = node.values().collect();
        let mut held = [0; 3];
        for (i, o) in node.operands().enumerate() {
            let Operand::Lanes(v) = o else { continue };
            held[i] = match (self.register[v as usize], self.slot[v as usize]) {
                (Some(r), _) => r,
                (None, slot) => {
                    let r = self.take(&keep);
                    let long = self.nodes[v as usize].is_long();
                    self.steps.push(Step::Reload { r, slot: slot.unwrap_or(0), long });
                    self.hold(r, v);
                    r
                }
            };
        }
        if matches!(node, Node::Store { .. } | Node::StorePair { .. }) {
            self.steps.push(Step::Node { at, d: 0, held });
            return self.used(at);
        }
        let d = self.take(&keep);
        self.steps.push(Step::Node { at, d, held });
        self.hold(d, at);
        // Used by a call or after one: spill it now.
        if self.uses[at as usize].first().is_some_and(|&last| last >= next_call) {
            let slot = self.take_slot(at);
            self.steps.push(Step::Spill { r: d, slot, long: node.is_long() });
        }
        self.used(at);
        if self.uses[at as usize].is_empty() {
            self.drop_value(at);
        }
    }

    fn call(&mut self, at: Value, node: &Node, registers: std::ops::Range<Vr>) {
        let mut args = [None; 2];
        for (i, o) in node.operands().enumerate() {
            if let Operand::Lanes(v) = o {
                args[i] = self.slot[v as usize];
            }
        }
        let result = self.take_slot(at);
        self.used(at);
        for r in &mut self.register {
            *r = None;
        }
        self.holds = [None; 32];
        self.free = registers.rev().collect();
        self.out.calls.push(CallStep { at, args, result });
        self.out.segments.push(std::mem::take(&mut self.steps));
        if self.uses[at as usize].is_empty() {
            self.drop_value(at);
        }
    }
}
