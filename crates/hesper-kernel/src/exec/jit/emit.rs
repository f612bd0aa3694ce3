//! The whole function: loops over steps of lanes, segments, and calls between them.
//!
//! `extern "sysv64" fn(*const Frame)`: a kernel without calls is one loop. With calls it processes the row in
//! chunks, and a chunk segment by segment, so that a call serves many lanes.

use std::collections::HashMap;

use super::alloc::{Allocation, Step, allocate};
use super::asm::*;
use super::node::*;
use super::plan::Plan;
use super::vector::{FIRST, T0, TAIL, Vector};
use crate::exec::lanes::BLOCK;

/// Lanes of a chunk, if its slots fit [`MAX_SLOT_BYTES`].
const CHUNK: u32 = 256;
/// The most bytes of slots, which are on the caller's stack.
pub(super) const MAX_SLOT_BYTES: usize = 32 << 10;
/// Registers for the addresses of accesses, in kernels without calls.
const POINTERS: [Gr; 10] = [RCX, RDX, RSI, RDI, R8, R9, R10, R11, R13, RBP];
const SAVED: [Gr; 6] = [RBX, RBP, R12, R13, R14, R15];

/// A call of a lane function: slot offsets, and steps from block to block.
#[derive(Debug)]
pub(super) struct Call {
    function: LaneFunction,
    result: usize,
    args: [(usize, usize); 2],
}

/// Runs a call for blocks of lanes.
///
/// Machine code passes a call of its own kernel, the kernel's slots, and at most as many blocks as they hold.
unsafe extern "sysv64" fn invoke(call: *const Call, slots: *mut u8, blocks: usize) {
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
    pub streaming: usize,
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

/// Emits the code of a plan. `None` where it would be too large.
pub(super) fn emit(plan: &mut Plan, evex: bool) -> Option<Emitted> {
    let end = if evex { 32 } else { 16 };
    let all = end - FIRST;
    // A first pass counts the uses of uniforms. The second keeps the most used ones in registers.
    let dry = allocate(&plan.nodes, FIRST..end);
    let layout = layout(plan, &dry);
    let mut v = Vector::new(evex, plan.long, &mut plan.table, Vec::new());
    function(&mut v, &plan.nodes, &dry, &layout, plan.accesses.len(), &[], false);
    let wanted = v.wanted;
    let mut order: Vec<usize> = (0..wanted.len()).filter(|&u| wanted[u] > 0).collect();
    order.sort_by_key(|&u| std::cmp::Reverse(wanted[u]));
    order.truncate(if evex { all as usize / 2 } else { 3 });
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
    let mut v = Vector::new(evex, plan.long, &mut plan.table, pins);
    function(&mut v, &plan.nodes, &allocation, &layout, plan.accesses.len(), &calls, false);
    v.asm.align();
    let streaming = v.asm.here();
    function(&mut v, &plan.nodes, &allocation, &layout, plan.accesses.len(), &calls, true);
    let has_tail = has_tail(evex, &plan.nodes, &allocation);
    Some(Emitted { code: v.asm.code, streaming, has_tail, calls, slot_bytes: layout.bytes })
}

/// Whether the function ends with a masked step for the remaining lanes.
fn has_tail(evex: bool, nodes: &[Node], a: &Allocation) -> bool {
    let is_pair = |n: &Node| matches!(n, Node::Load { pair: Some(_), .. } | Node::StorePair { .. });
    evex && a.calls.is_empty() && !nodes.iter().any(is_pair)
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

/// Emits one variant.
fn function(
    v: &mut Vector<'_>,
    nodes: &[Node],
    a: &Allocation,
    layout: &Layout,
    accesses: usize,
    calls: &[Call],
    streaming: bool,
) {
    v.streaming = streaming;
    let lanes = v.table.lanes as i32;
    for r in SAVED {
        v.asm.push(r);
    }
    v.asm.sub_imm(RSP, 8);
    v.asm.mov(RBX, RDI);
    v.asm.load(R15, Mem::at(RBX, LANES_OFFSET));
    v.asm.load(R14, Mem::at(RBX, SLOTS_OFFSET));
    v.asm.zero(R12);
    if a.calls.is_empty() {
        for (i, r) in POINTERS.into_iter().enumerate().take(accesses) {
            v.asm.load(r, Mem::at(RBX, pointer_offset(i as u16)));
        }
        v.lane = R12;
        v.slot_lane = None;
        load_pins(v);
        let tail = has_tail(v.is_avx512(), nodes, a);
        v.asm.compare_imm(R15, 0);
        let none = v.asm.jump_ahead(Cond::BelowEqual);
        v.asm.align();
        let top = v.asm.here();
        segment(v, nodes, &a.segments[0], layout, &POINTERS);
        v.asm.add_imm(R12, lanes);
        v.asm.compare(R12, R15);
        v.asm.jump_back(Cond::Below, top);
        v.asm.land(none);
        if tail {
            v.asm.load(RAX, Mem::at(RBX, TAIL_OFFSET));
            v.asm.compare_imm(RAX, 0);
            let whole = v.asm.jump_ahead(Cond::BelowEqual);
            v.asm.load_mask(TAIL, RBX, TAIL_OFFSET);
            v.masked = true;
            segment(v, nodes, &a.segments[0], layout, &POINTERS);
            v.masked = false;
            v.asm.land(whole);
        }
    } else {
        chunks(v, nodes, a, layout, calls);
    }
    v.asm.vzeroupper();
    v.asm.add_imm(RSP, 8);
    for r in SAVED.into_iter().rev() {
        v.asm.pop(r);
    }
    v.asm.ret();
}

fn chunks(v: &mut Vector<'_>, nodes: &[Node], a: &Allocation, layout: &Layout, calls: &[Call]) {
    let lanes = v.table.lanes as i32;
    v.slot_lane = None;
    for &(uniform, offset) in &layout.splats {
        v.broadcast(T0, uniform);
        let long = v.table.is_long(uniform);
        let lane = if long { 8 } else { 4 };
        for at in (0..BLOCK * lane).step_by(lanes as usize * lane) {
            v.spill(T0, (offset + at) as i32, long);
        }
    }
    v.lane = R11;
    v.slot_lane = Some(R13);
    let chunk = v.asm.here();
    v.asm.mov(RBP, R15);
    v.asm.sub(RBP, R12);
    v.asm.compare_imm(RBP, layout.chunk as i32);
    let short = v.asm.jump_ahead(Cond::BelowEqual);
    v.asm.mov_imm(RBP, u64::from(layout.chunk));
    v.asm.land(short);
    for (i, steps) in a.segments.iter().enumerate() {
        if !steps.is_empty() {
            load_pins(v);
            v.asm.zero(R13);
            let top = v.asm.here();
            v.asm.lea(R11, Mem { base: R12, index: Some((R13, 0)), disp: 0 });
            segment(v, nodes, steps, layout, &[]);
            v.asm.add_imm(R13, lanes);
            v.asm.compare(R13, RBP);
            v.asm.jump_back(Cond::Below, top);
        }
        if i < a.calls.len() {
            v.asm.vzeroupper();
            v.asm.mov_imm(RDI, calls.get(i).map_or(0, |c| &raw const *c as u64));
            v.asm.mov(RSI, R14);
            v.asm.lea(RDX, Mem::at(RBP, BLOCK as i32 - 1));
            v.asm.shift_right(RDX, BLOCK.trailing_zeros() as u8);
            v.asm.mov_imm(RAX, invoke as *const () as u64);
            v.asm.call(RAX);
        }
    }
    v.asm.add_imm(R12, layout.chunk as i32);
    v.asm.compare(R12, R15);
    v.asm.jump_back(Cond::Below, chunk);
}

fn load_pins(v: &mut Vector<'_>) {
    for u in 0..v.pins.len() {
        if let Some(r) = v.pins[u] {
            v.broadcast(r, u as u16);
        }
    }
}

fn segment(v: &mut Vector<'_>, nodes: &[Node], steps: &[Step], layout: &Layout, pointers: &[Gr]) {
    let offset = |slot: u16| (u32::from(slot) * layout.chunk * layout.lane) as i32;
    for step in steps {
        match *step {
            Step::Spill { r, slot, long } => v.spill(r, offset(slot), long),
            Step::Reload { r, slot, long } => v.reload(r, offset(slot), long),
            Step::Node { at, d, held } => {
                let node = &nodes[at as usize];
                let place = match *node {
                    Node::Load { access, scalar, pair: None } | Node::Store { access, scalar, .. } => {
                        Some((access, scalar.size()))
                    }
                    Node::Load { access, pair: Some(which), .. } => Some((access - u16::from(which), 8)),
                    Node::StorePair { access, .. } => Some((access, 8)),
                    _ => None,
                };
                let m = match place {
                    Some((access, size)) => {
                        let base = pointers.get(access as usize).copied().unwrap_or_else(|| {
                            v.asm.load(RAX, Mem::at(RBX, pointer_offset(access)));
                            RAX
                        });
                        Mem { base, index: Some((v.lane, size.trailing_zeros() as u8)), disp: 0 }
                    }
                    None => Mem::at(RBX, 0),
                };
                v.node(node, d, held, m);
            }
        }
    }
}
