//! The whole function: loops over steps of lanes, segments, and calls between them.
//!
//! `fn(*const Frame)`: a kernel without calls is one loop. With calls it processes the row in chunks, and a
//! chunk segment by segment, so that a call serves many lanes.

use std::collections::HashMap;

use super::alloc::{Allocation, Step, allocate};
use super::node::*;
use super::plan::Plan;
use super::target::{Capabilities, FIRST, T0, Target, VectorOps, Vr};
use super::vector::Vector;
use crate::exec::lanes::BLOCK;

/// Lanes of a chunk, if its slots fit [`MAX_SLOT_BYTES`].
const CHUNK: u32 = 256;
/// The most bytes of slots, which are on the caller's stack.
pub(super) const MAX_SLOT_BYTES: usize = 32 << 10;
/// A call of a lane function: slot offsets, and steps from block to block.
#[derive(Debug)]
pub(super) struct Call {
    function: LaneFunction,
    result: usize,
    args: [(usize, usize); 2],
}

/// Runs a call for blocks of lanes.
///
/// # Safety
///
/// `call` is a call of the running kernel, `slots` are its slots and hold at least so many blocks.
pub(super) unsafe fn invoke_lanes(call: *const Call, slots: *mut u8, blocks: usize) {
    // SAFETY: machine code passes the calls it was made with, which live as long as it.
    let call = unsafe { &*call };
    let at = |offset: usize| slots.wrapping_add(offset);
    let d = at(call.result);
    let [(a, sa), (b, sb)] = call.args;
    // SAFETY: results and operands are different slots of the function's lanes with room for the
    // blocks; a step of 0 goes with one block of equal lanes.
    unsafe {
        match call.function {
            LaneFunction::One(f) => f(d, at(a), sa, blocks),
            LaneFunction::Two(f) => f(d, at(a), sa, at(b), sb, blocks),
        }
    }
}

/// Machine code, not yet executable.
pub(super) struct Emitted {
    pub code: Vec<u8>,
    /// Entry of the variant with non-temporal stores.
    pub streaming: Option<usize>,
    /// Whether it handles a partial last step.
    pub has_tail: bool,
    pub calls: Box<[Call]>,
    pub slot_bytes: usize,
}

struct Layout {
    /// Lanes of a slot, and bytes for each.
    chunk: u32,
    lane: u32,
    /// Uniform operands of calls: entry and offset.
    splats: Vec<(u16, usize)>,
    bytes: usize,
}

/// Emits the code of a plan with a copy of an empty assembler. `None` where it would be too large.
pub(super) fn emit<A: Clone>(plan: &mut Plan, can: &Capabilities, asm: &A, invoke: u64) -> Option<Emitted>
where
    for<'t> Vector<'t, A>: Target,
{
    let end = can.registers;
    // The first pass counts the uses of uniforms, the second keeps the most used ones in registers.
    let dry = allocate(&plan.nodes, FIRST..end);
    let layout = layout(plan, &dry);
    let mut v = Vector::new(asm.clone(), plan.long, &mut plan.table, Vec::new());
    let shape = Shape { nodes: &plan.nodes, a: &dry, layout: &layout, calls: &[], invoke };
    shape.function(&mut v, plan.accesses.len(), can, false);
    let wanted = v.wanted;
    let mut order: Vec<usize> = (0..wanted.len()).filter(|&u| wanted[u] > 0).collect();
    order.sort_by_key(|&u| std::cmp::Reverse(wanted[u]));
    order.truncate(can.max_pins);
    let mut pins = vec![None; wanted.len()];
    for (i, &u) in order.iter().enumerate() {
        pins[u] = Some(end - 1 - i as Vr);
    }
    if plan.table.entries.len() > MAX_UNIFORMS {
        return None;
    }

    let allocation = allocate(&plan.nodes, FIRST..end - order.len() as Vr);
    let layout = self::layout(plan, &allocation);
    if layout.bytes > MAX_SLOT_BYTES {
        return None;
    }
    let calls: Box<[Call]> = calls(plan, &allocation, &layout).into();
    let mut v = Vector::new(asm.clone(), plan.long, &mut plan.table, pins);
    let shape = Shape { nodes: &plan.nodes, a: &allocation, layout: &layout, calls: &calls, invoke };
    shape.function(&mut v, plan.accesses.len(), can, false);
    let mut streaming = None;
    if can.streams {
        streaming = Some(v.align());
        shape.function(&mut v, plan.accesses.len(), can, true);
    }
    let has_tail = allocation.calls.is_empty() && can.has_tail(&plan.nodes);
    Some(Emitted { code: v.finish(), streaming, has_tail, calls, slot_bytes: layout.bytes })
}

fn layout(plan: &Plan, a: &Allocation) -> Layout {
    let mut splats: HashMap<u16, usize> = HashMap::new();
    for call in &a.calls {
        for o in plan.nodes[call.at as usize].operands() {
            if let Operand::Uniform(u) = o {
                let next = splats.len();
                splats.entry(u).or_insert(next);
            }
        }
    }
    let slots = a.slots as usize;
    let lane = if plan.long { 8 } else { 4 };
    let room = MAX_SLOT_BYTES / 2;
    let chunk = match a.calls.is_empty() {
        true => plan.table.lanes,
        false if slots * CHUNK as usize * lane <= room => CHUNK,
        false => BLOCK as u32,
    };
    let base = slots * chunk as usize * lane;
    let bytes = base + splats.len() * BLOCK * lane;
    let splats = splats.into_iter().map(|(u, i)| (u, base + i * BLOCK * lane)).collect();
    Layout { chunk, lane: lane as u32, splats, bytes }
}

fn calls(plan: &Plan, a: &Allocation, layout: &Layout) -> Vec<Call> {
    let offset = |slot: u16| slot as usize * layout.chunk as usize * layout.lane as usize;
    let one = |call: &super::alloc::CallStep| {
        let node = plan.nodes[call.at as usize];
        let Node::Call(function, operands, _) = node else {
            return None;
        };
        let mut args = [(0, 0); 2];
        for (i, o) in node.operands().enumerate() {
            args[i] = match o {
                Operand::Lanes(_) => (offset(call.args[i]?), BLOCK * if operands[i].1 { 8 } else { 4 }),
                Operand::Uniform(u) => (layout.splats.iter().find(|s| s.0 == u)?.1, 0),
            };
        }
        Some(Call { function, result: offset(call.result), args })
    };
    a.calls.iter().filter_map(one).collect()
}

/// What a function is made of.
struct Shape<'a> {
    nodes: &'a [Node],
    a: &'a Allocation,
    layout: &'a Layout,
    /// None in a dry run.
    calls: &'a [Call],
    /// The function that machine code calls.
    invoke: u64,
}

impl Shape<'_> {
    /// Emits one variant.
    fn function<A>(&self, v: &mut Vector<'_, A>, accesses: usize, can: &Capabilities, streaming: bool)
    where
        for<'t> Vector<'t, A>: Target,
    {
        v.streaming = streaming;
        v.in_chunks = false;
        if self.a.calls.is_empty() {
            v.enter(accesses);
            v.load_pins();
            v.row_loop(|v| self.segment(v, &self.a.segments[0]));
            if can.has_tail(self.nodes) {
                v.masked = true;
                v.tail(|v| self.segment(v, &self.a.segments[0]));
                v.masked = false;
            }
        } else {
            v.enter(0);
            self.chunks(v);
        }
        v.leave();
    }

    fn chunks<A>(&self, v: &mut Vector<'_, A>)
    where
        for<'t> Vector<'t, A>: Target,
    {
        for &(uniform, offset) in &self.layout.splats {
            v.broadcast(T0, uniform);
            let long = v.table.is_long(uniform);
            let lane = if long { 8 } else { 4 };
            for at in (0..BLOCK * lane).step_by(v.table.lanes as usize * lane) {
                v.spill(T0, (offset + at) as i32, long);
            }
        }
        v.in_chunks = true;
        v.chunk_loop(self.layout.chunk, |v| {
            for (i, steps) in self.a.segments.iter().enumerate() {
                if !steps.is_empty() {
                    v.load_pins();
                    v.segment_loop(|v| self.segment(v, steps));
                }
                if i < self.a.calls.len() {
                    v.call(self.invoke, self.calls.get(i).map_or(0, |c| &raw const *c as u64));
                }
            }
        });
    }

    fn segment<A>(&self, v: &mut Vector<'_, A>, steps: &[Step])
    where
        for<'t> Vector<'t, A>: Target,
    {
        let offset = |slot: u16| (u32::from(slot) * self.layout.chunk * self.layout.lane) as i32;
        for step in steps {
            match *step {
                Step::Spill { r, slot, long } => v.spill(r, offset(slot), long),
                Step::Reload { r, slot, long } => v.reload(r, offset(slot), long),
                Step::Node { at, d, held } => {
                    let node = &self.nodes[at as usize];
                    let place = match *node {
                        Node::Load { access, scalar, pair: None } | Node::Store { access, scalar, .. } => {
                            Some((access, scalar.size()))
                        }
                        Node::Load { access, pair: Some(which), .. } => Some((access - u16::from(which), 8)),
                        Node::StorePair { access, .. } => Some((access, 8)),
                        _ => None,
                    };
                    let m = place.map(|(access, size)| v.address(access, size)).unwrap_or_default();
                    let quiet = match *node {
                        Node::Store { value: Operand::Lanes(stored), .. } => {
                            self.nodes[stored as usize].quiets_nan()
                        }
                        _ => false,
                    };
                    v.node(node, d, held, m, quiet);
                }
            }
        }
    }
}
