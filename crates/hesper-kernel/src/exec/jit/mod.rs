//! Machine code for straight-line kernels on x86-64: the fused element-wise kernels, and the
//! kernels people write in that form.
//!
//! A kernel is split in two. The host computes, once per row of threads, what is the same for
//! the row and where each access starts; machine code computes the lanes, 16 (AVX-512) or 8
//! (AVX2) at a time, half as many where some are of 64 bits, with all intermediates in registers. Functions without instructions of
//! their own (`exp`, `tanh`, ..) call the bytecode's lane functions on blocks of lanes.
//!
//! Promises: results equal the bytecode's bit for bit (up to the payload of NaN); nothing
//! outside of the bound buffers is touched: machine code only gets addresses that were checked
//! for the whole row, everything else goes through a staging area; a row that is not what the
//! split assumed is refused and left to the bytecode. Code lives and dies with its program.
//!
//! Relies on: the order of a kernel's accesses to one buffer not mattering between different
//! threads of a launch, as anywhere; where two accesses of one kernel may meet in different
//! threads the row is refused.

mod alloc;
mod asm;
mod emit;
mod even;
mod host;
mod long;
mod lower;
mod memory;
mod node;
mod plan;
mod run;
mod stage;
mod vector;

use std::sync::OnceLock;

use self::emit::Call;
use self::even::Even;
use self::host::{HostOp, Slot};
use self::memory::Executable;
use self::node::{Access, Entry};
pub(super) use self::run::{Answer, Session};
use super::level::SimdLevel;
use crate::ir::Kernel;

/// A kernel's machine code, and what the host does around it.
#[derive(Debug)]
pub(super) struct Jit {
    /// The host's operations, and which of them to perform per launch and per row.
    ops: Vec<HostOp>,
    per_launch: Vec<Slot>,
    per_row: Vec<Slot>,
    /// What of it is left to do for a row once a launch has begun.
    even: Even,
    /// Slots of the ranges of lanes that run.
    guards: Vec<Slot>,
    accesses: Vec<Access>,
    entries: Vec<Entry>,
    /// Entries that each row sets, and that each call does.
    row_entries: Vec<u16>,
    base_entries: Vec<u16>,
    /// Accesses to one buffer, at least one of them a store.
    meetings: Vec<(u16, u16)>,
    code: Executable,
    streaming: usize,
    /// Whether machine code takes lanes that fill no step.
    has_tail: bool,
    /// Held for the machine code, which has their addresses.
    calls: Box<[Call]>,
    slot_bytes: usize,
    /// Lanes of a step.
    lanes: u32,
    /// Whether some lanes are of 64 bits.
    long: bool,
}

/// Whether machine code is wanted at all.
fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| std::env::var_os("HESPER_JIT").is_none_or(|v| v != "0"))
}

/// Compiles a kernel to machine code, if it is of the kind that can be, the level has
/// instructions for it, and `HESPER_JIT` is not `0`.
pub(super) fn compile(kernel: &Kernel, level: SimdLevel) -> Option<Jit> {
    let lanes = match level {
        SimdLevel::Avx512 => 16,
        SimdLevel::Avx2 => 8,
        SimdLevel::Plain => return None,
    };
    if !is_enabled() {
        return None;
    }
    let mut plan = plan::plan(kernel, level, lanes)?;
    let emitted = emit::emit(&mut plan, level == SimdLevel::Avx512)?;
    let mut row = Vec::with_capacity(plan.ops.len());
    for op in &plan.ops {
        row.push(op.depends_on_row(&row));
    }
    let even = even::even(&plan.ops, &row, &plan.accesses, &plan.table.entries);
    let which = |wanted: bool| (0..row.len()).filter(|&i| row[i] == wanted).map(|i| i as Slot).collect();
    let entries = |f: &dyn Fn(&Entry) -> bool| {
        let table = plan.table.entries.iter().enumerate();
        table.filter(|(_, e)| f(e)).map(|(i, _)| i as u16).collect()
    };
    Some(Jit {
        per_launch: which(false),
        per_row: which(true),
        even,
        meetings: meetings(&plan.accesses),
        ops: plan.ops,
        guards: plan.guards,
        accesses: plan.accesses,
        row_entries: entries(&|e| e.slot().is_some() && !e.is_base()),
        base_entries: entries(&Entry::is_base),
        lanes: plan.table.lanes,
        entries: plan.table.entries,
        code: Executable::new(&emitted.code)?,
        streaming: emitted.streaming,
        has_tail: emitted.has_tail,
        calls: emitted.calls,
        slot_bytes: emitted.slot_bytes,
        long: plan.long,
    })
}

/// Pairs of accesses to one buffer with a store among them, one of each value's components.
fn meetings(accesses: &[Access]) -> Vec<(u16, u16)> {
    let mut pairs = Vec::new();
    for (i, a) in accesses.iter().enumerate() {
        for (j, b) in accesses.iter().enumerate().skip(i + 1) {
            let first = a.within == 0 && b.within == 0;
            if first && a.param == b.param && a.group != b.group && (a.store || b.store) {
                pairs.push((i as u16, j as u16));
            }
        }
    }
    pairs
}

impl Jit {
    /// Bytes it takes.
    pub fn size(&self) -> usize {
        use std::mem::size_of_val as size;
        self.code.bytes()
            + size(&self.ops[..])
            + size(&self.per_launch[..])
            + size(&self.per_row[..])
            + size(&self.even.all[..])
            + size(&self.even.read[..])
            + size(&self.even.others[..])
            + size(&self.guards[..])
            + size(&self.accesses[..])
            + size(&self.entries[..])
            + size(&self.row_entries[..])
            + size(&self.base_entries[..])
            + size(&self.meetings[..])
            + size(&self.calls[..])
    }

    /// The shortest of many rows that it runs faster than the bytecode.
    pub fn least_row(&self) -> u64 {
        if self.has_tail { 8 } else { 32 }
    }

    /// Whether it calls functions, which makes a lane many times as dear.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }
}
