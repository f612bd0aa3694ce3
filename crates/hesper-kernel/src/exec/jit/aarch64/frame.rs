//! The function around the vector code: registers of the frame, loops, calls.
//!
//! Loops count steps, not lanes: the address of a step is then one register plus a shifted one, whatever the
//! size of its lanes.

use super::asm::*;
use super::vector::Neon;
use crate::exec::jit::node::{LANES_OFFSET, SLOTS_OFFSET, pointer_offset};
use crate::exec::jit::target::Target;
use crate::exec::lanes::BLOCK;

/// Registers for the addresses of accesses, in kernels without calls: `x0` to `x15`.
const POINTERS: u16 = 16;
/// Scratch registers.
pub(super) const X16: Gr = 16;
pub(super) const X17: Gr = 17;
/// The [`Frame`](crate::exec::jit::node::Frame).
pub(super) const FRAME: Gr = 19;
/// Steps of the row.
const STEPS: Gr = 20;
/// Memory for spilled values.
pub(super) const SLOTS: Gr = 21;
/// The step; of a chunk, its first one.
const STEP: Gr = 22;
/// The step within the chunk, and the steps of the chunk.
pub(super) const CHUNK_STEP: Gr = 23;
const CHUNK_STEPS: Gr = 24;
/// The step of the row, in chunks.
const ROW_STEP: Gr = 25;
/// The address of an access that has no register of its own.
const POINTER: Gr = 26;

/// Bytes of the stack: the frame record, eight general registers from 19 on, and the low halves of eight
/// vector registers from 8 on, which belong to the caller.
const STACK: i32 = 16 + 8 * 8 + 8 * 8;
const SAVED: [Gr; 4] = [19, 21, 23, 25];
const SAVED_VECTORS: [u8; 4] = [8, 10, 12, 14];

/// The register of the step.
pub(super) fn step(v: &Neon<'_>) -> Gr {
    if v.in_chunks { ROW_STEP } else { STEP }
}

/// The register with the address of an access.
pub(super) fn pointer(v: &mut Neon<'_>, access: u16) -> Gr {
    if !v.in_chunks && access < POINTERS {
        return access as Gr;
    }
    v.asm.ldr(POINTER, FRAME, pointer_offset(access) as u32);
    POINTER
}

impl Neon<'_> {
    /// The logarithm of the lanes of a step.
    pub(super) fn lanes_shift(&self) -> u8 {
        self.table.lanes.trailing_zeros() as u8
    }
}

impl Target for Neon<'_> {
    fn enter(&mut self, accesses: usize) {
        self.asm.stp_before(X29, X30, SP, -STACK);
        self.asm.add_imm(X29, SP, 0);
        for (i, r) in SAVED.into_iter().enumerate() {
            self.asm.stp(r, r + 1, SP, 16 + 16 * i as i32);
        }
        for (i, r) in SAVED_VECTORS.into_iter().enumerate() {
            self.asm.stp_d(r, r + 1, SP, 80 + 16 * i as i32);
        }
        self.asm.mov(FRAME, 0);
        self.asm.ldr(STEPS, FRAME, LANES_OFFSET as u32);
        self.asm.lsr(STEPS, STEPS, self.lanes_shift());
        self.asm.ldr(SLOTS, FRAME, SLOTS_OFFSET as u32);
        self.asm.mov_imm(STEP, 0);
        for access in 0..POINTERS.min(accesses as u16) {
            self.asm.ldr(access as Gr, FRAME, pointer_offset(access) as u32);
        }
    }

    fn leave(&mut self) {
        for (i, r) in SAVED.into_iter().enumerate() {
            self.asm.ldp(r, r + 1, SP, 16 + 16 * i as i32);
        }
        for (i, r) in SAVED_VECTORS.into_iter().enumerate() {
            self.asm.ldp_d(r, r + 1, SP, 80 + 16 * i as i32);
        }
        self.asm.ldp_after(X29, X30, SP, STACK);
        self.asm.ret();
    }

    fn row_loop(&mut self, body: impl FnOnce(&mut Self)) {
        let none = self.asm.jump_if_zero(STEPS);
        self.asm.align();
        let top = self.asm.here();
        body(self);
        self.asm.add_imm(STEP, STEP, 1);
        self.asm.cmp(STEP, STEPS);
        self.asm.jump_back(Cond::Lower, top);
        self.asm.land(none);
    }

    /// There are no masks, so nothing asks for it.
    fn tail(&mut self, _: impl FnOnce(&mut Self)) {}

    fn chunk_loop(&mut self, chunk: u32, body: impl FnOnce(&mut Self)) {
        let steps = chunk >> self.lanes_shift();
        let top = self.asm.here();
        self.asm.sub(CHUNK_STEPS, STEPS, STEP);
        self.asm.cmp_imm(CHUNK_STEPS, steps);
        let short = self.asm.jump_ahead(Cond::LowerOrSame);
        self.asm.mov_imm(CHUNK_STEPS, u64::from(steps));
        self.asm.land(short);
        body(self);
        self.asm.add_imm(STEP, STEP, steps);
        self.asm.cmp(STEP, STEPS);
        self.asm.jump_back(Cond::Lower, top);
    }

    fn segment_loop(&mut self, body: impl FnOnce(&mut Self)) {
        self.asm.mov_imm(CHUNK_STEP, 0);
        let top = self.asm.here();
        self.asm.add(ROW_STEP, STEP, CHUNK_STEP, 0);
        body(self);
        self.asm.add_imm(CHUNK_STEP, CHUNK_STEP, 1);
        self.asm.cmp(CHUNK_STEP, CHUNK_STEPS);
        self.asm.jump_back(Cond::Lower, top);
    }

    fn call(&mut self, invoke: u64, call: u64) {
        self.asm.mov_imm(0, call);
        self.asm.mov(1, SLOTS);
        self.asm.lsl(2, CHUNK_STEPS, self.lanes_shift());
        self.asm.add_imm(2, 2, BLOCK as u32 - 1);
        self.asm.lsr(2, 2, BLOCK.trailing_zeros() as u8);
        self.asm.mov_imm(X16, invoke);
        self.asm.blr(X16);
    }

    fn align(&mut self) -> usize {
        self.asm.align();
        self.asm.here() * 4
    }

    fn finish(self) -> Vec<u8> {
        self.asm.bytes()
    }
}
