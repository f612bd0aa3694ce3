//! Machine code for straight-line kernels on x86-64 and AArch64: the fused element-wise kernels, and the
//! kernels people write in that form.
//!
//! A kernel is split in two. The host computes, once per row of threads, what is uniform over the row and
//! where each access starts; machine code computes the lanes, 16 (AVX-512), 8 (AVX2) or 4 (NEON) at a time,
//! half as many if some are 64-bit, with all intermediates in registers. Ops without instructions of their
//! own (`exp`, `tanh`, ..) call the bytecode's lane functions on blocks of lanes.
//!
//! One lowering (`plan`, `alloc`, `lower`, `emit`) serves both processors; `target` is the boundary to their
//! encoders in `x86_64` and `aarch64`.
//!
//! Promises: results equal the bytecode's bit for bit (up to the payload of NaN); nothing outside of the
//! bound buffers is touched: machine code only gets addresses that were checked for the whole row, everything
//! else goes through a staging area; a row that breaks an assumption of the split is refused and left to the
//! bytecode. Code is freed with its program.
//!
//! Relies on: accesses of different threads to one buffer being unordered. A row is refused if two accesses
//! of the kernel may touch the same bytes in different threads.

// The tests of its encoder run everywhere.
#[cfg(any(test, target_arch = "aarch64"))]
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code, reason = "only tests use it here"))]
mod aarch64;
mod affine;
mod alloc;
mod emit;
mod host;
mod lower;
mod memory;
mod node;
mod plan;
mod rows;
mod run;
mod stage;
mod target;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as native;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as native;

use self::affine::RowOps;
use self::emit::Call;
use self::host::{HostOp, Slot};
use self::memory::Executable;
use self::node::{Access, UniformEntry};
pub(super) use self::run::{RowOutcome, Session};
use super::level::SimdLevel;
use crate::ir::Kernel;

/// A kernel's machine code, and what the host does around it.
#[derive(Debug)]
pub(super) struct Jit {
    /// The host's operations, and which of them to perform per launch and per row.
    ops: Vec<HostOp>,
    per_launch: Vec<Slot>,
    per_row: Vec<Slot>,
    /// The ops of a row after the first one.
    row_ops: RowOps,
    /// Slots of the ranges of lanes; the kernel runs in their intersection.
    guards: Vec<Slot>,
    accesses: Vec<Access>,
    entries: Vec<UniformEntry>,
    /// Entries set for each row, those of them that differ between rows, and entries set for each call of
    /// machine code.
    row_entries: Vec<u16>,
    varying_entries: Vec<u16>,
    base_entries: Vec<u16>,
    /// Pairs of accesses to one buffer of which one is a store.
    conflicts: Vec<(u16, u16)>,
    code: Executable,
    /// Entry of the variant with non-temporal stores.
    streaming: Option<usize>,
    /// Whether machine code handles a partial last step.
    has_tail: bool,
    /// Machine code holds their addresses.
    calls: Box<[Call]>,
    slot_bytes: usize,
    /// Lanes of a step.
    lanes: u32,
    /// Whether some lanes are 64-bit.
    long: bool,
}

/// Whether `HESPER_JIT` allows machine code.
fn is_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| std::env::var_os("HESPER_JIT").is_none_or(|v| v != "0"))
}

/// Compiles a kernel to machine code; `None` if it has no such form, the level has no instructions for it, or
/// `HESPER_JIT` is `0`.
pub(super) fn compile(kernel: &Kernel, level: SimdLevel) -> Option<Jit> {
    let (asm, can) = native::of(level)?;
    if !is_enabled() {
        return None;
    }
    let mut plan = plan::plan(kernel, level, can)?;
    let emitted = emit::emit(&mut plan, &can, &asm, native::invoke())?;
    let mut row = Vec::with_capacity(plan.ops.len());
    for op in &plan.ops {
        row.push(op.depends_on_row(&row));
    }
    let row_ops = affine::split(&plan.ops, &row, &plan.accesses, &plan.table.entries);
    let which = |wanted: bool| (0..row.len()).filter(|&i| row[i] == wanted).map(|i| i as Slot).collect();
    let entries = |f: &dyn Fn(&UniformEntry) -> bool| {
        let table = plan.table.entries.iter().enumerate();
        table.filter(|(_, e)| f(e)).map(|(i, _)| i as u16).collect()
    };
    Some(Jit {
        per_launch: which(false),
        per_row: which(true),
        row_ops,
        conflicts: conflicts(&plan.accesses),
        ops: plan.ops,
        guards: plan.guards,
        accesses: plan.accesses,
        row_entries: entries(&|e| e.slot().is_some() && !e.is_base()),
        varying_entries: entries(&|e| e.slot().is_some_and(|s| row[s as usize]) && !e.is_base()),
        base_entries: entries(&UniformEntry::is_base),
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

/// Pairs of accesses to one buffer of which one is a store; of vectors, their first components.
fn conflicts(accesses: &[Access]) -> Vec<(u16, u16)> {
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
    /// Bytes of memory that it takes.
    pub fn size(&self) -> usize {
        use std::mem::size_of_val as size;
        self.code.bytes()
            + size(&self.ops[..])
            + size(&self.per_launch[..])
            + size(&self.per_row[..])
            + size(&self.row_ops.all[..])
            + size(&self.row_ops.read[..])
            + size(&self.row_ops.others[..])
            + size(&self.guards[..])
            + size(&self.accesses[..])
            + size(&self.entries[..])
            + size(&self.row_ops.divisors[..])
            + size(&self.row_entries[..])
            + size(&self.varying_entries[..])
            + size(&self.base_entries[..])
            + size(&self.conflicts[..])
            + size(&self.calls[..])
    }

    /// The row length from which it is faster than the bytecode on launches of many rows.
    pub fn least_row(&self) -> u64 {
        if self.has_tail { 8 } else { 32 }
    }

    /// Whether it calls lane functions, which dominate the cost of a lane.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }
}
